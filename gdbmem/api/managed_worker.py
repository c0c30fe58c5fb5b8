"""A child of a worker that explains its parent: what the memory beside the results that it manages is.

It prints "ready" when its code is loaded. Standard input: a line of JSON (`pid`, `results`: [key, sizeof] each,
`parts`: their number), then three columns of 64-bit numbers: starts, sizes, numbers of results. Standard output: the
memory as `gdbmem.dask_memory` has it, or `error` and `hint`, as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any, cast

from gdbmem.allocators.glibc.heap import choose_walker
from gdbmem.api.ledgers import Looks, explain
from gdbmem.arrays import import_numpy
from gdbmem.dask_memory import Result, Term, WorkerMemory
from gdbmem.errors import GdbmemError
from gdbmem.json_values import as_json
from gdbmem.ledger.managed import ManagedLook
from gdbmem.ledger.text import what_holds
from gdbmem.model.ledger import FREE_POOLS, PYMALLOC, Entry, Ledger

_MOST_RESULTS = 20
_PARTLY = "results have more objects than were followed: their size in memory is a lower bound"


def answer(asked: dict[str, Any], columns: bytes) -> WorkerMemory:
    """Return the memory of the process that *asked* names."""
    numbers = import_numpy().frombuffer(columns, "<i8").reshape(3, asked["parts"])
    results = asked["results"]
    look = ManagedLook(numbers[0], numbers[1], numbers[2], len(results))
    ledger = explain(asked["pid"], look=cast(Looks, look))
    managed = look.answer(ledger)
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


def _terms(ledger: Ledger, managed: Any) -> list[Term]:
    found = [
        Term(entry.category, entry.label, entry.resident_bytes - managed[entry.key], _what(entry))
        for entry in ledger.entries
    ]
    return sorted((term for term in found if term.size_bytes), key=lambda term: -term.size_bytes)


def _what(entry: Entry) -> str:
    if entry.key == (PYMALLOC, FREE_POOLS):
        return "free pools of Python's allocator (no setting of malloc returns them)"
    plain = Entry(
        entry.category, entry.label, entry.resident_bytes
    )  # without counts and files, which differ by worker
    return what_holds(plain, is_sound=True) or entry.category


def main() -> None:
    """Answer the question on the standard input."""
    choose_walker()  # loads numpy, before the worker counts its results
    print("ready", flush=True)
    asked = json.loads(sys.stdin.buffer.readline())
    try:
        found: dict[str, Any] = as_json(answer(asked, sys.stdin.buffer.read()))
    except GdbmemError as error:
        found = {"error": error.message, "hint": error.hint}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
