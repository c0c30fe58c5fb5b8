"""Checks that the snapshots of a diff are of one program."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Optional

from gdbmem.analysis.profiles.library import is_library
from gdbmem.errors import Notice
from gdbmem.model.profiles.diff import Diff
from gdbmem.text import printable

_Key = tuple[Optional[str], Optional[str]]  # function and library: lines move when a program is edited

_LEAST = 5  # functions: too few to decide
_KIN = 0.1  # of the functions of the snapshot that has fewer


def stranger_notices(diff: Diff) -> list[Notice]:
    """Return a notice if a snapshot has hardly any function in common with most of the others."""
    columns = diff.course or (diff.before, diff.after)
    sides = diff.sides or (diff.before_side, diff.after_side)
    keys = [
        None if frame.function == "main" or is_library(frame) else (frame.function, frame.object)
        for frame in diff.frames
    ]
    held = [_functions(diff, column, keys) for column in columns]
    strange = [side.name for index, side in enumerate(sides) if _is_stranger(index, held)]
    if not strange:
        return []
    if len(sides) == 2:
        who = f"{printable(sides[0].name)} and {printable(sides[1].name)}"
    else:
        more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        who = f"{printable(strange[0])}{more} and most of the other snapshots"
    text = "have hardly any function in common: are they from the same program and build?"
    return [Notice("hardly-alike", f"{who} {text}")]


def _functions(diff: Diff, column: Sequence[int], keys: Sequence[Optional[_Key]]) -> Set[_Key]:
    numbers = {number for number, size in zip(diff.frame, column) if size and number >= 0}
    return {key for number in numbers if (key := keys[number]) is not None}


def _is_stranger(index: int, held: Sequence[Set[_Key]]) -> bool:
    mine = held[index]
    others = [other for at, other in enumerate(held) if at != index and len(other) >= _LEAST]
    if len(mine) < _LEAST or not others:
        return False
    kin = [other for other in others if len(mine & other) >= _KIN * min(len(mine), len(other))]
    return len(kin) * 2 < len(others)
