"""`$rss()` and `$heap()`: the program's memory in any gdb expression, condition or display."""

from __future__ import annotations

import gdb

from gdbmem.errors import GdbmemError


class ResidentFunction(gdb.Function):  # type: ignore[misc]  # gdb's module has no types
    """$rss () - the resident memory of the program, in bytes.

    Example: break decode if $rss() > 1 << 30
    """

    def __init__(self) -> None:
        super().__init__("rss")

    def invoke(self) -> int:
        return _reading("auto", heap=False)


class HeapFunction(gdb.Function):  # type: ignore[misc]
    """$heap () - the memory that the program has from malloc, in bytes.

    glibc's own bookkeeping, headers included; under massif, massif's count.
    Example: display $heap()
    """

    def __init__(self) -> None:
        super().__init__("heap")

    def invoke(self) -> int:
        return _reading("heap", heap=True)


def _reading(source: str, *, heap: bool) -> int:
    from gdbmem.debugger.memwatch.gauges.gauge import gauge_for  # gdb starts 20 ms sooner

    try:
        return gauge_for(source, heap=heap)
    except GdbmemError as error:
        raise gdb.GdbError(str(error)) from None


def register_functions() -> None:
    """Register $rss() and $heap()."""
    ResidentFunction()
    HeapFunction()
