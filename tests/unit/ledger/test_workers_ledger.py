"""One ledger of processes that share pages."""

from __future__ import annotations

import io

from gdbmem.ledger.workers import ReadWorker, answer, print_workers, together
from gdbmem.linux.memory.maps import Mapping
from gdbmem.model.ledger import Entry, Ledger, Share
from gdbmem.terminal.console import make_console

MIB = 1 << 20
HEAP, CODE = ("heap.live", ""), ("file.code", "")


def worker(pid: int, heap: int, heap_pss: int, *, read: int = 0, name: str = "worker") -> ReadWorker:
    """Return a process with *heap* MiB, *heap_pss* of them its share, and *read* more when its heap was read."""
    mappings = [
        Mapping(0, 99, "rw-p", 0, "", 0, "", heap * MIB, heap_pss * MIB, (heap - heap_pss) * MIB),
        Mapping(100, 199, "r-xp", 0, "", 0, "/lib/x", 4 * MIB, MIB, 4 * MIB),
    ]
    sizes = {HEAP: (heap + read) * MIB, CODE: 4 * MIB}
    shares = [
        Share(0, 99, "", sizes[HEAP], {HEAP: sizes[HEAP]}),
        Share(100, 199, "/lib/x", 4 * MIB, {CODE: 4 * MIB}),
    ]
    entries = [Entry(category, label, size) for (category, label), size in sizes.items()]
    ledger = Ledger(name, pid, sum(sizes.values()), entries, shares, None, pause_seconds=0.01)
    return ReadWorker(pid, name, mappings, ledger)


def test_shared_pages_count_once_and_the_entries_add_up_to_the_kernels_number() -> None:
    found = together([worker(1, 40, 20), worker(2, 40, 20, read=3)])
    assert (found.pss_bytes, found.rss_bytes) == (42 * MIB, 88 * MIB)
    assert sum(entry.size_bytes for entry in found.entries) == found.pss_bytes
    sizes = {
        entry.category: (entry.size_bytes, entry.resident_bytes, entry.processes) for entry in found.entries
    }
    assert sizes == {"heap.live": (40 * MIB, 83 * MIB, 2), "file.code": (2 * MIB, 8 * MIB, 2)}
    assert [one.private_bytes for one in found.workers] == [20 * MIB, 20 * MIB]
    assert answer(found).startswith(
        "42.0 MiB in 2 processes, shared pages once (their RSS adds up to 88.0 MiB)"
    )
    assert not found.notices


def test_hugetlbfs_is_told_beside_what_the_kernel_counts_as_resident() -> None:
    workers = [worker(1, 40, 20), worker(2, 40, 20)]
    size = "(their RSS adds up to 88.0 MiB), and 6.0 MiB of hugetlbfs, which RSS leaves out; "
    assert size in answer(together(workers, 6 * MIB))
    assert "and unknown bytes of hugetlbfs" in answer(together(workers, None))


def test_a_worker_that_cant_be_read_keeps_its_memory_in_the_total() -> None:
    unread = worker(2, 40, 20, name="\x1b[2J")._replace(ledger=None, problem="it has ended")
    found = together([worker(1, 40, 20), unread])
    assert sum(entry.size_bytes for entry in found.entries) == found.pss_bytes == 42 * MIB
    assert ("unread", 21 * MIB) in [(entry.category, entry.size_bytes) for entry in found.entries]
    assert [notice.slug for notice in found.notices] == ["workers-unread"]
    stream = io.StringIO()
    print_workers(found, make_console(stream), top=1)
    assert "\x1b" not in stream.getvalue() and "… and 1 smaller process" in stream.getvalue()


def test_a_mapping_that_went_meanwhile_is_told() -> None:
    one = worker(1, 40, 20)
    assert one.ledger is not None
    gone = one._replace(mappings=[*one.mappings, Mapping(300, 399, "rw-p", 0, "", 0, "", 9 * MIB, 9 * MIB)])
    found = together([gone])
    assert ("changed", 9 * MIB) in [(entry.category, entry.size_bytes) for entry in found.entries]
    assert [notice.slug for notice in found.notices] == ["workers-changed"]
