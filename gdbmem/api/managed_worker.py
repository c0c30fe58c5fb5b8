"""A child of a worker that explains its parent: what the memory beside the results that it manages is.

It prints "ready" when its code is loaded. Standard input: a line of JSON (`pid`, `results`: [key, sizeof] each,
`parts`: their number), then three columns of 64-bit numbers: starts, sizes, numbers of results. Standard output: the
memory as `gdbmem.dask_memory` has it, or `error` and `hint`, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional, cast

from gdbmem.allocators.glibc.heap import choose_walker
from gdbmem.api.ledgers import BlockQueries, explain
from gdbmem.arrays import import_numpy
from gdbmem.dask_memory import Result, Term, WorkerMemory
from gdbmem.errors import GdbmemError
from gdbmem.files import JsonObject
from gdbmem.json_values import as_json
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.ledger.text import what_holds
from gdbmem.linux.memory.maps import Ranges
from gdbmem.model import ledger as names
from gdbmem.model.ledger import Entry, Ledger
from gdbmem.model.memory import Memory

Key = tuple[str, str]  # category and label of an entry of the ledger

_MOST_RESULTS = 20
_GRAIN = 16  # bytes to which allocators round blocks
_PARTLY = "results have more objects than were followed: their size in memory is a lower bound"


class Managed(NamedTuple):
    """The resident bytes of the results, each in what entry of the ledger, and by result."""

    by_entry: Counter[Key]
    by_result: Sequence[int]


class ManagedQuery:
    """A question to a process while its memory can be read: the residence of some parts of it."""

    def __init__(self, starts: Any, sizes: Any, results: Any, count: int) -> None:
        """Ask for the parts at *starts*, columns of numpy; part i belongs to result *results*[i] of *count*."""
        self._parts = _apart(starts, sizes, results)
        self._count = count
        self._resident: Any = None
        self._areas: list[tuple[Key, Ranges]] = []

    def __call__(self, reading: ProcessImage, memory: Memory) -> None:
        """Note which parts are resident, and the areas of the allocators."""
        starts, ends, _ = self._parts
        self._resident = reading.resident.within_each(starts, ends)
        python = reading.others.python.arenas
        pieces = [(piece.start, piece.end) for arena in python for piece in arena.pieces()]
        self._areas = [((names.PYMALLOC, names.LIVE), Ranges(pieces))]
        heap = reading.heap
        if heap is not None and heap.is_used:
            for arena in heap.arenas:
                number = arena.state.number
                key = (
                    (names.in_arena(names.HEAP_LIVE), f"arena {number}") if number else (names.HEAP_LIVE, "")
                )
                self._areas.append((key, Ranges((tally.start, tally.end) for tally in arena.tallies)))
            self._areas.append(
                ((names.HEAP_MMAPPED, ""), Ranges((chunk.start, chunk.end) for chunk in heap.mmapped))
            )
        for malloc in reading.mallocs:
            spans = zip(malloc.spans.starts.tolist(), malloc.spans.ends.tolist())
            self._areas.append(((f"allocator.{malloc.allocator}", names.LIVE), Ranges(spans)))

    def answer(self, ledger: Ledger) -> Managed:
        """Return what the parts have of the entries of *ledger*, which was made of the same data."""
        np = import_numpy()
        starts, _, results = self._parts
        left, by_entry = np.ones(len(starts), bool), Counter[Key]()
        for key, area in self._areas:
            inside = (
                left & (np.array(area.within_each(starts, starts + 1)) > 0) if area.items else left & False
            )
            by_entry[key] += int(self._resident[inside].sum())
            left &= ~inside
        shares = [(share.start, share.end, _largest(share.parts)) for share in ledger.shares]
        at = np.searchsorted(np.array([start for start, _, _ in shares], np.int64), starts[left], "right") - 1
        for number, size in zip(at.tolist(), self._resident[left].tolist()):
            owner = shares[number][2] if number >= 0 else None
            by_entry[owner or (names.OTHER, "")] += size
        sums = np.bincount(results, self._resident, self._count).astype(np.int64)
        return Managed(_within(by_entry, ledger), sums.tolist())


def _apart(starts: Any, sizes: Any, results: Any) -> tuple[Any, Any, Any]:
    """Return start, end and result of the parts in order, none of which overlaps another."""
    np = import_numpy()
    order = np.argsort(starts, kind="stable")
    low, which = starts[order], results[order]
    high = low + -(-sizes[order] // _GRAIN) * _GRAIN
    before = np.append(0, np.maximum.accumulate(high)[:-1]) if len(high) else high
    low = np.maximum(low, before)
    keep = low < high
    return low[keep], high[keep], which[keep]


def _largest(parts: Any) -> Optional[Key]:
    return max(parts, key=lambda key: parts[key], default=None)


def _within(by_entry: Counter[Key], ledger: Ledger) -> Counter[Key]:
    """Return *by_entry* with no more of an entry than it has; the rest is of the entries that have most left.

    Objects are rounded as allocators do it, not all of them alike.
    """
    held = {entry.key: entry.resident_bytes for entry in ledger.entries}
    found = Counter({key: min(size, held.get(key, 0)) for key, size in by_entry.items()})
    excess = sum(by_entry.values()) - sum(found.values())
    for key in sorted(held, key=lambda key: found[key] - held[key]):
        part = min(excess, held[key] - found[key])
        found[key] += part
        excess -= part
    return found


def answer(asked: JsonObject, columns: bytes) -> WorkerMemory:
    """Return the memory of the process that *asked* names."""
    numbers = import_numpy().frombuffer(columns, "<i8").reshape(3, asked["parts"])
    results = asked["results"]
    query = ManagedQuery(numbers[0], numbers[1], numbers[2], len(results))
    ledger = explain(asked["pid"], look=cast(BlockQueries, query))
    managed = query.answer(ledger)
    by_size = [Result(key, size, resident) for (key, size), resident in zip(results, managed.by_result)]
    by_size.sort(key=lambda one: -abs(one.resident_bytes - one.sizeof_bytes))
    return WorkerMemory(
        worker="",
        pid=asked["pid"],
        process_bytes=ledger.rss_bytes,
        managed_bytes=sum(size for _, size in results),
        managed_resident_bytes=sum(managed.by_result),
        terms=_terms(ledger, managed.by_entry),
        results=by_size[:_MOST_RESULTS],
        pause_seconds=ledger.pause_seconds,
        notices=[notice.message for notice in ledger.notices] + ([] if asked["is_whole"] else [_PARTLY]),
    )


def _terms(ledger: Ledger, managed: Counter[Key]) -> list[Term]:
    found = [
        Term(entry.category, entry.label, entry.resident_bytes - managed[entry.key], _what(entry))
        for entry in ledger.entries
    ]
    return sorted((term for term in found if term.size_bytes), key=lambda term: -term.size_bytes)


def _what(entry: Entry) -> str:
    if entry.key == (names.PYMALLOC, names.FREE_POOLS):
        return "free pools of Python's allocator (no setting of malloc returns them)"
    # Without counts and files, which differ by worker.
    plain = Entry(entry.category, entry.label, entry.resident_bytes)
    return what_holds(plain, is_sound=True) or entry.category


def main() -> None:
    """Answer the question on the standard input."""
    choose_walker()  # loads numpy, before the worker counts its results
    print("ready", flush=True)
    asked = json.loads(sys.stdin.buffer.readline())
    try:
        found = as_json(answer(asked, sys.stdin.buffer.read()))
    except GdbmemError as error:
        found = {"error": error.message, "hint": error.hint}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
