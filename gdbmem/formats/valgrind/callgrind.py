"""callgrind's format as valgrind's execution trees have it: one chain of calls for each stack.

massif and memcheck write it (--xtree-memory, --xtree-leak, monitor xtmemory and xtleak). Files of callgrind
itself count instructions, not memory, and are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.stacks import (
    ALLOCATED,
    DEEPEST,
    FREED,
    IN_USE,
    TRUNCATED,
    Content,
    Hidden,
    Stack,
    StackProfile,
    bad_line,
    check_count,
    choose_metric,
)
from gdbmem.formats.valgrind.massif import MassifProfile, read_massif
from gdbmem.model import calltree
from gdbmem.model.calltree import CallTree, Frame
from gdbmem.text import printable

# Event of bytes → (metric, event of blocks). The first that a file has is its default. DB is what DIB is a part of, and
# IB the same blocks once more where they were allocated: definitely lost is the difference, as memcheck's sums say it,
# and DB itself the metric `lost`.
_EVENTS = {
    "curB": (IN_USE, "curBk"),
    "totB": (ALLOCATED, "totBk"),
    "totFdB": (FREED, "totFdBk"),
    "DB": (calltree.DEFINITELY, "DBk"),
    "PB": (calltree.POSSIBLY, "PBk"),
    "IB": (calltree.INDIRECTLY, "IBk"),
    "DIB": ("definitely-indirectly-lost", "DIBk"),
    "RB": (calltree.REACHABLE, "RBk"),
    "SB": (calltree.SUPPRESSED, "SBk"),
}
_LEAKS = ("D", "P", "I", "DI", "R", "S")
_NAME = re.compile(rb"(c?)(fl|fn|fi|fe|ob)=(?:\((\d{1,9})\) ?)?(.*)")
POSITION = re.compile(rb"([+-]?)(0x[0-9a-f]{1,16}|[0-9]{1,18})|\*")
_COST = re.compile(rb"[0-9]{1,25}")
# Of valgrind's writer, then of pprof's.
_UNKNOWN = ("???", "UnknownFn???", "UnknownFile???", "", "?", "??", "<unknown>")


class NamedPlace:
    """The place that the next costs are of: names that the format gives once in full and then by number, and a line."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._known: dict[tuple[bytes, int], str] = {}
        self._names = {b"ob": "", b"fl": "", b"fn": ""}
        self._line = 0

    def take_name(self, line: bytes, number: int) -> bool:
        """Take what *line* names; return whether it names anything."""
        match = _NAME.fullmatch(line)
        if match is None:
            return False
        kind = b"fl" if match[2] in (b"fi", b"fe") else match[2]
        text = match[4].decode("utf-8", "surrogateescape")
        if match[3] is not None:
            key = kind, int(match[3])
            if not text and key not in self._known:
                raise bad_line(self._source, number, line, "a name that was given before")
            text = self._known.setdefault(key, text)
        if not match[1]:  # what is called stands where it is itself
            self._names[kind] = text
        return True

    def take_line(self, position: bytes) -> bool:
        """Go to the line at *position*, which may count from the last one on; return whether it is one."""
        match = POSITION.fullmatch(position)
        if match is not None and match[2]:
            at = int(match[2], 16 if match[2].startswith(b"0x") else 10)
            self._line = {b"+": self._line + at, b"-": max(self._line - at, 0)}.get(match[1], at)
        return match is not None

    def frame(self) -> Frame:
        """Return it."""
        function, file, place = (
            None if self._names[kind] in _UNKNOWN else self._names[kind] for kind in (b"fn", b"fl", b"ob")
        )
        return Frame(function, file, self._line or None if file else None, place)


class _CostColumn(NamedTuple):
    # The columns of a metric: its bytes are the sum of some numbers minus that of others.
    plus: tuple[int, ...]
    less: tuple[int, ...]
    blocks: Optional[int]
    is_change: bool = False  # since the last search; what became less is no more of it

    def bytes_of(self, costs: Sequence[int]) -> int:
        found = sum(map(costs.__getitem__, self.plus)) - sum(map(costs.__getitem__, self.less))
        return max(found, 0) if self.is_change else found

    def stack(self, path: Sequence[int], costs: Sequence[int], source: str) -> Stack:
        size = check_count(self.bytes_of(costs), source)
        return Stack(path, size, costs[self.blocks] if self.blocks is not None else 0)


class _CallgrindText:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.totals: Optional[list[int]] = None
        self.command = ""
        self.creator = ""
        self.frames: dict[Frame, int] = {}
        self.stacks: list[tuple[tuple[int, ...], list[int]]] = []
        self.cut_at: Optional[int] = None


def read_callgrind(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*; raises InputError for a file that counts no memory, or a line of another format."""
    text = _CallgrindReader(bytes(data).split(b"\n"), source).read()
    columns = _columns(text.events)
    if not text.creator.startswith("xtree") or not columns:
        what = ", ".join(text.events[:4]) or "nothing"
        raise InputError(
            f"{printable(source)} is a callgrind profile that counts {printable(what)}, not memory",
            slug="no-memory-counts",
            hint="give one of valgrind's execution trees: --xtree-memory=full, or monitor xtmemory",
        )
    chosen = choose_metric(metric, list(columns), source)
    column = columns[chosen]
    found = (column.stack(path, costs, source) for path, costs in text.stacks)
    stacks = [stack for stack in found if stack.bytes or stack.blocks]
    total = sum(stack.bytes for stack in stacks)
    return StackProfile(
        source=source,
        source_format="callgrind",
        metric=chosen,
        metrics=list(columns),
        total_bytes=total,
        load=lambda profile: Content(
            stacks, [(frame,) for frame in text.frames], has_blocks=column.blocks is not None
        ),
        command=text.command,
        notices=_notices(text, {*column.plus, *column.less}, source),
    )


def _columns(events: Sequence[str]) -> dict[str, _CostColumn]:
    """Return the columns of the bytes and blocks of each metric."""
    at = {event: index for index, event in enumerate(events)}

    def column(event: str, blocks: str, opposite: str = "") -> _CostColumn:
        plus, less = [event], [opposite] if opposite else []
        if event.lstrip("id") == "DB":
            less.append(event[:-1] + "IB")
            plus += [opposite[:-1] + "IB"] if opposite else []
        where = [tuple(at[name] for name in names if name in at) for names in (plus, less)]
        return _CostColumn(where[0], where[1], at.get(blocks), is_change=bool(opposite))

    found = {calltree.WITH_INDIRECT: _CostColumn((at["DB"],), (), at.get("DBk"))} if "DB" in at else {}
    found.update(
        {metric: column(event, blocks) for event, (metric, blocks) in _EVENTS.items() if event in at}
    )
    for letters in _LEAKS:  # what became more or less since the last leak search
        metric = _EVENTS[f"{letters}B"][0]
        for sign, other, word in (("i", "d", "increased"), ("d", "i", "decreased")):
            event = f"{sign}{letters}B"
            if event in at:
                opposite = f"{other}{letters}B" if letters == "D" else ""
                found[f"{word}-{metric}"] = column(event, f"{event}k", opposite)
    return found


def _notices(text: _CallgrindText, columns: Iterable[int], source: str) -> list[Notice]:
    name = printable(source)
    if text.totals is None:
        return [
            Notice(
                calltree.BYTES_MISSING,
                f"{name} was truncated at line {text.cut_at}: it lacks its totals, and maybe stacks",
            )
        ]
    for at in columns:
        total = sum(costs[at] for _, costs in text.stacks)
        if text.totals[at] != total:
            raise InputError(
                f"the stacks of {name} have {total} bytes, but its totals are {text.totals[at]}",
                slug="totals-differ",
                hint="the file is damaged, or two were joined",
            )
    return []


class _CallgrindReader:
    def __init__(self, lines: Sequence[bytes], source: str) -> None:
        self.lines = lines
        self.source = source
        self.text = _CallgrindText()
        self._place = NamedPlace(source)
        self._chain: list[int] = []
        self._in_call = False

    def read(self) -> _CallgrindText:
        last = len(self.lines) - 1
        for at, raw in enumerate(self.lines):
            line = raw.rstrip(b"\r")
            if at == last:
                if line or self.text.totals is None:
                    self.text.cut_at = at + 1
                break
            if line[:1].isdigit() or line[:1] in (b"+", b"-", b"*"):
                self._cost(line, at + 1)
            elif not self._place.take_name(line, at + 1):
                self._header(line, at + 1)
        if not self.text.events:
            raise InputError(f"{printable(self.source)} was truncated in its header", slug=TRUNCATED)
        return self.text

    def _header(self, line: bytes, number: int) -> None:
        if not line or line.startswith(b"#"):
            return
        key, colon, rest = line.partition(b":")
        value = rest.strip().decode("utf-8", "surrogateescape")
        if line.startswith(b"calls="):
            self._in_call = True
        elif not colon or not re.fullmatch(rb"[a-z]+", key):
            raise bad_line(self.source, number, line, "a header, a name, a cost or a call")
        elif key == b"events":
            self.text.events = value.split()
        elif key == b"cmd":
            self.text.command = value
        elif key == b"creator":
            self.text.creator = value
        elif key in (b"totals", b"summary"):
            # valgrind 3.19 writes this of a program without allocations.
            self.text.totals = self._costs(b"" if rest.strip() == b"(null)" else rest, number)

    def _cost(self, line: bytes, number: int) -> None:
        if self._in_call:  # what the called function costs: it comes again where that function is
            self._in_call = False
            return
        position, _, costs = line.partition(b" ")
        if not self._place.take_line(position):
            raise bad_line(self.source, number, line, "'LINE COSTS'")
        self._chain.append(self._frame())
        if len(self._chain) > DEEPEST:
            raise InputError(f"{printable(self.source)}:{number}: a stack without end", slug="stack-too-deep")
        if costs.strip():
            self.text.stacks.append((tuple(reversed(self._chain)), self._costs(costs, number)))
            self._chain.clear()

    def _costs(self, text: bytes, number: int) -> list[int]:
        words = text.split()
        if not all(map(_COST.fullmatch, words)):
            raise bad_line(self.source, number, text, "whole numbers")
        costs = [check_count(int(word), self.source, number) for word in words]
        if len(costs) > len(self.text.events):
            raise bad_line(self.source, number, text, f"{len(self.text.events)} costs")
        return costs + [0] * (len(self.text.events) - len(costs))

    def _frame(self) -> int:
        frame = self._place.frame()
        return self.text.frames.setdefault(frame, len(self.text.frames))


# valgrind's execution trees of memory in massif's format: one moment, counted several ways.
#
# memcheck and massif write it (monitor xtmemory FILE.ms, --xtree-memory=full --xtree-memory-file=FILE.ms). Other
# than callgrind's form of the same it names inlined functions.


# Count of bytes → (metric, count of blocks).
_COUNTS = {"curB": (IN_USE, "curBk"), "totB": (ALLOCATED, "totBk"), "totFdB": (FREED, "totFdBk")}


def read_xtree(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*; raises InputError if it counts no bytes, or the bytes' tree was truncated."""
    found = read_massif(data, source, counts=True)
    at = {found.counted(index): index for index in range(len(found.snapshots))}
    known = {name: (at[size], at.get(blocks)) for size, (name, blocks) in _COUNTS.items() if size in at}
    if not known:
        raise InputError(
            f"{printable(source)} is an execution tree that counts no bytes, or was truncated before them",
            slug="no-memory-counts",
            hint="record one with --xtree-memory=full --xtree-memory-file=FILE.ms",
        )
    chosen = choose_metric(metric, list(known), source)
    size_at, blocks_at = known[chosen]
    notices = list(found.notices)
    if blocks_at is None and not notices:  # valgrind writes both
        notices.append(Notice(TRUNCATED, f"{printable(source)} was truncated before its count of blocks"))
    return StackProfile(
        source=source,
        source_format="xtree",
        metric=chosen,
        metrics=list(known),
        total_bytes=found.snapshots[size_at].heap_bytes,
        load=lambda profile: _content(found, size_at, blocks_at),
        command=found.command,
        notices=notices,
    )


def _content(found: MassifProfile, size_at: int, blocks_at: Optional[int]) -> Content:
    numbers: dict[Frame, int] = {}
    tree = found.tree(size_at)
    assert tree is not None  # what has no tree counts nothing by name
    counts = found.tree(blocks_at) if blocks_at is not None else None
    stacks = [Stack(path, own) for path, own in _paths(tree, numbers)]
    if counts is not None:
        stacks += [Stack(path, 0, own) for path, own in _paths(counts, numbers)]
    hidden = _pruned(tree)
    return Content(
        stacks,
        [(frame,) for frame in numbers],
        has_blocks=counts is not None,
        hidden=Hidden(hidden, tree.threshold_bytes, 0 if counts is None else _pruned(counts))
        if hidden
        else None,
    )


def _pruned(tree: CallTree) -> int:
    return sum(tree.bytes[node] for node, number in enumerate(tree.frame) if number == calltree.PRUNED)


def _paths(tree: CallTree, numbers: dict[Frame, int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield each listed path, as *numbers* number its frames, with what it alone counts."""
    shared = [numbers.setdefault(frame, len(numbers)) for frame in tree.frames]
    path: list[int] = []
    own = tree.self_bytes()
    for node, depth in tree.walk():
        number = tree.frame[node]
        del path[max(depth - 1, 0) :]
        path.append(shared[number] if number >= 0 else -1)
        if own[node] and number >= 0:
            yield tuple(path), own[node]
