"""The paths of a diff added up by groups, as one query sees them: columns, for there may be hundreds of thousands."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, Callable, Optional

from gdbmem.analysis.profiles.amounts import Amount, Row
from gdbmem.analysis.profiles.own_code import INSTALLED, WRAPPER
from gdbmem.analysis.profiles.paths import FOCUSED, IGNORED, KNOWN_PATH, walk
from gdbmem.analysis.profiles.query import Query
from gdbmem.analysis.profiles.trend import TRENDS
from gdbmem.model.calltree import PRUNED, Frame
from gdbmem.model.diff import Diff

UNMATCHED, KNOWN, LISTED = range(3)  # the first two are groups, too
FIRST = LISTED  # group that is listed


def grouped(diff: Diff, query: Query) -> GroupedPaths:
    """Return the paths of *diff* grouped as *query* asks, made once: the answer and the rows mostly want the same."""
    of_walk = (query.hide, query.mine, query.all_frames, query.focus, query.ignore, tuple(query.known))
    key = ("paths", query.by, *of_walk)
    found = diff.memo.get(key)
    if found is None:
        found = diff.memo[key] = GroupedPaths(diff, query)
    assert isinstance(found, GroupedPaths)
    return found


class GroupSums:
    # Adds paths up by groups, column by column. Paths that one call site hides share one bound: `origins` keeps, for
    # each node at which the uncertainty begins, what the paths under it could claim of it.
    def __init__(self) -> None:
        self._count = 0
        # These have room for more groups than there are.
        self.before, self.after, self.blocks = array("q"), array("q"), array("q")
        self.paths, self.heaviest, self.heaviest_change = array("q"), array("q"), array("q")
        # Of the groups that have any.
        self.origins: dict[int, dict[int, int]] = {}
        self.variance: dict[int, float] = {}
        self.course: dict[int, list[int]] = {}
        self.via: dict[int, dict[str, int]] = {}

    def __len__(self) -> int:
        return self._count

    def new(self) -> int:
        if self._count == len(self.before):
            self._make_room(max(64, self._count))
        self._count += 1
        return self._count - 1

    def _make_room(self, groups: int) -> None:
        for column in (self.before, self.after, self.blocks, self.paths):
            column.frombytes(bytes(8 * groups))
        for column in (self.heaviest, self.heaviest_change):
            column.extend(array("q", [-1]) * groups)

    def delta(self, group: int) -> int:
        return self.after[group] - self.before[group]

    def has_changed(self, group: int) -> bool:
        if self.before[group] != self.after[group] or self.blocks[group]:
            return True
        return len(set(self.course.get(group, ()))) > 1


class GroupedPaths:
    # The paths of a diff as one query sees them, added up.
    def __init__(self, diff: Diff, query: Query) -> None:
        self.diff, self.query = diff, query
        self.before, self.after, self.course = diff.own_before, diff.own_after, diff.own_course
        self.blocks = diff.own_delta_blocks
        self.walk = walk(diff, query)
        self.sums = GroupSums()
        self._groups: dict[object, dict[object, int]] = {}  # by the two parts of their keys
        self._of_site = array("q", [-1]) * (len(diff.frames) + 2)  # number of a site's frame → its group
        for _ in range(FIRST):
            self.sums.new()
        self._add_up()
        # Bytes of call sites of which nothing is listed: any row may have another of its own among them.
        self._unlisted = 0
        if diff.has_addresses and query.by != "path":
            places = [n for n, frame in enumerate(diff.frame) if frame == PRUNED and not self.walk.site[n]]
            self._unlisted = max(sum(diff.before[n] for n in places), sum(diff.after[n] for n in places))
        if query.by == "path":
            self._groups.clear()  # many, and wanted no more

    def _add_up(self) -> None:
        sums, diff = self.sums, self.diff
        before, after, blocks = self.before, self.after, self.blocks
        has_fates, has_more = (
            bool(self.walk.marks),
            bool(self.course or self.walk.wrappers or self.walk.origin or diff.variance is not None),
        )
        for node in self.holders():
            fate = self.fate(node) if has_fates else LISTED
            group = self.group_of(node) if fate == LISTED else fate
            earlier, later = before[node], after[node]
            sums.paths[group] += 1
            sums.before[group] += earlier
            sums.after[group] += later
            if blocks is not None:
                sums.blocks[group] += blocks[node]
            if abs(later - earlier) > sums.heaviest_change[group]:
                sums.heaviest[group], sums.heaviest_change[group] = node, abs(later - earlier)
            if has_more:
                self._add_more(group, node)

    def _add_more(self, group: int, node: int) -> None:
        sums, diff = self.sums, self.diff
        if self.course:
            held = sums.course.setdefault(group, [0] * len(self.course))
            for at, column in enumerate(self.course):
                held[at] += column[node]
        wrapper = self.walk.via(node)
        if wrapper is not None and wrapper.function is not None:
            via, name = sums.via.setdefault(group, {}), wrapper.function
            via[name] = via.get(name, 0) + self.after[node] - self.before[node]
        bound = diff.uncertain[node]
        if bound:
            origins, origin = sums.origins.setdefault(group, {}), self.walk.origin[node]
            origins[origin] = min(origins.get(origin, 0) + bound, self.walk.most_hidden.get(origin, bound))
        if diff.variance is not None:
            sums.variance[group] = sums.variance.get(group, 0.0) + diff.variance[node]

    def group_of(self, node: int) -> int:
        """Return the group of the path that ends at *node*, which is neither unmatched nor known."""
        if self.query.by == "path":
            return self._numbered(*self._path_key(node))
        number = self.diff.frame[self._site_node(node)]
        found = self._of_site[number]  # ROOT and PRUNED are the last two
        if found < 0:
            found = self._of_site[number] = self._numbered(*self._site_key(number))
        return found

    def _numbered(self, first: object, second: object) -> int:
        groups = self._groups.get(first)
        if groups is None:
            groups = self._groups[first] = {}
        found = groups.get(second)
        if found is None:
            found = groups[second] = self.sums.new()
        return found

    def holders(self) -> Sequence[int]:
        # The nodes at which a path of its own ends.
        memo = self.diff.memo
        if "holders" not in memo:
            memo["holders"] = self._find_holders()
        found: Sequence[int] = memo["holders"]
        return found

    def _find_holders(self) -> Sequence[int]:
        ends = self.diff.ends
        if ends is not None:
            columns = self.course or (self.before, self.after)
            return array("q", (node for node in ends if any(column[node] for column in columns)))
        if self.course:
            return array("q", (node for node, held in enumerate(zip(*self.course)) if any(held)))
        return array("q", (node for node, (a, b) in enumerate(zip(self.before, self.after)) if a or b))

    def order(self, query: Query) -> Callable[[int], Any]:
        sums = self.sums
        if not sums.course:
            weight = sums.blocks.__getitem__ if query.by_blocks else sums.delta
            return lambda group: -abs(weight(group))  # those that are alike stay in the order of the file

        def of_series(group: int) -> tuple[int, int]:
            return TRENDS.index(self.amount(group).trend.kind), -abs(
                sums.blocks[group] if query.by_blocks else sums.delta(group)
            )

        return of_series

    def fate(self, node: int) -> int:
        marks = self.walk.marks[node]
        if marks & IGNORED or (self.query.focus is not None and not marks & FOCUSED):
            return UNMATCHED
        return KNOWN if marks & KNOWN_PATH else LISTED

    def _path_key(self, node: int) -> tuple[object, object]:
        if self.query.all_frames and self.query.hide is None:
            return None, node
        site = self._site_node(node)
        # Of a path whose frames are all folded the site is left, and so may be one of those inside others.
        number = self.diff.frame[site]
        return number if number >= 0 else None, self.walk.folded[node]

    def _site_key(self, number: int) -> tuple[object, object]:
        by = self.query.by
        if number < 0:
            return None, None
        site = self.diff.frames[number]
        if by == "function":
            return by, site.function or site.object
        if by == "size":
            return by, site.line
        if by == "library":
            return by, site.object and PurePosixPath(site.object).name
        if by == "file":
            return by, site.file or site.object
        return (site.file, site.line) if site.file is not None else (site.object, site.function)

    def _site_node(self, node: int) -> int:
        # With all frames asked for nothing is folded, so that the allocation site itself is the place.
        if self.query.by == "size" or (self.query.all_frames and self.query.by != "path"):
            return next(iter(self._path(node)), 0)
        return self.walk.site[node]

    def _site_frame(self, node: int) -> Optional[Frame]:
        number = self.diff.frame[self._site_node(node)]
        return self.diff.frames[number] if number >= 0 else None

    def _path(self, node: int) -> list[int]:
        nodes = []
        while node > 0:
            nodes.append(node)
            node = self.diff.parent[node]
        nodes.reverse()
        return nodes

    def row(self, group: int) -> Row:
        node, query, frames = self.sums.heaviest[group], self.query, self.diff.frames
        numbers = [self.diff.frame[n] for n in self._path(node)]
        is_pruned = bool(numbers) and numbers[-1] == PRUNED
        listed = [n for n in numbers if n >= 0 and not self.walk.hidden[n]]
        through = self.sums.via.get(group, {})
        via = max(through, key=lambda name: abs(through[name]), default=None)
        site = self._site_frame(node)
        at = next((i for i, n in enumerate(listed) if frames[n] is site), 0)
        of_site = listed[at] if site is not None and listed and frames[listed[at]] is site else None
        shown = [n for i, n in enumerate(listed) if not self.walk.left_out[n] or (i == at and n == of_site)]
        return Row(
            amount=self.amount(group),
            site=site,
            call=frames[listed[at - 1]] if at else None,
            allocator=frames[listed[0]] if listed else None,
            frames=[frames[n] for n in shown],
            folded=len(listed) - len(shown),
            is_pruned=is_pruned and (query.by == "path" or site is None),
            is_cut=self.diff.is_cut,
            via=next((frames[n] for n in numbers if n >= 0 and frames[n].function == via), None)
            if via
            else None,
            via_bytes=through[via] if via is not None else 0,
            passed=[frames[n] for n in listed[:at] if self.walk.ranks[n] in (WRAPPER, INSTALLED)],
        )

    def next_shown(self, end: int, node: int) -> int:
        """Return the first node from *node* inward that rows show of the path that ends at *end*; 0: none."""
        frame, parent, left_out, site = (
            self.diff.frame,
            self.diff.parent,
            self.walk.left_out,
            self.walk.site[end],
        )
        while node > 0 and (frame[node] < 0 or (left_out[frame[node]] and node != site)):
            node = parent[node]
        return node

    def _hidden_elsewhere(self, group: int) -> int:
        if not self._unlisted or group < FIRST:
            return 0
        return self._unlisted if self._site_frame(self.sums.heaviest[group]) is not None else 0

    def amount(self, group: int) -> Amount:
        sums = self.sums
        return Amount(
            paths=sums.paths[group],
            before_bytes=sums.before[group],
            after_bytes=sums.after[group],
            hidden_bytes=max(
                sum(sums.origins[group].values()) if group in sums.origins else 0,
                self._hidden_elsewhere(group),
            ),
            error_bytes=round(sums.variance[group] ** 0.5) if group in sums.variance else 0,
            delta_blocks=None if self.blocks is None else sums.blocks[group],
            course=tuple(sums.course.get(group, ())),
            is_relative=self.diff.is_relative,
        )

    def rest(self, listed: Sequence[int], count: int) -> Amount:
        """Return what the groups hold that are not *listed*; *count* of them changed."""
        out = set(listed)
        return self.together([group for group in range(FIRST, len(self.sums)) if group not in out], count)

    def together(self, groups: Sequence[int], count: Optional[int] = None) -> Amount:
        """Return what *groups* hold; *count* is how many they are said to be."""
        sums = self.sums
        origins: dict[int, int] = {}
        for group in sums.origins.keys() & set(groups) if sums.origins else ():
            for origin, bound in sums.origins[group].items():
                origins[origin] = max(origins.get(origin, 0), bound)
        courses = [sums.course[group] for group in groups if group in sums.course]
        variance = sum(sums.variance.get(group, 0.0) for group in groups) if sums.variance else 0.0
        return Amount(
            paths=len(groups) if count is None else count,
            before_bytes=sum(map(sums.before.__getitem__, groups)),
            after_bytes=sum(map(sums.after.__getitem__, groups)),
            hidden_bytes=max(sum(origins.values()), *map(self._hidden_elsewhere, groups), 0),
            error_bytes=round(variance**0.5),
            delta_blocks=None if self.blocks is None else sum(map(sums.blocks.__getitem__, groups)),
            course=tuple(map(sum, zip(*courses))),
            is_relative=self.diff.is_relative,
        )

    def total(self) -> Amount:
        diff = self.diff
        blocks = None
        if diff.before_blocks is not None and diff.after_blocks is not None:
            blocks = diff.after_blocks[0] - diff.before_blocks[0]
        course = tuple([column[0] for column in diff.course])
        return Amount(
            len(self.holders()),
            diff.before[0],
            diff.after[0],
            delta_blocks=blocks,
            course=course,
            is_relative=diff.is_relative,
        )
