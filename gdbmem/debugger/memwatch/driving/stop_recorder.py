"""The last stop (a step's end, a breakpoint, a signal, the program's end) and the sample taken there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import AbstractSet, Callable, NamedTuple, Optional

import gdb

from gdbmem.debugger.location import current_place, frame_place, frame_pointer, frames_from, stack_pointer
from gdbmem.debugger.memwatch.driving.locking import Wait
from gdbmem.debugger.python.call_paths import beside, in_python, python_place
from gdbmem.debugger.stopping.stops import noticed
from gdbmem.debugger.terminal import library_at, source_file
from gdbmem.errors import TargetError
from gdbmem.model.calltree import Frame
from gdbmem.profiles.own_code import own_frame

Read = Callable[[], Optional[int]]


class Stop(NamedTuple):
    """The end of one run of the program."""

    reading: Optional[int]  # taken at the stop itself, before a breakpoint's commands ran
    ended: str = ""  # in words; "" for a step's ordinary end
    wait: Optional[Wait] = None  # stopped by the watcher
    announced: bool = False  # gdb has printed more about it than the source line

    @property
    def is_ordinary(self) -> bool:
        """True if another step may follow."""
        return not self.ended and self.wait is None


class StopRecorder:
    """Handles gdb's stop and exit events during a memwatch command, and reads the memory there."""

    def __init__(self) -> None:
        self.driving = False
        self.reading: Optional[int] = None  # at the stop since `arm`
        self._new_threads: list[tuple[int, int]] = []  # gdb's number, the kernel's
        self._read: Read = lambda: None
        self._asks_gdb = False
        self._event: Optional[gdb.Event] = None
        self._hit: dict[int, str] = {}  # the breakpoints that stopped it: number → description
        self._exited: Optional[str] = None
        self._stops = 0
        self._waits = False  # the reading is taken after the breakpoint's commands
        self._inferior = 0

    @contextlib.contextmanager
    def recording(self, read: Read, *, asks_gdb: bool = False) -> Iterator[None]:
        """Record stops until the `with` ends; *asks_gdb* is set if *read* executes gdb commands."""
        self._read, self.driving, self._asks_gdb = read, True, asks_gdb
        self._new_threads = []
        gdb.events.stop.connect(self._on_stop)
        gdb.events.exited.connect(self._on_exit)
        gdb.events.new_thread.connect(self._on_new_thread)
        try:
            yield
        finally:
            gdb.events.stop.disconnect(self._on_stop)
            gdb.events.exited.disconnect(self._on_exit)
            gdb.events.new_thread.disconnect(self._on_new_thread)
            self.driving = False

    def arm(self) -> None:
        """Expect the next stop."""
        self._event = self.reading = self._exited = None
        self._stops = 0
        self._hit = {}
        self._waits = False
        self._inferior = gdb.selected_inferior().num

    def take_new_threads(self) -> list[tuple[int, int]]:
        """Return, once, the new threads: gdb's number of each, and the kernel's."""
        found, self._new_threads = self._new_threads, []
        return found

    def is_plain(self, thread: gdb.InferiorThread) -> bool:
        """Return whether the stop since `arm` was only the end of a step of *thread*."""
        return (
            self._stops == 1
            and type(self._event) is gdb.StopEvent
            and self._exited is None
            and not self._new_threads
            and selected_thread() is thread
        )

    def stop(
        self, *, wait: Optional[Wait], ours: AbstractSet[int], thread: Optional[gdb.InferiorThread]
    ) -> Stop:
        """Return the stop that came after `arm`.

        *wait* is the reason if gdbmem stopped it; *ours* are internal breakpoints that end a step.
        """
        if self._exited is not None:  # gdb reports this also for a parent that it leaves to follow the child
            return Stop(None, self._followed() or self._exited, announced=True)
        event = self._event
        if event is None:  # gdb didn't run it, and has printed why
            return Stop(
                self._read(), "not moved" if selected_thread() is not None else "its thread has ended"
            )
        if self._waits and self._stops == 1:
            self.reading = self._read()
        if wait is not None:
            return Stop(self.reading, "", wait)
        ended, announced = self._in_words(event, ours)
        if not ended and thread is not None:
            ended = self._moved_on(thread)
        return Stop(self.reading, ended, None, announced or bool(ended))

    def stopped_at(self, numbers: AbstractSet[int]) -> bool:
        """Return whether the stop since `arm` was only at breakpoints or catchpoints with these *numbers*."""
        event = self._event
        if event is None or self._exited is not None or getattr(event, "stop_signal", None) is not None:
            return False
        # gdb before 11 does not name a catchpoint; a temporary one of the user is deleted by now.
        return all(one.is_valid() and one.number in numbers for one in getattr(event, "breakpoints", ()))

    def hit(self) -> set[int]:
        """Return the numbers of the breakpoints at which the program has stopped since `arm`."""
        return {one.number for one in getattr(self._event, "breakpoints", ()) if one.is_valid()}

    def _in_words(self, event: gdb.Event, ours: AbstractSet[int]) -> tuple[str, bool]:
        if self._stops > 1:
            return "a breakpoint's commands resumed the program", True
        signal = getattr(event, "stop_signal", None)
        if signal is not None:
            return f"signal {signal}", True
        hit = [f"{kind} {number}" for number, kind in self._hit.items() if number not in ours]
        return (hit[0], True) if hit else ("", False)

    def _moved_on(self, thread: gdb.InferiorThread) -> str:
        selected = selected_thread()
        if followed := self._followed():
            return followed
        if selected is None or not thread.is_valid():
            return "the thread has ended"
        return "" if selected.ptid == thread.ptid else f"stopped in thread {selected.num}"

    def _followed(self) -> str:
        """Return a sentence if gdb has switched to another process, else ""."""
        now = gdb.selected_inferior()
        return f"gdb now follows process {now.pid}" if now.num != self._inferior and now.pid else ""

    @noticed
    def _on_stop(self, event: gdb.Event) -> None:
        self._stops += 1
        if self._stops == 1:
            self._event = event
            self._waits = self._asks_gdb and has_commands(event)
            if gdb.selected_inferior().num == self._inferior and not self._waits:
                self.reading = self._read()
            if type(event) is not gdb.StopEvent:
                # A temporary breakpoint is gone when the command has returned.
                hit = getattr(event, "breakpoints", ())
                self._hit = {b.number: _kind(b) for b in hit if b.is_valid() and b.number > 0}

    def _on_new_thread(self, event: gdb.Event) -> None:
        thread = new_thread(event)
        self._new_threads.append((thread.num, thread.ptid[1]))

    def _on_exit(self, event: gdb.Event) -> None:
        code = getattr(event, "exit_code", None)
        self._exited = "the program ended" + ("" if code is None else f" with status {code}")


def has_commands(event: gdb.Event) -> bool:
    """Return whether a breakpoint of *event* has commands, which gdb.execute would run now."""
    hit = getattr(event, "breakpoints", ())
    return any(one.is_valid() and one.commands for one in hit)


def new_thread(event: gdb.Event) -> gdb.InferiorThread:
    """Return the thread that has begun by a new_thread *event*."""
    thread = event.inferior_thread
    if isinstance(thread, gdb.Inferior):  # so gdb 10
        thread = max(thread.threads(), key=lambda known: known.num)
    return thread


def thread_numbers() -> dict[int, int]:
    """Return gdb's number of each thread, by the kernel's."""
    return {thread.ptid[1]: thread.num for thread in gdb.selected_inferior().threads()}


def selected_thread() -> Optional[gdb.InferiorThread]:
    """Return the selected thread; None if there is none, or if it has ended and gdb lost it."""
    try:
        return gdb.selected_thread()
    except SystemError:
        return None


def require_live_thread() -> None:
    """Raise TargetError if the program runs and the thread that was selected in it has ended."""
    if gdb.selected_inferior().pid and selected_thread() is None:
        raise TargetError(
            "the selected thread has ended",
            slug="thread-ended",
            hint="'info threads' lists the threads, and 'thread NUMBER' selects one",
        )


def _kind(breakpoint_: gdb.Breakpoint) -> str:
    watches = (
        gdb.BP_WATCHPOINT,
        gdb.BP_HARDWARE_WATCHPOINT,
        gdb.BP_READ_WATCHPOINT,
        gdb.BP_ACCESS_WATCHPOINT,
    )
    return "watchpoint" if breakpoint_.type in watches else "breakpoint"


recorder = StopRecorder()


# The call path of the selected thread.


_DEEPEST = 48


def own_place() -> Optional[str]:
    """Return the innermost place in the user's own code, by the rules of reports, and its function.

    Python's is named beside that of native code that it called.
    """
    try:
        frames = newest_frames()
        native = [described(frame) for frame in frames]
        python, newest = python_place(), frames[0].name()
        if python and in_python(frames, native):
            return f"{python} (in {newest})" if newest else python
        own = frames[max(own_frame(native), 0)]
        within = f" (in {newest})" if newest and own.name() != newest else ""
        return beside(frame_place(own) + within, python)
    except (gdb.error, IndexError):
        return current_place()


def newest_frames() -> list[gdb.Frame]:
    """Return the frames of the selected thread, innermost first, up to the length of a listed path."""
    return list(frames_from(gdb.newest_frame(), _DEEPEST))


_LARGEST_STACK_BYTES = 16 << 10  # read at once
_MOST_PLACES = 1000
_MOST_STACKS = 4  # with one stack pointer, at one instruction
_WORD_BYTES = 8


class _Unwound(NamedTuple):
    # A stack, and what makes another one have the same callers.
    addresses: tuple[int, ...]  # of the frames, the innermost first
    frame_pointer: Optional[int]  # the register's value; None: no frame depends on it
    end: int  # of the words that were read
    words: dict[int, int]  # number of the word from the stack pointer → value


class CallAddresses:
    """Returns the addresses of the selected thread's frames, without unwinding a stack that is as it was before.

    Unwinding takes gdb longer than everything else at a stop. The callers of a frame follow from its stack pointer,
    its instruction, and those words of the stack that hold return addresses and frame pointers: where all of these are
    as they were, so are the callers.
    """

    def __init__(self) -> None:
        # By stack pointer and instruction; None: one that can't be recognised.
        self._known: dict[tuple[int, int], list[Optional[_Unwound]]] = {}

    def forget(self) -> None:
        """Clear all state: the process executes another program."""
        self._known.clear()

    def here(self, frame: gdb.Frame, stack: int) -> tuple[int, ...]:
        """Return the addresses from *frame* on, the newest, whose stack pointer is *stack*."""
        place = stack, frame.pc()
        stacks = self._known.get(place)
        for known in stacks or ():
            if known is not None and self._is_as_before(frame, stack, known):
                return known.addresses
        frames = newest_frames()
        if stacks is None:  # most places are seen once; recording what a stack depends on takes as long again
            if len(self._known) > _MOST_PLACES:
                self._known.clear()
            self._known[place] = []
        elif len(stacks) < _MOST_STACKS:
            stacks.append(_unwound(frames, stack))
        return tuple(one.pc() for one in frames)

    @staticmethod
    def _is_as_before(frame: gdb.Frame, stack: int, known: _Unwound) -> bool:
        if known.frame_pointer not in (None, frame_pointer(frame)):
            return False
        words = _stack_words(stack, known.end)
        return words is not None and all(words[at] == value for at, value in known.words.items())


def _unwound(frames: list[gdb.Frame], stack: int) -> Optional[_Unwound]:
    """Return what the unwinding of *frames* depends on; None where that isn't certain."""
    starts: list[int] = []  # stack pointers
    pointers: list[int] = []  # frame pointers
    addresses: list[int] = []
    for frame in frames:
        if frame.type() not in (gdb.NORMAL_FRAME, gdb.INLINE_FRAME):
            return None
        start = stack_pointer(frame)
        if not starts or start != starts[-1]:  # an inlined frame has that of its caller
            starts.append(start)
            pointers.append(frame_pointer(frame))
            addresses.append(frame.pc())
    words = _stack_words(stack, starts[-1]) if starts == sorted(starts) else None
    if words is None:
        return None
    ends = [(start - stack) // _WORD_BYTES for start in starts]
    needed: dict[int, int] = {}
    for number, address in enumerate(addresses[1:], 1):
        found = [at for at in range(ends[number - 1], ends[number]) if words[at] == address]
        if not found:
            return None  # signed, or still in a register
        needed.update(dict.fromkeys(found, address))
    register = None
    for number, pointer in enumerate(pointers[:-1]):
        if not starts[number] <= pointer < starts[number + 1]:
            continue  # a register like any other, in that frame
        found = [at for at in range(ends[number]) if words[at] == pointer]
        if pointer == pointers[0]:
            register = pointer
        elif not found:
            return None
        needed.update(dict.fromkeys(found, pointer))
    return _Unwound(tuple(frame.pc() for frame in frames), register, starts[-1], needed)


def _stack_words(start: int, end: int) -> Optional[Sequence[int]]:
    """Return the words of the stack from *start* to *end*; None if there are too many, or they can't be read."""
    if start % _WORD_BYTES or not 0 < end - start <= _LARGEST_STACK_BYTES:
        return None
    try:
        data = gdb.selected_inferior().read_memory(start, end - start)
    except gdb.error:
        return None
    return memoryview(bytes(data)).cast("Q")


def described(frame: gdb.Frame) -> Frame:
    """Return *frame* in the form used by reports."""
    position = frame.find_sal()
    file = source_file(position.symtab)
    library = None if file else library_at(frame.pc())
    line = position.line if file else None
    return Frame(frame.name(), file, line, library, frame.type() == gdb.INLINE_FRAME)
