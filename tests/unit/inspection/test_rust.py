"""Whether a process has code of Rust, by the files that it has loaded: what can't be read may have some."""

from __future__ import annotations

import io
from collections.abc import Mapping as MappingType
from collections.abc import Sequence
from typing import BinaryIO

import pytest

from gdbmem.inspection import ledger_parts
from gdbmem.inspection.ledger_parts import may_have_rust
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.elf.objects import Image
from gdbmem.linux.memory.maps import Mapping, Ranges

_PAGE = 4096
_OF_C = b"out of memory\0could not trust the rusty lock\0".ljust(_PAGE, b"\0")
_OF_RUST = b"\0/rustc/9fc6b43126469e3858e2fe86cafb4f0fd5068869/library/alloc/src/vec/mod.rs\0".ljust(
    _PAGE, b"\0"
)


def reading_of(files: MappingType[str, tuple[bytes, Sequence[str]]]) -> ProcessImage:
    """Return what is read of a process with *files*: contents, and the permissions of each of their pages."""
    mappings = [
        Mapping(
            (n + 1) << 32 | page * _PAGE,
            (n + 1) << 32 | (page + 1) * _PAGE,
            rights,
            page * _PAGE,
            "08:01",
            1,
            name,
        )
        for n, (name, (_, pages)) in enumerate(files.items())
        for page, rights in enumerate(pages)
    ]
    reading = ProcessImage("program", None, mappings, Ranges(), False, ())
    reading.images = [Image(name, 0, (n + 1) << 32, (), "", False) for n, name in enumerate(files)]

    def opened(name: str) -> BinaryIO:
        if not files[name][0]:
            raise FileNotFoundError(name)
        return io.BytesIO(files[name][0])

    reading.open = opened
    return reading


@pytest.mark.parametrize(
    "text",
    [_OF_RUST, b"RUST_BACKTRACE".ljust(_PAGE, b"\0"), b"capacity overflow".rjust(_PAGE)],
    ids=["path", "variable", "vector"],
)
def test_a_library_of_rust_in_a_program_of_c_is_found_by_its_constants(text: bytes) -> None:
    program = _OF_C * 3, ("r--p", "r-xp", "r--p")
    assert not may_have_rust(reading_of({"/bin/program": program}))
    library = _OF_C * 2 + text, ("r--p", "r-xp", "r--p")
    assert may_have_rust(reading_of({"/bin/program": program, "/lib/libpolars.so": library}))


def test_constants_among_instructions_count_where_a_linker_puts_them_there_and_only_there() -> None:
    contents = _OF_RUST + _OF_C
    assert may_have_rust(reading_of({"/bin/program": (contents, ("r-xp", "rw-p"))}))
    assert not may_have_rust(reading_of({"/bin/program": (_OF_C + _OF_RUST, ("r--p", "r-xp"))}))


def test_a_file_that_is_gone_or_too_large_to_look_into_may_have_been_of_rust(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = _OF_C, ("r--p",)
    assert may_have_rust(reading_of({"/bin/program": program, "/lib/gone.so": (b"", ("r--p",))}))
    large = {"/bin/program": (_OF_C, ("r--p",) * 5000)}
    assert not may_have_rust(reading_of(large))
    monkeypatch.setattr(ledger_parts, "_MOST_OF_ALL", 1 << 24)
    assert may_have_rust(reading_of(large))
    assert may_have_rust(reading_of({}))
