"""Differences by line between two recordings of steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from gdbmem.analysis.steps import StepSum
from gdbmem.records import dataclass, replace

GROUPINGS = ("line", "function", "file")  # threads of two runs are not the same
_ADDED = (
    "hits", "own_bytes", "shared_bytes", "shared_hits", "others_bytes", "doubtful_hits", "inexact_hits", "unknown_hits",
)  # fmt: skip


@dataclass(frozen=True)
class StepChange:
    """One line (function, file) in the two; None: it had no step in that one."""

    before: Optional[StepSum]
    after: Optional[StepSum]

    @property
    def place(self) -> StepSum:
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def delta_bytes(self) -> Optional[int]:
        """The difference of its memory changes in the two recordings; None if one of them is unknown."""
        if any(one is not None and one.unknown_hits for one in (self.before, self.after)):
            return None
        return _bytes(self.after) - _bytes(self.before)


def compare_steps(before: Iterable[StepSum], after: Iterable[StepSum], by: str = "line") -> list[StepChange]:
    """Return the differences of the sums of two recordings, both by line; by line, function or file; largest first."""
    old, new = _grouped(before, by), _grouped(after, by)
    rows = [StepChange(old.get(key), new.get(key)) for key in {**old, **new}]
    changed = [row for row in rows if row.delta_bytes != 0 or _hits(row.before) != _hits(row.after)]
    return sorted(changed, key=lambda row: (row.delta_bytes is not None, -abs(row.delta_bytes or 0)))


def known_bytes(sums: Sequence[StepSum]) -> int:
    """Return the known change of *sums*."""
    return sum(one.delta_bytes for one in sums)


def _grouped(sums: Iterable[StepSum], by: str) -> dict[object, StepSum]:
    found: dict[object, StepSum] = {}
    for one in sums:
        group = replace(
            one,
            line=one.line if by == "line" else None,
            function=None if by == "file" else one.function,
        )
        key = (group.file, group.line, group.function if by == "function" or not group.file else None)
        known = found.get(key)
        found[key] = group if known is None else _together(known, group)
    return found


def _together(one: StepSum, other: StepSum) -> StepSum:
    heaps = [size for size in (one.heap_bytes, other.heap_bytes) if size is not None]
    added = {name: getattr(one, name) + getattr(other, name) for name in _ADDED}
    return replace(one, heap_bytes=sum(heaps) if heaps else None, **added)


def _bytes(one: Optional[StepSum]) -> int:
    return one.delta_bytes if one is not None else 0


def _hits(one: Optional[StepSum]) -> int:
    return one.hits if one is not None else 0
