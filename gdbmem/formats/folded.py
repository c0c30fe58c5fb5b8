"""Folded stacks, as flame graphs take them: ``main;parse;allocate 4096``, the outermost function first."""

from __future__ import annotations

import io
import itertools
from array import array
from collections import defaultdict
from typing import Optional

from gdbmem.errors import InputError, Notice
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
    choose_metric,
    pack_path,
)
from gdbmem.model.profiles.calltree import NO_LINE, Frame, Frames, line_column
from gdbmem.model.profiles.snapshot import BYTES_MISSING
from gdbmem.patterns import lazy_pattern
from gdbmem.text import printable

_COUNT = lazy_pattern(rb"-?[0-9]{1,25}")
# Appended to a function's name by export: its place in the source, or its program.
_PLACE = lazy_pattern(r"(.*) \(((?:[^()]|\([^()]*\))+?):(0|[1-9][0-9]{0,8})\)")
_OBJECT = lazy_pattern(r"(.*) \(in ([^()]+)\)")


def read_folded(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*, whose numbers are taken for bytes; raises InputError for a line without a number."""
    stacks, frames, notices = _parse(bytes(data), source)
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
    index: defaultdict[str, int] = defaultdict(itertools.count().__next__)  # words in order of appearance
    number_of = index.__getitem__
    sums: dict[bytes, int] = {}  # equal lines are one stack: a packed file may hold very many
    notices: list[Notice] = []
    for number, line in enumerate(io.BytesIO(data), start=1):
        text, _, count = line.rstrip().rpartition(b" ")
        is_plain = len(count) < 19 and count.isdigit()  # and so a number of bytes that can be
        if not text or not (is_plain or _COUNT.fullmatch(count)):
            if not line.strip():
                continue
            if not line.endswith(b"\n") and sums:
                notices.append(Notice(BYTES_MISSING, f"{printable(source)} was cut at line {number}"))
                break
            raise bad_line(source, number, line, "'main;…;function BYTES'")
        words = text.decode("utf-8", "surrogateescape").split(";")
        if len(words) > DEEPEST:
            raise InputError(
                f"{printable(source)}:{number}: a stack of {len(words)} frames", slug="stack-too-deep"
            )
        words.reverse()
        path = pack_path(map(number_of, words))
        size = int(count) if is_plain else check_count(int(count), source, number)
        sums[path] = check_count(sums[path] + size, source, number) if path in sums else size
    stacks = PackedStacks(list(sums), array("q", sums.values()))
    sums.clear()
    names: list[Optional[str]] = list(index)
    index.clear()
    return stacks, _frames(names), notices


def _frames(functions: list[Optional[str]]) -> Frames:
    # Most name a function alone. No two that differ are the same frame.
    count = len(functions)
    files: list[Optional[str]] = [None] * count
    lines, objects = array("q", [NO_LINE]) * count, files
    odd = [at for at, text in enumerate(functions) if text and text.endswith(")")]
    if odd:
        objects = files[:]
    for at in odd:
        functions[at], files[at], line, objects[at], _ = _frame(functions[at] or "")
        lines[at] = line_column(line)
    return Frames(functions, files, lines, objects, bytes(count), distinct=True)


def _frame(text: str) -> Frame:
    match = _PLACE.fullmatch(text)
    if match:
        return Frame(match[1], match[2], int(match[3]))
    match = _OBJECT.fullmatch(text)
    return Frame(match[1], object=match[2]) if match else Frame(function=text)
