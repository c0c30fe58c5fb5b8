"""Folded stacks, as flame graphs take them: ``main;parse;allocate 4096``, the outermost function first."""

from __future__ import annotations

import io
import re
from typing import Optional

from gdbmem.errors import InputError, Notice
from gdbmem.formats.massif_tree import Data
from gdbmem.formats.stacks import (
    DEEPEST,
    IN_USE,
    Content,
    Singles,
    Stack,
    StackProfile,
    bad_line,
    check_count,
    choose_metric,
    total_of,
)
from gdbmem.model.calltree import Frame
from gdbmem.text import printable

TRUNCATED = "profile-truncated"
_LINE = re.compile(rb"(.+) (-?[0-9]{1,25})\s*")
# What export puts behind a function's name: where it stands in its source, or the program that it is in.
_PLACE = re.compile(r"(.*) \(((?:[^()]|\([^()]*\))+?):(\d{1,9})\)")
_OBJECT = re.compile(r"(.*) \(in ([^()]+)\)")


def read_folded(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*, whose numbers are taken for bytes; raises InputError for a line without a number."""
    stacks, frames, notices = _parse(bytes(data), source)
    return StackProfile(
        source=source,
        source_format="folded",
        metric=choose_metric(metric, (IN_USE,), source),
        metrics=(IN_USE,),
        total_bytes=total_of(stacks),
        load=lambda profile: Content(stacks, Singles(frames), has_blocks=False),
        notices=notices,
    )


def _parse(data: bytes, source: str) -> tuple[list[Stack], list[Frame], list[Notice]]:
    index: dict[str, int] = {}
    sums: dict[tuple[int, ...], int] = {}  # equal lines are one stack: a packed file may hold very many
    notices: list[Notice] = []
    for number, line in enumerate(io.BytesIO(data), start=1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            if not line.endswith(b"\n") and sums:
                notices.append(Notice(TRUNCATED, f"{printable(source)} was cut at line {number}"))
                break
            raise bad_line(source, number, line, "'main;…;function BYTES'")
        words = match[1].decode("utf-8", "surrogateescape").split(";")
        if len(words) > DEEPEST:
            raise InputError(
                f"{printable(source)}:{number}: a stack of {len(words)} frames", slug="stack-too-deep"
            )
        path = tuple([index.setdefault(word, len(index)) for word in reversed(words)])
        sums[path] = check_count(
            sums.get(path, 0) + check_count(int(match[2]), source, number), source, number
        )
    stacks = [Stack(path, size) for path, size in sums.items()]
    return stacks, [_frame(word) for word in index], notices


def _frame(text: str) -> Frame:
    if not text.endswith(")"):
        return Frame(function=text)
    match = _PLACE.fullmatch(text)
    if match:
        return Frame(match[1], match[2], int(match[3]))
    match = _OBJECT.fullmatch(text)
    return Frame(match[1], object=match[2]) if match else Frame(function=text)
