"""The program that a process executes: exec() replaces it and keeps the process id.

gdb has no event for it, but reads the new program's symbols before the program runs: caches of the old program
are dropped then, and other code queries the state.
"""

from __future__ import annotations

import _thread
import contextlib
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Callable, Optional, Union

import gdb

from gdbmem.debugger.command import warn
from gdbmem.debugger.location import VGDB_PID, c_value, check_breakpoint_at, gdb_setting, program_file
from gdbmem.debugger.terminal import gdb_text
from gdbmem.errors import TargetError, UsageError
from gdbmem.linux.memory.process_memory import random_bytes
from gdbmem.model.memory import Buffer, MemoryUnreadable
from gdbmem.text import printable

Listener = Callable[[], None]


class _Executions:
    def __init__(self) -> None:
        self._programs: dict[int, bytes] = {}  # the kernel's values for the program of each process
        self._replaced: set[int] = set()
        self._listeners: list[Listener] = []
        self._watches = False

    def here(self) -> tuple[int, bytes]:
        """Return what names the program that the selected inferior executes now, and no other."""
        pid = int(gdb.selected_inferior().pid)
        if not pid:
            return 0, b""
        now = random_bytes(pid)
        before = self._programs.get(pid)
        self._programs[pid] = now
        if before is not None and before != now:
            self._replaced.add(pid)
            for listener in self._listeners:
                listener()
        return pid, now

    def watch(self) -> None:
        """Look from here on, whenever gdb reads symbols, whether a program has taken another's place."""
        self.here()
        if not self._watches:
            self._watches = True
            gdb.events.clear_objfiles.connect(self._symbols_change)
            gdb.events.new_objfile.connect(self._symbols_change)

    def tell(self, listener: Listener) -> None:
        """Call *listener* when a program has taken another's place."""
        self._listeners.append(listener)

    @property
    def replaced(self) -> bool:
        """True if the selected inferior executes another program than at first."""
        return self.here()[0] in self._replaced

    def _symbols_change(self, event: gdb.Event) -> None:
        self.here()


executions = _Executions()


# Addresses of functions that the program or one of its libraries has loaded.


def address_of(function: str) -> int:
    """Return the address of *function*; raises TargetError if the program has none of that name."""
    try:
        return int(c_value(f"(unsigned long) &{function}"))
    except gdb.error:
        raise _not_loaded(function) from None


def _not_loaded(function: str) -> TargetError:
    hint = "set a breakpoint (break main) and type 'continue' first; a static or setuid program loads none"
    reason = f"the program has no {function}: the profiling allocator is not loaded (yet)"
    if executions.replaced:
        name = printable(program_file())
        reason = f"the program has executed another one, {name}, into which the profiling allocator is not loaded (yet)"
    return TargetError(reason, slug="profiler-not-loaded", hint=hint)


# The kind of target that gdb is connected to, and reading the process's memory there.


NATIVE, CORE, REMOTE, VALGRIND, NOTHING = "native", "core", "remote", "valgrind", "nothing"


def target_kind() -> str:
    """Return NATIVE, REMOTE, VALGRIND, CORE or NOTHING, for the selected inferior."""
    inferior = gdb.selected_inferior()
    if not inferior.pid and not inferior.threads():
        return NOTHING
    connection = getattr(inferior, "connection", None)
    kind = connection.type if connection is not None else _kind_in_words()
    if kind == "core":
        return CORE
    if "remote" in kind:
        return VALGRIND if inferior.pid == VGDB_PID and valgrind_tool() else REMOTE
    return NATIVE


def _kind_in_words() -> str:
    text = gdb_text("info target")  # gdb before 12 has no connections
    if "Local core dump file" in text and "process" not in text.partition("Local core")[0]:
        return "core"
    return "remote" if "over a serial line" in text else "native"


def valgrind_tool() -> Optional[str]:
    """Return which valgrind tool runs the program (``massif``, …, ``""`` if none is named); None: not valgrind."""
    try:
        said = str(gdb.execute("monitor help", to_string=True))
    except gdb.error:
        return None
    if "valgrind" not in said:
        return None
    tools = [line.split()[0] for line in said.splitlines() if line.endswith("monitor commands:")]
    return next((tool for tool in tools if tool not in ("general", "valgrind")), "")


class GdbMemory:
    """A `Memory` of gdb's current target: a process, a core, a remote target."""

    def __init__(self) -> None:
        self._inferior = gdb.selected_inferior()

    def read(self, address: int, size: int) -> bytes:
        try:
            return bytes(self._inferior.read_memory(address, size))
        except (gdb.error, OverflowError) as error:
            raise MemoryUnreadable(address, str(error)) from None

    def read_into(self, address: int, buffer: Buffer) -> None:
        memoryview(buffer).cast("B")[:] = self.read(address, memoryview(buffer).nbytes)


# The selected thread and frame, and their registers.


@contextmanager
def selection_kept() -> Iterator[None]:
    """Restore the selected thread and frame at the end of the block."""
    selected, frame = gdb.selected_thread(), _selected_frame()
    try:
        yield
    finally:
        if selected is not None and selected.is_valid():
            selected.switch()
            if frame is not None and frame.is_valid():
                frame.select()


def _selected_frame() -> Optional[gdb.Frame]:
    try:
        return gdb.selected_frame()
    except gdb.error:
        return None


def thread_pointer() -> int:
    """Return the thread pointer of the selected thread; 0 if gdb doesn't know it."""
    return register("$fs_base") or register("$tpidr")


def register(name: str) -> int:
    """Return a register of the selected frame as an unsigned number; 0 if there is none of that name."""
    try:
        value = gdb.parse_and_eval(name)
        return int(value) & (1 << 64) - 1
    except (gdb.error, OverflowError, ValueError):
        return 0  # this architecture has no such register


# gdb's scheduler-locking: which threads run when the program is resumed.


@contextlib.contextmanager
def scheduler_locking(mode: Optional[str]) -> Iterator[None]:
    """Set gdb's scheduler-locking to *mode* (None: leave it), and restore the previous mode in any case."""
    if mode is None:
        yield
        return
    before = locking()
    _later.cancel()
    set_locking(mode)
    try:
        yield
    finally:
        try:
            set_locking(before)
        except gdb.error:
            # Without a process gdb takes no other value than off: put it back as soon as there is one.
            _later.remember(before)


def locking() -> str:
    """Return gdb's scheduler-locking, or what it will be once there is a process again."""
    return _later.value or str(gdb.parameter("scheduler-locking"))


def set_locking(mode: str) -> None:
    """Set gdb's scheduler-locking."""
    if str(gdb.parameter("scheduler-locking")) != mode:
        gdb.execute(f"set scheduler-locking {mode}", to_string=True)


class _Later:
    """Puts scheduler-locking back when the next process starts."""

    def __init__(self) -> None:
        self.value = ""

    def remember(self, value: str) -> None:
        if not self.value:
            gdb.events.new_thread.connect(self._restore)
        self.value = value

    def cancel(self) -> None:
        if self.value:
            gdb.events.new_thread.disconnect(self._restore)
            self.value = ""

    def _restore(self, event: gdb.Event) -> None:
        with contextlib.suppress(gdb.error):
            set_locking(self.value)
            self.cancel()


_later = _Later()


# Threads of gdb's Python. They block all signals, which must reach gdb's own thread.


def start_thread(function: Callable[[], None], name: str) -> threading.Thread:
    """Run *function* in a thread, which has started when this returns."""
    thread = threading.Thread(target=function, name=name, daemon=True)
    with _no_signals():
        thread.start()
    return thread


def start_soon(function: Callable[[], None]) -> None:
    """Run *function* in a thread without waiting for its start, which can take as long as ten steps."""
    with _no_signals():
        _thread.start_new_thread(function, ())


@contextlib.contextmanager
def _no_signals() -> Iterator[None]:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


# gdb commands with hooks of other extensions, which may fail after the command itself has succeeded.


def execute_despite_hooks(command: str, *, happened: Callable[[], bool]) -> None:
    """Run gdb's *command*; if it *happened* nevertheless, the error of an extension's hook is only a warning."""
    try:
        gdb.execute(command, to_string=True)
    except gdb.error as error:
        if not happened():
            raise
        words = " ".join(command.split()[:2])
        warn(
            f"'{words}' succeeded, but a hook of another gdb extension failed after it: {error}",
            slug="foreign-hook",
        )


# Breakpoints that the user does not see.


def addresses_of(point: gdb.Breakpoint) -> set[int]:
    """Return the addresses at which *point* is set."""
    locations = getattr(point, "locations", None)  # gdb 13's
    if locations is not None:
        return {location.address for location in locations if location.enabled}
    if not point.location or point.type != gdb.BP_BREAKPOINT:
        return set()
    try:
        return {int(place.pc) for place in gdb.decode_line(point.location)[1] or () if place.pc is not None}
    except gdb.error:
        return set()


_owned: dict[int, list[gdb.Breakpoint]] = {}  # breakpoints that act for another, by address


def refuse_neighbour(point: gdb.Breakpoint) -> None:
    """Delete *point*, at which a snapshot begins or ends, if one of another owner is a byte beside it under valgrind.

    Raises UsageError then. A thread that stops one byte behind a breakpoint is moved back to that one by gdb, as
    valgrind's gdbserver does not say which of both it is at: the program would execute that instruction again.
    """
    if gdb.selected_inferior().pid != VGDB_PID:
        return
    addresses = addresses_of(point)
    near = {address + step for address in addresses for step in (-1, 1)}
    listed = [
        (at, one) for one in gdb.breakpoints() if one.number > 0 and one.enabled for at in addresses_of(one)
    ]
    owned = [(at, one) for at in near for one in _owned.get(at, ()) if one.is_valid()]
    owner = getattr(point, "owner", point)
    found = next(
        (at for at, one in listed + owned if at in near and getattr(one, "owner", one) is not owner), None
    )
    if owner is not point:
        for address in addresses:
            _owned.setdefault(address, []).append(point)
    if found is not None:
        point.delete()
        raise UsageError(
            f"under valgrind gdb can't tell this place from the breakpoint at {found:#x}, one byte beside it",
            hint="put one of both on another line, or use another engine",
        )


class InternalBreakpoint(gdb.Breakpoint):  # type: ignore[misc]  # gdb's module has no types
    """A breakpoint at an address or a location that is in none of gdb's lists, and of whose stop gdb says nothing."""

    def __init__(self, place: Union[int, str]) -> None:
        """Raises UsageError where gdb would end."""
        location = place if isinstance(place, str) else f"*{place:#x}"
        is_address = location.startswith("*0x")
        if is_address:
            check_breakpoint_at(int(location[1:], 16))
        with gdb_setting("language", "c") if is_address else contextlib.nullcontext():
            super().__init__(location, internal=True)
        self.silent = True


def delete_breakpoints(points: Iterable[gdb.Breakpoint]) -> None:
    """Delete those of *points* that gdb still has."""
    for point in points:
        if point.is_valid():
            point.delete()


def numbers_of(points: Iterable[gdb.Breakpoint]) -> set[int]:
    """Return gdb's numbers of those of *points* that it still has."""
    return {point.number for point in points if point.is_valid()}
