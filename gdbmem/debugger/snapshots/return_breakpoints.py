"""Breakpoints at the return of a call: `--after`."""

from __future__ import annotations

import functools
import sys
from typing import Callable, NamedTuple, Optional

import gdb

from gdbmem.debugger.command import warn
from gdbmem.debugger.location import frames_from, function_frame, gdb_setting, stack_pointer
from gdbmem.debugger.native.inferior import program
from gdbmem.debugger.program import (
    GdbMemory,
    InternalBreakpoint,
    delete_breakpoints,
    executions,
    refuse_neighbour,
)
from gdbmem.debugger.stopping.ctrlc import ctrl_c
from gdbmem.debugger.stopping.stops import note_passing
from gdbmem.errors import GdbmemError, UsageError, internal_error, sentence_of
from gdbmem.model.memory import MemoryUnreadable

_MOST_FRAMES = 1000  # among which a caller is looked for
_MOST_POPPED = 8  # bytes of arguments that a function takes from the stack when it returns


class Returns:
    """Acts when the function that a thread has just entered returns.

    A breakpoint at the caller's next instruction is created once and kept: gdb's own FinishBreakpoint, created at each
    call, gets slower each time. This works for tail calls too, which have no return instruction. (If the caller catches
    an exception and continues directly after the call, this looks like a return.)
    """

    def __init__(self, act: Callable[[int], bool], *, commands: Optional[str]) -> None:
        """*act* gets the hit and returns whether to stop; at a stop gdb's *commands* are executed."""
        self._act = act
        self._commands = commands
        self._pending: list[_Call] = []  # innermost last, per thread
        self._breakpoints: dict[int, OwnedBreakpoint] = {}
        self.left_calls = 0  # by an exception or longjmp: seen when the stack has passed them
        executions.tell(self._leave_program)

    @property
    def under_way(self) -> int:
        """The number of pending calls."""
        return len(self._pending)

    def forget(self) -> None:
        """Forget all pending calls."""
        self._pending = []

    def _leave_program(self) -> None:
        # In the program that has replaced it, these addresses are meaningless.
        self.forget()
        delete_breakpoints(self._breakpoints.values())
        self._breakpoints.clear()

    def arm(self, hit: int) -> None:
        """Wait for the return of the function just entered; raises NoBreakpointError where gdb can't."""
        place = _return_place()
        thread, pointer = gdb.selected_thread().ptid, stack_pointer(gdb.newest_frame())
        # A call whose frame is where a new one begins has been left; one below it, unless this is another stack.
        self._leave([c for c in self._pending if c.thread == thread and c.stack_pointer == pointer])
        self._leave_below(thread, pointer)
        if place.address not in self._breakpoints:
            self._breakpoints[place.address] = OwnedBreakpoint(
                place.address, functools.partial(self.returned, place.address), self, commands=self._commands
            )
        self._pending.append(_Call(thread, place, pointer, hit))

    def _leave_below(self, thread: tuple[int, int, int], pointer: int) -> None:
        below = [c for c in self._pending if c.thread == thread and c.stack_pointer < pointer]
        self._leave([call for call in below if not call.is_under_way()])

    def _leave(self, calls: list[_Call]) -> None:
        if calls:
            self.count_left(len(calls))
            self._pending = [call for call in self._pending if call not in calls]

    def count_left(self, number: int) -> None:
        """Count calls that were left by an exception or longjmp."""
        if not self.left_calls:
            warn(
                "a call was left by an exception or longjmp, so --after takes no snapshot of its return; "
                "a breakpoint where the exception is caught would",
                slug="call-left",
            )
        self.left_calls += number

    def returned(self, address: int) -> bool:
        """Act on the call of this thread that has returned to *address*, if any; True: stop for it."""
        thread = gdb.selected_thread().ptid
        pointer = stack_pointer(gdb.newest_frame())
        for call in reversed(self._pending):
            if call.thread == thread and call.place.is_reached(address, pointer):
                self._pending.remove(call)
                self._leave_below(thread, pointer)
                return self._act(call.hit)
        return False


class ReturnPlace(NamedTuple):
    """Where a function returns to."""

    address: int
    pointer: int  # the caller's stack pointer

    def is_reached(self, address: int, pointer: int) -> bool:
        """Return whether the function has returned where its thread is at *address* with the stack *pointer*."""
        return address == self.address and 0 <= pointer - self.pointer <= _MOST_POPPED

    def is_on_stack(self) -> bool:
        """Return whether the return address is still there, as on the stack of a coroutine that does not run now."""
        size = gdb.newest_frame().read_register("sp").type.sizeof
        try:
            return int.from_bytes(GdbMemory().read(self.pointer - size, size), sys.byteorder) == self.address
        except MemoryUnreadable:
            return False


class _Call(NamedTuple):
    """A call that has not returned yet."""

    thread: tuple[int, int, int]
    place: ReturnPlace
    stack_pointer: int  # as it began
    hit: int

    def is_under_way(self) -> bool:
        """Return whether its caller waits for it: what runs now may be on a stack that lies above.

        That is the stack of a signal's handler, or of another coroutine.
        """
        frames = frames_from(gdb.newest_frame(), _MOST_FRAMES)
        callers = (ReturnPlace(int(frame.pc()), stack_pointer(frame)) for frame in frames)
        return self.place in callers or self.place.is_on_stack()


class OwnedBreakpoint(InternalBreakpoint):
    """A breakpoint that acts for the point *owner*; where it stops the program, gdb's *commands* are executed."""

    stays = True  # as its owner

    def __init__(
        self, address: int, act: Callable[[], bool], owner: object, *, commands: Optional[str]
    ) -> None:
        super().__init__(address)
        if commands is not None:
            self.commands = commands
        self._act = act
        self.owner = owner
        refuse_neighbour(self)

    def stop(self) -> bool:
        try:
            note_passing()
            return (not program.has_arrived and self._act()) or ctrl_c.interrupted()
        except (GdbmemError, gdb.error) as error:
            warn(sentence_of(error))
        except KeyboardInterrupt:
            pass
        except Exception as error:  # noqa: BLE001  (a host: gdb calls this)
            warn(internal_error(error))
        return True


def _return_place() -> ReturnPlace:
    """Return where the function just entered returns to. Raises UsageError if it has no caller."""
    place = return_place(function_frame(gdb.newest_frame()))
    if place is None:
        # gdb hides the caller of main.
        with gdb_setting("backtrace past-main", "on"):
            place = return_place(function_frame(gdb.newest_frame()))
    if place is None:
        raise UsageError(
            "--after needs a function that returns to a caller", hint="set it on a function's name"
        )
    return place


def return_place(frame: gdb.Frame) -> Optional[ReturnPlace]:
    """Return where the function of *frame* returns to; None if gdb knows no caller."""
    caller = frame.older()
    # gdb invents frames for functions that have jumped to the next one: none of these returns.
    while caller is not None and caller.type() in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
        caller = caller.older()
    return None if caller is None else ReturnPlace(int(caller.pc()), stack_pointer(caller))
