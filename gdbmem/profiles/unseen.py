"""Memory that the sides of a diff can't show, by what the diff says of them; how far off sampled sizes may be."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence, Set
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.formats.opening import ENDS_EARLY
from gdbmem.formats.valgrind.massif import DAMAGED, TRUNCATED
from gdbmem.model.calltree import BYTES_MISSING, UNTRACED
from gdbmem.model.diff import Diff, Side
from gdbmem.model.judgement import Unseen
from gdbmem.profiles.own_code import is_library
from gdbmem.text import format_size, printable

# The errors of sampled sizes.


STANDARD_ERRORS = 3  # the true value is further from the estimate in one of 370 cases


def sampling_error(variance: float) -> int:
    """Return the error bound in bytes of an estimate with *variance* (bytes²)."""
    return round(STANDARD_ERRORS * math.sqrt(variance))


def of_one_process(diff: Diff) -> Diff:
    """Return *diff* of one process without error for paths whose samples are the same on both sides.

    They are assumed to be the same blocks. In two processes equal numbers are coincidence.
    """
    if diff.variance is None:
        return diff
    changed = [before != after for before, after in zip(diff.own_before, diff.own_after)]
    return diff.with_columns(
        variance=_where(changed, diff.variance), path_variance=_where(changed, diff.path_variance)
    )


def _where(changed: Sequence[bool], column: Optional[Sequence[float]]) -> Optional[Sequence[float]]:
    return None if column is None else [one if is_it else 0.0 for is_it, one in zip(changed, column)]


def samples_off(sampling: int) -> str:
    """Return the phrase for a sampling error of *sampling* bytes."""
    return f"samples may be {format_size(sampling)} off ({STANDARD_ERRORS} standard errors)"


# Memory that the sides of a diff may lack, by what the diff itself says.


# Notices of sides that lack stacks or a snapshot, that are not of one program, that are not in order, or not of bytes.
_LACKING = (
    *(BYTES_MISSING, ENDS_EARLY, DAMAGED, TRUNCATED),
    *("other-process", "hardly-alike", "out-of-order", "unit-assumed", "unit-unknown"),
)
# Notices of sides that have addresses in the place of names.
_NAMELESS = ("another-binary", "build-id-differs", "binary-missing", "addresses-outside")
_ADDRESS = re.compile(r"0x[0-9A-Fa-f]+")
_LEAST_UNTRACED = 1 << 20  # bytes: less comes and goes with arenas and buffers


def unseen_in_diff(diff: Diff) -> Iterator[Unseen]:
    """Yield the reasons why memory may be missing from the sides of *diff*."""
    for notice in diff.notices:
        if notice.slug in _LACKING:
            yield Unseen(notice.slug, notice.message)
    yield from _other_engines(diff)
    yield from _other_programs(diff)
    for one in diff.outside:
        if one.name == UNTRACED and one.delta_bytes > _LEAST_UNTRACED:
            text = (
                f"resident memory that tracemalloc does not trace grew by {format_size(one.delta_bytes)}; judge it in"
                " a recipe with metric: untraced, or metric: rss"
            )
            yield Unseen("untraced-growth", text, one.delta_bytes)


def nameless_growth(diff: Diff, matching: Sequence[bool]) -> Iterator[Unseen]:
    """Yield a reason if paths grew that have frames without names, and none of those *matching* (by frame)."""
    without_name = [
        frame.function is None or bool(_ADDRESS.fullmatch(frame.function)) for frame in diff.frames
    ]
    covered, nameless = bytearray(len(diff)), bytearray(len(diff))
    grown = 0
    own_before, own_after = diff.own_before, diff.own_after
    for node in range(1, len(diff)):
        frame, parent = diff.frame[node], diff.parent[node]
        covered[node] = covered[parent] or (frame >= 0 and matching[frame])
        nameless[node] = nameless[parent] or (frame >= 0 and without_name[frame])
        if nameless[node] and not covered[node]:
            grown += max(own_after[node] - own_before[node], 0)
    if not grown:
        return
    text = f"{format_size(grown)} grew in paths through functions without names"
    notice = next((one for one in diff.notices if one.slug in _NAMELESS), None)
    if notice is None:
        yield Unseen("nameless-growth", f"{text}; build with -g, not -gsplit-dwarf", grown)
    else:
        yield Unseen(notice.slug, f"{text}: {notice.message}", grown)


def _other_programs(diff: Diff) -> Iterator[Unseen]:
    sides = diff.sides or (diff.before_side, diff.after_side)
    programs = list(dict.fromkeys(name for name in map(_program_of, sides) if name))
    if len(programs) > 1:
        yield Unseen(
            "programs-differ", f"the sides are of different programs: {printable(', '.join(programs))}"
        )


def _program_of(side: Side) -> str:
    """Return the name of the program, or of the script, that *side* was recorded of; "" if it is unknown."""
    words = [word.rpartition("/")[2] for word in side.command.split()]
    if words and words[0].startswith("python"):
        words = [word for word in words[1:] if word.endswith(".py")]
    return words[0] if words else ""


def _other_engines(diff: Diff) -> Iterator[Unseen]:
    sides = diff.sides or (diff.before_side, diff.after_side)
    formats = sorted({side.source_format for side in sides if side.source_format})
    if len(formats) > 1:
        yield Unseen(
            "other-engine", f"the snapshots are of different engines: {printable(', '.join(formats))}"
        )


# Checks that the snapshots of a diff are of one program.


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
