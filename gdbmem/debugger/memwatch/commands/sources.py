"""`memwatch sources`: the quantities that this machine can measure, how exactly, and the one that memwatch uses."""

from __future__ import annotations

from collections.abc import Iterator

from gdbmem.debugger.memwatch.gauges.account import accounts
from gdbmem.debugger.program import NATIVE, NOTHING, VALGRIND, target_kind
from gdbmem.errors import GdbmemError
from gdbmem.linux.memory.statm_accuracy import known_exactness
from gdbmem.text import plural


def describe_sources() -> Iterator[str]:
    """Yield the lines of the explanation."""
    kind = target_kind()
    if kind == VALGRIND:
        yield "Under valgrind statm and smaps would measure valgrind itself; massif's own count is exact to the byte."
        yield "Threads run in turns there: gdb's scheduler-locking is accepted and has no effect."
    elif kind in (NATIVE, NOTHING):
        yield from _local()
    else:
        yield "smaps    exact, read through gdb's remote file access, about 2 ms per reading"
        yield "statm    as fast; whether it is exact depends on the other machine's kernel"
    if kind != VALGRIND:
        yield "heap     bytes in use by glibc's malloc, headers included: malloc(40) is 48"
    try:
        gauge = accounts.current().gauge
    except GdbmemError as error:
        yield f"Nothing is measured now: {error}."
        return
    yield f"memwatch uses {gauge.source} here, {'exact' if gauge.exact else 'which is not exact'}."


def _local() -> Iterator[str]:
    found = known_exactness()
    if found.statm_is_exact:
        yield "statm    exact on this kernel (tested page by page), under 10 µs per reading"
    elif found.statm_error_pages < 0:
        yield "statm    could not be tested on this kernel, and counts as not exact"
    else:
        off = plural(found.statm_error_pages, "page")
        yield f"statm    not exact on this kernel: off by up to {off}; under 10 µs per reading"
    yield "smaps    exact on every kernel; about 50 µs for a small process, 10 ms more per resident GiB"
    extra = ", and also counts pages that were only read" if found.zero_pages_counted else ""
    yield f"pagemap  pages present, one by one{extra}"
