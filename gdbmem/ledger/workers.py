"""The ledgers of processes that share pages put together: each page once; text and JSON (kind=workers)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.ledger.text import what_holds
from gdbmem.linux.memory.maps import Mapping as MemoryMapping
from gdbmem.model.groups import CHANGED, UNREAD, WorkerProcess, WorkersEntry, WorkersLedger
from gdbmem.model.ledger import Entry, Ledger
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_notices, print_sentence
from gdbmem.terminal.document import Document, whole
from gdbmem.text import format_duration, format_size, plural, printable

_MOVED_SHARE = 0.01  # of the memory: more than that while it was read is said
_SMALL = 0.001  # entries below that are put together in the text


class ReadWorker(NamedTuple):
    """A process: its mappings, read before anything was copied, and its ledger."""

    pid: int
    name: str
    mappings: Sequence[MemoryMapping]
    ledger: Optional[Ledger]
    problem: str = ""  # why there is no ledger


def together(workers: Sequence[ReadWorker], hugetlb_bytes: Optional[int] = 0) -> WorkersLedger:
    """Return the common ledger of *workers*, which have mapped *hugetlb_bytes* of hugetlbfs together.

    The part of an entry in a mapping counts by the mapping's PSS: the kernel tells which pages are shared by mapping.
    """
    sums: dict[tuple[str, str], list[float]] = {}
    for worker in workers:
        if worker.ledger is None:
            own = (UNREAD, "")
            _add(sums, {own: float(_pss(worker))}, {own: _rss(worker)})
        else:
            _add(sums, *_scaled(worker.ledger, worker.mappings))
    entries = [
        WorkersEntry(category, label, round(size), int(resident), int(count))
        for (category, label), (size, resident, count) in sums.items()
    ]
    total = sum(map(_pss, workers))
    rest = total - sum(entry.size_bytes for entry in entries)
    if rest:
        entries.append(WorkersEntry(CHANGED, "", rest, 0, 0))
    return WorkersLedger(
        total,
        sum(map(_rss, workers)),
        sorted(entries, key=lambda entry: -abs(entry.size_bytes)),
        sorted(map(_process, workers), key=lambda one: -one.pss_bytes),
        list(_notices(workers, rest, total)),
        hugetlb_bytes,
    )


def _add(
    sums: dict[tuple[str, str], list[float]],
    sizes: Mapping[tuple[str, str], float],
    resident: Mapping[tuple[str, str], int],
) -> None:
    for key, size in sizes.items():
        known = sums.setdefault(key, [0.0, 0.0, 0.0])
        known[0] += size
        known[1] += resident[key]
        known[2] += 1


def _scaled(
    ledger: Ledger, mappings: Sequence[MemoryMapping]
) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], int]]:
    """Return the entries of *ledger* by their share of pages, and as they are."""
    known = {mapping.start: mapping.pss_bytes for mapping in mappings}
    sizes: dict[tuple[str, str], float] = {}
    for share in [one for one in ledger.shares if one.rss_bytes]:
        # A copy makes some more pages of files resident: what was there before it is divided in their proportion.
        ratio = known.get(share.start, 0) / share.rss_bytes
        for key, size in share.parts.items():
            sizes[key] = sizes.get(key, 0.0) + size * ratio
    resident = {entry.key: entry.resident_bytes for entry in ledger.entries}
    return {key: size for key, size in sizes.items() if resident.get(key)}, resident


def _pss(worker: ReadWorker) -> int:
    return sum(mapping.pss_bytes for mapping in worker.mappings)


def _rss(worker: ReadWorker) -> int:
    return sum(mapping.rss_bytes for mapping in worker.mappings)


def _process(worker: ReadWorker) -> WorkerProcess:
    private = sum(mapping.rss_bytes - mapping.shared_bytes for mapping in worker.mappings)
    pause = worker.ledger.pause_seconds if worker.ledger is not None else None
    return WorkerProcess(worker.pid, worker.name, _rss(worker), _pss(worker), private, pause, worker.problem)


def _notices(workers: Sequence[ReadWorker], rest: int, total: int) -> list[Notice]:
    found = []
    unread = [worker for worker in workers if worker.ledger is None]
    if unread:
        text = f"{plural(len(unread), 'process', 'processes')} could not be read: {unread[0].problem}"
        found.append(Notice("workers-unread", text))
    if abs(rest) > _MOVED_SHARE * total:
        text = f"{format_size(abs(rest))} changed while the processes were read, one after the other"
        found.append(Notice("workers-changed", text))
    return found


def workers_document(ledger: WorkersLedger) -> Document:
    """Return *ledger* as a document; its entries add up to ``pss_bytes``."""
    return whole("workers", ledger, answer(ledger))


def answer(ledger: WorkersLedger) -> str:
    """Return how much the processes hold, and what most of it is, in one sentence without its full stop."""
    largest = next((entry for entry in ledger.entries if entry.size_bytes > 0), None)
    most = ""
    if largest is not None and ledger.pss_bytes:
        share = f"{largest.size_bytes / ledger.pss_bytes:.0%}"
        most = f"; {format_size(largest.size_bytes)} ({share}) is {_what(largest)}"
    count = plural(len(ledger.workers), "process", "processes")
    more = format_size(ledger.rss_bytes)
    pool = ""
    if ledger.hugetlb_bytes != 0:
        size = "unknown bytes" if ledger.hugetlb_bytes is None else format_size(ledger.hugetlb_bytes)
        pool = f", and {size} of hugetlbfs, which RSS leaves out"
    once = f"{format_size(ledger.pss_bytes)} in {count}, shared pages once"
    return f"{once} (their RSS adds up to {more}){pool}{most}"


def _what(entry: WorkersEntry) -> str:
    own = {UNREAD: "of processes that could not be read", CHANGED: "changed while it was read"}
    known = Entry(entry.category, entry.label, entry.resident_bytes)
    return printable(own.get(entry.category) or what_holds(known, is_sound=True) or entry.category)


def print_workers(ledger: WorkersLedger, console: Console, *, top: int) -> None:
    """Print the answer, the entries, and the *top* largest processes."""
    print_sentence(console, answer(ledger), "bold")
    console.print()
    table = drawing.Table()
    table.add_numbers("once", "resident", "in")
    table.add_column("entry")
    table.add_column("what")
    least = _SMALL * ledger.pss_bytes
    for entry in [one for one in ledger.entries if abs(one.size_bytes) >= least]:
        resident = format_size(entry.resident_bytes) if entry.processes else ""
        cells = [format_size(entry.size_bytes), resident, str(entry.processes or "")]
        table.add_row(*cells, entry.category, _what(entry))
    small = [one for one in ledger.entries if abs(one.size_bytes) < least]
    if small:
        size = format_size(sum(one.size_bytes for one in small))
        table.add_row(
            size, format_size(sum(one.resident_bytes for one in small)), "", "", f"{len(small)} more"
        )
    table.add_row(format_size(ledger.pss_bytes), format_size(ledger.rss_bytes), "", "total", "")
    console.print(table)
    console.print()
    console.print(_processes(ledger.workers[:top]))
    if len(ledger.workers) > top:
        rest = plural(len(ledger.workers) - top, "smaller process", "smaller processes")
        print_sentence(console, f"… and {rest}")
    longest = max((one.pause_seconds or 0.0 for one in ledger.workers), default=0.0)
    print_sentence(console, f"each process was stopped for {format_duration(longest)} at most", "dim")
    print_notices(ledger.notices, console)


def _processes(workers: Sequence[WorkerProcess]) -> drawing.Table:
    table = drawing.Table()
    table.add_numbers("pid", "PSS", "private", "RSS")
    table.add_column("process")
    for one in workers:
        sizes = (one.pss_bytes, one.private_bytes, one.rss_bytes)
        table.add_row(str(one.pid), *map(format_size, sizes), printable(one.name))
    return table
