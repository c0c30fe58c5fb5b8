"""The records of tracemalloc, read from its own tables: CPython 3.9 to 3.15, with or without symbols.

A table is recognised by its structure (Include/internal/pycore_hashtable.h, _Py_hashtable_t) and by function pointers
into the interpreter; a table of traces by its entries (Modules/_tracemalloc.c, trace_t).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

from gdbmem.allocators.cpython.arenas import data_mappings
from gdbmem.allocators.cpython.interpreters import published_version
from gdbmem.allocators.cpython.objects import read_str
from gdbmem.allocators.gather import gather, gather_words
from gdbmem.arrays import import_numpy
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable, read_pieces, read_text

_TABLE_WORDS = 10  # entries, buckets, their address, 4 functions, 2 that may be missing, 2 more
_CODE_AT, _CODE_OR_NONE_AT = (3, 4, 5, 8, 9), (6, 7)
_LEAST_BUCKETS = 16
_ENTRY_BYTES = 32  # next, hash, key, value
_NEXT_AND_VALUE = (0, 3)
_FRAMES_AT, _FRAME_BYTES = 12, 12  # in a traceback: hash, nframe, total_nframe; a frame: file name, line
_MOST_FRAMES = 1 << 16
_PIECE = 1 << 24
_LONGEST_CHAIN = 4096
_LONGEST_NAME = 1 << 14  # bytes
_SAMPLE = 64  # entries examined to determine the contents of a table


class PythonFrame(NamedTuple):
    """One frame that tracemalloc recorded, without a function name."""

    file: str
    line: int


class Traceback(NamedTuple):
    """The frames of one traceback, the allocating one first, and the allocations made there."""

    frames: Sequence[PythonFrame]
    bytes: int
    blocks: int
    cut_frames: int = 0  # omitted because of the limit of start(nframe)


class Traces(NamedTuple):
    """All live blocks that tracemalloc has traced."""

    tracebacks: Sequence[Traceback]
    tables: int = 0  # of traces; 0: none was found
    unread_blocks: int = 0  # counted in the tables, with an unreadable entry or traceback
    own_bytes: int = 0  # size of the tables themselves, without malloc's headers
    version: Optional[tuple[int, int, int]] = None  # that the interpreter publishes, since 3.13

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.tracebacks)

    @property
    def blocks(self) -> int:
        return sum(one.blocks for one in self.tracebacks)


class _Table(NamedTuple):
    entries: int
    buckets: int
    first: int  # address of the buckets


@dataclass
class _Sums:
    """Bytes and blocks by the address of a traceback."""

    bytes: dict[int, int] = field(default_factory=dict)
    blocks: dict[int, int] = field(default_factory=dict)
    unread: int = 0


def read_traces(memory: Memory, mappings: Sequence[Mapping]) -> Traces:
    """Return the traces of tracemalloc in the process with *memory*."""
    sums, tables, own = _Sums(), 0, 0
    readable = Ranges((m.start, m.end) for m in mappings if m.permissions.startswith("r"))
    for table in find_tables(memory, mappings):
        room = table.buckets * 8
        own_of_table = room + table.entries * _ENTRY_BYTES
        # Other data may look like a table, even one of terabytes.
        if readable.within(table.first, table.first + room) < room or not _holds_traces(
            memory, table, readable
        ):
            continue
        tables += 1
        own += own_of_table + table.entries * 16
        _add_table(memory, table, sums)
    return _named(memory, sums, tables, own)._replace(version=published_version(memory, mappings))


def find_tables(memory: Memory, mappings: Iterable[Mapping]) -> list[_Table]:
    """Return everything in anonymous memory with the structure of one of CPython's hash tables."""
    mappings = list(mappings)
    code = Ranges((m.start, m.end) for m in mappings if "x" in m.permissions and m.is_file)
    found: dict[int, _Table] = {}
    for mapping in data_mappings(mappings):
        for start, data in read_pieces(memory, mapping.start, mapping.end, _PIECE, _TABLE_WORDS * 8):
            found.update((start + at, table) for at, table in _tables_in(data, code))
    return [table for _, table in sorted(found.items())]


def _tables_in(data: bytes, code: Ranges) -> Iterator[tuple[int, _Table]]:
    np = import_numpy()
    words = np.frombuffer(data[: len(data) // 8 * 8], np.uint64)
    count = len(words) - _TABLE_WORDS
    if count <= 0 or not code.items:
        return
    low, high = code.items[0][0], code.items[-1][1]
    buckets = words[1 : count + 1]
    likely = (buckets >= _LEAST_BUCKETS) & (buckets < 1 << 40)
    likely &= (buckets & (buckets - np.uint64(1))) == 0
    places = np.flatnonzero(likely)
    for at in _CODE_AT:
        places = places[(words[places + at] >= low) & (words[places + at] < high)]
    for place in places.tolist():
        table = words[place : place + _TABLE_WORDS].tolist()
        functions = [table[at] for at in _CODE_AT] + [table[at] for at in _CODE_OR_NONE_AT if table[at]]
        if table[0] <= 2 * table[1] and all(one in code for one in functions):
            yield place * 8, _Table(table[0], table[1], table[2])


def _chains(memory: Memory, table: _Table) -> Iterator[Any]:
    """Yield the addresses of the values of *table*, all chains one step at a time.

    An unreadable entry ends its chain; at most as many values are yielded as the table counts.
    """
    np = import_numpy()
    try:
        entries = np.frombuffer(memory.read(table.first, table.buckets * 8), np.int64)
    except MemoryUnreadable:
        return
    left = table.entries
    for _ in range(_LONGEST_CHAIN):
        entries = entries[entries != 0][:left]
        if not len(entries):
            return
        (following, values), could = gather_words(memory, entries, _NEXT_AND_VALUE)
        left -= int(could.sum())
        yield values if could.all() else values[could]
        entries = following


def _holds_traces(memory: Memory, table: _Table, readable: Ranges) -> bool:
    """Return whether the entries of *table* lead to traces: a size, and a traceback with frames."""
    seen = 0
    for values in _chains(memory, _Table(min(table.entries, _SAMPLE), table.buckets, table.first)):
        if not all(readable.within(value, value + 16) == 16 for value in values.tolist()):
            return False
        (sizes, tracebacks), could = gather_words(memory, values, (0, 1))
        if not could.all() or (sizes < 0).any() or not _are_tracebacks(memory, tracebacks):
            return False
        seen += len(values)
    return seen > 0


def _are_tracebacks(memory: Memory, addresses: Any) -> bool:
    np = import_numpy()
    heads, could = gather(memory, addresses, _FRAMES_AT + _FRAME_BYTES)
    frames = heads[:, 8:10].copy().view(np.uint16)[:, 0]
    total = heads[:, 10:12].copy().view(np.uint16)[:, 0]
    names = heads[:, 12:20].copy().view(np.uint64)[:, 0]
    if not (could.all() and (frames > 0).all() and (total >= frames).all() and (names > 4096).all()):
        return False
    return all(_file_name(memory, name) for name in np.unique(names).tolist())


def _add_table(memory: Memory, table: _Table, sums: _Sums) -> None:
    np = import_numpy()
    read = 0
    for values in _chains(memory, table):
        (sizes, tracebacks), could = gather_words(memory, values, (0, 1))
        sizes, tracebacks = sizes[could], tracebacks[could]
        read += len(sizes)
        places, number = np.unique(tracebacks, return_inverse=True)
        sums_of = np.bincount(number, sizes, len(places)).astype(np.int64)
        blocks = np.bincount(number, minlength=len(places))
        for place, size, count in zip(places.tolist(), sums_of.tolist(), blocks.tolist()):
            sums.bytes[place] = sums.bytes.get(place, 0) + size
            sums.blocks[place] = sums.blocks.get(place, 0) + count
    sums.unread += table.entries - read


def _named(memory: Memory, sums: _Sums, tables: int, own: int) -> Traces:
    """Return the sums with the frames of their tracebacks."""
    np = import_numpy()
    addresses = np.array(list(sums.bytes), np.int64)
    heads, could = gather(memory, addresses, _FRAMES_AT)
    counts = heads[:, 8:12].copy().view(np.uint16)
    names: dict[int, str] = {}
    tracebacks = []
    unread = sums.unread
    for frames in np.unique(counts[could, 0]).tolist():
        chosen = np.flatnonzero(could & (counts[:, 0] == frames))
        rows, fine = gather(memory, addresses[chosen] + _FRAMES_AT, frames * _FRAME_BYTES)
        own += len(chosen) * (_FRAMES_AT + frames * _FRAME_BYTES)
        for row, good, at in zip(rows, fine.tolist(), chosen.tolist()):
            place = int(addresses[at])
            if not good or not frames:
                unread += sums.blocks[place]
                continue
            listed = [
                _frame(memory, row[n : n + _FRAME_BYTES].tobytes(), names) for n in range(0, len(row), 12)
            ]
            cut = int(counts[at, 1]) - frames
            tracebacks.append(Traceback(listed, sums.bytes[place], sums.blocks[place], max(cut, 0)))
    unread += sum(sums.blocks[place] for place in addresses[~could].tolist())
    return Traces(tracebacks, tables, unread, own)


def _file_name(memory: Memory, address: int) -> str:
    """Return the file name at *address*: a str object, since 3.15 its UTF-8 with a zero; "" if it is neither."""
    text = read_str(memory, address)
    if text:
        return text
    try:
        text = (read_text(memory, address, _LONGEST_NAME) or b"").decode()
    except (MemoryUnreadable, UnicodeDecodeError):
        return ""
    return text if text.isprintable() else ""


def _frame(memory: Memory, data: bytes, names: dict[int, str]) -> PythonFrame:
    name, line = int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")
    if name not in names:
        names[name] = _file_name(memory, name)
    return PythonFrame(names[name], line)
