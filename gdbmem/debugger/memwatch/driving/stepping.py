"""Measured steps: gdb's own commands, issued one at a time, with a reading at each stop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import AbstractSet, NamedTuple, Optional

import gdb

from gdbmem.debugger.command import warn
from gdbmem.debugger.location import function_frame, gdb_setting, real_pid
from gdbmem.debugger.memwatch.driving.capture import Capture
from gdbmem.debugger.memwatch.driving.fast_steps import Odd, Place, StopPlaces, Strides
from gdbmem.debugger.memwatch.driving.locking import Wait, Watcher, describe_wait
from gdbmem.debugger.memwatch.driving.loop_lines import (
    Barrier,
    Ends,
    finish_ends,
    inlined_ends,
    loop_lines,
    return_ends,
)
from gdbmem.debugger.memwatch.driving.memory_syscalls import Releases, is_alone
from gdbmem.debugger.memwatch.driving.stop_recorder import Stop, recorder, selected_thread, thread_numbers
from gdbmem.debugger.memwatch.gauges.gauge import Account, Detail, accounts
from gdbmem.debugger.program import NATIVE, REMOTE, VALGRIND, scheduler_locking, set_locking, target_kind
from gdbmem.debugger.stopping.ctrlc import interruptible
from gdbmem.debugger.stopping.interrupting import Interrupter, remote_blocks_interrupts, restart_call
from gdbmem.debugger.terminal import source_file
from gdbmem.errors import TargetError
from gdbmem.linux.memory.thread_shares import Part, Sharing
from gdbmem.linux.process.threads import Activity, activities, has_run, is_ending, ran_between
from gdbmem.model.steps import FREE, LOCKED, SHARED, Step

LINE_COMMANDS = ("step", "next", "stepi", "nexti")
_RESUMABLE = ("step", "next")  # after a wait: run out of the call that waited, then step the rest of the line


@dataclass(frozen=True)
class StepRequest:
    """The user's request."""

    command: str
    argument: str = ""  # of until, advance, finish
    count: int = 1
    lock: str = "auto"
    timeout_seconds: float = 5.0
    source: Optional[str] = None


class StepStart(NamedTuple):
    """Location of the selected thread before a step."""

    frame: gdb.Frame
    thread: gdb.InferiorThread
    number: int  # of the thread, which may end meanwhile
    function: Optional[str]
    file: Optional[str]
    line: Optional[int]

    @classmethod
    def now(cls, places: StopPlaces) -> StepStart:
        """Return the location of the selected thread."""
        thread = gdb.selected_thread()
        if thread is None:
            raise TargetError("no thread is selected", slug="not-running", hint="see 'info threads'")
        frame = gdb.newest_frame()
        return cls(frame, thread, thread.num, *places.at(frame))


class Progress:
    """Events during one step, besides its delta."""

    def __init__(self) -> None:
        self.threads: set[int] = set()  # others that ran
        self.shared = False
        self.others_bytes: Optional[int] = 0  # change by the others; None: unknown
        self.divided_exactly = True
        self.notes: list[str] = []

    def divide(self, part: Optional[Part]) -> None:
        """Record a thread's part of the change while the others ran."""
        if part is None or self.others_bytes is None:
            self.others_bytes = None
            return
        self.others_bytes += part.others_bytes
        self.divided_exactly = self.divided_exactly and part.is_exact


class Stepper:
    """Drives one memwatch command; a context manager that restores gdb's settings."""

    def __init__(self, request: StepRequest) -> None:
        self.request = request
        self.account: Account = accounts.current(request.source)
        self.steps: list[Step] = []
        self.stop: Optional[Stop] = None  # the last one
        self.capture = Capture()
        self.start: Optional[StepStart] = None  # of the last step
        self._stray = False
        self._before: Optional[int] = None  # the reading at the last stop
        self._strider: Optional[tuple[gdb.InferiorThread, int]] = None  # the number outlives the thread
        self._places = StopPlaces()
        self._finish_ends: Optional[Ends] = None
        self._typed_in: Optional[gdb.Frame] = gdb.selected_frame() if selected_thread() is not None else None
        self._under_valgrind = target_kind() == VALGRIND
        self._lock = self._mode()
        pid = real_pid() if target_kind() == NATIVE else None
        self._pid = pid
        self._interrupter = Interrupter(pid)
        self._watcher = Watcher(pid, self._interrupter, timeout_seconds=request.timeout_seconds)
        counted = pid if self.account.gauge.counts_pages else None
        self._releases: Optional[Releases] = None
        self._sharing = Sharing(self.account.gauge.read, counted, is_alone) if counted is not None else None

    @contextlib.contextmanager
    def prepared(self) -> Iterator[Stepper]:
        """Lock the other threads, hold back gdb's output, record stops; undo all this at the end."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._watcher.close)
            stack.enter_context(scheduler_locking(self._lock))
            if self._sharing is not None:
                self._releases = stack.enter_context(Releases(self._pid, self._sharing))
            # Inside one of our commands no user would press the key.
            stack.enter_context(gdb_setting("pagination", "off"))
            # What is said of the code would be held back with gdb's output.
            self._finish_ends = self._ends_of_finish()
            stack.enter_context(self.capture)
            gauge = self.account.gauge
            stack.enter_context(recorder.recording(gauge.read, asks_gdb=gauge.asks_gdb))
            stack.enter_context(interruptible(self._interrupter))
            stack.callback(self.capture.finish)
            yield self

    def run(self) -> None:
        """Step as often as requested, or until something other than a step's end stops the program."""
        # First: reading libc's data can itself make a page of it resident.
        gauge = self.account.gauge
        gauge.expect(self.request.count + 1)
        detail = gauge.detail() if self.request.count == 1 else Detail()
        self._before = gauge.read()
        goes_on = True
        while goes_on and len(self.steps) < self.request.count:
            odd = self._take_strides()
            if odd is not None:
                goes_on = self._finish(odd)
            elif len(self.steps) < self.request.count:
                goes_on = self._one(detail)

    # -- one step -----------------------------------------------------------------------------------------

    def _one(self, detail: Detail) -> bool:
        """Take one step; return whether another may follow."""
        start = self.start = StepStart.now(self._places)
        progress = Progress()
        began = time.perf_counter()
        stop = self._drive(start, progress)
        return self._ended(stop, progress, time.perf_counter() - began, detail)

    def _finish(self, odd: Odd) -> bool:
        """Continue a step that the fast path returned; return whether another may follow."""
        assert self._strider is not None
        thread, number = self._strider
        start = self.start = StepStart(odd.frame, thread, number, *odd.place)
        progress = Progress()
        stop = self._judge(self.request.command, start, odd.error, odd.wait)
        stop = self._drive(start, progress, stop)
        return self._ended(stop, progress, time.perf_counter() - odd.began, Detail())

    def _ended(self, stop: Stop, progress: Progress, seconds: float, detail: Detail) -> bool:
        assert self.start is not None
        start, self.stop, gauge = self.start, stop, self.account.gauge
        self._see_new_threads(start, progress)
        single = self.request.count == 1 and stop.reading is not None
        if progress.shared and progress.others_bytes != 0:
            single = False  # changes of mappings and of malloc can't be assigned to threads
        moved, heap_delta = self._compare(detail) if single else (None, None)
        if single and detail.heap is not None and heap_delta is None:
            progress.notes.append("malloc: too many free blocks to count")
        others = progress.others_bytes if progress.shared else None
        step = self._new_step(
            (start.function, start.file, start.line), start.number, stop.reading, others or 0
        )
        self._book(
            step._replace(
                heap_delta_bytes=step.heap_delta_bytes if gauge.measures_heap else heap_delta,
                parts=moved,
                lock=self._lock_word(progress),
                shared_threads=tuple(sorted(progress.threads)),
                others_bytes=others,
                divided_exactly=progress.divided_exactly,
                seconds=seconds,
                ended=stop.ended,
                note="; ".join(filter(None, [*progress.notes, gauge.note])),
            )
        )
        return stop.is_ordinary

    def _take_strides(self) -> Optional[Odd]:
        """Take steps on the fast path; return the one that did not end normally."""
        if self.request.count == 1 or self._lock is None or self._lock == "off":
            return None
        thread = gdb.selected_thread()
        number = thread.num
        self._strider = thread, number
        strides = Strides(self.request.command, self.account.gauge, self._watcher, self.capture, self._places)
        try:
            return strides.take(self.request.count - len(self.steps), thread)
        finally:
            lock = self._lock_word(Progress())
            for place, reading, exact, note, seconds in strides.taken:
                step = self._new_step(place, number, reading)
                self._book(step._replace(exact=exact, lock=lock, seconds=seconds, note=note))
            if strides.frame is not None:
                self.start = StepStart(strides.frame, thread, number, *place)
                self.stop = Stop(reading)

    def _new_step(self, place: Place, number: int, reading: Optional[int], others_bytes: int = 0) -> Step:
        delta = None if self._before is None or reading is None else reading - self._before - others_bytes
        gauge = self.account.gauge
        self._before = reading
        return Step(
            self.request.command, *place, number, delta, self.account.add(delta), gauge.source, gauge.exact,
            delta if gauge.measures_heap else None,
        )  # fmt: skip

    def _book(self, step: Step) -> None:
        self.steps.append(step)
        self.account.steps.append(step)

    def _compare(self, before: Detail) -> tuple[dict[str, int], Optional[int]]:
        after = self.account.gauge.detail()
        parts: dict[str, int] = {}
        if before.parts is not None and after.parts is not None:
            parts = {name: after.parts[name] - size for name, size in before.parts.items()}
        if before.statm is not None and after.statm is not None:
            parts["mapped"] = after.statm.size_bytes - before.statm.size_bytes
        heap = None
        if before.heap is not None and after.heap is not None:
            gained, counted = after.heap.since(before.heap)
            heap = gained if counted else None
        return {name: size for name, size in parts.items() if size}, heap

    def _lock_word(self, progress: Progress) -> str:
        if progress.shared:
            return SHARED
        return LOCKED if self._lock == "on" else FREE

    # -- driving ------------------------------------------------------------------------------------------

    def _drive(self, start: StepStart, progress: Progress, stop: Optional[Stop] = None) -> Stop:
        """Take the step, or continue one that has reached *stop*."""
        if self._lock is None or self._lock == "off":
            return self._drive_together(start, progress)
        stop = stop or self._first_try(start)
        while stop.wait is not None:
            if start.thread.is_valid() and selected_thread() != start.thread:
                start.thread.switch()  # a thread that has just begun took the signal that interrupted the step
            if self._is_at_end(start):  # it was interrupted just there
                return stop._replace(wait=None)
            progress.notes.append(describe_wait(stop.wait))
            if self.request.lock != "auto":
                progress.notes.append("--lock auto would let the others run")
                return stop._replace(ended="given up")
            stop = self._let_others_run(start, progress)
            while stop.wait is None and stop.is_ordinary and not self._is_done(start):
                stop = self._go_on(start)
        return stop

    def _drive_together(self, start: StepStart, progress: Progress) -> Stop:
        """Step while every thread may run; their changes can't be separated."""
        numbers = thread_numbers()
        others = set(numbers.values()) - {start.number}
        before = activities(self._pid) if self._pid is not None and others else {}
        with self._division(start, progress):
            stop = self._first_try(start, watched=False)
        if others:
            ran = self._ran_since(before, numbers) if self._pid is not None else others
            progress.threads |= ran - {start.number}
            progress.shared = bool(progress.threads)
            if self._under_valgrind:
                progress.notes.append("valgrind runs threads in turns, and they cannot be locked there")
        return stop

    def _first_try(self, start: StepStart, *, watched: bool = True) -> Stop:
        """Run the user's command, over a looping line by breakpoints."""
        find = loop_lines.for_command(self.request.command)
        if find is not None:
            frame = gdb.newest_frame()
            ends = find(frame) if frame == start.frame else None
            if ends is not None:
                return self._run_to(ends, start, watched=watched)
        if self._finish_ends is not None:
            return self._run_to(self._finish_ends, start, frame=self._typed_in, watched=watched)
        self._select_typed_frame()
        return self._execute(
            f"{self.request.command} {self.request.argument}".strip(), start, watched=watched
        )

    def _go_on(self, start: StepStart, *, watched: bool = True) -> Stop:
        """Continue the step of a line that was interrupted in its own frame, or in a function inlined into it."""
        if _is_inlined_into(gdb.newest_frame(), start.frame):
            ends = inlined_ends(start.frame, (start.file, start.line))
            if ends is not None:
                return self._run_to(ends, start, watched=watched)
        return self._first_try(start, watched=watched)

    def _ends_of_finish(self) -> Optional[Ends]:
        """Return where `finish` ends that was typed in an inlined call; None: where gdb says."""
        typed = self._typed_in
        if self.request.command != "finish" or typed is None or typed.type() != gdb.INLINE_FRAME:
            return None
        ends = finish_ends(typed)
        if ends is None:
            warn(
                "the end of this inlined call can't be told from its code: gdb's 'finish' may stop before it;"
                " 'memwatch advance' to the line that is executed after it does not",
                slug="inlined-unclear",
            )
        return ends

    def _run_to(
        self, ends: Ends, start: StepStart, *, watched: bool, frame: Optional[gdb.Frame] = None
    ) -> Stop:
        frame = frame or start.frame
        # In an inlined function newer gdbs set a breakpoint of `until` where the thread is. When they step over it, a
        # system call in which the thread waits returns the kernel's own ERESTARTSYS to the program.
        function_frame(frame).select()
        with Barrier(frame, ends, start.thread.global_num) as barrier:
            return self._execute(barrier.command, start, watched=watched, ours=barrier.numbers)

    def _execute(
        self, command: str, start: StepStart, *, watched: bool, ours: AbstractSet[int] = frozenset()
    ) -> Stop:
        self.capture.forget()
        recorder.arm()
        if watched:
            place = (start.function, start.file, start.line)
            self._watcher.begin(start.thread.ptid[1] or start.thread.ptid[0], place)
        error = None
        try:
            gdb.execute(command)
        except gdb.error as failure:
            error = failure
        finally:
            wait = self._watcher.end() if watched else None
        return self._judge(command, start, error, wait, watched=watched, ours=ours)

    def _judge(
        self,
        command: str,
        start: StepStart,
        error: Optional[gdb.error],
        wait: Optional[Wait],
        *,
        watched: bool = True,
        ours: AbstractSet[int] = frozenset(),
    ) -> Stop:
        """Judge the outcome of *command*."""
        if error is not None:
            # gdb reports a thread that ended meanwhile as an error; it is an outcome, not a failure.
            if gdb.selected_inferior().pid and start.thread.is_valid():
                raise error
            self._see_it_end()
        ours_it_was = wait is not None and self._interrupter.stopped
        if ours_it_was:
            restart_call()
        stop = recorder.stop(wait=wait if ours_it_was else None, ours=ours, thread=start.thread)
        if self._stray and stop.ended == "signal SIGINT":
            self._stray = False
            return self._execute(command, start, watched=watched, ours=ours)
        if self._interrupter.by_user and (self._interrupter.stopped or stop.is_ordinary):
            stop = Stop(stop.reading, "interrupted (Ctrl-C)")
        # The step ended by itself just when it was to be interrupted.
        self._stray = self._stray or not self._interrupter.settle()
        return stop

    def _see_it_end(self) -> None:
        """Let an ending process end: the locked threads must be able to exit, too."""
        threads = gdb.selected_inferior().threads()
        if self._pid is None or not threads or not is_ending(self._pid):
            return
        with contextlib.suppress(gdb.error):
            set_locking("off")
            threads[0].switch()
            gdb.execute("continue")

    def _let_others_run(self, start: StepStart, progress: Progress) -> Stop:
        """Let all threads run until the call in which the stepped one waits is over."""
        self._see_new_threads(start, progress)
        progress.shared = True
        numbers = thread_numbers()
        before = activities(self._pid) if self._pid is not None else {}
        set_locking("off")
        try:
            with self._division(start, progress):
                stop = self._leave_wait(start)
        finally:
            if gdb.selected_inferior().pid:
                with contextlib.suppress(gdb.error):
                    set_locking(self._lock or "on")
        ran = self._ran_since(before, numbers) if self._pid is not None else {*thread_numbers().values()}
        progress.threads |= ran - {start.number}
        return stop

    @contextlib.contextmanager
    def _division(self, start: StepStart, progress: Progress) -> Iterator[None]:
        """Separate the changes by other threads during the `with` from those by the stepped one."""
        if self._sharing is None or self._releases is None:
            progress.divide(None)
            yield
            return
        tid = start.thread.ptid[1]
        self._releases.watch()
        self._sharing.part(tid)
        try:
            yield
        finally:
            progress.divide(self._sharing.part(tid))

    def _leave_wait(self, start: StepStart) -> Stop:
        """Run until the wait is over: out of the call that the stepped line made, if it waits in one."""
        if self.request.command in _RESUMABLE or (
            self.request.command == "until" and not self.request.argument
        ):
            call = _call_below(start.frame)
            if call is not None:
                ends = return_ends(start.frame, call)
                if ends is not None:
                    return self._run_to(ends, start, watched=False)
                function_frame(call).select()
                # `finish` would add the value returned to gdb's history, and print it.
                return self._execute(f"until *{call.older().pc():#x}", start, watched=False)
            if not start.frame.is_valid():
                return self._execute("continue", start, watched=False)  # no inner frame would stop it
        if self.request.command in _RESUMABLE:
            return self._go_on(start, watched=False)
        return self._first_try(start, watched=False)

    def _select_typed_frame(self) -> None:
        """Select the frame in which finish, until and advance were typed, to which they refer."""
        if (
            self.request.command not in LINE_COMMANDS
            and self._typed_in is not None
            and self._typed_in.is_valid()
        ):
            self._typed_in.select()

    def _is_at_end(self, start: StepStart) -> bool:
        return (
            self.request.command in _RESUMABLE and gdb.newest_frame() == start.frame and self._is_done(start)
        )

    def _is_done(self, start: StepStart) -> bool:
        """Return whether the step has reached its end now that the wait is over."""
        if self.request.command not in _RESUMABLE:
            return not (self.request.command == "until" and not self.request.argument)
        frame = gdb.newest_frame()
        if frame != start.frame:
            # In a function inlined into the line `next` would continue.
            return self.request.command == "step" or not _is_inlined_into(frame, start.frame)
        position = frame.find_sal()
        if (position.line, source_file(position.symtab)) == (start.line, start.file):
            return False
        # Where a function begins that is inlined into another line, gdb hides it, and gives no address. In the middle
        # of another line, and where only a part of one begins that is no statement, `next` would continue.
        return not position.pc or (position.pc == frame.pc() and _begins_statement(position))

    # -- threads ------------------------------------------------------------------------------------------

    def _mode(self) -> Optional[str]:
        """Return the value for scheduler-locking meanwhile; None: unchanged."""
        if self._under_valgrind:
            return None  # accepted there, without effect
        wanted = self.request.lock
        has_others = len(gdb.selected_inferior().threads()) > 1
        if wanted != "off" and has_others and target_kind() == REMOTE and remote_blocks_interrupts():
            return self._unlocked()
        return {"auto": "on", "on": "on", "step": "step", "off": "off"}[wanted]

    def _unlocked(self) -> str:
        """Let the others run, because a step that waits for one of them could not be interrupted."""
        why = "the program blocks SIGINT, the only signal with which gdbserver can stop it"
        if self.request.lock != "auto":
            raise TargetError(
                f"a step that waits for a locked thread would never end: {why}",
                slug="not-interruptible",
                hint=f"'memwatch {self.request.command} --lock off'",
            )
        warn(
            f"the other threads were not locked: {why}; Ctrl-C does not reach it either",
            slug="not-interruptible",
        )
        return "off"

    def _see_new_threads(self, start: StepStart, progress: Progress) -> None:
        """Note threads that began in this step and ran: gdb's lock lets some of them."""
        for number, tid in recorder.take_new_threads():
            if number != start.number and (self._pid is None or has_run(self._pid, tid)):
                progress.threads.add(number)
                if not progress.shared:
                    progress.divide(None)  # it ran though the others were locked
                progress.shared = True

    def _ran_since(self, before: dict[int, Activity], numbers: dict[int, int]) -> set[int]:
        """Return gdb's numbers of the threads that have run; *numbers*: of *before*, as gdb forgets those that end."""
        assert self._pid is not None
        numbers = {**numbers, **thread_numbers()}
        return {numbers[tid] for tid in ran_between(before, activities(self._pid)) if tid in numbers}


def _call_below(frame: gdb.Frame) -> Optional[gdb.Frame]:
    """Return the call that *frame*, or a function inlined into it, has made; None if it is the innermost frame."""
    call, one = None, gdb.newest_frame()
    while one is not None and one != frame:
        if one.type() != gdb.INLINE_FRAME:
            call = one
        one = one.older()
    return call if one is not None else None


def _begins_statement(position: gdb.Symtab_and_line) -> bool:
    """Return whether a statement begins at *position*; gdb gives Python no other rows of its table."""
    rows = position.symtab.linetable().line(position.line) if position.symtab is not None else None
    return any(row.pc == position.pc for row in rows or ())


def _is_inlined_into(one: Optional[gdb.Frame], frame: gdb.Frame) -> bool:
    """Return whether *one* is inlined, directly or through others, into the function of *frame*."""
    while one is not None and one != frame and one.type() == gdb.INLINE_FRAME:
        one = one.older()
        if one == frame:
            return True
    return False
