"""Output of `go tool pprof -callgrind`: the bytes of each line of each function, without call paths.

Source: pprof, internal/report/report.go (printCallgrind).
"""

from __future__ import annotations

import re
import struct
from typing import Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.heap_profilers.gperftools import symbol_section
from gdbmem.formats.stacks import (
    ALLOCATED,
    IN_USE,
    TRUNCATED,
    Content,
    Singles,
    Stack,
    StackProfile,
    bad_line,
    check_count,
    check_depth,
    make_profile,
)
from gdbmem.formats.valgrind.callgrind import POSITION, NamedPlace
from gdbmem.model.calltree import BYTES_MISSING, Frame
from gdbmem.text import printable

_METRICS = {b"inuse_space": IN_USE, b"alloc_space": ALLOCATED}
_UNITS = {b"B": 1, b"kB": 1 << 10, b"MB": 1 << 20, b"GB": 1 << 30, b"TB": 1 << 40}
_EVENTS = re.compile(rb"events: ([^()\n]{0,80})\(([^()\n]{0,20})\)\r?")
_COST = re.compile(rb"-?[0-9]{1,25}")


def read_pprof_callgrind(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*; raises InputError if it counts no bytes, or a line is none of the format's."""
    lines = bytes(data).split(b"\n")
    name, unit = _event(lines, source)
    reader = _PprofLines(lines, source, unit)
    reader.read()
    stacks = [Stack((number,), size) for number, size in enumerate(reader.sums.values()) if size]
    content = Content(stacks, Singles(list(reader.sums)), has_blocks=False)
    notices = _notices(lines, unit, source)
    return make_profile(content, source, "pprof-callgrind", metric, (name,), notices=notices)


def _event(lines: list[bytes], source: str) -> tuple[str, int]:
    """Return the metric that is counted, and the bytes of its unit."""
    event = _EVENTS.fullmatch(lines[1]) if len(lines) > 1 else None
    if event is None or event[2] not in _UNITS:
        counted = (
            lines[1][:60].decode("utf-8", "surrogateescape").rpartition("events: ")[2] if lines[1:] else ""
        )
        raise InputError(
            f"{printable(source)} is a callgrind file of pprof's that counts {printable(counted)}, not bytes",
            slug="no-memory-counts",
            hint="write it with -sample_index=inuse_space -unit=B, or give the profile that it was made from",
        )
    return _METRICS.get(event[1], event[1].decode("utf-8", "surrogateescape")), _UNITS[event[2]]


def _notices(lines: list[bytes], unit: int, source: str) -> list[Notice]:
    name = printable(source)
    text = f"{name} lists the bytes of each line and not the calls that led there"
    if unit > 1:
        text += f", in units of {unit:,} bytes, so that each row may be almost one too small (pprof -unit=B is exact)"
    found = [Notice("no-call-paths", f"{text}; the profile that pprof made it from has them")]
    if lines[-1]:
        found.append(
            Notice(BYTES_MISSING, f"{name} was truncated at line {len(lines)}: lines may be missing")
        )
    return found


class _PprofLines:
    def __init__(self, lines: list[bytes], source: str, unit: int) -> None:
        self.sums: dict[Frame, int] = {}
        self._lines, self._source, self._unit = lines, source, unit
        self._place = NamedPlace(source)

    def read(self) -> None:
        """Add up the bytes of each line of the program in `sums`."""
        is_call = False
        for number, raw in enumerate(self._lines[2:-1], start=3):
            line = raw.rstrip(b"\r")
            if not line or self._place.take_name(line, number):
                continue
            if line.startswith(b"calls="):
                is_call = True
                continue
            size = self._cost(line, number)
            if not is_call:  # what is called stands where it is itself
                frame = self._place.frame()
                self.sums[frame] = check_count(self.sums.get(frame, 0) + size, self._source, number)
            is_call = False

    def _cost(self, line: bytes, number: int) -> int:
        """Return the bytes on *line*, ``ADDRESS LINE NUMBER``, and note which line of the program it is of."""
        words = line.split()
        is_whole = len(words) == 3 and POSITION.fullmatch(words[0]) and _COST.fullmatch(words[2])
        if not is_whole or not self._place.take_line(words[1]):
            raise bad_line(self._source, number, line, "'ADDRESS LINE BYTES'")
        return check_count(int(words[2]) * self._unit, self._source, number)


# The output of `google-pprof --raw`: names, then stacks as 64-bit words, numbers without a unit.


_MARK = b"--- profile\n"
_HEADER_WORDS = 5


def read_pprof_raw(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*, whose numbers are taken for bytes; raises InputError if it is damaged."""
    text = bytes(data)
    at = text.find(_MARK)
    if at < 0:
        raise InputError(f"{printable(source)} was truncated before its stacks", slug=TRUNCATED)
    named = symbol_section(text[:at])
    words, rest = _words(text[at + len(_MARK) :])
    notices = []
    if metric is None:
        unknown = f"{printable(source)} gives no unit; its numbers are taken as bytes"
        notices.append(Notice("unit-unknown", f"{unknown} (--metric {IN_USE} says that they are)"))
    stacks, addresses, whole = _stacks(words, source)
    if not whole or rest.strip(b"\n"):
        notices.append(Notice(BYTES_MISSING, f"{printable(source)} was truncated: stacks are missing"))
    chains = [named.get(address) or (Frame(f"0x{address:x}"),) for address in addresses]
    content = Content(stacks, chains, has_blocks=False)
    return make_profile(content, source, "pprof-raw", metric, (IN_USE,), notices=notices)


def _words(data: bytes) -> tuple[tuple[int, ...], bytes]:
    count = len(data) // 8
    order = "<" if data[8:9] == b"\x03" else ">"  # of the machine that wrote it: the second word is 3
    return struct.unpack_from(f"{order}{count}Q", data), data[count * 8 :]


def _stacks(words: tuple[int, ...], source: str) -> tuple[list[Stack], list[int], bool]:
    """Return the stacks, the addresses that their numbers stand for, and whether they were all there."""
    if words[1:2] != (3,) and len(words) >= _HEADER_WORDS:
        raise InputError(
            f"{printable(source)} does not have the format of google-pprof --raw",
            slug="format-unreadable",
            hint="was the file edited?",
        )
    numbers: dict[int, int] = {}
    stacks = []
    at = _HEADER_WORDS
    while at + 2 <= len(words):
        count, depth = words[at], words[at + 1]
        check_depth(depth, source)
        path = words[at + 2 : at + 2 + depth]
        if len(path) < depth:
            break
        frames = tuple([numbers.setdefault(address, len(numbers)) for address in path])
        stacks.append(Stack(frames, check_count(count, source)))
        at += 2 + depth
    return stacks, list(numbers), at == len(words)
