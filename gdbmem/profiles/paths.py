"""The paths of a diff and the query that selects some: their owners, the regexes they match, their groups."""

import argparse
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from itertools import compress
from operator import or_
from pathlib import Path
from typing import Any, NamedTuple, Optional

from gdbmem.arrays import import_numpy
from gdbmem.errors import InputError, UsageError
from gdbmem.files import read_small
from gdbmem.model.calltree import PRUNED, SIZE_CLASS, THREAD, Frame, Frames, Names
from gdbmem.model.diff import Diff
from gdbmem.profiles.own_code import (
    INSTALLED,
    NAMELESS,
    NOBODY,
    OTHER,
    OWN,
    WRAPPER,
    is_allocator,
    is_copy_name,
    own_ranks,
    source_name,
)
from gdbmem.text import parse_regex, printable

# Allocation wrappers: functions that only allocate for many callers; the answer should name the callers.


MANY_CALLERS = 8  # number of callers from which a function that only allocates is a wrapper
_CALLERS_OF_NAMED = 2  # the same if "alloc" is in its name
_WHOLE = 0.9  # the least fraction of a function's bytes that it requests itself from the allocator
_DEEPEST = 6  # wrappers of wrappers
_NAMED = re.compile("alloc", re.IGNORECASE)


def find_wrappers(diff: Diff) -> set[str]:
    """Return the names of the functions in *diff* that are allocation wrappers.

    Those with an allocator's name; and those that request at least 90 % of their bytes from an allocator or another
    wrapper, and are called by MANY_CALLERS functions, or by two if "alloc" is in their name. Calls through which no
    bytes came do not count, so that the answer for two snapshots is the same beside others. A page's script finds the
    same (``web/wrappers.js``).
    """
    return _WrapperSearch(diff).wrappers


def named_wrappers(diff: Diff) -> set[str]:
    """Return the functions in *diff* that have an allocator's name."""
    ranks = ranks_of(diff)
    if WRAPPER not in ranks:
        return set()
    functions = Frames.of(diff.frames).functions
    found = {f for f, rank in zip(functions, ranks) if rank == WRAPPER} - {None}
    return {function for function in found if function and not is_copy_name(function)}


def allocator_frames(diff: Diff) -> set[int]:
    """Return the numbers of the frames in *diff* that are an allocator."""
    ranks, functions = ranks_of(diff), Frames.of(diff.frames).functions
    others = enumerate(ranks) if OTHER in ranks else ()
    allocators = {number for number, rank in others if rank == OTHER}
    return {number for number in allocators if is_allocator(functions[number] or "")}


def group_frames(diff: Diff) -> Set[int]:
    """Return the numbers of the frames in *diff* that stand for sizes of blocks or threads, not for calls."""
    objects = Frames.of(diff.frames).objects
    if SIZE_CLASS not in objects and THREAD not in objects:
        return frozenset()
    return {number for number, place in enumerate(objects) if place in (SIZE_CLASS, THREAD)}


def thread_frames(diff: Diff) -> list[int]:
    """Return the numbers of the frames in *diff* that stand for the threads that allocated."""
    objects = Frames.of(diff.frames).objects
    return [number for number, place in enumerate(objects) if place == THREAD] if THREAD in objects else []


def nameless_frames(diff: Diff) -> set[int]:
    """Return the numbers of the frames in *diff* for which ``Frame.is_nameless`` holds."""
    ranks, frames = ranks_of(diff), Frames.of(diff.frames)
    if NAMELESS not in ranks and OTHER not in ranks:
        return set()
    candidates = [number for number, rank in enumerate(ranks) if rank in (NAMELESS, OTHER)]
    return {number for number in candidates if frames[number].is_nameless}


def has_alloc_in_name(function: str) -> bool:
    """Return whether two callers suffice for *function* to be a wrapper."""
    return _NAMED.search(function) is not None


def ranks_of(diff: Diff) -> Sequence[int]:
    """Return the rank in own_code of each frame of *diff*, found once."""
    found = diff.memo.get("ranks")
    if found is None:
        found = own_ranks(Frames.of(diff.frames))
        groups = group_frames(diff)
        if groups:  # whatever a thread is called, it is no function
            found = bytes(NOBODY if number in groups else rank for number, rank in enumerate(found))
        diff.memo["ranks"] = found
    ranks: Sequence[int] = found
    return ranks


class _WrapperSearch:
    def __init__(self, diff: Diff) -> None:
        self.diff = diff
        self.ranks = ranks_of(diff)
        self.functions = Frames.of(diff.frames).functions
        self.nameless = nameless_frames(diff)
        self.wrappers = named_wrappers(diff)
        columns = [column for column in (diff.before, diff.after, *diff.course) if any(column)]
        held = map(any, zip(*columns)) if len(columns) != 1 else map(bool, columns[0])
        self._is_held = bytes(held) or bytes(len(diff))
        tops = self._tops()
        for turn in range(_DEEPEST):
            tops = self._beyond(tops, nameless=turn > 0)
            found = self._called_by_many(tops, any_name=turn == 0)
            if not found and (turn or not self.nameless):
                break
            self.wrappers = self.wrappers | found

    def _function(self, node: int) -> Optional[str]:
        number = self.diff.frame[node]
        return self.functions[number] if number >= 0 else None

    def _tops(self) -> list[int]:
        # The nodes that call an allocator itself.
        parent, frame = self.diff.parent, self.diff.frame
        allocators = allocator_frames(self.diff) | group_frames(self.diff)
        is_inner = bytearray(len(frame))
        is_inner[0] = 1
        for node in [node for node, number in enumerate(frame) if number in allocators] if allocators else ():
            is_inner[node] = is_inner[parent[node]]
        held = self._is_held
        return [
            node for node, above in enumerate(parent) if is_inner[above] and not is_inner[node] and held[node]
        ]

    def _children(self, nodes: set[int]) -> list[tuple[int, int]]:
        held = self._is_held
        return [
            (node, parent) for node, parent in enumerate(self.diff.parent) if parent in nodes and held[node]
        ]

    def _beyond(self, tops: list[int], *, nameless: bool) -> list[int]:
        # The same nodes, those of wrappers (and of nameless functions) replaced by their callers.
        through = set(self.nameless) if nameless else set()
        if self.wrappers:
            through |= {number for number, function in enumerate(self.functions) if function in self.wrappers}
        frame = self.diff.frame
        for _ in range(_DEEPEST if through else 0):
            passed = {node for node in tops if frame[node] in through}
            if not passed:
                break
            tops = [node for node in tops if node not in passed]
            tops += [node for node, _ in self._children(passed)]
        return tops

    def _called_by_many(self, tops: Sequence[int], *, any_name: bool) -> set[str]:
        direct: dict[str, int] = {}
        for node in self._called_often(tops):
            function = self._function(node)
            if function is None or self.ranks[self.diff.frame[node]] == OTHER:
                continue
            if any_name or has_alloc_in_name(function):
                direct[function] = direct.get(function, 0) + self._bytes(node)
        if not direct:
            return set()
        wanted = {node for node in tops if self._function(node) in direct}
        callers = self._callers(wanted)
        enough = {f for f, found in callers.items() if len(found) >= _least_callers(f)}
        return {f for f, size in self._totals(enough).items() if direct[f] >= _WHOLE * size}

    def _called_often(self, tops: Sequence[int]) -> Sequence[int]:
        # Without functions that can't have enough callers. One nameless caller may represent many.
        frame, functions = self.diff.frame, self.functions
        is_top = bytearray(len(frame))
        for node in tops:
            is_top[node] = frame[node] >= 0
        # The root is none, nor is the last node.
        called = array("i", (frame[above] for above in self.diff.parent if is_top[above]))
        names: Sequence[object] = called if isinstance(functions, Names) else [functions[n] for n in called]
        least = 1 if self.nameless else _CALLERS_OF_NAMED
        if least > 1 and len(set(names)) == len(names):  # as in the largest files
            return ()
        callers = Counter(functions[number] for number in called)
        enough = {function for function, count in callers.items() if count >= least}
        return (
            [node for node in tops if frame[node] >= 0 and functions[frame[node]] in enough] if enough else ()
        )

    def _callers(self, nodes: set[int]) -> dict[str, set[str]]:
        # The named functions that call those of *nodes*, also through nameless ones.
        found: dict[str, set[str]] = {}
        called = {node: self._function(node) or "" for node in nodes}
        for _ in range(_DEEPEST):
            if not called:
                break
            further: dict[int, str] = {}
            for node, parent in self._children(set(called)):
                caller, function = self._function(node), called[parent]
                if self.diff.frame[node] in self.nameless:
                    further[node] = function
                elif caller is not None and caller != function:
                    found.setdefault(function, set()).add(caller)
            called = further
        return found

    def _bytes(self, node: int) -> int:
        return max(self.diff.before[node], self.diff.after[node])

    def _totals(self, functions: set[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        wanted = [function in functions for function in self.functions]
        for node, number in enumerate(self.diff.frame) if functions else ():
            if number >= 0 and wanted[number]:
                function = self.functions[number] or ""
                found[function] = found.get(function, 0) + self._bytes(node)
        return found


def _least_callers(function: str) -> int:
    return _CALLERS_OF_NAMED if has_alloc_in_name(function) else MANY_CALLERS


# A query of a call tree: the options that `gdbmem diff`, `gdbmem show` and massif-diff share.


GROUPINGS = ("path", "function", "line", "file", "library", "size", "thread")
DEFAULT_TOP = 10
BLOCKS = "blocks"
_KNOWN_LIMIT_BYTES = 1 << 20


class Query(NamedTuple):
    """Which paths to list and how; the defaults list the largest ten, the library's frames folded."""

    top: Optional[int] = None  # rows; None: DEFAULT_TOP in a text, all in JSON
    by: str = "path"  # one of GROUPINGS
    min_bytes: int = 0
    focus: Optional[re.Pattern[str]] = None
    ignore: Optional[re.Pattern[str]] = None
    mine: Optional[re.Pattern[str]] = None  # frames that are the user's own, overriding the rules
    hide: Optional[re.Pattern[str]] = None  # frames to omit from the paths
    unchanged: bool = False  # include unchanged rows
    by_blocks: bool = False  # largest by the number of blocks, not of bytes
    compare: bool = False  # in a text: each change also in percent of the earlier bytes
    normalized: bool = False  # all sides were scaled to one total
    inverted: bool = False
    all_frames: bool = False
    known: Sequence[re.Pattern[str]] = ()
    wrappers: Optional[frozenset[str]] = None  # functions that only allocate; None: found in the data
    source_folders: Sequence[str] = ()  # folders to search for sources whose folder is not in the profile
    source_roots: Optional[Sequence[str]] = None  # folders below which sources may be read; None: anywhere
    annotate: Optional[str] = None  # in the place of rows: the lines of this source file, in its order
    links: Optional[str] = None  # of a page: the editor to which places link, or the form of the links
    embed_source: bool = False  # a page contains the source lines around named places, and a notice of that

    @property
    def of_walk(self) -> tuple[object, ...]:
        """The part of the query on which the paths' own properties depend, as a key."""
        found = (self.hide, self.mine, self.all_frames, self.focus, self.ignore)
        return (*found, tuple(self.known), self.wrappers)

    @property
    def filters(self) -> bool:
        """Return whether --focus or --ignore exclude some paths."""
        return self.focus is not None or self.ignore is not None


def query_from(arguments: argparse.Namespace) -> Query:
    """Return the Query of the options of add_query_options().

    Raises UsageError for options that exclude each other; InputError for a bad --known file.
    """
    by = arguments.by or ("path" if arguments.inverted else arguments.default_by)
    if getattr(arguments, "annotate", None) is not None:
        if arguments.by not in (None, "line") or arguments.inverted:
            raise UsageError("--annotate lists the lines of a file", hint="leave --by and --inverted out")
        by = "line"
    if arguments.inverted and by != "path":
        raise UsageError(f"--inverted applies to paths, not to --by {by} lists", hint="leave one of them out")
    return Query(
        top=arguments.top,
        by=by,
        min_bytes=abs(arguments.min or 0),
        focus=arguments.focus,
        ignore=arguments.ignore,
        hide=arguments.hide,
        mine=arguments.mine,
        by_blocks=counts_blocks(getattr(arguments, "metric", None)),
        compare=getattr(arguments, "compare", False),
        normalized=getattr(arguments, "normalize", False),
        inverted=arguments.inverted,
        all_frames=arguments.all_frames,
        known=read_known(arguments.known) if arguments.known else (),
        source_folders=arguments.source or (),
        annotate=getattr(arguments, "annotate", None),
    )


def counts_blocks(metric: Optional[str]) -> bool:
    """Return whether *metric* is ``blocks``, or ends with ``-blocks``."""
    return metric is not None and (metric == BLOCKS or metric.endswith(f"-{BLOCKS}"))


def frame_text(frame: Frame) -> str:
    """Return the text that --focus, --ignore and --known match: ``function (file:line)``."""
    if frame.file is not None:
        place = frame.file if frame.line is None else f"{frame.file}:{frame.line}"
    else:
        place = f"in {frame.object or '???'}"
    return f"{frame.function or '???'} ({place})"


def matches(pattern: re.Pattern[str], frame: Frame) -> bool:
    """Return whether *pattern* matches *frame*: the one rule of --focus, --ignore, --hide, --known, --mine and path:.

    It is searched for in ``function (file:line)``, and in each part alone, so that ``^`` and ``$`` match a part's ends.
    A function of D or Fortran has its name in the source, too.
    """
    place = f"{frame.file}:{frame.line}" if frame.file and frame.line is not None else None
    source = source_name(frame.function) if frame.function is not None and frame.function[:1] == "_" else ""
    parts = (frame_text(frame), frame.function, frame.file, place, frame.object, source)
    return any(pattern.search(part) is not None for part in parts if part)


def read_known(path: str) -> list[re.Pattern[str]]:
    """Read the regexes of *path*, one per line; empty lines and lines that begin with ``#`` are skipped.

    Raises InputError, with file and line, for an invalid regex.
    """

    def refuse(reason: str) -> InputError:
        return InputError(
            f"cannot read {printable(path)}: {reason}",
            slug="known-unreadable",
            hint="give --known a text file with a regex on each line",
        )

    data = read_small(Path(path), limit_bytes=_KNOWN_LIMIT_BYTES, refuse=refuse)
    return parse_known(data.decode("utf-8", "surrogateescape"), path)


def parse_known(text: str, source: str) -> list[re.Pattern[str]]:
    """Return the regexes in *text*; *source* is named in errors."""
    patterns = []
    for number, line in enumerate(text.splitlines(), start=1):
        wanted = line.strip()
        if not wanted or wanted.startswith("#"):
            continue
        pattern = parse_regex(wanted, f"{printable(source)}:{number}: ", slug="bad-known")
        if any(map(pattern.search, ("", "\N{SNOWMAN}"))):  # as ^, |name and . do
            raise InputError(
                f"{printable(source)}:{number}: '{printable(wanted)}' matches every path",
                slug="bad-known",
                hint="name the function or the line that is known",
            )
        patterns.append(pattern)
    return patterns


FOCUSED, IGNORED, KNOWN_PATH = 1, 2, 4
_UNSEEN = -2
_FEW = 4  # paths are few if the tree has more than so many nodes for each


class _WalkColumns(NamedTuple):
    diff: Diff
    site: Sequence[int]  # node of the user's own innermost frame; 0: none
    marks: Sequence[int]  # FOCUSED, IGNORED, KNOWN_PATH of the whole path; empty without such filters
    origin: Sequence[int]  # node at which the uncertainty begins; empty if all is certain
    most_hidden: Mapping[int, int]  # for each such node: the error bound in bytes of everything below it
    hidden: Sequence[int]  # for each frame: no row may show it
    left_out: Sequence[int]  # for each frame: hidden, or folded as foreign code
    ranks: Sequence[int]  # for each frame: a rank in own_code, NOBODY if it is hidden
    wrappers: frozenset[str]  # the functions that only allocate


class Walk(_WalkColumns):
    """Columns over the nodes of a diff, and over its frames."""

    @cached_property
    def folded(self) -> Sequence[int]:
        """For each node, the number of the path of the shown frames; 0: none."""
        return _folded(self.diff, self.left_out, range(1, len(self.diff)))

    def folded_at(self, ends: Sequence[int]) -> Iterable[int]:
        """Return `folded` for each of *ends*; only their paths are walked if they are few."""
        if len(ends) * _FEW > len(self.diff):
            folded = self.folded
        else:
            folded = _folded(self.diff, self.left_out, nodes_on_paths(self.diff.parent, ends))
        return map(folded.__getitem__, ends)

    def via(self, node: int) -> Optional[Frame]:
        """Return the innermost allocation wrapper between the allocator and the site of *node*; None: none."""
        return self._wrapper_inside(self.site[node]) if self.wrappers else None

    def _wrapper_inside(self, site: int) -> Optional[Frame]:
        found = self._wrappers.get(site, _UNSEEN)
        if found == _UNSEEN:
            found, above = PRUNED, self.diff.parent[site] if site else 0
            while above > 0:
                frame = self.diff.frame[above]
                found = frame if self.diff.frames[frame].function in self.wrappers else found
                above = self.diff.parent[above]
            self._wrappers[site] = found
        return self.diff.frames[found] if found >= 0 else None

    @cached_property
    def _wrappers(self) -> dict[int, int]:
        return {}


def own_query(diff: Diff, query: Query) -> Query:
    """Return *query* without its wrappers if they are those that were found in *diff* itself; what is cached fits."""
    if query.wrappers is not None:
        plain = query._replace(wrappers=None)
        found = diff.memo.get(plain.of_walk)
        if isinstance(found, Walk) and found.wrappers == query.wrappers:
            return plain
    return query


def walk(diff: Diff, query: Query) -> Walk:
    """Return the Walk of *diff* for *query*, cached for all groupings."""
    key = own_query(diff, query).of_walk
    found = diff.memo.get(key)
    if found is None:
        found = diff.memo[key] = _walk(diff, query)
    assert isinstance(found, Walk)
    return found


def _walk(diff: Diff, query: Query) -> Walk:
    hidden = _hidden(diff, query)
    wrappers = frozenset(find_wrappers(diff)) if query.wrappers is None else query.wrappers
    ranks = _ranks(diff, query, hidden, wrappers)
    # Installed code and wrappers are folded only if the path has code of the user's own.
    folded = range(OTHER, (INSTALLED if OWN in ranks else OTHER) + 1)
    is_folded = bytes(rank in folded and rank != NAMELESS and not query.all_frames for rank in range(256))
    foldable = bytes(ranks).translate(is_folded)
    origin = _origins(diff) if any(diff.uncertain) else []
    return Walk(
        diff=diff,
        site=_sites(diff, ranks),
        marks=_marks(diff, query) if query.filters or query.known else (),
        origin=origin,
        most_hidden=_most_hidden(diff, origin) if origin else {},
        hidden=hidden,
        left_out=bytes(map(or_, hidden, foldable)) if any(hidden) else foldable,
        ranks=ranks,
        wrappers=wrappers,
    )


def _ranks(diff: Diff, query: Query, hidden: Sequence[int], wrappers: frozenset[str]) -> Sequence[int]:
    found = ranks_of(diff)
    if query.mine is None and not wrappers and not any(hidden):
        return found
    ranks = bytearray(found)
    if wrappers:
        for number, function in enumerate(Frames.of(diff.frames).functions):
            if function in wrappers:
                ranks[number] = min(ranks[number], WRAPPER)
    if query.mine is not None:
        for number, frame in enumerate(diff.frames):
            if matches(query.mine, frame):
                ranks[number] = OWN
    for number, out in enumerate(hidden):
        if out:
            ranks[number] = NOBODY
    return ranks


def _hidden(diff: Diff, query: Query) -> Sequence[int]:
    frames, groups = Frames.of(diff.frames), group_frames(diff)
    hidden = bytes(number in groups for number in range(len(frames))) if groups else bytes(len(frames))
    if query.hide is None:
        return hidden
    return bytes(out or matches(query.hide, frame) for out, frame in zip(hidden, frames))


def _sites(diff: Diff, quality: Sequence[int]) -> "array[int]":
    if not diff.hides_paths and quality.count(OWN) == len(quality):
        return _tops(diff.parent)
    site, best = array("i", [0]), bytearray([NOBODY])
    rows = enumerate(zip(diff.parent, diff.frame))
    next(rows)
    for node, (parent, frame) in rows:
        above, best_above = site[parent], best[parent]
        if frame < 0:
            if best_above < NAMELESS:  # unlisted bytes are not named after a library's frame
                above, best_above = 0, NOBODY
        elif best_above != OWN and quality[frame] > best_above:
            above, best_above = node, quality[frame]
        site.append(above)
        best.append(best_above)
    return site


def _tops(parent: Sequence[int]) -> "array[int]":
    """Return the first node of the path to each node, in pre-order."""
    found, top = array("i"), 0
    for node, above in enumerate(parent):
        if not above:
            top = node
        found.append(top)
    return found


def nodes_on_paths(parent: Sequence[int], ends: Iterable[int]) -> Sequence[int]:
    """Return the nodes on the paths to *ends* in ascending order, without the root."""
    is_on = bytearray(len(parent))
    is_on[0] = 1
    for end in ends:
        node = end
        while not is_on[node]:
            is_on[node] = 1
            node = parent[node]
    is_on[0] = 0
    return array("i", compress(range(len(parent)), is_on))


def _folded(diff: Diff, left_out: Sequence[int], nodes: Iterable[int]) -> "array[int]":
    folded = array("i", [0]) * len(diff)
    index: dict[int, int] = {}
    stride = len(diff.frames) + 2
    parents, frames = diff.parent, diff.frame
    for node in nodes:
        above, frame = folded[parents[node]], frames[node]
        if frame != PRUNED and left_out[frame]:
            folded[node] = above
        else:
            folded[node] = index.setdefault(above * stride + frame + 2, len(index) + 1)
    return folded


def _marks(diff: Diff, query: Query) -> bytearray:
    frame_marks = [_frame_marks(frame, query) for frame in diff.frames]
    marks = bytearray(len(diff))
    for node in range(1, len(diff)):
        frame = diff.frame[node]
        marks[node] = marks[diff.parent[node]] | (frame_marks[frame] if frame >= 0 else 0)
    return marks


def _frame_marks(frame: Frame, query: Query) -> int:
    if frame.is_size_class or frame.is_thread:
        return 0
    focused = FOCUSED if query.focus is not None and matches(query.focus, frame) else 0
    ignored = IGNORED if query.ignore is not None and matches(query.ignore, frame) else 0
    known = KNOWN_PATH if any(matches(pattern, frame) for pattern in query.known) else 0
    return focused | ignored | known


def _origins(diff: Diff) -> list[int]:
    origin = list(range(len(diff)))
    for node in range(1, len(diff)):
        parent = diff.parent[node]
        if diff.uncertain[parent]:
            origin[node] = origin[parent]
    return origin


def _most_hidden(diff: Diff, origin: Sequence[int]) -> dict[int, int]:
    # The bytes hidden where the uncertainty begins, and those hidden further out.
    found = {node: diff.uncertain[node] for node in set(origin) if diff.uncertain[node]}
    for node, frame in enumerate(diff.frame):
        if frame == PRUNED and origin[node] in found:
            found[origin[node]] += diff.before[node] + diff.after[node]
    return found


# A call tree inverted: from main inward, if that takes fewer nodes than from the allocations outward.


_SMALL = 20_000  # nodes: importing numpy takes longer than writing this many


class PathTree(NamedTuple):
    """Nodes of paths; a parent precedes its children, node 0 is the root."""

    parent: Sequence[int]
    frame: Sequence[int]
    ends: Sequence[int]  # the node at which each path ends
    outermost_first: bool  # the root's children are the outermost functions; else the allocation sites


def smallest_tree(parent: Sequence[int], frame: Sequence[int], ends: Sequence[int]) -> PathTree:
    """Return the paths that end at *ends* of a tree from the allocations outward, in the fewest nodes."""
    as_it_is = PathTree(parent, frame, ends, outermost_first=False)
    if len(parent) <= _SMALL:
        return as_it_is
    turned = _turned(parent, frame, ends)
    return turned if len(turned.parent) < len(parent) else as_it_is


def _turned(parent: Sequence[int], frame: Sequence[int], ends: Sequence[int]) -> PathTree:
    np: Any = import_numpy()
    above, frames = np.asarray(parent, dtype=np.int64), np.asarray(frame, dtype=np.int64)
    # The current position in each path, from its outermost frame inward.
    at = np.asarray(ends, dtype=np.int64)
    last = np.zeros(len(at), dtype=np.int64)  # its node in the new tree
    going = np.flatnonzero(at > 0)
    stride = int(frames.max(initial=0)) + 3
    parents, numbers, count = [np.array([-1])], [np.array([-1])], 1
    while len(going):
        keys = last[going] * stride + frames[at[going]] + 2
        distinct, place = np.unique(keys, return_inverse=True)
        parents.append(distinct // stride)
        numbers.append(distinct % stride - 2)
        last[going] = place.reshape(-1) + count
        count += len(distinct)
        at[going] = above[at[going]]
        going = going[at[going] > 0]
    columns = (np.concatenate(parents).tolist(), np.concatenate(numbers).tolist(), last.tolist())
    return PathTree(*columns, outermost_first=True)
