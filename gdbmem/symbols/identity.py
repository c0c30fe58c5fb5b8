"""Whether a file is the one that a process had mapped: by its build-id, else by its inode, size and code.

A path alone tells nothing: the process may have had another root folder, and the file may have been built anew. Device
numbers are not compared: on btrfs and overlayfs those of /proc/PID/maps are not those of stat().
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gdbmem.files import open_regular
from gdbmem.formats.addresses import Binary
from gdbmem.symbols.elf_files import Elf

SURE = 0.9  # of the addresses follow a call; in another build one in thirty does
_FEW = 3  # addresses: all of them may follow a call in another build by chance
_PAGE_BYTES = 4096
_X86_64, _AARCH64 = 62, 183


class Sameness(NamedTuple):
    """The answer: whether it is the same file, why not, and which of the addresses no call precedes."""

    is_same: bool
    reason: str = ""
    not_calls: frozenset[int] = frozenset()


def compare_file(
    elf: Elf, binary: Binary, offsets: Iterable[int], *, recorded: float = 0.0, is_chosen: bool = False
) -> Sameness:
    """Return whether *elf* is the file *binary*, of which there are return addresses one byte after *offsets*.

    *recorded* is when the memory map was written, in seconds since 1970; 0: unknown. *is_chosen*: the user named it.
    """
    if binary.build_id:
        if elf.build_id.startswith(binary.build_id):
            return Sameness(True)
        return Sameness(False, f"its build-id is {elf.build_id or 'absent'}, not {binary.build_id}")
    wanted = set(offsets)
    not_calls = _not_calls(elf, wanted, (1,) if binary.inode else (1, 0))  # pprof has the byte before already
    calls = len(wanted) - len(not_calls)
    if wanted and calls < SURE * len(wanted):
        count = f"{len(not_calls)} of {len(wanted)} return addresses do"
        return Sameness(
            False, f"{'its only return address does' if len(wanted) == 1 else count} not follow a call"
        )
    if _is_unchanged(elf, binary, recorded) or is_chosen:
        return Sameness(True, not_calls=not_calls)
    if not _fits(elf, binary.code, is_exact=calls < _FEW):
        return Sameness(False, "its code has another size")
    return Sameness(True, not_calls=not_calls)


def _is_unchanged(elf: Elf, binary: Binary, recorded: float) -> bool:
    if not binary.inode or not recorded or binary.was_deleted:
        return False
    try:
        found = elf.path.stat()
    except OSError:
        return False
    return found.st_ino == binary.inode and found.st_ctime <= recorded + 1


def _fits(elf: Elf, code: tuple[int, int], *, is_exact: bool) -> bool:
    """Return whether *code* (offset, size), as it was mapped, is one of the file's segments, or a part of one."""
    offset, size = code
    if not size:
        return True
    for start, length, _ in elf.segments:
        first, end = start // _PAGE_BYTES * _PAGE_BYTES, -(-(start + length) // _PAGE_BYTES) * _PAGE_BYTES
        if first <= offset and offset + size <= end:
            return not is_exact or (first, end) == (offset, offset + size)
    return False


def _not_calls(elf: Elf, offsets: Iterable[int], beyond: Sequence[int]) -> frozenset[int]:
    """Return those of *offsets* in *elf* that no call ends *beyond*; none on machines whose calls are unknown."""
    try:
        with open_regular(elf.path) as stream:
            file = stream.fileno()
            (machine,) = struct.unpack("<H", os.pread(file, 2, 18))
            return frozenset(
                at for at in offsets if not any(ends_call(file, machine, at + n) for n in beyond)
            )
    except (OSError, struct.error, OverflowError):
        return frozenset()


def ends_call(file: int, machine: int, end: int) -> bool:
    """Return whether an instruction that calls ends at *end* in the open *file*, or the machine's calls are unknown."""
    if machine == _AARCH64:
        code = os.pread(file, 4, end - 4) if end >= 4 else b""
        word = int.from_bytes(code, "little")
        is_register = (
            word & 0xFFFFFC1F == 0xD63F0000 or word & 0xFFFFF800 == 0xD73F0800
        )  # BLR, BLRAA and BLRAB
        return word >> 26 == 0b100101 or is_register or word & 0xFEFFF800 == 0xD63F0800
    if machine != _X86_64:
        return True
    code = os.pread(file, 7, end - 7) if end >= 7 else b""
    return len(code) == 7 and _is_x86_call(code)


def _is_x86_call(code: Sequence[int]) -> bool:
    """Return whether *code* ends with CALL rel32, or CALL r/m64 in one of its lengths."""
    return code[-5] == 0xE8 or any(code[-n] == 0xFF and code[1 - n] >> 3 & 7 == 2 for n in (2, 3, 4, 6, 7))


# Paths at which a binary that a profile names may be found: in the folders that the user named, then where it was.


def candidates(path: str, folders: Sequence[str], build_id: str = "") -> Iterator[str]:
    """Yield where to look for the binary *path*: each of *folders* as another root, and as a place of binaries.

    Files that the user named come first: the one at *path* may be newer, or without symbols.
    """
    if "\0" in path:  # of a damaged profile: no file has such a name
        return
    for folder in folders:
        rooted = _beneath(folder, path)
        if rooted is not None:
            yield rooted
        yield str(Path(folder) / Path(path).name)
        if len(build_id) > 2:
            yield from _by_build_id(folder, build_id)
    yield path


def _beneath(folder: str, path: str) -> str | None:
    """Return *path* with *folder* as its root; None where a link or ".." leads out of that."""
    root = os.path.realpath(folder)
    found = os.path.realpath(f"{root}/{path.lstrip('/')}")
    return found if found.startswith(f"{root.rstrip('/')}/") else None


def _by_build_id(folder: str, build_id: str) -> Iterator[str]:
    """Yield where gdb's packages, perf's cache and debuginfod's client keep a file by its build-id."""
    first, rest = build_id[:2], build_id[2:]
    for place in (f".build-id/{first}/{rest}", f".build-id/{first}/{rest}/elf", f"{build_id}/executable"):
        yield str(Path(folder) / place)
