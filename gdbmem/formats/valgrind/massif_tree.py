"""Call trees in massif's text: node lines → the columns of a CallTree."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import eq, sub
from typing import NamedTuple, Optional

from gdbmem.errors import InputError
from gdbmem.files import Data
from gdbmem.model.calltree import NO_LINE, PRUNED, ROOT, CallTree, Frame, Frames, line_column
from gdbmem.text import printable

_NODE = rb"(?m)^( *)n([0-9]+): ([0-9]+) (.*)$"
_PRUNED_TEXT = (
    rb"in ([0-9]{1,18}) places?, (?:all )?below massif's threshold \(([0-9.]+(?:e[-+]?[0-9]+)?)%?\)"
)
_FRAME_TEXT = rb"0x([0-9A-Fa-f]{1,16}): (.+)"
# Most are so: nothing that is in parentheses but a file and a line. Of others all groups are empty.
_ORDINARY_TEXTS = r"(?m)^(?:0x([0-9A-F]{1,16}): ([^()?\n]+) \(([^():\n]+):([0-9]{1,9})\)|.*)$"
_KEPT_TEXTS = 50_000  # in their numbers' dictionary, or frames for the trees to come
_BLOCK_BYTES = 1 << 20  # lines are parsed by the block: rows of a whole tree would take ten times its size


class NodeText(NamedTuple):
    """The parsed text behind a node's bytes."""

    frame: Optional[Frame]  # None: merged places
    address: int = 0  # lines with one address after another are one call, inlined
    places: int = 0  # how many places are merged
    percent: float = 0.0  # … and below which share of the total each of them is


class UnknownTextError(ValueError):
    """A node's text is not of one of massif's kinds."""


class NodeTexts(dict[bytes, int]):
    """A number for each recently read text, and its meaning: a file repeats the same few thousand in all its trees."""

    def __init__(self) -> None:
        super().__init__()
        self.frame = array("i")  # of each text: the number of its frame, or PRUNED
        self.address = array("Q")
        self.merged: dict[int, NodeText] = {}
        self._numbers: dict[object, int] = {}  # of frames, by their distinguishing parts
        self._functions: list[Optional[str]] = []
        self._files: list[Optional[str]] = []
        self._lines = array("q")
        self._objects: list[Optional[str]] = []
        self._names: dict[str, str] = {}  # of files, each kept once

    def numbers(self, texts: Sequence[bytes]) -> array[int]:
        """Return the numbers of *texts*, which hold until the next call. Raises UnknownTextError."""
        if len(self) > _KEPT_TEXTS:
            self.clear()
            self.merged.clear()
            del self.frame[:], self.address[:]
        first, new = len(self), list(dict.fromkeys(texts))
        if first:
            new = [text for text in new if text not in self]
        if new:
            self._learn(new)
        if len(new) == len(texts):
            return array("i", range(first, first + len(new)))
        return array("i", map(self.__getitem__, texts))

    def _learn(self, texts: Sequence[bytes]) -> None:
        rows = re.findall(_ORDINARY_TEXTS, _decode(b"\n".join(texts)))
        odd = [at for at, row in enumerate(rows) if not row[0]]
        start = 0
        for at in [*odd, len(texts)]:
            if start < at:
                self._learn_ordinary(texts[start:at], rows[start:at])
            if at < len(texts):
                self._learn_odd(texts[at])
            start = at + 1
        self.update(zip(texts, range(len(self), len(self) + len(texts))))

    def _learn_ordinary(self, texts: Sequence[bytes], rows: Sequence[tuple[str, str, str, str]]) -> None:
        known = self._numbers
        places = [text[len(row[0]) + 2 :] for text, row in zip(texts, rows)]
        new = {place: row for place, row in zip(places, rows) if place not in known}
        if new:
            _, functions, files, lines = zip(*new.values())
            known.update(zip(new, range(len(self._functions), len(self._functions) + len(new))))
            self._functions += functions
            self._files += map(self._names.setdefault, files, files)
            self._lines.extend([int(line) or NO_LINE for line in lines])
            self._objects += [None] * len(new)
        if len(new) == len(places):
            self.frame.extend(range(len(self._functions) - len(new), len(self._functions)))
        else:
            self.frame.extend(map(known.__getitem__, places))
        self.address.extend([int(row[0], 16) for row in rows])

    def _learn_odd(self, text: bytes) -> None:
        entry, number = read_node_text(text), PRUNED
        if entry.frame is None:
            self.merged[len(self.frame)] = entry
        else:
            number = self._numbers.setdefault(entry.frame, len(self._functions))
            if number == len(self._functions):
                function, file, line, place, _ = entry.frame
                self._functions.append(function)
                self._files.append(file)
                self._lines.append(line_column(line))
                self._objects.append(place)
        self.frame.append(number)
        self.address.append(entry.address)

    def frames(self, column: array[int]) -> tuple[array[int], Frames]:
        """Return the table of the frames in *column*, and *column* with numbers into that."""
        used = [number for number in dict.fromkeys(column) if number >= 0]
        functions, files = self._functions[:], self._files[:]  # copies: more frames are to come
        lines, objects = self._lines[:], self._objects[:]
        if used != list(range(len(functions))):
            places = array("i", [PRUNED]) * len(functions) + array("i", [PRUNED, ROOT])  # at -2 and -1
            for place, number in enumerate(used):
                places[number] = place
            column = array("i", map(places.__getitem__, column))
            functions, files = [functions[n] for n in used], [files[n] for n in used]
            lines, objects = array("q", [lines[n] for n in used]), [objects[n] for n in used]
        return column, Frames(functions, files, lines, objects, bytes(len(used)), distinct=True)

    @property
    def is_large(self) -> bool:
        """Return whether there are more frames than are worth to be kept for the next tree."""
        return len(self._functions) > _KEPT_TEXTS


def read_node_text(text: bytes) -> NodeText:
    """Decode what follows a node's bytes: a frame with its address, or merged places.

    Raises UnknownTextError.
    """
    match = re.fullmatch(_FRAME_TEXT, text)
    if match is not None:
        frame = _read_frame(match[2])
        if frame.function is None and frame.file is None:
            # Nameless calls are distinguished by their addresses, which under valgrind are the same in each run.
            frame = frame._replace(function=f"0x{match[1].decode('ascii').lstrip('0') or '0'}")
        return NodeText(frame, int(match[1], 16))
    match = re.fullmatch(_PRUNED_TEXT, text)
    if match is None:
        raise UnknownTextError(printable(_decode(text)))
    try:
        return NodeText(None, places=int(match[1]), percent=min(float(match[2]), 100.0))
    except ValueError:  # "1.2.3"
        raise UnknownTextError(printable(_decode(text))) from None


def _read_frame(text: bytes) -> Frame:
    function, location = _split_location(text)
    name = None if function == b"???" else _decode(function)
    if location is None or location in (b"???", b"in ???"):
        return Frame(name)
    if location.startswith(b"in "):
        return Frame(name, object=_decode(location[3:]))
    file, colon, line = location.rpartition(b":")
    if colon and re.fullmatch(rb"-?[0-9]{1,9}", line):
        # Compilers give 0 to code that belongs to no line.
        return Frame(name, _decode(file), int(line) if int(line) > 0 else None)
    return Frame(name, object=_decode(location))  # heaptrack leaves "in " out


def _split_location(text: bytes) -> tuple[bytes, Optional[bytes]]:
    """Split ``f(int (*)(char)) (a.c:3)`` into the function and what its last parentheses hold."""
    at = text.rfind(b" (")
    if at < 0 or not text.endswith(b")"):
        return text, None
    if text.find(b")", at) < len(text) - 1:
        # "f (/my (old) files/a.c:3)": the path has parentheses; the location starts where they balance.
        opening = _opening_of_last(text)
        at = opening if opening > 0 else at
    return text[:at], text[at + 2 : -1]


def _opening_of_last(text: bytes) -> int:
    """Return the position of the blank before the parenthesis that the last one closes; -1 if there is none."""
    depth = 0
    for match in reversed(list(re.finditer(rb"[()]", text))):
        depth += 1 if match[0] == b")" else -1
        if depth == 0:
            at = match.start() - 1
            return at if text[at : at + 1] == b" " else -1
    return -1


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


class TreeArea(NamedTuple):
    """The part of a file that a tree occupies, and the facts of its snapshot."""

    data: Data
    start: int
    end: int
    source: str  # the path, for messages
    total_bytes: int  # heap, extra and stacks: what the threshold is a share of
    heap_bytes: int
    counts_are_exact: bool = True  # heaptrack counts children that it then leaves out

    def error(self, offset: int, expected: str) -> InputError:
        """Return the error for the line at *offset*."""
        return unknown_line(self.data, offset, self.source, expected)


def line_number(data: Data, offset: int) -> int:
    """Return the number, from 1, of the line that contains *offset*."""
    step = 1 << 20
    return 1 + sum(data[at : min(at + step, offset)].count(b"\n") for at in range(0, offset, step))


def unknown_line(data: Data, offset: int, source: str, expected: str) -> InputError:
    """Return the error for a line of another format, naming the line and *expected*."""
    end = data.find(b"\n", offset)
    line = _decode(data[offset : min(end if end >= 0 else len(data), offset + 60)]).rstrip("\r")
    found = f"'{printable(line)}'" if line else "an empty line" if end >= 0 else "the end of the file"
    return InputError(
        f"{printable(source)}, line {line_number(data, offset)}: expected {expected}, found {found}",
        slug="massif-unknown-line",
        hint="the file was changed or is not a massif file of a known version",
    )


class _Columns:
    """A tree's lines, column by column."""

    def __init__(self, texts: NodeTexts) -> None:
        self.depths = array("i")
        self.children = array("q")
        self.bytes = array("q")
        self.frame, self.address = array("i", [ROOT]), array("Q", [0])
        self.merged: list[NodeText] = []
        self._known = texts

    def add(self, rows: Sequence[tuple[bytes, bytes, bytes, bytes]]) -> None:
        """Append lines. Raises OverflowError, UnknownTextError."""
        blanks, children, sizes, texts = zip(*rows)
        if not self.depths:
            texts = texts[1:]  # the root's is not a frame
        self.depths.extend(map(len, blanks))
        self.children.extend(map(int, children))
        self.bytes.extend(map(int, sizes))
        known, numbers = self._known, self._known.numbers(texts)
        self.frame.extend(map(known.frame.__getitem__, numbers))
        self.address.extend(map(known.address.__getitem__, numbers))
        if known.merged:
            self.merged += [known.merged[number] for number in numbers if number in known.merged]


def parse_tree(area: TreeArea, texts: NodeTexts) -> CallTree:
    """Return the call tree in *area*.

    Raises InputError with file and line for anything that is not a whole tree that adds up.
    """
    columns = _Columns(texts)
    for offset, rows in _blocks(area):
        _add_rows(columns, area, offset, rows)
    _check_depths(columns.depths, area)
    parent, children, own = _link(columns)
    if area.counts_are_exact and children != columns.children:
        node = next(n for n, (a, b) in enumerate(zip(children, columns.children)) if a != b)
        raise area.error(
            _offset_of(area, node), f"a node with {children[node]} children, as many as follow it"
        )
    if min(own) < 0:
        node = next(n for n, left in enumerate(own) if left < 0)
        raise area.error(
            _offset_of(area, node), f"at least the {columns.bytes[node] - own[node]} bytes below"
        )
    if columns.bytes[0] != area.heap_bytes:
        raise area.error(area.start, f"a tree of {area.heap_bytes} bytes, like its snapshot")
    return _build(columns, parent, texts, area.total_bytes)


def _blocks(area: TreeArea) -> Iterator[tuple[int, list[tuple[bytes, bytes, bytes, bytes]]]]:
    """Yield the offset and the matched lines of one block after another."""
    data, at = area.data, area.start
    while at < area.end:
        stop = data.rfind(b"\n", at, min(at + _BLOCK_BYTES, area.end)) + 1
        if stop <= at:  # one line longer than a block
            stop = data.find(b"\n", at, area.end) + 1 or area.end
        block = data[at:stop]
        if b"\r\n" in block:
            block = block.replace(b"\r\n", b"\n")
        rows = re.findall(_NODE, block)
        if len(rows) != block.count(b"\n"):
            raise area.error(
                _first_bad_line(data, at, stop), "a node of the tree, as in ' n0: 16 0x1234: f (a.c:5)'"
            )
        yield at, rows
        at = stop


def _first_bad_line(data: Data, start: int, end: int) -> int:
    at = start
    while at < end:
        stop = data.find(b"\n", at, end) + 1 or end
        if re.fullmatch(_NODE, data[at:stop].rstrip(b"\r\n")) is None:
            return at
        at = stop
    return start


def _add_rows(
    columns: _Columns, area: TreeArea, offset: int, rows: Sequence[tuple[bytes, bytes, bytes, bytes]]
) -> None:
    known = len(columns.depths)
    try:
        columns.add(rows)
    except UnknownTextError:
        raise area.error(
            _offset_of(area, _first_unknown(rows, known)),
            "a frame '0xADDRESS: function (file:line)' or \"in N places, below massif's threshold\"",
        ) from None
    except (OverflowError, ValueError):  # ValueError: more digits than int() takes
        node = next(number for number, row in enumerate(rows, known) if len(row[1]) > 18 or len(row[2]) > 18)
        raise area.error(_offset_of(area, node), "a number below 2^63") from None


def _first_unknown(rows: Sequence[tuple[bytes, bytes, bytes, bytes]], known: int) -> int:
    """Return the number of the first node whose text does not have massif's form."""
    for node, row in enumerate(rows, known):
        try:
            if node:
                read_node_text(row[3])
        except UnknownTextError:
            return node
    return known


def _offset_of(area: TreeArea, node: int) -> int:
    """Return where the line of *node* starts."""
    at = area.start
    for _ in range(node):
        at = area.data.find(b"\n", at, area.end) + 1
    return at


def _check_depths(depths: array[int], area: TreeArea) -> None:
    if not depths or depths[0] != 0:
        raise area.error(area.start, "the root of the tree, not indented")
    deepest = max(map(sub, islice(depths, 1, None), depths), default=0)
    if deepest > 1 or depths.count(0) > 1:
        node = next(n for n in range(1, len(depths)) if depths[n] > depths[n - 1] + 1 or depths[n] == 0)
        raise area.error(_offset_of(area, node), f"a node indented by 1 to {depths[node - 1] + 1} blanks")


def _link(columns: _Columns) -> tuple[array[int], array[int], array[int]]:
    """Return each node's parent, its number of children and the bytes that these leave to it."""
    depths = columns.depths
    parent = array("q", bytes(8 * len(depths)))
    children = array("q", bytes(8 * (len(depths) + 1)))  # one more: the root's parent is -1, the last
    own = array("q", columns.bytes)
    own.append(0)
    at = [-1] * (max(depths) + 2)
    above = former = -1
    for node, (depth, size) in enumerate(zip(depths, columns.bytes)):
        if depth != former:  # else a sibling of the last one
            above, former = at[depth], depth
        at[depth + 1] = node
        parent[node] = above
        children[above] += 1
        own[above] -= size
    children.pop()
    own.pop()
    return parent, children, own


def _build(columns: _Columns, parent: array[int], texts: NodeTexts, total_bytes: int) -> CallTree:
    column, frames = texts.frames(columns.frame)
    inlined = bytearray(frames.inlined)
    for node in _inlined_nodes(columns):
        inlined[column[node]] = True
    frames.inlined = inlined
    merged = columns.merged
    return CallTree(
        frames=frames,
        parent=parent,
        frame=column,
        bytes=columns.bytes,
        address=columns.address,
        places=[entry.places for entry in merged],
        threshold_bytes=threshold_bytes(total_bytes, max(entry.percent for entry in merged)) if merged else 0,
    )


def threshold_bytes(total_bytes: int, percent: float) -> int:
    """Return a size that every place below massif's threshold stays under.

    massif prints the percentage rounded to two decimals; the bound is that of the largest one that is
    printed so. massif merges what is smaller than this share of heap, extra and stacks, cut to an integer.
    """
    half_hundredths = math.ceil(percent * 200 - 1e-6) + 1
    return max(1, total_bytes * half_hundredths // 20000)


def _inlined_nodes(columns: _Columns) -> Iterator[int]:
    """Yield the nodes that are inlined into their only child.

    massif repeats the address for each function inlined at it. Recursion repeats the address, too: then
    a text comes again, and with it the next call starts.
    """
    at, frames = columns.address, columns.frame
    depths, children = columns.depths, columns.children
    group: set[int] = set()
    last = -1
    for node, same in enumerate(map(eq, at, islice(at, 1, None))):
        if not same or not at[node] or children[node] != 1 or depths[node + 1] <= depths[node]:
            continue
        if last != node - 1 or not group:
            group = {frames[node]}
        last = node
        below = frames[node + 1]
        if below in group:
            group = {below}
        else:
            group.add(below)
            yield node
