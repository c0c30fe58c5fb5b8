"""Gauges that are kept from one reading to the next, per process and kind."""

from __future__ import annotations

import gdb

from gdbmem.debugger.memwatch.gauges.gauge import Gauge, make_gauge
from gdbmem.errors import TargetError

_kept: dict[tuple[int, str], tuple[int, Gauge]] = {}  # (inferior, source) → (pid, gauge)


def gauge_for(source: str, *, heap: bool) -> int:
    """Return the current reading of *source* for the selected inferior, in bytes.

    Raises TargetError if there is none; also if the heap is meant and the source counts something else,
    or the other way round.
    """
    inferior = gdb.selected_inferior()
    pid, gauge = _kept.get((inferior.num, source), (0, None))
    if gauge is None or pid != inferior.pid or not inferior.pid:
        if gauge is not None:
            gauge.close()
            del _kept[(inferior.num, source)]
        gauge = make_gauge(source)
        _kept[(inferior.num, source)] = (inferior.pid, gauge)
    if gauge.measures_heap != heap:
        raise TargetError(
            "under valgrind the resident memory is valgrind's own", slug="valgrind-rss", hint="use $heap()"
        )
    size_bytes = gauge.now()
    if size_bytes is None:
        raise TargetError(
            getattr(getattr(gauge, "heap", None), "problem", "") or "the process can't be read",
            slug="not-readable",
            hint="see 'memwatch sources'",
        )
    return size_bytes
