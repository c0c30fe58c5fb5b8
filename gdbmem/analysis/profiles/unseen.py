"""Memory that the sides of a diff may lack, by what the diff itself says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gdbmem.formats.opening import ENDS_EARLY
from gdbmem.formats.valgrind.massif import DAMAGED, TRUNCATED
from gdbmem.model.judgement import Unseen
from gdbmem.model.profiles.diff import Diff, Side
from gdbmem.model.profiles.snapshot import BYTES_MISSING, UNTRACED
from gdbmem.patterns import lazy_pattern
from gdbmem.text import printable
from gdbmem.units import format_size

# Notices of sides that lack stacks or a snapshot, that are not of one program, that are not in order, or not of bytes.
_LACKING = (
    *(BYTES_MISSING, ENDS_EARLY, DAMAGED, TRUNCATED),
    *("other-process", "hardly-alike", "out-of-order", "unit-assumed", "unit-unknown"),
)
# Notices of sides that have addresses in the place of names.
_NAMELESS = ("another-binary", "build-id-differs", "binary-missing", "addresses-outside")
_ADDRESS = lazy_pattern(r"0x[0-9A-Fa-f]+")
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
