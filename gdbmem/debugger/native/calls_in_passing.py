"""Calls that a thread makes in passing, at a breakpoint that doesn't stop the program, while all others run.

While gdb evaluates a breakpoint's stop condition, the program cannot be resumed. But the thread's registers can be
written: the thread continues in gdbmem's instructions, makes the call, reaches a second breakpoint, where its registers
are restored, and continues over the first breakpoint. gdb never stops, so an active `next` is not interrupted.
"""

from __future__ import annotations

from typing import Callable, Optional

import gdb

from gdbmem.debugger.command import warn
from gdbmem.debugger.native.inferior import (
    general_registers,
    get_register,
    hold_signals,
    machine_here,
    program,
    set_registers,
)
from gdbmem.debugger.program import (
    InternalBreakpoint,
    address_of,
    addresses_of,
    delete_breakpoints,
    executions,
)
from gdbmem.engines.call_stubs import CallMachine
from gdbmem.engines.engine import Call
from gdbmem.errors import GdbmemError, TargetError, internal_error, sentence_of

Finish = Callable[[Optional[GdbmemError]], None]
"""Gets the failure of the call, None if it succeeded."""
_PAUSE_MICROSECONDS = 2000
_LONGEST_PAUSE = 250  # times that
_MOST_ABREAST = 4096  # threads


class _Detour:
    # One thread's path through our instructions.
    def __init__(self, machine: CallMachine, slot: int, call: Callable[[], Call], finish: Finish) -> None:
        self.machine = machine
        self.slot = slot
        self.before = general_registers(machine)
        self._release_signals = hold_signals()
        self.start = self.end = 0  # its destination: at the start it has not begun, at the end it is done
        self._make = call
        self._call: Optional[Call] = None
        self._next: Optional[Call] = None
        self._finish = finish

    def send(self) -> None:
        """Redirect the thread to our memory, which the kernel first maps if necessary."""
        if self.slot >= program.slots:
            registers, self.start, self.end = program.mapping(self.machine)
        else:
            self.start, self.end = program.stub, program.stub + self.machine.end
            registers = self._entry()
        _ends.await_at(self.end)
        set_registers({**registers, self.machine.counter: self.start})

    def _entry(self) -> dict[str, int]:
        if under_way():
            # Profilers take one snapshot at a time, and silently drop a second one.
            # The more threads wait, the less often each retries.
            pause = _PAUSE_MICROSECONDS * min(len(_ends.threads), _LONGEST_PAUSE)
            function, arguments = "usleep", [pause]
        else:
            call = self._call = self._next or self._make()
            function, arguments = call.function, list(call.arguments)
        return program.entry(self.machine, self.before, address_of(function), arguments, slot=self.slot)

    @property
    def calls(self) -> bool:
        """True if it is in its call, not on the way to it."""
        return self._call is not None

    def arrived(self) -> bool:
        """The thread has arrived; return whether everything is done and its registers are restored."""
        error = None
        try:
            if self._call is None:
                if self.slot >= program.slots:
                    program.adopt(get_register(self.machine.answer))
                self.send()
                return False
            result = program.result(self.machine)
            set_registers(self.before)
            self._next = self._call.finish(result)
            if self._next is not None:
                self._call = None
                self.send()
                return False
        except GdbmemError as failure:
            error = failure
        self.undo()  # after a failure the thread continues anyway
        self._finish(error)
        return True

    def undo(self) -> None:
        """Restore the registers of the thread, and let its signals come again."""
        set_registers(self.before)
        self._release_signals()


class _Ends:
    """The breakpoints at which detours end, and the threads expected there."""

    def __init__(self) -> None:
        self.threads: dict[tuple[int, int, int], _Detour] = {}
        self._points: dict[int, _End] = {}
        self._listens = False

    def listen(self) -> None:
        """Register handlers for gdb's stops and the program's end."""
        if not self._listens:
            self._listens = True
            gdb.events.stop.connect(_stop_noted)
            gdb.events.exited.connect(_exit_noted)
            executions.tell(self.forget)

    def await_at(self, address: int) -> None:
        known = self._points.get(address)
        if known is None or not known.is_valid():
            self._points[address] = _End(address)
        self._points[address].enabled = True

    def forget(self) -> None:
        self.threads.clear()
        delete_breakpoints(self._points.values())
        self._points.clear()

    def free_slot(self) -> Optional[int]:
        used = {detour.slot for detour in self.threads.values()}
        return next((slot for slot in range(1, _MOST_ABREAST) if slot not in used), None)


class _End(InternalBreakpoint):
    stays = True  # also while another thread makes an injected call

    def __init__(self, address: int) -> None:
        super().__init__(address)
        self._address = address

    def stop(self) -> bool:
        thread = gdb.selected_thread().ptid
        detour = _ends.threads.get(thread)
        if detour is None or detour.end != self._address:
            return False  # all of the C library's system calls pass where the first detour ends
        try:
            if detour.arrived():
                del _ends.threads[thread]
            if not any(other.end == self._address for other in _ends.threads.values()):
                self.enabled = False
            return False
        except (GdbmemError, gdb.error) as error:
            warn(sentence_of(error))
        except Exception as error:  # noqa: BLE001  (a host: gdb calls this)
            warn(internal_error(error))
        _ends.threads.pop(thread, None)
        return True


_ends = _Ends()


def detour(call: Callable[[], Call], finish: Finish) -> bool:
    """Make the selected thread execute the call that *call* returns before it continues, then run *finish*.

    For the `stop` method of a breakpoint, which then returns False. False if it can't be done in passing.
    """
    thread = gdb.selected_thread()
    slot, machine = _ends.free_slot(), machine_here()
    if slot is None or not machine.home or thread.ptid in _ends.threads or _stops_anyway():
        return False
    found = _Detour(machine, slot, call, finish)
    try:
        found.send()
    except TargetError:
        found.undo()  # the C library is not loaded yet
        return False
    _ends.threads[thread.ptid] = found
    _ends.listen()
    return True


def under_way() -> bool:
    """Return whether a thread is at its call."""
    return any(found.calls for found in _ends.threads.values())


def makes_call() -> bool:
    """Return whether the selected thread makes a call, at a stop or in passing: on a stack of ours."""
    return program.makes_call or gdb.selected_thread().ptid in _ends.threads


def _stops_anyway() -> bool:
    """Return whether another breakpoint here may stop or act: the user must not be shown our instructions.

    Several breakpoints of ours can belong to one point: they have the same *owner*.
    """
    counter = gdb.newest_frame().pc()
    points = [point for point in gdb.breakpoints() if point.enabled]
    owners = {
        id(getattr(point, "owner", point))
        for point in points
        if (point.number > 0 or hasattr(point, "owner")) and counter in addresses_of(point)
    }
    return len(owners) > 1


def _stop_noted(event: gdb.Event) -> None:
    """gdb has stopped: move a redirected thread that hasn't begun back to its place."""
    selected = gdb.selected_thread()
    for thread in gdb.selected_inferior().threads() if _ends.threads else ():
        found = _ends.threads.get(thread.ptid)
        if found is None:
            continue
        thread.switch()
        if get_register(found.machine.counter) == found.start:
            found.undo()
            del _ends.threads[thread.ptid]
            warn(
                f"thread {thread.num} stopped before its snapshot, which was not taken",
                slug="snapshot-missed",
            )
    if selected is not None and selected.is_valid() and gdb.selected_thread() != selected:
        selected.switch()


def _exit_noted(event: gdb.Event) -> None:
    """The program has ended, and its detours with it."""
    _ends.forget()
