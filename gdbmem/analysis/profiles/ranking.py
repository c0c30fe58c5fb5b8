"""A diff as rows, largest first: folded, grouped and filtered by a Query, with all bytes accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Union, overload

from gdbmem.analysis.profiles.amounts import Amount, Row
from gdbmem.analysis.profiles.grouping import FIRST, KNOWN, UNMATCHED, GroupedPaths, grouped
from gdbmem.analysis.profiles.query import Query
from gdbmem.errors import InputError
from gdbmem.formats.sizes import no_block_sizes
from gdbmem.model.profiles.diff import Diff
from gdbmem.records import dataclass, field, replace
from gdbmem.text import printable

__all__ = ["Amount", "Ranking", "Row", "Rows", "paths_of_lines", "rank"]


class Rows(Sequence[Row]):
    """The rows of a ranking, each created on access: a file may have hundreds of thousands."""

    def __init__(self, paths: GroupedPaths, groups: Sequence[int]) -> None:
        self._paths = paths
        self.groups = groups

    def __len__(self) -> int:
        return len(self.groups)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Rows: ...

    def __getitem__(self, index: Union[int, slice]) -> Union[Row, Rows]:
        if isinstance(index, slice):
            return Rows(self._paths, self.groups[index])
        return self._paths.row(self.groups[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list's

    def amounts(self) -> Iterator[Amount]:
        """Yield the amount of each row, without creating the row."""
        return map(self._paths.amount, self.groups)

    def together(self) -> Amount:
        """Return the sum of all rows: hidden bytes are counted once, even if several rows may have them."""
        return self._paths.together(self.groups)

    def deltas(self) -> Iterator[int]:
        """Yield the change of each row in bytes, without creating the row."""
        return map(self._paths.sums.deltas.__getitem__, self.groups)


@dataclass(frozen=True)
class Ranking:
    """Rows, and the sums outside of them: rows + rest + unmatched + known = total."""

    rows: Rows
    rest: Amount  # beyond --top or under --min; its paths are rows
    unmatched: Amount  # excluded by --focus or --ignore
    known: Amount
    total: Amount
    delta_matched_bytes: int  # of rows and rest together
    outside: Sequence[tuple[Amount, str]] = ()  # memory counted outside the heap, in no other amount
    moved: int = 0  # number of rows, including those of the rest, that changed in bytes
    via_bytes: Mapping[str, int] = field(default_factory=dict)  # the same by the wrapper that allocated it
    wrappers: frozenset[str] = frozenset()  # the allocation wrappers


def rank(diff: Diff, query: Query) -> Ranking:
    """Return the rows of *diff* for *query*, in the order of their change.

    Rows of a series are in the order of trend.TRENDS: steady growth first.
    """
    if query.by_blocks and (diff.before_blocks is None or diff.after_blocks is None):
        raise InputError(
            f"{printable(diff.after_side.source)}, or the profile it is compared with, has no block counts",
            slug="no-such-metric",
            hint="leave out --metric: every profile counts bytes",
        )
    if query.by == "size" and len(diff) > 1 and not any(frame.is_size_class for frame in diff.frames):
        raise no_block_sizes(diff.after_side.source)
    paths = grouped(diff, query)
    sums = paths.sums
    changed, deltas = paths.changed(query), sums.deltas
    least = query.min_bytes
    big = [group for group in changed if abs(deltas[group]) >= least] if least else changed
    big = big[: query.top]
    return Ranking(
        rows=Rows(paths, big),
        rest=paths.rest(big, len(changed) - len(big)),
        unmatched=paths.amount(UNMATCHED),
        known=paths.amount(KNOWN),
        total=paths.total(),
        delta_matched_bytes=sum(deltas[FIRST:]),
        outside=[(Amount(0, one.before_bytes, one.after_bytes), one.name) for one in diff.outside],
        moved=len(deltas) - FIRST - deltas[FIRST:].count(0),
        via_bytes=_sum_by_name(via for group, via in sums.via.items() if group >= FIRST),
        wrappers=paths.walk.wrappers,
    )


def _sum_by_name(parts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return total


def paths_of_lines(
    diff: Diff, query: Query, ranking: Ranking, most: int
) -> list[tuple[Sequence[Row], Amount]]:
    """Return, for each row of *ranking* (by line), its *most* largest paths, and the sum of the others."""
    lines = grouped(diff, replace(query, by="line"))
    wanted = {group: number for number, group in enumerate(ranking.rows.groups)}
    holders, line_of = lines.paths_in(wanted)
    by_path = GroupedPaths(diff, replace(query, by="path"), holders)
    found: list[list[int]] = [[] for _ in wanted]
    for group in by_path.changed(query):
        found[wanted[line_of[by_path.sums.heaviest[group]]]].append(group)
    return [(Rows(by_path, groups[:most]), by_path.together(groups[most:])) for groups in found]
