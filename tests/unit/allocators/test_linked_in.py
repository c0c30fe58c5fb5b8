"""Allocators linked into a program: known by their own words, and only by those."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.allocators.others import Recognised, linked_in, owner_of, recognise, replacement_among
from gdbmem.inspection.ledger_parts import find_linked_in
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.memory import BytesMemory


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"\0<jemalloc>: Malformed conf string\n", "jemalloc"),
        (b"tcmalloc: large alloc %lld bytes", "tcmalloc"),
        (b"mimalloc: warning: ", "mimalloc"),
        (b"external/tcmalloc/internal/logging.cc", "google-tcmalloc"),
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


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/usr/lib/x86_64-linux-gnu/libtbbmalloc_proxy.so.2.8", "tbbmalloc"),
        ("/usr/lib/x86_64-linux-gnu/libtbbmalloc.so.2.8", None),  # beside malloc
        ("/usr/lib/clang/14/lib/linux/libclang_rt.scudo_standalone-x86_64.so", "scudo"),
        ("/usr/lib/x86_64-linux-gnu/libscudo.so", "scudo"),
    ],
)
def test_memory_of_a_malloc_that_a_library_brings_is_not_of_unknown_use(
    file: str, name: Optional[str]
) -> None:
    assert replacement_among([file]) == name


def test_a_file_that_has_gone_or_is_empty_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in ("empty", "gone"):
        assert not find_linked_in(reading_of(tmp_path / name, rss_bytes=32 << 20))


def anonymous(start: int) -> Mapping:
    return Mapping(start, start + (1 << 20), "rw-p", 0, "00:00", 0, "")


def file_of(name: str) -> Mapping:
    return Mapping(0x400000, 0x500000, "r-xp", 0, "08:01", 1, name)


def test_memory_at_an_address_that_go_prefers_is_gos_only_in_a_process_of_go() -> None:
    memory, v8_cage = BytesMemory([]), anonymous(0xC0A0000000)
    node = [file_of("/usr/bin/node"), v8_cage]
    assert owner_of(v8_cage, recognise(memory, node)) == "v8"
    first = anonymous(0xC000000000)
    go = recognise(memory, [file_of("/usr/bin/server"), first])
    assert (owner_of(first, go), owner_of(v8_cage, go)) == ("go", "go")


def test_what_malloc_has_not_mapped_is_not_postgresqls_whose_heap_is_in_blocks_of_malloc() -> None:
    left_over = anonymous(0x7F0000000000)
    assert owner_of(left_over, recognise(BytesMemory([]), [file_of("/usr/bin/postgres"), left_over])) is None
