"""Charging each change between two events of a thread to the line of the function that it was on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import gdb

from gdbmem.debugger.memwatch.driving.function_code import LineStart, WatchedPlace
from gdbmem.debugger.stopping.stops import is_step_postponed
from gdbmem.linux.memory.maps import SettledPages
from gdbmem.linux.memory.thread_shares import Part, Sharing
from gdbmem.linux.process.threads import SignalHandlers
from gdbmem.model.steps import FunctionProfile, LineProfile
from gdbmem.steps.quiet_lines import CALLING, RETURNED

_MOST_FRAMES = 1000  # frames searched for calls in progress


class _Activation:
    """One call that has not returned yet."""

    __slots__ = ("at", "back", "line", "stack")

    def __init__(self, stack: int, back: int, at: Optional[int] = None) -> None:
        self.stack = stack  # the stack pointer at entry
        self.back = back  # where it returns to
        self.at = at  # the beginning of a line that it has passed; None: unknown
        self.line: Optional[int] = None


class _Thread:
    """One thread's calls."""

    __slots__ = ("activations", "inside_call", "lost")

    def __init__(self) -> None:
        self.activations: list[_Activation] = []
        self.lost = False  # since its last event a call was abandoned at an unknown time
        self.inside_call = False  # with --own: below a call instruction


class LineTally:
    """Charges the change between two events of a thread to the line that it was on."""

    def __init__(self, place: WatchedPlace, sharing: Sharing, *, wanted_calls: int, every: int = 1) -> None:
        self.place = place
        self.under_way_from: Optional[int] = None  # the line of a call that had begun before
        self.calls = self.abandoned = self.recursive = self.outside_bytes = self.outside_shared = 0
        self.unseen = 0  # abandoned calls whose end was not observed
        self._sharing = sharing
        self._wanted, self._every, self._begun = wanted_calls, every, 0
        self._threads: dict[int, _Thread] = {}
        # Hits, bytes, shared.
        self._hits: dict[int, list[int]] = {line: [0, 0, 0] for _, line, _ in place.lines}
        self._starts = {start.address: start for start in place.lines}
        self._at_start = {None, *(line for address, line, _ in place.lines if address == place.start)}
        self._totals: dict[int, int] = {}
        self._first: Optional[int] = None  # memory of the process at the first event

    # -- events, each from a Breakpoint.stop() ------------------------------------------------------------

    def resume(self) -> list[int]:
        """Include the calls in progress in the selected thread; return their return addresses."""
        found = _calls_under_way(self.place.start)
        if not found:
            return []
        thread = self._thread()
        self._charge(thread)
        thread.activations = [activation for activation, _ in found]
        line = self.under_way_from = self.place.line_at(found[-1][1])
        thread.activations[-1].line = line
        if line is not None:
            self._hits[line][0] += 1
        self.recursive += len(found) - 1
        self._begun += 1
        return [activation.back for activation, _ in found]

    def entered(self) -> Optional[int]:
        """A call begins; return its return address, None for one that is not counted."""
        thread = self._thread()
        stack = register("sp")
        last = thread.activations[-1] if thread.activations else None
        if (
            last is not None
            and last.stack == stack
            and last.line in self._at_start
            and is_step_postponed(self)
        ):
            return last.back  # the same call passes a second time
        if last is not None and last.stack == stack and last.back == return_address(stack):
            # Calls that are left otherwise are dropped where the program continues.
            if self.place.loops_to_start:
                return last.back
            if self.place.may_tail_call:
                self._charge(thread)  # by functions that were called in its place
                thread.activations[-1] = _Activation(stack, last.back, self.place.start)
                self.recursive += 1
                thread.inside_call = False
                return last.back
        # No two live calls begin at the same stack address.
        self._drop_abandoned(thread, stack + 1)
        if not thread.activations:
            self._begun += 1
            if (self._begun - 1) % self._every:
                return None
        self._charge(thread)
        self.recursive += bool(thread.activations)
        back = return_address(stack)
        thread.activations.append(_Activation(stack, back, self.place.start))
        thread.inside_call = False
        return back

    def landed(self, stack: int) -> bool:
        """An exception or longjmp continues at *stack*; return whether enough calls have ended."""
        thread = self._thread()
        if thread.activations and thread.activations[-1].stack <= stack:
            # Unlike in a call found to be gone later, its last line made the whole change.
            self._charge(thread)
            unseen = self.unseen
            self._drop_abandoned(thread, stack + 1)
            self.unseen, thread.lost = unseen, False
        return self.is_complete

    @property
    def is_complete(self) -> bool:
        """True if the requested number of calls has ended."""
        return self.calls >= self._wanted

    def on_line(self, start: LineStart) -> bool:
        """A line begins."""
        thread = self._thread()
        if not thread.activations:
            return False  # it was entered before the watch began
        if len(thread.activations) > 1:
            self.returned(start.address)  # of a recursive call, whose breakpoint comes after this one
            self._drop_abandoned(thread, register("sp"))
        self._charge(thread, start.address)
        self._pass(thread.activations[-1], (start.address,))
        thread.inside_call = False
        return False

    def calling(self) -> bool:
        """Note, for --own, that another function makes the following changes."""
        thread = self._thread()
        self._charge(thread)
        thread.inside_call = True
        return False

    def called(self) -> bool:
        """Note, for --own, that the line itself continues."""
        thread = self._thread()
        self._charge(thread)
        thread.inside_call = False
        return False

    def returned(self, address: int) -> bool:
        """A call may have returned to *address*; return whether enough have."""
        thread = self._thread()
        stack = register("sp")
        while thread.activations:
            last = thread.activations[-1]
            if last.back == address and _has_returned(last.stack, stack, address):
                self._charge(thread, RETURNED)
                thread.activations.pop()
                # In a recursive function the outermost calls count.
                self.calls += not thread.activations
                return self.is_complete
            if last.stack >= stack:
                break
            self._abandon(thread)
        return False

    def under_way(self) -> list[int]:
        """Return the numbers of the threads whose calls have not ended."""
        return [number for number, thread in self._threads.items() if thread.activations]

    def stands(self, number: int, address: Optional[int]) -> None:
        """Thread *number* has stopped at *address* in the function; None: it has ended in a call."""
        activation, quiet = self._threads[number].activations[-1], self.place.quiet
        if address is None:
            self._pass(activation, quiet.between(activation.at, CALLING))
            return
        place = quiet.place_of(activation.at, address)
        if place is not None:
            self._pass(activation, (*quiet.between(activation.at, place), place))

    def quiet_spans(self) -> Sequence[tuple[int, int]]:
        """Return the addresses that the selected thread's call may access on quiet lines."""
        activations = self._thread().activations
        if not activations:
            return ()
        last, quiet = activations[-1], self.place.quiet
        spans = quiet.spans.get(last.at, ()) if last.at is not None else ()
        return ((last.stack - quiet.frame_bytes, last.stack + 16), *spans)

    # -- inside ---------------------------------------------------------------------------------------------

    def _thread(self) -> _Thread:
        number = gdb.selected_thread().num
        found = self._threads.get(number)
        if found is None:
            found = self._threads[number] = _Thread()
        return found

    def _charge(self, thread: _Thread, at: int = CALLING) -> None:
        """Charge the change since the thread's last event; it is *at* the beginning of a line, RETURNED or CALLING."""
        earlier = self._sharing.reading
        part, now = self._sharing.part(gdb.selected_thread().ptid[1]), self._sharing.reading
        self._first = now if self._first is None else self._first
        lost, thread.lost = thread.lost, False
        if not thread.activations:
            return
        activation, quiet = thread.activations[-1], self.place.quiet
        passed = quiet.between(activation.at, at)
        if part is None or now is None or lost:
            self._pass(activation, passed)
        elif thread.inside_call:
            self.outside_bytes += part.own_bytes
            self.outside_shared += not part.is_exact
        else:
            # At most one of the lines that were passed can have made it; else the one of the last event has.
            charged = next((one for one in passed if not quiet.is_quiet(one)), None)
            reading = now if charged is None or earlier is None else earlier
            for one in (None, *passed):
                self._pass(activation, () if one is None else (one,))
                if one == charged:
                    self._add(activation.line, part)
                    reading = now
                if activation.line is not None:
                    self._totals[activation.line] = reading

    def _add(self, line: Optional[int], part: Part) -> None:
        if line is not None:
            hits = self._hits[line]
            hits[1] += part.own_bytes
            hits[2] += not part.is_exact

    def _pass(self, activation: _Activation, addresses: Sequence[int]) -> None:
        """Count the lines that begin at *addresses*."""
        for address in addresses:
            start = self._starts[address]
            if activation.line != start.line:  # a line may begin at several addresses
                self._hits[start.line][0] += start.is_statement
                activation.line = start.line
            activation.at = address

    def _drop_abandoned(self, thread: _Thread, stack: int) -> None:
        while thread.activations and thread.activations[-1].stack < stack:
            self._abandon(thread)

    def _abandon(self, thread: _Thread) -> None:
        # An exception or longjmp left it; if the time is unknown, so is its last line's change.
        last = thread.activations.pop()
        self._pass(last, self.place.quiet.between(last.at, CALLING))
        thread.lost = True
        self.abandoned += 1
        self.unseen += 1
        self.calls += not thread.activations

    def profile(self, source: str, *, own_only: bool) -> FunctionProfile:
        lines = [
            LineProfile(line, hits, size, self._totals.get(line), shared)
            for line, (hits, size, shared) in sorted(self._hits.items())
        ]
        return FunctionProfile(
            function=self.place.name,
            file=self.place.file,
            calls=self.calls,
            lines=lines,
            source=source,
            own_only=own_only,
            abandoned_calls=self.abandoned,
            unseen_calls=self.unseen,
            recursive_calls=self.recursive,
            has_inlined=self.place.has_inlined,
            under_way_from=self.under_way_from,
            outside_bytes=self.outside_bytes,
            is_outside_shared=self.outside_shared > 0,
            process_bytes=self._process_bytes(),
        )

    def _process_bytes(self) -> Optional[int]:
        latest = self._sharing.reading
        return None if self._first is None or latest is None else latest - self._first


def register(name: str) -> int:
    """Return a register of the newest frame."""
    return int(gdb.newest_frame().read_register(name)) & 0xFFFFFFFFFFFFFFFF


def return_address(stack: int) -> int:
    """Return the return address of the function whose first instruction is next."""
    frame = gdb.newest_frame()
    if frame.architecture().name().startswith("aarch64"):
        return register("lr")
    return int.from_bytes(bytes(gdb.selected_inferior().read_memory(stack, 8)), "little")


def _has_returned(entry_stack: int, stack: int, address: int) -> bool:
    """Distinguish a return from a jump to the same place, for example from an exception handler."""
    if gdb.newest_frame().architecture().name().startswith("aarch64"):
        return stack == entry_stack
    return stack == entry_stack + 8 and return_address(entry_stack) == address


def _calls_under_way(start: int) -> list[tuple[_Activation, tuple[int, bool]]]:
    """Return the selected thread's calls of the function at *start*, outermost first.

    Each has its current address, and whether that follows a call that it makes.
    """
    found: list[tuple[_Activation, tuple[int, bool]]] = []
    frame = gdb.newest_frame()
    is_newest = True
    for _ in range(_MOST_FRAMES):
        caller = frame.older()
        if caller is None:
            break
        if frame.type() == gdb.NORMAL_FRAME and _starts(frame) == start:
            stack = int(caller.read_register("sp")) & 0xFFFFFFFFFFFFFFFF
            entry = stack if frame.architecture().name().startswith("aarch64") else stack - 8
            found.insert(0, (_Activation(entry, caller.pc()), (frame.pc(), not is_newest)))
        is_newest = is_newest and frame.type() == gdb.INLINE_FRAME
        frame = caller
    return found


def _starts(frame: gdb.Frame) -> Optional[int]:
    function = frame.function()
    return None if function is None else int(function.value().address)


_MOST_TIMES = 4  # that all lines are watched for a while; then they are until the end


class SpareLines:
    """Enables the breakpoints of the quiet lines before a call accesses a page that is not resident.

    They stay enabled in a process that handles signals: a handler that runs during a quiet line may do anything.
    """

    def __init__(self, tally: LineTally, pid: Optional[int]) -> None:
        self._tally = tally
        self._breakpoints: list[gdb.Breakpoint] = []
        self._pages = SettledPages(pid or 0)
        self._handlers = SignalHandlers(pid or 0)
        self._unsettled: set[int] = set()  # threads
        self._all = self._for_good = False  # watched
        self._times = 0

    def add(self, address: int, breakpoint_: gdb.Breakpoint) -> None:
        """Disable the new breakpoint at *address* if it is one of a quiet line."""
        if address in self._tally.place.quiet.skipped:
            self._breakpoints.append(breakpoint_)
            breakpoint_.enabled = self._all

    def begin_call(self) -> None:
        """A call begins in the selected thread."""
        if self._breakpoints and not self._for_good and self._handlers.exist():
            self.give_up()

    def attend(self) -> None:
        """Watch all lines if the selected thread's next quiet lines could change the process's memory."""
        if self._for_good or not self._breakpoints:
            return
        thread = gdb.selected_thread().num
        if all(self._pages.are_settled(*span) for span in self._tally.quiet_spans()):
            self._unsettled.discard(thread)
        else:
            self._unsettled.add(thread)
        if bool(self._unsettled) != self._all:
            self._watch_all(not self._all)

    def give_up(self) -> None:
        """Watch all lines from now on."""
        self._for_good = True
        self._watch_all(True)

    def _watch_all(self, wanted: bool) -> None:
        self._times += wanted and not self._all
        self._for_good = self._for_good or self._times > _MOST_TIMES
        if self._all != wanted:
            self._all = wanted
            for one in self._breakpoints:
                one.enabled = wanted

    def close(self) -> None:
        self._pages.close()
        self._handlers.close()


def count_unfinished(tally: LineTally) -> None:
    """Count the lines that the calls which have not ended have passed since their last breakpoint."""
    threads = {one.num: one for one in gdb.selected_inferior().threads()}
    selected = gdb.selected_thread() if threads else None
    for number in tally.under_way():
        thread = threads.get(number)
        if thread is None or not thread.is_valid():
            tally.stands(number, None)
            continue
        thread.switch()
        address = _address_inside(tally)
        if address is not None:
            tally.stands(number, address)
    if selected is not None and selected.is_valid():
        selected.switch()


def _address_inside(tally: LineTally) -> Optional[int]:
    """Return the instruction of the function that the selected thread executes in its newest call of it."""
    calls = {behind: call for call, behind in tally.place.calls}
    frame = newest = gdb.newest_frame()
    while frame is not None:
        address = int(frame.pc())
        if frame == newest and address in tally.place.by_address:
            return address
        if frame != newest and address in calls:
            return calls[address]
        frame = frame.older()
    return None
