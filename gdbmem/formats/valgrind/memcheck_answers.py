"""memcheck's answers to gdb: the blocks of a loss record, the pointers to an address, the owner of an address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

from gdbmem.formats.valgrind.massif_tree import UnknownTextError, read_node_text
from gdbmem.model.leaks import Block
from gdbmem.model.profiles.calltree import Frame
from gdbmem.patterns import lazy_pattern

_SIZE = r"([0-9][0-9,]{0,25})"
_PREFIX = lazy_pattern(r"(?:==|--)[0-9]+(?:==|--) ?")
_BLOCK = lazy_pattern(rf"( *)(0x[0-9A-Fa-f]+)\[{_SIZE}\](?: indirect loss record {_SIZE})?.*")
_POINTER = lazy_pattern(
    rf"\*(0x[0-9a-fA-F]+) (?:points at 0x|interior points at {_SIZE} bytes inside 0x)[0-9a-fA-F]+"
)
_REGISTER = lazy_pattern(
    rf"tid ([0-9]+) register (\S+) (?:pointing at 0x|interior pointing (?:at )?{_SIZE} bytes inside 0x)[0-9a-fA-F]+"
)
_PLACE = lazy_pattern(r" *(?:Address|Location) (0x[0-9a-fA-F]+) (.*)")
_IN_BLOCK = lazy_pattern(
    rf"is {_SIZE} bytes inside (?:a|an unallocated|a recently re-allocated) block of size {_SIZE} (\S+)"
)
_FRAME = lazy_pattern(r" +(?:at|by) (0x[0-9A-F]+: .*)")
_ALLOCATORS = lazy_pattern(r"vgpreload_[\w.-]+$|vg_replace_malloc\.c$")


class AddressOwner(NamedTuple):
    """The owner of an address, by memcheck."""

    address: int
    text: str  # "is 0 bytes inside data symbol …"
    block: Optional[Block] = None  # of the heap, and alive
    frames: Sequence[Frame] = ()  # where that was allocated


class MemcheckPointer(NamedTuple):
    """A pointer that memcheck found."""

    inside_bytes: int
    place: Optional[AddressOwner]  # None: a register
    register: str = ""
    thread: Optional[int] = None


def read_blocks(said: str) -> list[Block]:
    """Return the blocks that the answer to block_list names; [] if memcheck has no such record."""
    found = []
    for line in _lines(said):
        match = _BLOCK.fullmatch(line)
        if match is not None:
            record = None if match[4] is None else _number(match[4])
            found.append(Block(int(match[2], 16), _number(match[3]), len(match[1]) // 2, record))
    return found


def read_pointers(said: str) -> list[MemcheckPointer]:
    """Return what the answer to who_points_at names."""
    found: list[MemcheckPointer] = []
    lines = list(_lines(said))
    for at, line in enumerate(lines):
        pointer, register = _POINTER.fullmatch(line), _REGISTER.fullmatch(line)
        if register is not None:
            found.append(MemcheckPointer(_number(register[3] or "0"), None, register[2], int(register[1])))
        elif pointer is not None:
            address = int(pointer[1], 16)
            place = _place(lines[at + 1 :]) or AddressOwner(address, "")
            found.append(
                MemcheckPointer(
                    _number(pointer[2] or "0"),
                    place if place.address == address else AddressOwner(address, ""),
                )
            )
    return found


def read_place(said: str) -> Optional[AddressOwner]:
    """Return the facts in the answer to v.info location; None if it does not describe the address."""
    lines = list(_lines(said))
    return next((_place(lines[at:]) for at, line in enumerate(lines) if _PLACE.fullmatch(line)), None)


def _place(lines: Sequence[str]) -> Optional[AddressOwner]:
    match = _PLACE.fullmatch(lines[0]) if lines else None
    if match is None:
        return None
    address = int(match[1], 16)
    inside = _IN_BLOCK.match(match[2])
    if inside is None or inside[3] != "alloc'd":
        return AddressOwner(address, match[2])
    block = Block(address - _number(inside[1]), _number(inside[2]))
    return AddressOwner(address, match[2], block, _frames(lines[1:]))


def _frames(lines: Sequence[str]) -> list[Frame]:
    frames: list[Frame] = []
    for line in lines:
        match = _FRAME.fullmatch(line)
        if match is None:
            break
        try:
            frame = read_node_text(match[1].encode("utf-8", "surrogateescape")).frame
        except UnknownTextError:
            break
        if frame is not None and (frames or not _ALLOCATORS.search(frame.object or frame.file or "")):
            frames.append(frame)
    return frames


def _lines(said: str) -> Iterator[str]:
    for line in said.splitlines():
        prefix = _PREFIX.match(line)
        yield line[prefix.end() :] if prefix else line


def _number(text: str) -> int:
    return int(text.replace(",", ""))
