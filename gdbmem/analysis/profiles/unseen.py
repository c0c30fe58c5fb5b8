"""Memory that the sides of a diff may lack, by what the diff itself says."""

from __future__ import annotations

from collections.abc import Iterator

from gdbmem.formats.opening import ENDS_EARLY
from gdbmem.formats.valgrind.massif import DAMAGED, TRUNCATED
from gdbmem.model.judgement import Unseen
from gdbmem.model.profiles.diff import Diff, Side
from gdbmem.model.profiles.snapshot import BYTES_MISSING, UNTRACED
from gdbmem.text import printable
from gdbmem.units import format_size

# Notices of sides that lack stacks or a snapshot, or that are not of one program.
_LACKING = (BYTES_MISSING, ENDS_EARLY, DAMAGED, TRUNCATED, "other-process", "hardly-alike")
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
