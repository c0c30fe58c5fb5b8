"""The output of `google-pprof --raw`: names, then stacks as 64-bit words, numbers without a unit."""

from __future__ import annotations

import struct
from typing import Optional

from gdbmem.errors import InputError, Notice
from gdbmem.formats.heap_profilers.gperftools import symbol_section
from gdbmem.formats.spooling import Data
from gdbmem.formats.stacks import (
    IN_USE,
    TRUNCATED,
    Content,
    Stack,
    StackProfile,
    check_count,
    check_depth,
    choose_metric,
    total_of,
)
from gdbmem.model.profiles.calltree import Frame
from gdbmem.model.profiles.snapshot import BYTES_MISSING
from gdbmem.text import printable

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
    return StackProfile(
        source=source,
        source_format="pprof-raw",
        metric=choose_metric(metric, (IN_USE,), source),
        metrics=(IN_USE,),
        total_bytes=total_of(stacks),
        load=lambda profile: Content(stacks, chains, has_blocks=False),
        notices=notices,
    )


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
