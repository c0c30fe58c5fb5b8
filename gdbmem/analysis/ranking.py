"""A diff as rows, largest first: folded, grouped and filtered as a Query asks, nothing lost on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Optional

from gdbmem.analysis.paths import FOCUSED, IGNORED, KNOWN_PATH, walk
from gdbmem.analysis.query import Query
from gdbmem.analysis.trend import TRENDS, Trend, change_of, judge
from gdbmem.errors import InputError
from gdbmem.formats.sizes import no_block_sizes
from gdbmem.model.calltree import PRUNED, Frame
from gdbmem.model.diff import Diff
from gdbmem.text import printable

_LISTED, _UNMATCHED, _KNOWN = range(3)


@dataclass(frozen=True)
class Amount:
    """What a number of paths hold together."""

    paths: int
    before_bytes: int
    after_bytes: int
    hidden_bytes: int = 0  # a threshold or a cut may hide as much of delta_bytes
    error_bytes: int = 0  # the standard error of delta_bytes where it is sampled
    delta_blocks: Optional[int] = None
    course: Sequence[int] = ()  # of a series: the bytes at each snapshot

    @property
    def delta_bytes(self) -> int:
        return self.after_bytes - self.before_bytes

    @property
    def uncertain_bytes(self) -> int:
        """How far delta_bytes may be off."""
        return self.hidden_bytes + self.error_bytes

    @property
    def change(self) -> str:
        """What became of it between the two: a word of analysis.trend."""
        return change_of(
            self.before_bytes,
            self.after_bytes,
            hidden_bytes=self.hidden_bytes,
            error_bytes=self.error_bytes,
        )

    @property
    def trend(self) -> Trend:
        """What became of it in a series."""
        return judge(self.course, uncertain_bytes=self.uncertain_bytes)


@dataclass(frozen=True)
class Row:
    """Paths that count as one; *amount* is theirs together, the frames are the largest one's."""

    amount: Amount
    site: Optional[Frame]  # the user's own innermost frame; None: only known to be under the threshold
    call: Optional[Frame]  # the library's function that the site called, if it called one
    allocator: Optional[Frame]  # where the path's memory was allocated
    frames: Sequence[Frame]  # from the allocation site outward, folded unless the query wants all
    folded: int  # how many frames of the library are left out of frames
    is_pruned: bool  # stands for places that the tool did not list
    is_cut: bool = False  # … since the file was cut, not since they lie under a threshold


@dataclass(frozen=True)
class Ranking:
    """Rows, and what is in none of them: rows + rest + unmatched + known = total."""

    rows: Sequence[Row]
    rest: Amount  # beyond --top or under --min; its paths are rows
    unmatched: Amount  # left out by --focus or --ignore
    known: Amount
    total: Amount
    delta_matched_bytes: int  # of rows and rest together


def rank(diff: Diff, query: Query) -> Ranking:
    """Return the rows of *diff* that *query* asks for, in the order of their change.

    Those of a series come in the order of trend.TRENDS: what grows steadily first.
    """
    if query.by_blocks and (diff.before_blocks is None or diff.after_blocks is None):
        raise InputError(
            f"{printable(diff.after_side.source)} or what it is compared with counts no blocks",
            slug="no-such-metric",
            hint="leave --metric out: bytes are counted by all",
        )
    if query.by == "size" and len(diff) > 1 and not any(frame.is_size_class for frame in diff.frames):
        raise no_block_sizes(diff.after_side.source)
    paths = _Paths(diff, query)
    groups: dict[object, _Sum] = {}
    outside = {_UNMATCHED: _Sum(), _KNOWN: _Sum()}
    for node in paths.holders():
        fate = paths.fate(node)
        group = groups.setdefault(paths.key(node), _Sum()) if fate == _LISTED else outside[fate]
        group.add(paths, node)
    changed = [group for group in groups.values() if group.has_changed]
    changed.sort(key=paths.order)
    big = [group for group in changed if abs(group.delta) >= query.min_bytes][: query.top]
    rest = _Sum()
    chosen = {id(group) for group in big}
    for group in groups.values():
        if id(group) not in chosen:
            rest.absorb(group)
    rest.paths = len(changed) - len(big)
    return Ranking(
        rows=[paths.row(group) for group in big],
        rest=paths.amount(rest),
        unmatched=paths.amount(outside[_UNMATCHED]),
        known=paths.amount(outside[_KNOWN]),
        total=paths.total(),
        delta_matched_bytes=sum(group.delta for group in groups.values()),
    )


class _Sum:
    # Adds paths up. Paths that one call site hides share one bound: `origins` keeps, for each node at which
    # the uncertainty begins, what the paths under it could claim of it.
    __slots__ = (
        "after", "before", "blocks", "course", "heaviest", "heaviest_change", "origins", "paths", "variance",
    )  # fmt: skip

    def __init__(self) -> None:
        self.paths = self.before = self.after = self.blocks = 0
        self.heaviest, self.heaviest_change = -1, -1
        self.origins: dict[int, int] = {}
        self.variance = 0.0
        self.course: list[int] = []

    @property
    def delta(self) -> int:
        return self.after - self.before

    @property
    def has_changed(self) -> bool:
        return self.before != self.after or self.blocks != 0 or len(set(self.course)) > 1

    def add(self, paths: _Paths, node: int) -> None:
        before, after = paths.before[node], paths.after[node]
        self.paths += 1
        self.before += before
        self.after += after
        if paths.course:
            self._extend([column[node] for column in paths.course])
        if paths.blocks is not None:
            self.blocks += paths.blocks[node]
        change = abs(after - before)
        if change > self.heaviest_change:
            self.heaviest, self.heaviest_change = node, change
        bound = paths.diff.uncertain[node]
        if bound:
            origin = paths.walk.origin[node]
            self.origins[origin] = min(self.origins.get(origin, 0) + bound, paths.diff.uncertain[origin])
        if paths.diff.variance is not None:
            self.variance += paths.diff.variance[node]

    def _extend(self, course: Sequence[int]) -> None:
        self.course = [a + b for a, b in zip(self.course, course)] if self.course else list(course)

    def absorb(self, other: _Sum) -> None:
        self.before += other.before
        self.after += other.after
        if other.course:
            self._extend(other.course)
        self.blocks += other.blocks
        self.variance += other.variance
        for origin, bound in other.origins.items():
            self.origins[origin] = max(self.origins.get(origin, 0), bound)


class _Paths:
    # The paths of a diff as one query sees them.
    def __init__(self, diff: Diff, query: Query) -> None:
        self.diff, self.query = diff, query
        self.before, self.after, self.course = diff.own_before, diff.own_after, diff.own_course
        self.blocks = diff.own_delta_blocks
        self.walk = walk(diff, query)

    def holders(self) -> Sequence[int]:
        # The nodes at which a path of its own ends.
        memo = self.diff.memo
        if "holders" not in memo:
            memo["holders"] = self._find_holders()
        found: Sequence[int] = memo["holders"]
        return found

    def _find_holders(self) -> list[int]:
        ends = self.diff.ends
        if ends is not None:
            columns = self.course or (self.before, self.after)
            return [node for node in ends if any(column[node] for column in columns)]
        if self.course:
            return [node for node, held in enumerate(zip(*self.course)) if any(held)]
        return [node for node, (a, b) in enumerate(zip(self.before, self.after)) if a or b]

    def order(self, group: _Sum) -> tuple[int, int, int]:
        rank_of_trend = TRENDS.index(self.amount(group).trend.kind) if group.course else 0
        return rank_of_trend, -abs(group.blocks if self.query.by_blocks else group.delta), group.heaviest

    def fate(self, node: int) -> int:
        marks = self.walk.marks[node] if self.walk.marks else 0
        if marks & IGNORED or (self.query.focus is not None and not marks & FOCUSED):
            return _UNMATCHED
        return _KNOWN if marks & KNOWN_PATH else _LISTED

    def key(self, node: int) -> object:
        by, site = self.query.by, self._site_frame(node)
        if by == "path":
            if self.query.all_frames and self.query.hide is None:
                return node
            folded = self.walk.folded[node]
            if folded or site is None:
                return folded
            return site.key
        if site is None:
            return None
        if by == "function":
            return site.function or site.object
        if by == "size":
            return site.line
        if by == "library":
            return site.object and PurePosixPath(site.object).name
        if by == "file":
            return site.file or site.object
        return (site.file, site.line) if site.file is not None else (site.object, site.function)

    def _site_frame(self, node: int) -> Optional[Frame]:
        # With all frames asked for nothing is folded, so that the allocation site itself is the place.
        if self.query.by == "size" or (self.query.all_frames and self.query.by != "path"):
            node = next(iter(self._path(node)), 0)
        else:
            node = self.walk.site[node]
        number = self.diff.frame[node]
        return self.diff.frames[number] if number >= 0 else None

    def _path(self, node: int) -> list[int]:
        nodes = []
        while node > 0:
            nodes.append(node)
            node = self.diff.parent[node]
        nodes.reverse()
        return nodes

    def row(self, group: _Sum) -> Row:
        node, query, frames = group.heaviest, self.query, self.diff.frames
        numbers = [self.diff.frame[n] for n in self._path(node)]
        is_pruned = bool(numbers) and numbers[-1] == PRUNED
        listed = [n for n in numbers if n >= 0 and not self.walk.hidden[n]]
        shown = [n for n in listed if not self.walk.left_out[n]]
        site = self._site_frame(node)
        if not shown and site is not None and not site.is_size_class:
            shown = [next(n for n in listed if frames[n] is site)]
        at = next((i for i, n in enumerate(listed) if frames[n] is site), 0)
        return Row(
            amount=self.amount(group),
            site=site,
            call=frames[listed[at - 1]] if at else None,
            allocator=frames[listed[0]] if listed else None,
            frames=[frames[n] for n in shown],
            folded=len(listed) - len(shown),
            is_pruned=is_pruned and (query.by == "path" or site is None),
            is_cut=self.diff.is_cut,
        )

    def amount(self, group: _Sum) -> Amount:
        return Amount(
            paths=group.paths,
            before_bytes=group.before,
            after_bytes=group.after,
            hidden_bytes=sum(group.origins.values()),
            error_bytes=round(group.variance**0.5),
            delta_blocks=None if self.blocks is None else group.blocks,
            course=tuple(group.course),
        )

    def total(self) -> Amount:
        diff = self.diff
        blocks = None
        if diff.before_blocks is not None and diff.after_blocks is not None:
            blocks = diff.after_blocks[0] - diff.before_blocks[0]
        course = tuple([column[0] for column in diff.course])
        return Amount(len(self.holders()), diff.before[0], diff.after[0], delta_blocks=blocks, course=course)
