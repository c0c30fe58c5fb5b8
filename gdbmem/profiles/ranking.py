"""A diff as rows, largest first: folded, grouped and filtered by a Query, with all bytes accounted for."""

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress, count
from operator import add, sub
from pathlib import PurePosixPath
from typing import NamedTuple, Optional, Union, overload

from gdbmem.errors import InputError
from gdbmem.model.calltree import NO_LINE, PRUNED, Frame, Frames, no_block_sizes, no_threads
from gdbmem.model.diff import Diff
from gdbmem.profiles.own_code import INSTALLED, WRAPPER
from gdbmem.profiles.paths import FOCUSED, IGNORED, KNOWN_PATH, Query, own_query, walk
from gdbmem.profiles.timeline import TRENDS, Trend, change_of, judge
from gdbmem.text import plural, printable


class Amount(NamedTuple):
    """The sum of several paths."""

    paths: int
    before_bytes: int
    after_bytes: int
    hidden_bytes: int = 0  # the part of delta_bytes that a threshold or a truncated file may hide
    error_bytes: int = 0  # the standard error of delta_bytes if it is sampled
    delta_blocks: Optional[int] = None
    is_relative: bool = False  # before_bytes and after_bytes are only the removed and the added bytes
    course: Sequence[int] = ()  # of a series: the bytes at each snapshot

    @property
    def delta_bytes(self) -> int:
        return self.after_bytes - self.before_bytes

    @property
    def uncertain_bytes(self) -> int:
        """The error bound of delta_bytes."""
        return self.hidden_bytes + self.error_bytes

    @property
    def change(self) -> str:
        """The trend between the two: a word of profiles.timeline."""
        return change_of(
            self.before_bytes,
            self.after_bytes,
            hidden_bytes=self.hidden_bytes,
            error_bytes=self.error_bytes,
            is_relative=self.is_relative,
        )

    @property
    def trend(self) -> Trend:
        """The trend in a series."""
        return judge(self.course, uncertain_bytes=self.uncertain_bytes)


class Row(NamedTuple):
    """Paths that count as one; *amount* is theirs together, the frames are the largest one's."""

    amount: Amount
    site: Optional[Frame]  # the user's own innermost frame; None: only known to be under the threshold
    call: Optional[Frame]  # the library's function that the site called, if it called one
    allocator: Optional[Frame]  # where the path's memory was allocated
    frames: Sequence[Frame]  # from the allocation site outward, folded unless the query wants all
    folded: int  # how many frames of the library are left out of frames
    is_pruned: bool  # stands for places that the tool did not list
    is_cut: bool = False  # … because the file is truncated, not because they are below a threshold
    via: Optional[Frame] = None  # the allocation wrapper that the site called for most of it
    via_bytes: int = 0  # the part of delta_bytes through that
    passed: Sequence[Frame] = ()  # inside the site: frames skipped by the own-code rules


# The paths of a diff summed by group for one query: columns, because there may be hundreds of thousands.


UNMATCHED, KNOWN, LISTED = range(3)  # the first two are groups, too
FIRST = LISTED  # group that is listed


def grouped(diff: Diff, query: Query) -> "GroupedPaths":
    """Return the paths of *diff* grouped according to *query*, cached because the answer and the rows share them."""
    query = own_query(diff, query)
    key = ("paths", query.by, *query.of_walk)
    found = diff.memo.get(key)
    if found is None:
        found = diff.memo[key] = GroupedPaths(diff, query)
    assert isinstance(found, GroupedPaths)
    return found


class GroupSums:
    # Sums paths by group, column by column. Paths hidden by one call site share one bound: `origins` has, for
    # each node at which the uncertainty begins, the part of it that the paths below could claim.
    def __init__(self) -> None:
        self._count = 0
        # These have room for more groups than there are.
        self.before, self.after, self.blocks = array("q"), array("q"), array("q")
        self.paths, self.heaviest, self.heaviest_change = array("i"), array("i"), array("q")
        # For the groups that have any.
        self.origins: dict[int, dict[int, int]] = {}
        self.variance: dict[int, float] = {}
        self.doubtful: dict[int, list[int]] = {}  # paths
        self.course: dict[int, list[int]] = {}
        self.via: dict[int, dict[str, int]] = {}

    def __len__(self) -> int:
        return self._count

    def extend_to(self, count: int) -> None:
        """Extend to at least *count* groups; new ones are empty."""
        more = max(count - len(self.before), 0)
        for column in (self.before, self.after, self.blocks, self.paths):
            column.frombytes(bytes(column.itemsize * more))
        for column in (self.heaviest, self.heaviest_change):
            column.extend(array(column.typecode, [-1]) * more)
        self._count = max(count, self._count)

    def add(
        self, holders: Sequence[int], groups: Sequence[int], before: Sequence[int], after: Sequence[int]
    ) -> None:
        """Add the path that ends at each of *holders* to its group; *before* and *after* are bytes of all nodes."""
        if groups == array("i", range(FIRST, len(self))):  # each is a separate group, as in the largest files
            self._add_groups(holders, before, after)
            return
        paths, befores, afters = self.paths, self.before, self.after
        heaviest, most = self.heaviest, self.heaviest_change
        for node, group in zip(holders, groups):
            earlier, later = before[node], after[node]
            paths[group] += 1
            befores[group] += earlier
            afters[group] += later
            change = later - earlier if later > earlier else earlier - later
            if change > most[group]:
                heaviest[group], most[group] = node, change

    def _add_groups(self, holders: Sequence[int], before: Sequence[int], after: Sequence[int]) -> None:
        columns = (self.before, self.after, self.paths, self.heaviest, self.heaviest_change)
        for column in columns:
            del column[FIRST:]
        self.before.extend([before[node] for node in holders])
        self.after.extend([after[node] for node in holders])
        self.paths.extend(array("i", [1]) * len(holders))
        self.heaviest.extend(holders)
        self.heaviest_change.extend(map(abs, self.deltas[FIRST:]))

    @cached_property
    def deltas(self) -> "array[int]":
        """The change of each group in bytes, when all paths have been added."""
        return array("q", map(sub, self.after, self.before))


class GroupedPaths:
    # The paths of a diff, summed for one query.
    def __init__(self, diff: Diff, query: Query, holders: Optional[Sequence[int]] = None) -> None:
        """Add up the paths that end at *holders*; None: all."""
        self.diff, self.query, self._holders = diff, query, holders
        self.before, self.after, self.course = diff.own_before, diff.own_after, diff.own_course
        self.blocks = diff.own_delta_blocks
        self.walk = walk(diff, query)
        self.sums = GroupSums()
        self._frames = Frames.of(diff.frames)
        self._changed: dict[tuple[bool, bool], Sequence[int]] = {}
        self.sums.extend_to(FIRST)
        self._of_holders = self._add_up()  # the group of each path
        # Bytes of unlisted call sites: any row may have further ones among them.
        self.unlisted_bytes = 0
        if diff.has_addresses and query.by != "path":
            places = [n for n, frame in enumerate(diff.frame) if frame == PRUNED and not self.walk.site[n]]
            self.unlisted_bytes = max(sum(diff.before[n] for n in places), sum(diff.after[n] for n in places))

    def _add_up(self) -> "array[int]":
        holders, diff, blocks = self.holders(), self.diff, self.blocks
        groups = self._groups_of(holders)
        self.sums.add(holders, groups, self.before, self.after)
        if blocks is not None:
            sums = self.sums.blocks
            for node, group in zip(holders, groups):
                sums[group] += blocks[node]
        if (
            self.course
            or self.walk.wrappers
            or self.walk.origin
            or diff.variance is not None
            or diff.path_variance is not None
        ):
            for node, group in zip(holders, groups):
                self._add_more(group, node)
        return groups

    def _groups_of(self, holders: Sequence[int]) -> "array[int]":
        """Return the group of the path that ends at each of *holders*."""
        if not self.walk.marks:
            return self._listed_groups(holders)
        fates = [self.fate(node) for node in holders]
        listed = iter(self._listed_groups([n for n, fate in zip(holders, fates) if fate == LISTED]))
        return array("i", [next(listed) if fate == LISTED else fate for fate in fates])

    def _listed_groups(self, holders: Sequence[int]) -> "array[int]":
        frame, site = self.diff.frame, self.walk.site
        if self.query.by == "path":
            return self._numbered(self._path_keys(holders))
        nodes = [site[node] for node in holders] if self._is_by_site else map(self._site_node, holders)
        numbers = array("i", [frame[node] for node in nodes])
        distinct = array("i", dict.fromkeys(numbers))
        groups = self._one_each(len(distinct)) if self._are_places(distinct) else None
        groups = groups or self._numbered(self._site_keys(distinct))
        if len(distinct) == len(numbers):
            return groups
        of_site = array("i", [0]) * (len(self._frames) + 2)  # PRUNED and ROOT are the last two
        for number, group in zip(distinct, groups):
            of_site[number] = group
        return array("i", [of_site[number] for number in numbers])

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
        if diff.path_doubts is not None and diff.path_doubts.has(node):
            sums.doubtful.setdefault(group, []).append(node)

    def variances(self) -> list[float]:
        """Return the variance of each path, bytes²: those of the paths of a row add up to the row's."""
        sampled, every = self.diff.variance, self.diff.path_variance
        found = [0.0 if sampled is None else sampled[node] for node in self.holders()]
        if every is None:
            return found
        shares = {
            group: self._doubt(paths) / sum(every[node] for node in paths)
            for group, paths in self.sums.doubtful.items()
        }
        for at, (node, group) in enumerate(zip(self.holders(), self._of_holders)):
            found[at] += every[node] * shares.get(group, 0.0)
        return found

    def _doubt(self, paths: Sequence[int]) -> float:
        doubts = self.diff.path_doubts
        if doubts is None:
            return 0.0
        by_top = self.query.by != "path" and all(doubts.is_top(self._site_node(node)) for node in paths)
        return doubts.of(paths, by_top=by_top)

    def _error(self, groups: Iterable[int]) -> int:
        # The standard error of the sum of groups, bytes.
        sums = self.sums
        variance = sum(sums.variance.get(group, 0.0) for group in groups)
        variance += self._doubt([node for group in groups for node in sums.doubtful.get(group, ())])
        return round(math.sqrt(variance))

    def _numbered(self, keys: Iterable[object]) -> "array[int]":
        # A group for each key, in order of appearance.
        index: defaultdict[object, int] = defaultdict(count(len(self.sums)).__next__)
        found = array("i", map(index.__getitem__, keys))
        self.sums.extend_to(len(self.sums) + len(index))
        return found

    def _one_each(self, count: int) -> "array[int]":
        # As many new groups.
        first = len(self.sums)
        self.sums.extend_to(first + count)
        return array("i", range(first, first + count))

    def _are_places(self, numbers: Sequence[int]) -> bool:
        # True if each of these frames is a row by line: only their names are known, and all differ.
        frames = self._frames
        if self.query.by != "line" or not frames.distinct or min(numbers, default=-1) < 0:
            return False
        count = len(frames)
        return all(one.count(None) == count for one in (frames.files, frames.objects)) and (
            frames.lines.count(NO_LINE) == count
        )

    def paths_in(self, groups: Container[int]) -> tuple[Sequence[int], Mapping[int, int]]:
        """Return the nodes at which the paths of *groups* end, and the group of each."""
        found = {node: group for node, group in zip(self.holders(), self._of_holders) if group in groups}
        return array("i", found), found

    def holders(self) -> Sequence[int]:
        # The nodes at which a separate path ends.
        if self._holders is not None:
            return self._holders
        memo = self.diff.memo
        if "holders" not in memo:
            memo["holders"] = self._find_holders()
        found: Sequence[int] = memo["holders"]
        return found

    def site(self, group: int) -> Optional[Frame]:
        """Return the place that the row of *group* is named after; None: it is not listed."""
        return self._site_frame(self.sums.heaviest[group])

    def bytes_through(self, file: str) -> dict[Optional[int], int]:
        """Return the change of all listed paths that have a call on each line of *file*."""
        frames, parent, frame, hidden = self._frames, self.diff.parent, self.diff.frame, self.walk.hidden
        lines = {
            number: None if frames.lines[number] == NO_LINE else frames.lines[number]
            for number, name in enumerate(frames.files)
            if name == file and not hidden[number]
        }
        sums: dict[Optional[int], int] = {}
        for node, group in zip(self.holders(), self._of_holders):
            delta = self.after[node] - self.before[node]
            if group < FIRST or not delta:
                continue
            found = set()
            while node > 0:
                if frame[node] in lines:
                    found.add(lines[frame[node]])
                node = parent[node]
            for line in found:
                sums[line] = sums.get(line, 0) + delta
        return sums

    def _find_holders(self) -> Sequence[int]:
        columns = [column for column in self.course or (self.before, self.after) if any(column)]
        ends = range(len(self.diff)) if self.diff.ends is None else self.diff.ends
        blocks = self.blocks  # a block may have no bytes: malloc(0)
        if len(columns) == 1 and blocks is not None:
            return array("i", [end for end in ends if columns[0][end] or blocks[end]])
        if len(columns) == 1:
            return array("i", [end for end in ends if columns[0][end]])
        columns += [] if blocks is None else [blocks]
        held = zip(*(map(column.__getitem__, ends) for column in columns))
        return array("i", compress(ends, map(any, held)))

    def changed(self, query: Query) -> Sequence[int]:
        """Return the groups that changed, with *query.unchanged* also the others, in its order; sorted once."""
        key = (query.by_blocks, query.unchanged)
        if key not in self._changed:
            self._changed[key] = self._find_changed(by_blocks=query.by_blocks, unchanged=query.unchanged)
        return self._changed[key]

    def _find_changed(self, *, by_blocks: bool, unchanged: bool) -> Sequence[int]:
        sums = self.sums
        deltas, blocks, course = sums.deltas, sums.blocks, sums.course
        groups: Sequence[int] = range(FIRST, len(sums))
        if not unchanged:
            groups = [
                n for n in groups if deltas[n] or blocks[n] or (course and len(set(course.get(n, ()))) > 1)
            ]
        # Equal ones stay in the order of the file.
        weights = list(map(abs, blocks if by_blocks else deltas))
        found = array("i", sorted(groups, key=weights.__getitem__, reverse=True))
        if course:
            found = array("i", sorted(found, key=lambda group: TRENDS.index(self.amount(group).trend.kind)))
        return found

    def fate(self, node: int) -> int:
        marks = self.walk.marks[node]
        if marks & IGNORED or (self.query.focus is not None and not marks & FOCUSED):
            return UNMATCHED
        return KNOWN if marks & KNOWN_PATH else LISTED

    def _path_keys(self, holders: Sequence[int]) -> Iterable[object]:
        if self.query.all_frames and self.query.hide is None:
            return holders
        # If all frames of a path are folded, its site remains, and possibly one of those inside others.
        sites = map(self.diff.frame.__getitem__, map(self.walk.site.__getitem__, holders))
        return zip((n if n >= 0 else None for n in sites), self.walk.folded_at(holders))

    def _site_keys(self, numbers: Sequence[int]) -> Iterable[object]:
        frames = self._frames
        if self.query.by == "line" and min(numbers, default=0) >= 0:
            if None not in frames.files:
                # Numbers, not pairs, of which there may be hundreds of thousands: a line's is below 2^63.
                files = {file: number << 64 for number, file in enumerate(dict.fromkeys(frames.files))}
                places = map(files.__getitem__, map(frames.files.__getitem__, numbers))
                return map(add, places, map(frames.lines.__getitem__, numbers))
            if {*frames.files, *frames.objects} == {None}:
                return map(frames.functions.__getitem__, numbers)
        return map(self._site_key, numbers)

    def _site_key(self, number: int) -> Optional[tuple[object, ...]]:
        if number < 0:
            return None
        by, frames = self.query.by, self._frames
        function, file, place = frames.functions[number], frames.files[number], frames.objects[number]
        if by == "function":
            return (function or (frames.lines[number], file) if file else function or place,)
        if by == "size":
            return (frames.lines[number],)
        if by == "thread":
            return (function,)
        if by == "library":
            return (place and PurePosixPath(place).name,)
        if by == "file":
            return (file or place,)
        return (file, frames.lines[number]) if file is not None else (place, function)

    @property
    def _is_by_site(self) -> bool:
        # With --all-frames nothing is folded, so the allocation site itself is the place.
        return self.query.by not in ("path", "size", "thread") and not self.query.all_frames

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
        """Return the first node from *node* inward that rows show for the path that ends at *end*; 0: none."""
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
        if not self.unlisted_bytes or group < FIRST:
            return 0
        return self.unlisted_bytes if self._site_frame(self.sums.heaviest[group]) is not None else 0

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
            error_bytes=self._error([group]),
            delta_blocks=None if self.blocks is None else sums.blocks[group],
            course=tuple(sums.course.get(group, ())),
            is_relative=self.diff.is_relative,
        )

    def rest(self, listed: Sequence[int], count: int) -> Amount:
        """Return the sum of the groups that are not *listed*; *count* of them changed."""
        is_rest = bytearray(b"\1") * len(self.sums)
        is_rest[:FIRST] = bytes(FIRST)
        for group in listed:
            is_rest[group] = False
        sums = self.sums
        if self.course or sums.origins or sums.variance or sums.doubtful or self.unlisted_bytes:
            return self.together(array("i", compress(range(len(sums)), is_rest)), count)
        before, after, blocks = (
            sum(compress(one, is_rest)) for one in (sums.before, sums.after, sums.blocks)
        )
        return Amount(
            count,
            before,
            after,
            delta_blocks=None if self.blocks is None else blocks,
            is_relative=self.diff.is_relative,
        )

    def together(self, groups: Sequence[int], count: Optional[int] = None) -> Amount:
        """Return the sum of *groups*; *count* is their stated number."""
        sums = self.sums
        origins: dict[int, int] = {}
        for group in sums.origins.keys() & set(groups) if sums.origins else ():
            for origin, bound in sums.origins[group].items():
                origins[origin] = max(origins.get(origin, 0), bound)
        courses = [sums.course[group] for group in groups if group in sums.course] if sums.course else ()
        elsewhere = max(map(self._hidden_elsewhere, groups), default=0) if self.unlisted_bytes else 0
        return Amount(
            paths=len(groups) if count is None else count,
            before_bytes=sum(map(sums.before.__getitem__, groups)),
            after_bytes=sum(map(sums.after.__getitem__, groups)),
            hidden_bytes=max(sum(origins.values()), elsewhere),
            error_bytes=self._error(groups),
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
    def __getitem__(self, index: slice) -> "Rows": ...

    def __getitem__(self, index: Union[int, slice]) -> "Union[Row, Rows]":
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


class Ranking(NamedTuple):
    """Rows, and the sums outside of them: rows + rest + unmatched + known = total."""

    rows: Rows
    rest: Amount  # beyond --top or under --min; its paths are rows
    unmatched: Amount  # excluded by --focus or --ignore
    known: Amount
    total: Amount
    delta_matched_bytes: int  # of rows and rest together
    outside: Sequence[tuple[Amount, str]] = ()  # memory counted outside the heap, in no other amount
    moved: int = 0  # number of rows, including those of the rest, that changed in bytes
    via_bytes: Mapping[str, int] = {}  # the same by the wrapper that allocated it
    wrappers: frozenset[str] = frozenset()  # the allocation wrappers
    has_doubtful_paths: bool = False  # another path may have some of a path's bytes


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
    if query.by == "thread" and len(diff) > 1 and not any(frame.is_thread for frame in diff.frames):
        raise no_threads(diff.after_side.source, diff.after_side.source_format)
    paths = grouped(diff, query)
    sums = paths.sums
    changed, deltas = paths.changed(query), sums.deltas
    least = query.min_bytes
    big = [group for group in changed if abs(deltas[group]) >= least] if least else changed
    big = big[: query.top]
    return Ranking(
        has_doubtful_paths=diff.path_variance is not None,
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


class BlockUse(NamedTuple):
    """How the blocks were used that the paths of one row allocated; None: unknown."""

    blocks: int
    bytes: int
    mean_lifetime: Optional[float]  # in *time_unit*
    time_unit: str
    read_bytes: Optional[int]  # of all accesses
    written_bytes: Optional[int]
    program_points: (
        int  # records of the tool that are added up here: calls on one line, of different addresses
    )

    def sentence(self, by: str) -> str:
        """Return how long they lived, and how often each of their bytes was read and written; *by* as in Query."""
        parts = [f"{plural(self.blocks, 'block')} allocated"]
        if by == "path" and self.program_points > 1:
            parts[0] += f" at {self.program_points} program points"
        if self.mean_lifetime is not None:
            mean = " on average" if self.blocks > 1 else ""
            parts.append(f"alive {round(self.mean_lifetime):,} {printable(self.time_unit)}{mean}")
        for verb, size in (("read", self.read_bytes), ("written", self.written_bytes)):
            if size is not None:
                parts.append(
                    f"{verb} {size / max(self.bytes, 1):.2g} times a byte" if size else f"never {verb}"
                )
        return ", ".join(parts)


Uses = Mapping[object, BlockUse]  # by row_key()


class RowUses(NamedTuple):
    """How the blocks of rows were used; *before*, on the first side of a difference. Empty: it is unknown."""

    after: Uses = {}
    before: Optional[Uses] = None  # None: these are no rows of a difference

    def sentences(self, row: Row, query: Query) -> list[str]:
        """Return what is known of *row*, as one sentence a side, or as one of both if they are the same."""
        key = row_key(row, query)
        after = self.after.get(key)
        if self.before is None:
            return [] if after is None else [after.sentence(query.by)]
        before = self.before.get(key)
        if before == after:
            return [] if after is None else [f"before and after: {after.sentence(query.by)}"]
        return [
            f"{when}: {one.sentence(query.by)}"
            for when, one in (("before", before), ("after", after))
            if one is not None
        ]


def row_key(row: Row, query: Query) -> object:
    """Return what is the same for the row of one place in rankings by several counts."""
    if query.by == "path":
        return tuple(frame.key for frame in row.frames)
    return None if row.site is None else row.site.key


def uses_from(
    snapshots: Mapping[str, Diff], query: Query, *, time_unit: str, names: tuple[str, str, str, str, str]
) -> Uses:
    """Return how the blocks of each row were used.

    *snapshots* are diffs against nothing, by *names*: what was allocated, lifetimes in place of bytes, what was read
    and written, and the tool's records in place of bytes.
    """
    columns: dict[str, dict[object, Amount]] = {}
    for name, diff in snapshots.items():
        rows = rank(diff, query._replace(top=None, min_bytes=0, unchanged=True)).rows
        columns[name] = {row_key(row, query): row.amount for row in rows}
    allocated, lifetimes, read, written, points = (columns.get(name) for name in names)
    return {
        key: BlockUse(
            amount.delta_blocks or 0,
            amount.delta_bytes,
            None if lifetimes is None else _of(lifetimes, key) / max(amount.delta_blocks or 0, 1),
            time_unit,
            None if read is None else _of(read, key),
            None if written is None else _of(written, key),
            _of(points or {}, key),
        )
        for key, amount in (allocated or {}).items()
    }


def _of(column: Mapping[object, Amount], key: object) -> int:
    return column[key].delta_bytes if key in column else 0


def _sum_by_name(parts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return total


def paths_of_lines(
    diff: Diff, query: Query, ranking: Ranking, most: int
) -> list[tuple[Sequence[Row], Amount]]:
    """Return, for each row of *ranking* (by line), its *most* largest paths, and the sum of the others."""
    lines = grouped(diff, query._replace(by="line"))
    wanted = {group: number for number, group in enumerate(ranking.rows.groups)}
    holders, line_of = lines.paths_in(wanted)
    by_path = GroupedPaths(diff, query._replace(by="path"), holders)
    found: list[list[int]] = [[] for _ in wanted]
    for group in by_path.changed(query):
        found[wanted[line_of[by_path.sums.heaviest[group]]]].append(group)
    return [(Rows(by_path, groups[:most]), by_path.together(groups[most:])) for groups in found]


# The lines of one source file, in its order.


class AnnotatedLine(NamedTuple):
    """A line of a source file with memory."""

    line: Optional[int]  # None: the profile names only the file
    amount: Optional[Amount]  # of the paths whose row it would be; None: of none
    through_bytes: int  # the change of all paths that have a call on it, of these too; each path counts once


class Annotation(NamedTuple):
    """The lines of *file*: their amounts, *elsewhere*, *unmatched* and *known* of the ranking are the total."""

    file: str  # as the profile has it
    lines: Sequence[AnnotatedLine]
    inside: Amount
    elsewhere: Amount  # at places outside of the file
    ranking: Ranking  # by line


def annotate(diff: Diff, query: Query, wanted: str) -> Annotation:
    """Return the lines of the source file that *wanted* names, with their memory.

    Raises InputError if no path has a call in such a file, or if several have that name.
    """
    query = query._replace(by="line", top=None, min_bytes=0)
    file = _file_named(diff, wanted)
    paths = grouped(diff, query)
    own = {
        group: frame for group in paths.changed(query) if (frame := paths.site(group)) and frame.file == file
    }
    through = paths.bytes_through(file)
    places = {frame.line: group for group, frame in own.items()}
    lines = [
        AnnotatedLine(line, paths.amount(places[line]) if line in places else None, through.get(line, 0))
        for line in sorted({*places, *through}, key=lambda line: (line is None, line or 0))
    ]
    others = [group for group in range(FIRST, len(paths.sums)) if group not in own]
    return Annotation(file, lines, paths.together(list(own)), paths.together(others), rank(diff, query))


def _file_named(diff: Diff, wanted: str) -> str:
    """Return the file of *diff* with the longest common end with the path *wanted*."""
    name = PurePosixPath(wanted).name
    files = [file for file in dict.fromkeys(Frames.of(diff.frames).files) if file]
    if wanted in files:
        return wanted
    same = {file: _common_end(file, wanted) for file in files if PurePosixPath(file).name == name}
    best = [file for file, length in same.items() if length == max(same.values())]
    if len(best) == 1:
        return best[0]
    if best:
        listed = ", ".join(map(printable, sorted(best)[:_MOST_FILES])) + (
            ", …" if len(best) > _MOST_FILES else ""
        )
        raise InputError(
            f"several files are called {printable(wanted)}",
            slug="ambiguous-source",
            hint=f"name one of them: {listed}",
        )
    raise InputError(
        f"no call path of {printable(diff.after_side.source)} has a line of {printable(wanted)}",
        slug="no-such-source",
        hint="--by file lists the files" if files else "the profile names no source files: build with -g",
    )


_MOST_FILES = 4  # that an error names


def _common_end(one: str, other: str) -> int:
    pairs = list(zip(reversed(PurePosixPath(one).parts), reversed(PurePosixPath(other).parts)))
    return next((at for at, (a, b) in enumerate(pairs) if a != b), len(pairs))
