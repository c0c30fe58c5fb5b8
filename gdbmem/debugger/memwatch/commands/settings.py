"""The parts of memwatch that gdb loads at its start, but commands: `set memwatch …`, $rss(), $heap(), its layout."""

from __future__ import annotations

from typing import Any, Optional

import gdb

from gdbmem.commands.in_gdb import LOCKS, SOURCES
from gdbmem.errors import GdbmemError, InputError
from gdbmem.text import format_duration, parse_duration

_PATIENCE = "5s"


class LockSetting(gdb.Parameter):  # type: ignore[misc]  # gdb's module has no types
    """True if other threads are locked during a memwatch step."""

    set_doc = "Set whether the other threads are locked during a step: auto, on, step or off."
    show_doc = "Show whether the other threads are locked during a step."

    def __init__(self) -> None:
        super().__init__("memwatch lock", gdb.COMMAND_DATA, gdb.PARAM_ENUM, LOCKS)
        self.value = "auto"

    def get_set_string(self) -> str:
        return ""

    def get_show_string(self, text: str) -> str:
        return f"The lock of the other threads during a memwatch step is '{text}'."


class SourceSetting(gdb.Parameter):  # type: ignore[misc]
    """Source of memwatch's numbers; 'memwatch sources' lists the sources available on this machine."""

    set_doc = "Set the source of memwatch's numbers: auto, statm, smaps, pagemap or heap."
    show_doc = "Show the source of memwatch's numbers."

    def __init__(self) -> None:
        super().__init__("memwatch source", gdb.COMMAND_DATA, gdb.PARAM_ENUM, SOURCES)
        self.value = "auto"

    def get_set_string(self) -> str:
        return ""

    def get_show_string(self, text: str) -> str:
        return f"The source of memwatch's numbers is '{text}'."


class TimeoutSetting(gdb.Parameter):  # type: ignore[misc]
    """The time that a step may run before it is assumed to wait for a locked thread.

    Needed if /proc can't show that the thread sleeps, and for a thread that waits in a loop.
    """

    set_doc = "Set the time that a step runs alone before the other threads are released, as in 5s."
    show_doc = "Show the time that a step runs alone before the other threads are released."

    def __init__(self) -> None:
        super().__init__("memwatch timeout", gdb.COMMAND_DATA, gdb.PARAM_STRING)
        self.value = self._last = _PATIENCE

    def get_set_string(self) -> str:
        try:
            if parse_duration(self.value) <= 0:
                raise InputError("it must be longer than 0", slug="bad-duration")
        except InputError as error:
            self.value = self._last
            raise gdb.GdbError(str(error)) from None
        self._last = self.value
        return ""

    def get_show_string(self, text: str) -> str:
        return f"A memwatch step runs alone for {format_duration(parse_duration(text))}."


def _register_prefix(name: str, summary: str) -> None:
    def invoke(self: object, argument: str, from_tty: bool) -> None:
        if argument.strip():
            raise gdb.GdbError(f"there is no '{name} {argument.split()[0]}'; see 'help {name}'")
        for setting in ("lock", "source", "timeout"):
            gdb.execute(f"show memwatch {setting}")

    # gdb takes a command's help from its class.
    prefix = type("Prefix", (gdb.Command,), {"__doc__": summary, "invoke": invoke})
    prefix(name, gdb.COMMAND_DATA, gdb.COMPLETE_NONE, True)


def setting(name: str) -> str:
    """Return the value of `memwatch NAME`."""
    return str(gdb.parameter(f"memwatch {name}"))


def patience(seconds: Optional[float]) -> float:
    """Return the seconds of --timeout, or of the setting."""
    return parse_duration(setting("timeout")) if seconds is None else seconds


class ResidentFunction(gdb.Function):  # type: ignore[misc]  # gdb's module has no types
    """$rss () - the resident memory of the program, in bytes.

    Example: break decode if $rss() > 1 << 30
    """

    def __init__(self) -> None:
        super().__init__("rss")

    def invoke(self) -> int:
        return _read_source("auto", heap=False)


class HeapFunction(gdb.Function):  # type: ignore[misc]
    """$heap () - the memory that the program has from malloc, in bytes.

    glibc's own bookkeeping, headers included; under massif, massif's count.
    Example: display $heap()
    """

    def __init__(self) -> None:
        super().__init__("heap")

    def invoke(self) -> int:
        return _read_source("heap", heap=True)


def _read_source(source: str, *, heap: bool) -> int:
    from gdbmem.debugger.memwatch.gauges.gauge import gauge_for  # gdb starts sooner

    try:
        return gauge_for(source, heap=heap)
    except GdbmemError as error:
        raise gdb.GdbError(str(error)) from None


NAME = "memwatch"
_LAYOUT = "{-horizontal src 2 memwatch 1} 2 status 0 cmd 1"


def register_layout() -> None:
    """Register `layout memwatch`, if this gdb has a text interface that supports custom windows."""
    if not hasattr(gdb, "register_window_type"):
        return
    try:
        gdb.register_window_type(NAME, _open)
        gdb.execute(f"tui new-layout {NAME} {_LAYOUT}", to_string=True)
    except (gdb.error, RuntimeError):  # built without it
        return


def _open(tui_window: Any) -> Any:
    from gdbmem.debugger.memwatch.commands.window import MemoryWindow  # gdb starts sooner

    return MemoryWindow(tui_window)


def register_all() -> None:
    """Register `set memwatch …`, `show memwatch …`, $rss(), $heap() and the layout."""
    for verb in ("set", "show"):
        _register_prefix(f"{verb} memwatch", f"{verb.capitalize()} how memwatch measures and locks.")
    for setting in (LockSetting, SourceSetting, TimeoutSetting, ResidentFunction, HeapFunction):
        setting()
    register_layout()
