"""Folded stacks, as flame graphs take them: ``main;parse;allocate 4096``, the outermost function first."""

from __future__ import annotations

import io
import itertools
from array import array
from collections import defaultdict
from collections.abc import Sequence
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.formats.spooling import Data
from gdbmem.formats.stacks import (
    DEEPEST,
    IN_USE,
    Content,
    PackedStacks,
    Singles,
    StackProfile,
    bad_line,
    check_count,
    check_depth,
    choose_metric,
)
from gdbmem.model.profiles.calltree import NO_LINE, Frame, Frames, Names, line_column
from gdbmem.model.profiles.snapshot import BYTES_MISSING
from gdbmem.patterns import lazy_pattern
from gdbmem.text import printable

_LINES = 1024  # read at once
_COUNT = lazy_pattern(rb"-?[0-9]{1,25}")
# Appended to a function's name by export: its place in the source, or its program.
_PLACE = lazy_pattern(r"(.*) \(((?:[^()]|\([^()]*\))+?):(0|[1-9][0-9]{0,8})\)")
_OBJECT = lazy_pattern(r"(.*) \(in ([^()]+)\)")


def read_folded(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*, whose numbers are taken for bytes; raises InputError for a line without a number."""
    stacks, frames, notices = _parse(bytes(data), source)
    if metric is None:
        text = f"{printable(source)} names no unit: its numbers are taken for bytes; samples of a profiler of time are"
        notices.append(Notice("unit-assumed", f"{text} none (--metric {IN_USE} says that they are bytes)"))
    return StackProfile(
        source=source,
        source_format="folded",
        metric=choose_metric(metric, (IN_USE,), source),
        metrics=(IN_USE,),
        total_bytes=sum(stacks.sizes),
        load=lambda profile: Content(stacks, Singles(frames), has_blocks=False),
        notices=notices,
    )


def _parse(data: bytes, source: str) -> tuple[PackedStacks, Frames, list[Notice]]:
    index: defaultdict[bytes, int] = defaultdict(itertools.count().__next__)  # words in order of appearance
    stacks = PackedStacks()
    notices: list[Notice] = []
    lines = io.BytesIO(data)
    for first in itertools.count(1, _LINES):
        block = list(itertools.islice(lines, _LINES))
        if not block:
            break
        sums = _sums(block, source, first, notices, is_begin=not stacks)
        words = [text.split(b";")[::-1] for text in sums]
        frames = map(index.__getitem__, itertools.chain.from_iterable(words))
        stacks.extend(frames, map(len, words), sums.values())
    return stacks, _frames(_names(index), has_places=b")" in data), notices


def _names(index: dict[bytes, int]) -> list[str]:
    """Return the words of *index* as text, and empty it before: a large file has many."""
    words, count = iter(index), len(index)
    # In parts, because bytes.join() takes 80 bytes for each word.
    parts = [b"\n".join(itertools.islice(words, _LINES)) for _ in range(0, count, _LINES)]
    index.clear()
    return b"\n".join(parts).decode("utf-8", "surrogateescape").split("\n") if count else []


def _sums(
    block: Sequence[bytes], source: str, first: int, notices: list[Notice], *, is_begin: bool
) -> dict[bytes, int]:
    """Return the bytes of each stack of *block*, the lines from number *first* on: very many may be equal."""
    sums: dict[bytes, int] = {}
    for number, line in enumerate(block, first):
        text, _, count = line.rstrip().rpartition(b" ")
        is_plain = len(count) < 19 and count.isdigit()  # and so a number of bytes that can be
        if not text or not (is_plain or _COUNT.fullmatch(count)):
            if not line.strip():
                continue
            if not line.endswith(b"\n") and (sums or not is_begin):
                notices.append(Notice(BYTES_MISSING, f"{printable(source)} was truncated at line {number}"))
                break
            raise bad_line(source, number, line, "'main;…;function BYTES'")
        if len(text) > DEEPEST:
            check_depth(text.count(b";") + 1, source, number)
        size = int(count) if is_plain else check_count(int(count), source, number)
        sums[text] = check_count(sums[text] + size, source, number) if text in sums else size
    return sums


def _frames(names: list[str], *, has_places: bool) -> Frames:
    # Most name a function alone. No two that differ are the same frame.
    count = len(names)
    files: list[Optional[str]] = [None] * count
    lines = array("i", [NO_LINE]) * count
    if not has_places:
        return Frames(Names(names), files, lines, files, bytes(count), distinct=True)
    functions: list[Optional[str]] = [*names]
    objects = files[:]
    for at in [at for at, text in enumerate(names) if text.endswith(")")]:
        functions[at], files[at], line, objects[at], _ = _frame(functions[at] or "")
        lines[at] = line_column(line)
    return Frames(functions, files, lines, objects, bytes(count), distinct=True)


def _frame(text: str) -> Frame:
    match = _PLACE.fullmatch(text)
    if match:
        return Frame(match[1], match[2], int(match[3]))
    match = _OBJECT.fullmatch(text)
    return Frame(match[1], object=match[2]) if match else Frame(function=text)
