"""The paths of a diff added up by groups, as one query sees them: columns, for there may be hundreds of thousands."""

from __future__ import annotations

from array import array
from collections.abc import Container, Sequence
from itertools import compress
from pathlib import PurePosixPath
from typing import Any, Callable, Optional

from gdbmem.analysis.profiles.amounts import Amount, Row
from gdbmem.analysis.profiles.own_code import INSTALLED, WRAPPER
from gdbmem.analysis.profiles.paths import FOCUSED, IGNORED, KNOWN_PATH, walk
from gdbmem.analysis.profiles.query import Query
from gdbmem.analysis.profiles.trend import TRENDS
from gdbmem.model.calltree import PRUNED, Frame, Frames
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
        return bool(self.course) and len(set(self.course.get(group, ()))) > 1


class GroupedPaths:
    # The paths of a diff as one query sees them, added up.
    def __init__(self, diff: Diff, query: Query, holders: Optional[Sequence[int]] = None) -> None:
        """Add up the paths that end at *holders*; None: all."""
        self.diff, self.query, self._holders = diff, query, holders
        self.before, self.after, self.course = diff.own_before, diff.own_after, diff.own_course
        self.blocks = diff.own_delta_blocks
        self.walk = walk(diff, query)
        self.sums = GroupSums()
        self._groups: dict[object, dict[object, int]] = {}  # by the two parts of their keys
        self._frames = Frames.of(diff.frames)
        self._changed: dict[tuple[bool, bool], Sequence[int]] = {}
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
        frame, site, of_site = diff.frame, self.walk.site, self._of_site
        by_site = self._is_by_site
        for node in self.holders():
            fate = self.fate(node) if has_fates else LISTED
            group = of_site[frame[site[node]]] if by_site else -1
            if fate != LISTED:
                group = fate
            elif group < 0:
                group = self.group_of(node)
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

    def holders_of(self, groups: Container[int]) -> Sequence[int]:
        """Return the nodes at which the paths of *groups* end."""
        return array("q", (node for node in self.holders() if self.group_of(node) in groups))

    def holders(self) -> Sequence[int]:
        # The nodes at which a path of its own ends.
        if self._holders is not None:
            return self._holders
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

    def changed(self, query: Query) -> Sequence[int]:
        """Return the groups that changed, where *query* says so the others too, in its order; sorted once."""
        key = (query.by_blocks, query.unchanged)
        if key not in self._changed:
            groups = range(FIRST, len(self.sums))
            wanted = groups if query.unchanged else filter(self.sums.has_changed, groups)
            self._changed[key] = array("q", sorted(wanted, key=self._order(by_blocks=query.by_blocks)))
        return self._changed[key]

    def _order(self, *, by_blocks: bool) -> Callable[[int], Any]:
        sums = self.sums
        weight = sums.blocks.__getitem__ if by_blocks else sums.delta
        if not sums.course:
            return lambda group: -abs(weight(group))  # those that are alike stay in the order of the file
        return lambda group: (TRENDS.index(self.amount(group).trend.kind), -abs(weight(group)))

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
        frames = self._frames
        function, file, line, place = (
            frames.functions[number], frames.files[number], frames.lines[number], frames.objects[number],
        )  # fmt: skip
        if by == "function":
            return by, function or place
        if by == "size":
            return by, line
        if by == "library":
            return by, place and PurePosixPath(place).name
        if by == "file":
            return by, file or place
        return (file, line) if file is not None else (place, function)

    @property
    def _is_by_site(self) -> bool:
        # With all frames asked for nothing is folded, so that the allocation site itself is the place.
        return self.query.by not in ("path", "size") and not self.query.all_frames

    def _site_node(self, node: int) -> int:
        if self.query.by == "path" or self._is_by_site:
            return self.walk.site[node]
        return next(iter(self._path(node)), 0)

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
        is_rest = bytearray(b"\1") * len(self.sums)
        is_rest[:FIRST] = bytes(FIRST)
        for group in listed:
            is_rest[group] = False
        return self.together(array("q", compress(range(len(self.sums)), is_rest)), count)

    def together(self, groups: Sequence[int], count: Optional[int] = None) -> Amount:
        """Return what *groups* hold; *count* is how many they are said to be."""
        sums = self.sums
        origins: dict[int, int] = {}
        for group in sums.origins.keys() & set(groups) if sums.origins else ():
            for origin, bound in sums.origins[group].items():
                origins[origin] = max(origins.get(origin, 0), bound)
        courses = [sums.course[group] for group in groups if group in sums.course] if sums.course else ()
        elsewhere = max(map(self._hidden_elsewhere, groups), default=0) if self._unlisted else 0
        variance = sum(sums.variance.get(group, 0.0) for group in groups) if sums.variance else 0.0
        return Amount(
            paths=len(groups) if count is None else count,
            before_bytes=sum(map(sums.before.__getitem__, groups)),
            after_bytes=sum(map(sums.after.__getitem__, groups)),
            hidden_bytes=max(sum(origins.values()), elsewhere),
            error_bytes=round(variance**0.5),
            delta_blocks=None if self.blocks is None else sum(map(sums.blocks.__getitem__, groups)),
            course=tuple(map(sum, zip(*courses))) or (0,) * len(self.course),
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
