"""Allocators linked into a program: known by their own words, and only by those."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.allocators.others import Recognised, linked_in
from gdbmem.analysis.ledger.ledger import ProcessImage
from gdbmem.inspection.linked_allocators import find_linked_in
from gdbmem.linux.elf.headers import Image
from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.memory.pages import Ranges


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"\0<jemalloc>: Malformed conf string\n", "jemalloc"),
        (b"tcmalloc: large alloc %lld bytes", "tcmalloc"),
        (b"mimalloc: warning: ", "mimalloc"),
        (b"a program that speaks of jemalloc and tcmalloc", None),
        (b"", None),
    ],
)
def test_an_allocator_is_known_by_its_own_words(text: bytes, name: Optional[str]) -> None:
    assert linked_in(io.BytesIO(text)) == name


def reading_of(path: Path, *, rss_bytes: int) -> ProcessImage:
    mapping = Mapping(0x1000, 0x1000 + (64 << 20), "rw-p", 0, "00:00", 0, "", rss_bytes=rss_bytes)
    reading = ProcessImage("p", None, [mapping], Ranges(), True, [])
    reading.images = [Image(str(path), 0, 0, (), "", has_interpreter=True)]
    return reading


def test_it_is_looked_for_only_where_memory_is_unexplained(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(b"<jemalloc>: \0")
    much, little = reading_of(path, rss_bytes=32 << 20), reading_of(path, rss_bytes=1 << 19)
    assert find_linked_in(much)
    assert (much.others.replacement, much.others.linked_into) == ("jemalloc", str(path))
    assert not find_linked_in(little)
    known = reading_of(path, rss_bytes=32 << 20)
    known.others = Recognised(runtime="v8")
    assert not find_linked_in(known)


def test_a_file_that_has_gone_or_is_empty_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in ("empty", "gone"):
        assert not find_linked_in(reading_of(tmp_path / name, rss_bytes=32 << 20))
