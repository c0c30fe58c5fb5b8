"""Recognising an allocator that is linked into the program and not in a library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from gdbmem.allocators.others import linked_in
from gdbmem.analysis.ledger.ledger import ProcessImage
from gdbmem.linux.memory.maps import Mapping

_WORTH_BYTES = 1 << 20
_PYTHONS = "mimalloc"  # linked into CPython since 3.13, and unused if Python uses its own arenas
_IN_PYTHON = b"PYTHONTRACEMALLOC"  # in the constants of every CPython since 3.4
_PIECE = 1 << 18
_LEAST_PYTHON, _MOST_CONSTANTS = 1 << 20, 1 << 28  # bytes that are mapped of a file


def find_linked_in(reading: ProcessImage) -> bool:
    """Search for one if glibc's heap doesn't explain the process's memory; return whether one was found.

    The program's file is read, not its memory, because that would make pages of the file resident.
    """
    others = reading.others
    if (
        others.replacement
        or others.runtime
        or others.is_go
        or not reading.images
        or not _is_unexplained(reading)
    ):
        return False
    name = reading.images[0].name
    try:
        with reading.open(name) as stream:
            found = linked_in(stream)
    except (OSError, ValueError):
        return False  # its file was deleted
    if found is None or (found == _PYTHONS and others.python.arenas):
        return False
    others.replacement, others.linked_into = found, name
    return True


def holds_python(mappings: Sequence[Mapping], open_file: Callable[[str], BinaryIO]) -> bool:
    """Return whether a CPython is linked into the program, by what is mapped of its file, which *open_file* opens."""
    name = next((one.name for one in mappings if one.is_file), "")
    parts = [one for one in mappings if one.name == name and "w" not in one.permissions]
    if not _LEAST_PYTHON <= sum(one.size_bytes for one in parts) <= _MOST_CONSTANTS:
        return False
    # Instructions last: only older linkers have constants among them, and cores without permissions.
    parts.sort(key=lambda one: "x" in one.permissions)
    try:
        with open_file(name) as stream:
            return any(_is_in(stream, part) for part in parts)
    except (OSError, ValueError):
        return False  # its file was deleted


def _is_in(stream: BinaryIO, part: Mapping) -> bool:
    """Return whether what is mapped as *part* has the constant of CPython; read piece by piece into the same memory."""
    stream.seek(part.offset)
    kept, left = len(_IN_PYTHON), part.size_bytes
    piece = bytearray(kept + _PIECE)
    view = memoryview(piece)
    while left > 0:
        size = stream.readinto(view[kept : kept + min(_PIECE, left)])  # type: ignore[attr-defined]
        if not size:
            return False
        if piece.find(_IN_PYTHON, 0, kept + size) >= 0:
            return True
        piece[:kept] = piece[size : size + kept]
        left -= size
    return False


def _is_unexplained(reading: ProcessImage) -> bool:
    heap = reading.heap
    used = sum(arena.state.system_bytes for arena in heap.arenas) if heap is not None and heap.is_used else 0
    mapped = heap.mmapped_bytes if heap is not None else 0
    unclaimed = sum(
        m.rss_bytes for m in reading.mappings if m.is_anonymous and not m.name.startswith("[stack")
    )
    arenas = sum(arena.size_bytes for arena in reading.others.python.arenas)
    return unclaimed >= _WORTH_BYTES and unclaimed >= 2 * (used + mapped + arenas)
