"""massif.out: an index over the whole file at once, a call tree only when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Callable, NamedTuple, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.addresses import Symbols, with_names
from gdbmem.formats.valgrind.massif_tree import (
    NodeTexts,
    TreeArea,
    UnknownTextError,
    line_number,
    parse_tree,
    read_node_text,
    unknown_line,
)
from gdbmem.model import calltree
from gdbmem.model.calltree import CallTree, Frame, Moment, Stretch, Totals
from gdbmem.text import format_moment, plural, printable

# Bytes per line of the user's own code, from a massif snapshot that was just written, without its tree.


FrameKey = tuple[Optional[str], Optional[str], Optional[int], Optional[str]]

UNKNOWN_SITE: FrameKey = Frame().key  # bytes of which not even the allocation site is listed

# Regular expressions here are compiled when they are first needed: each `show` imports this module.
_TREE = rb"(?m)^heap_tree=(?:detailed|peak)\n"
_LINE = rb" *n([0-9]{1,18}): ([0-9]{1,18}) (.*)\n"


_MOST_TIMES = 4  # that an error names
_PRUNED, _LIBRARY = 0, 1  # ranks below those of the user's own frames


class _Site(NamedTuple):
    key: FrameKey
    rank: int  # of those that the caller's function gives, or _PRUNED


class _Sites(dict[bytes, _Site]):
    """Node text → the site it is."""

    def __init__(self, rank: Callable[[Frame], int]) -> None:
        super().__init__()
        self._rank = rank
        self._places: dict[bytes, _Site] = {}  # the same, without the address: far fewer

    def __missing__(self, text: bytes) -> _Site:
        address, _, place = text.partition(b": ")
        is_named = address.startswith(b"0x") and not place.startswith(b"???")
        known = self._places.get(place) if is_named else None
        site = self[text] = self._places[place] = known or self._read(text)
        return site

    def _read(self, text: bytes) -> _Site:
        frame = read_node_text(text).frame
        if frame is None:
            return _Site(UNKNOWN_SITE, _PRUNED)
        return _Site(frame.key, self._rank(frame))


def read_sites(data: bytes, rank: Callable[[Frame], int], *, own: int) -> dict[FrameKey, int]:
    """Return the bytes of each user site in the first tree of *data*; they add up to the tree's.

    A user site is the first frame on a path, from the allocation outward, with the highest *rank*. 0 is the lowest, a
    library's: merged places below those only are UNKNOWN_SITE. *own* is the highest: what lies below is not parsed.
    Raises InputError when there is no tree or when it ends early.
    """
    if data.find(b"\r\n", 0, 4096) >= 0:
        data = data.replace(b"\r\n", b"\n")
    start = re.search(_TREE, data)
    root = re.compile(_LINE).match(data, start.end()) if start is not None else None
    if root is None:
        raise _cut("holds no tree")
    try:
        return _descend(data, root, _Sites(rank), own)
    except UnknownTextError as error:
        raise _bad(f"is not one of massif's: {error}") from None


def _descend(data: bytes, root: re.Match[bytes], sites: _Sites, own: int) -> dict[FrameKey, int]:
    found: dict[FrameKey, int] = {}
    # Level by level: children still to come, bytes that no child has claimed yet, and the best site so far.
    children, unclaimed, bests = [int(root[1])], [int(root[2])], [_Site(UNKNOWN_SITE, _PRUNED)]
    at, line = root.end(), re.compile(_LINE)
    while children:
        if not children[-1]:
            children.pop()
            rest, best = unclaimed.pop(), bests.pop()
            if rest < 0:
                raise _bad("holds less than its children")
            if rest:
                found[best.key] = found.get(best.key, 0) + rest
            continue
        depth = len(children)
        match = line.match(data, at)
        if match is None or match.start(1) != at + depth + 1:
            # Between here and the next child is what lies below a site.
            at = data.find(b"\n" + b" " * depth + b"n", at) + 1
            match = line.match(data, at) if at else None
            if match is None:
                raise _cut("ends within its tree")
        at = match.end()
        digits, size_digits, text = match.groups()
        count, size = int(digits), int(size_digits)
        site, best = sites[text], bests[-1]
        if site.rank <= best.rank and not (site.rank == _PRUNED and best.rank == _LIBRARY):
            site = best
        children[-1] -= 1
        unclaimed[-1] -= size
        if count and site.rank != own:
            children.append(count)
            unclaimed.append(size)
            bests.append(site)
        else:
            found[site.key] = found.get(site.key, 0) + size
    return found


def _cut(what: str) -> InputError:
    return InputError(f"the snapshot {what}", slug="massif-truncated", hint="is the disk full?")


def _bad(what: str) -> InputError:
    return InputError(f"a node of the snapshot's tree {what}", slug="massif-unknown-line")


TRUNCATED = "massif-truncated"
DAMAGED = "massif-damaged"
_CUT_HINT = "massif writes its file when the program ends, unless it is killed with SIGKILL"
_PAGES = b"--pages-as-heap=yes"
HEAPTRACK = b"heaptrack"  # what it gives as the description

_HEADER_BYTES = 8 << 20  # Linux gives a program at most 6 MiB of arguments
_TIME_UNITS = (b"i", b"ms", b"B", b"s")
_NUMBER = rb"([0-9]{1,18})"
_HEAD_LINES = (
    ("'snapshot=NUMBER'", rb"snapshot=[0-9]{1,18}"),
    ("'#-----------'", rb"#[^\r\n]*"),
    # heaptrack writes fractions of seconds.
    ("'time=NUMBER'", rb"time=([0-9]{1,18}(?:\.[0-9]*)?(?:e[-+]?[0-9]{1,2})?)"),
    ("'mem_heap_B=BYTES'", rb"mem_heap_B=" + _NUMBER),
    ("'mem_heap_extra_B=BYTES'", rb"mem_heap_extra_B=" + _NUMBER),
    ("'mem_stacks_B=BYTES'", rb"mem_stacks_B=" + _NUMBER),
    ("'heap_tree=empty', 'detailed' or 'peak'", rb"heap_tree=(empty|detailed|peak)"),
)
_HEAD = rb"\r?\n".join(pattern for _, pattern in _HEAD_LINES) + rb"(?:\r?\n|\Z)"
_XTREE_ROOT = rb"n[0-9]+: [0-9]+ ([A-Za-z]+) : "
_CHILDREN = rb"\n *n([1-9][0-9]{0,17}): "  # of a node that has some


class MassifProfile:
    """A massif.out: totals of all snapshots; trees are parsed when asked for (model.Profile)."""

    def __init__(
        self,
        source: str,
        header: _Header,
        unit: str,
        notices: Sequence[Notice],
        snapshots: Sequence[Totals],
        marked_peak_index: Optional[int],
        areas: Sequence[Optional[TreeArea]],
    ) -> None:
        self.source = source
        self.source_format = "massif"
        self.command = _text(header.command)
        self.options = _text(header.description)  # massif's own; heaptrack's name where that wrote the file
        self.time_unit = _text(header.time_unit)  # "" if a cut took it
        self.unit = unit
        self.notices = notices
        self.snapshots = snapshots
        # Massif's own mark; the real peak may lie elsewhere, up to 24 % higher.
        self.marked_peak_index = marked_peak_index
        self.symbols: Optional[Symbols] = None  # who names calls that valgrind has no name for
        # The two snapshots to be compared; instead of the first, None: the start, when there was nothing.
        self.compared: Optional[tuple[Optional[int], int]] = None
        self.covered: Optional[Stretch] = None
        self._areas = areas
        self._texts = NodeTexts()

    @property
    def peak_index(self) -> int:
        """The snapshot with the largest total; of several one with a tree, then the first."""
        return calltree.peak_index(self.snapshots)

    @property
    def peak_tree_index(self) -> Optional[int]:
        """The snapshot with the largest total of those that have a tree; None when none has."""
        return calltree.peak_tree_index(self.snapshots)

    def choose_stretch(self, stretch: Stretch) -> None:
        """Compare the last snapshots with trees that are not after the two moments. Raises InputError."""
        begin, end = stretch.values_in(self.time_unit, self.source)
        trees = [totals for totals in self.snapshots if totals.has_tree]
        if self.snapshots and begin >= self.snapshots[-1].time:
            raise stretch.after_end(self.source, format_moment(self.snapshots[-1].time, self.time_unit))
        earlier = [one.index for one in trees if one.time <= begin] or [one.index for one in trees]
        later = [one.index for one in trees if one.time <= end and (not begin or one.index > earlier[-1])]
        if not later:
            nearest = sorted(trees, key=lambda one: min(abs(one.time - begin), abs(one.time - end)))[
                :_MOST_TIMES
            ]
            times = ", ".join(format_moment(one.time, self.time_unit) for one in sorted(nearest))
            raise InputError(
                f"{printable(self.source)} has no two snapshots with a call tree between these moments",
                slug="empty-stretch",
                hint=f"the nearest are at {times}; --detailed-freq=1 makes massif keep all"
                if trees
                else "it has none",
            )
        self.compared = earlier[-1] if begin else None, later[-1]
        began = self.snapshots[earlier[-1]].time if begin else 0.0
        ended = self.snapshots[later[-1]].time
        self.covered = Stretch(Moment(began, self.time_unit), Moment(ended, self.time_unit))

    def counted(self, index: int) -> str:
        """Return what the "snapshot" *index* of the xtree flavour counts: ``curB``; "" if unknown."""
        area = self._areas[index]
        root = None if area is None else re.compile(_XTREE_ROOT).match(area.data, area.start)
        return "" if root is None else root[1].decode("ascii")

    def tree(self, index: int) -> Optional[CallTree]:
        """Return the call tree of snapshot *index*, parsed now; None when it has none.

        Raises InputError, naming the line, when it is damaged. From then on the snapshot has none; a notice says so.
        """
        area = self._areas[index]
        if area is None:
            return None
        try:
            tree = parse_tree(area, self._texts)
        except InputError as error:
            self._set_aside(index, error)
            raise
        if self._texts.is_large:
            self._texts = NodeTexts()
        if self.symbols is None:
            return tree
        tree, said = with_names(tree, self.symbols, self.source)
        self.notices = [*self.notices, *(notice for notice in said if notice not in self.notices)]
        return tree

    def _set_aside(self, index: int, error: InputError) -> None:
        totals, areas = list(self.snapshots), list(self._areas)
        totals[index], areas[index] = totals[index]._replace(has_tree=False), None
        self.snapshots, self._areas = totals, areas
        text = f"{error.message}: the call tree of snapshot {index} is left out"
        self.notices = [*self.notices, Notice(DAMAGED, text)]


class _Header(NamedTuple):
    start: int
    end: int
    description: bytes = b""
    command: bytes = b""
    time_unit: bytes = b""


def read_massif(
    data: Data, source: str, notices: Sequence[Notice] = (), *, counts: bool = False
) -> MassifProfile:
    """Index *data*, the text of a massif.out; *source* is its path, *notices* are those from opening it.

    A file that was truncated gives what can be read and a notice. Raises InputError for anything else
    that is not a massif.out, and for the xtree flavour, which is not a timeline, unless *counts* asks for it:
    its "snapshots" are counts of one moment.
    """
    return _Index(data, source, notices, counts=counts).read()


def read_totals(data: bytes, source: str = "the snapshot") -> Totals:
    """Return the totals of the first snapshot of *data*, without looking at the rest."""
    at = data.find(b"\nsnapshot=") + 1
    head = re.compile(_HEAD).match(data, at) if at else None
    if head is None:
        raise InputError(
            f"{printable(source)} has no complete snapshot", slug=TRUNCATED, hint="is the disk full?"
        )
    return _totals(head, 0, has_tree=head[5] != b"empty")


def read_unit(data: bytes) -> str:
    """Return what the trees of *data*, as massif wrote it, count; from its first line alone."""
    return calltree.PAGE_BYTES if _PAGES in data[: max(data.find(b"\n"), 0)].split() else calltree.HEAP_BYTES


def _totals(head: re.Match[bytes], index: int, *, has_tree: bool) -> Totals:
    return Totals(index, float(head[1]), int(head[2]), int(head[3]), int(head[4]), has_tree)


class _Index:
    """Find the snapshots and their trees in one pass over the file."""

    def __init__(self, data: Data, source: str, notices: Sequence[Notice], *, counts: bool) -> None:
        self._counts = counts
        self.data = data
        self.source = source
        self.name = printable(source)
        self.end = _end_of_text(data)
        self.notices = list(notices)
        self.totals: list[Totals] = []
        self.areas: list[Optional[TreeArea]] = []
        self.peak: Optional[int] = None
        self.faults: list[InputError] = []  # one for each snapshot that can't be read
        self.header = self._read_header()

    def read(self) -> MassifProfile:
        if b"xtree.produce_report" in self.header.description and not self._counts:
            raise self._xtree()
        for head, start, end in self._heads():
            self._add(head, start, end)
        self._say_what_is_damaged()
        self._say_that_the_peak_is_missing()
        if not self.totals:
            message = (
                f"{self.name} was truncated at line {self._last_line()}, before the end of its first snapshot"
            )
            raise InputError(message, slug=TRUNCATED, hint=_CUT_HINT)
        return MassifProfile(
            self.source,
            self.header,
            self._unit(),
            tuple(self.notices),
            tuple(self.totals),
            self.peak,
            tuple(self.areas),
        )

    # --- the header

    def _read_header(self) -> _Header:
        if self.data[:1] != b"#":
            header = self._parse_header(0)
            if header is None:
                raise self._bad_header()
            return header
        # heaptrack writes its header where its input names the command, which may be last.
        at = self.data.find(b"\ndesc: heaptrack") + 1
        header = self._parse_header(at) if at else None
        if header is None:
            self.notices.append(
                Notice(
                    TRUNCATED,
                    f"{self.name} lacks the lines that name the command and the time unit: its beginning was removed,"
                    " or its end was truncated if heaptrack wrote it",
                )
            )
            return _Header(at or self.end, self.end, HEAPTRACK if at else b"")
        return header

    def _parse_header(self, start: int) -> Optional[_Header]:
        """Return the header that starts at *start*; None if it is not whole."""
        data, limit = self.data, min(self.end, start + _HEADER_BYTES)
        command = start if data[start : start + 4] == b"cmd:" else data.find(b"\ncmd:", start, limit) + 1
        if not command and data[:4] != b"cmd:":
            return None
        # An argument may hold a line that looks like the unit's: what follows the real one is a snapshot.
        stop = command
        while True:
            unit = data.find(b"\ntime_unit:", max(stop - 1, 0), limit) + 1
            stop = data.find(b"\n", unit, limit) + 1
            if not unit or not stop:
                return None
            if stop >= self.end or data[stop : stop + 1] == b"#":
                break
        value = data[unit + len(b"time_unit:") : stop].strip()
        if value not in _TIME_UNITS:
            raise unknown_line(data, unit, self.source, "'time_unit: i', 'ms', 'B' or 's'")
        description = b" ".join(data[start:command].replace(b"desc:", b"").split())
        return _Header(start, stop, description, _argv(data[command + len(b"cmd:") : unit - 1]), value)

    def _bad_header(self) -> InputError:
        snapshot = self.data.find(b"\nsnapshot=")
        if snapshot < 0:
            message = f"{self.name} was truncated at line {self._last_line()}, in its header"
            return InputError(message, slug=TRUNCATED, hint=_CUT_HINT)
        line = self.data.rfind(b"\n", 0, snapshot) + 1
        return unknown_line(self.data, line, self.source, "'cmd: …' and 'time_unit: …' before it")

    # --- the snapshots

    def _heads(self) -> Iterator[tuple[re.Match[bytes], int, int]]:
        """Yield the head of each whole snapshot, and where what follows it starts and ends."""
        data, header = self.data, self.header
        before = header.end if header.start == 0 else 0
        if before < self.end and data[before : before + 1] != b"#":
            raise unknown_line(data, before, self.source, "'#-----------'")
        at = self._next(before)
        while at < self.end:
            snapshot = data.find(b"\n", at) + 1
            head = re.compile(_HEAD).match(data, snapshot) if snapshot else None
            if head is None:
                fault = self._fault_of_head(at)
                if fault is None:
                    return
                self.faults.append(fault)
                at = self._next(max(snapshot, at + 1))
                continue
            following = self._next(head.end() - 1)
            stop = header.start if head.end() <= header.start < following else following
            yield head, head.end(), stop
            at = following

    def _next(self, at: int) -> int:
        """Return where the '#' line of the first snapshot from *at* on starts; the end if there is none."""
        data = self.data
        found = data.find(b"\nsnapshot=", at)
        if found < 0:  # what a cut has left of one
            return data.find(b"\n#", max(at - 1, 0)) + 1 or self.end
        start = data.rfind(b"\n", 0, found) + 1
        if data[start : start + 1] != b"#":
            raise unknown_line(data, start, self.source, "'#-----------' before a snapshot")
        return start

    def _say_what_is_damaged(self) -> None:
        if self.faults and not self.totals:
            raise self.faults[0]
        if self.faults:
            count = plural(len(self.faults), "snapshot")
            text = f"{self.faults[0].message}; left out, and not numbered: {count} of {self.name}"
            self.notices.append(Notice(DAMAGED, text))

    def _say_that_the_peak_is_missing(self) -> None:
        """Add a notice if memory was freed and no snapshot is the peak: massif takes one before the first free()."""
        if self.peak is not None or self._counts or self.header.description in (HEAPTRACK, b""):
            return
        if any(notice.slug == TRUNCATED for notice in self.notices):
            return
        sizes = [totals.heap_bytes + totals.extra_bytes for totals in self.totals]
        if any(after < before for before, after in zip(sizes, sizes[1:])):
            text = f"{self.name} has no snapshot of the peak, though memory was freed: its end was cut off"
            self.notices.append(Notice(TRUNCATED, f"{text} after snapshot {len(sizes) - 1}"))

    def _fault_of_head(self, at: int) -> Optional[InputError]:
        """Return the error for a line of the totals whose '#' line is at *at*; None: the file ends in it, as noted."""
        data, index = self.data, len(self.totals)
        for expected, pattern in chain([_HEAD_LINES[1]], _HEAD_LINES):
            stop = data.find(b"\n", at) + 1
            if not stop:
                break  # the line isn't whole
            if re.fullmatch(pattern, data[at:stop].rstrip(b"\r\n")) is None:
                return unknown_line(data, at, self.source, expected)
            at = stop
        self._cut(f"in the totals of snapshot {index}, which is left out")
        return None

    def _add(self, head: re.Match[bytes], start: int, end: int) -> None:
        index = len(self.totals)
        kind = head[5]
        has_tree = kind != b"empty"
        if not has_tree and start < end:
            self.faults.append(unknown_line(self.data, start, self.source, "the next snapshot"))
        inner = self.data.find(b"\n#", start, end) + 1 if has_tree else 0
        if inner:  # a snapshot whose own first line can't be read
            line = self.data.find(b"\n", inner) + 1 or inner
            self.faults.append(unknown_line(self.data, line, self.source, "'snapshot=NUMBER'"))
            end = inner
        if has_tree and end >= self.end and self._is_cut(start, end):
            self._cut(f"in the tree of snapshot {index}: its totals are complete, its tree is left out")
            has_tree = False
        totals = _totals(head, index, has_tree=has_tree)
        self.totals.append(totals)
        self.areas.append(self._area(start, end, totals) if has_tree else None)
        if kind == b"peak":
            self.peak = index

    def _area(self, start: int, end: int, totals: Totals) -> TreeArea:
        if not any(self.areas) and not self._counts:
            root = re.compile(_XTREE_ROOT).match(self.data, start)
            if root is not None:
                raise self._xtree()
        exact = self.header.description not in (HEAPTRACK, b"")
        return TreeArea(self.data, start, end, self.source, totals.total_bytes, totals.heap_bytes, exact)

    def _is_cut(self, start: int, end: int) -> bool:
        """Return whether the file ends before the tree does."""
        if start >= end or self.data[end - 1 : end] != b"\n":
            return True
        if self.header.description == HEAPTRACK and b": 0 " in self.data[start : start + 30]:
            return False  # an empty heap, whose children it counts but does not list
        area = b"\n" + self.data[start:end]
        return sum(map(int, re.findall(_CHILDREN, area))) > area.count(b"\n") - 2

    def _cut(self, what: str) -> None:
        self.notices.append(
            Notice(TRUNCATED, f"{self.name} was truncated at line {self._last_line()}, {what}")
        )

    def _last_line(self) -> int:
        return line_number(self.data, max(0, len(self.data) - 1))

    # --- what the trees are

    def _unit(self) -> str:
        area = next(filter(None, self.areas), None)
        if area is not None:
            root = self.data[area.start : area.start + 200].split(b"\n", 1)[0]
            pages = b"(page allocation syscalls)" in root
        else:
            pages = _PAGES in self.header.description.split()
        return calltree.PAGE_BYTES if pages else calltree.HEAP_BYTES

    def _xtree(self) -> InputError:
        return InputError(
            f"{self.name} is an execution-tree report (valgrind's --xtree-memory or --xtree-leak) in massif's "
            "format: its snapshots are different counts of one moment, not a timeline",
            slug="massif-xtree",
            hint="record one with valgrind --tool=massif",
        )


def _end_of_text(data: Data) -> int:
    """Return where *data* ends, less empty lines after its last one."""
    tail = data[max(0, len(data) - 4096) :]
    empty = len(tail) - len(tail.rstrip(b"\r\n"))
    newline = data.find(b"\n", len(data) - empty)
    return newline + 1 if newline >= 0 else len(data)


def _argv(text: bytes) -> bytes:
    return text[1:].rstrip(b"\r") if text[:1] == b" " else text.rstrip(b"\r")


def _text(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
