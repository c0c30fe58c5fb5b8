"""`memwatch growth`: the program continues, and every request to the kernel for memory is recorded."""

from __future__ import annotations

import argparse
import contextlib
import errno
import math
import time
from collections.abc import Iterator
from typing import Optional, TextIO

import gdb

from gdbmem.debugger.command import warn
from gdbmem.debugger.location import gdb_setting, real_pid, stack_pointer
from gdbmem.debugger.memwatch.commands.command import Driving
from gdbmem.debugger.memwatch.commands.showing import source_lines
from gdbmem.debugger.memwatch.driving.capture import Capture
from gdbmem.debugger.memwatch.driving.locking import Alarm
from gdbmem.debugger.memwatch.driving.memory_syscalls import Key, MemoryCall, PendingCall, Requests, is_alone
from gdbmem.debugger.memwatch.driving.stop_recorder import CallAddresses, described, newest_frames, recorder
from gdbmem.debugger.program import (
    CORE,
    NATIVE,
    NOTHING,
    REMOTE,
    VALGRIND,
    InternalBreakpoint,
    delete_breakpoints,
    target_kind,
)
from gdbmem.debugger.python.call_paths import PythonPaths, with_python
from gdbmem.debugger.stopping.interrupting import without_announcement
from gdbmem.debugger.stopping.stops import RepeatedHits, keep_postponed_steps
from gdbmem.debugger.terminal import console_on
from gdbmem.errors import TargetError
from gdbmem.linux.memory.resident import ProcessMemory
from gdbmem.linux.memory.thread_shares import Sharing
from gdbmem.linux.process.threads import SignalHandlers
from gdbmem.model.calltree import Frame
from gdbmem.model.steps import GrowthPath, KernelRequests
from gdbmem.steps.growth import growth_json, print_growth
from gdbmem.text import printable

CALLS = ("brk", "mmap", "munmap", "mremap", "madvise", "shmat")

_NUMBERS = {
    **{("orig_rax", n): call for n, call in ((12, "brk"), (9, "mmap"), (11, "munmap"), (25, "mremap"),
                                             (28, "madvise"), (30, "shmat"))},
    **{("x8", n): call for n, call in ((214, "brk"), (222, "mmap"), (215, "munmap"), (216, "mremap"),
                                       (233, "madvise"), (196, "shmat"))},
}  # fmt: skip


_LONGEST_PROLOGUE = 16  # bytes in front of a breakpoint on a function of the C library


class _CallSums:
    """The sum of the calls along one path."""

    __slots__ = ("calls", "is_exact", "mapped", "resident", "unsettled")

    def __init__(self) -> None:
        self.calls = self.mapped = self.resident = self.unsettled = 0
        self.is_exact = True


class RequestLog:
    """The requests and their effects: the address space and each thread's pages before it and before the next one."""

    def __init__(self, memory: ProcessMemory, *, above_bytes: int) -> None:
        self.events = self.left_out = self.unsettled = 0
        self.mapped_bytes = self.unseen_bytes = 0
        self.memory = memory
        self._above = above_bytes
        self._sums: dict[Key, _CallSums] = {}
        self._frames: dict[tuple[object, ...], list[Frame]] = {}
        self._addresses = CallAddresses()
        self._python = PythonPaths(memory.pid)
        self._requests = Requests()
        self._handlers = SignalHandlers(memory.pid)
        self._repeated = RepeatedHits(self._handlers.exist)
        self._are_postponed = False
        self.resident_bytes = 0
        self._begin()

    def _begin(self) -> None:
        """Start measuring at the next event."""
        self._size: Optional[int] = None  # of the address space at the last event
        self._resident: Optional[int] = None  # at the last event
        self._sharing = Sharing(self.memory.resident_bytes, self.memory.pid, is_alone)
        self._sharing.sees_releases = True
        self._latest: dict[int, Key] = {}  # tid → its last request
        # tid → stack pointer and instruction where it was about to make it.
        self._reached: dict[int, tuple[int, int]] = {}

    def passing(self, call: MemoryCall) -> bool:
        """The selected thread is at the beginning of the C library's function for *call*.

        Return whether signals have postponed steps, so that gdb should stop: it tells repeated hits faster.
        """
        if self._repeated.is_repeated(call.stack, (call.call, call.arguments)):
            self._are_postponed = True
            return False
        self.event(call)
        if self._are_postponed:
            keep_postponed_steps()
        return self._are_postponed

    def event(self, call: MemoryCall) -> None:
        """The selected thread is about to make *call*."""
        now = self.memory.statm()
        if now is None:
            return
        thread = gdb.selected_thread()
        number, (pid, tid, _) = thread.num, thread.ptid
        if pid != self.memory.pid:  # a child that gdb also debugs
            return
        self.events += 1
        unseen = self._settle(now.size_bytes, number)
        self._touched(tid, unseen)
        addresses = self._addresses.here(call.frame, call.stack)
        calls = self._python.calls(addresses, tid)
        key: Key = (call.call, number, (*addresses, *calls))
        if key[2] not in self._frames:
            frames = newest_frames()
            self._frames[key[2]] = with_python(frames, [described(frame) for frame in frames], calls)
        self._requests.add(number, PendingCall(key, call.expected_bytes()))
        self._latest[tid] = key
        if not call.raw:  # the catchpoint of --raw stops at the return from it, at the same instruction
            self._reached[tid] = call.stack, addresses[0]
        span = call.released_span()
        if span is not None:
            self._sharing.released(tid, self.memory.present_in(*span))

    def end(self) -> None:
        """Account for the last requests."""
        now = self.memory.statm()
        if now is None:
            self._give_up()
            return
        self._leave_out_the_next()
        self._settle(now.size_bytes, None)
        alive = {thread.ptid[1] for thread in gdb.selected_inferior().threads()}
        for tid in self._latest.keys() & alive:
            self._touched(tid, 0)

    def _leave_out_the_next(self) -> None:
        """Leave out a request that was not made yet: a breakpoint of the user has stopped the thread there."""
        thread = gdb.selected_thread()
        if thread is None or thread.ptid[1] not in self._reached:
            return
        frame = gdb.newest_frame()
        if self._reached[thread.ptid[1]] == (stack_pointer(frame), frame.pc()):
            self._requests.remove(thread.num)
            self.events -= 1

    def executed(self) -> None:
        """The process has executed another program: its previous mappings are gone."""
        self._give_up()
        self._begin()
        self._python.forget()
        self._addresses.forget()

    def close(self) -> None:
        """Close the files opened to read the process."""
        self._python.close()
        self._handlers.close()

    def _give_up(self) -> None:
        """Discard the last requests: their effect can't be determined any more."""
        settled, unsettled = self._requests.given_up()
        self._add([(key, 0) for key in settled])
        self.unsettled += len(unsettled)
        for key in unsettled:
            if self._above:
                self.left_out += 1
                continue
            sums = self._sums.setdefault(key, _CallSums())
            sums.calls += 1
            sums.unsettled += 1

    def _settle(self, size_bytes: int, thread: Optional[int]) -> int:
        """Charge the change of the address space; return the part that no request explains."""
        before, self._size = self._size, size_bytes
        if before is None:
            return 0
        self.mapped_bytes += size_bytes - before
        granted = self._requests.granted(size_bytes - before, thread)
        self.unseen_bytes += granted.unseen_bytes
        self._add(granted.parts)
        return granted.unseen_bytes

    def _add(self, parts: list[tuple[Key, int]]) -> None:
        for key, mapped in parts:
            if abs(mapped) < self._above:
                self.left_out += 1
                continue
            sums = self._sums.setdefault(key, _CallSums())
            sums.calls += 1
            sums.mapped += mapped

    def _touched(self, tid: int, unseen_bytes: int) -> None:
        """Charge the pages of a thread since its last event to its last request."""
        part, now = self._sharing.part(tid), self._sharing.reading
        if now is not None:
            self.resident_bytes += 0 if self._resident is None else now - self._resident
            self._resident = now
        if part is None or tid not in self._latest:
            return
        # Pages of a mapping whose creation was not observed are touched right after it.
        elsewhere = max(min(part.own_bytes, unseen_bytes), 0)
        sums = self._sums.get(self._latest[tid])
        if sums is not None:
            sums.resident += part.own_bytes - elsewhere
            sums.is_exact = sums.is_exact and part.is_exact and not elsewhere

    def growth(self, *, seconds: float, cost_seconds: float) -> KernelRequests:
        """Return the recording."""
        paths = [
            GrowthPath(
                call,
                thread,
                sums.calls,
                sums.mapped,
                sums.resident,
                self._frames[addresses],
                sums.is_exact,
                sums.unsettled,
            )
            for (call, thread, addresses), sums in self._sums.items()
        ]
        paths.sort(key=lambda path: (-abs(path.mapped_bytes), -abs(path.resident_bytes)))
        return KernelRequests(
            paths,
            self.events,
            self.left_out,
            seconds,
            cost_seconds,
            self.mapped_bytes,
            self.resident_bytes,
            self.unseen_bytes,
            self.resident_bytes - sum(path.resident_bytes for path in paths),
            self.unsettled,
        )


class _Request(InternalBreakpoint):
    def __init__(self, call: str, log: RequestLog) -> None:
        super().__init__(call)
        self._call = call
        self._log = log

    def stop(self) -> bool:
        return self._log.passing(MemoryCall(self._call, gdb.newest_frame(), self._log.memory))


class _Passing:
    """Breakpoints on the C library's functions, deleted at the end of the `with`.

    They don't stop the program until signal handlers postpone steps over them.
    """

    def __init__(self, log: RequestLog) -> None:
        self._log = log
        self._until: list[gdb.Breakpoint] = []
        self._requests: dict[str, gdb.Breakpoint] = {}
        self._starts: list[tuple[str, int]] = []  # a function of these, and where it begins

    def watch(self, until: Optional[str], *, libc: bool) -> None:
        """Set the breakpoints; *until* is where recording ends."""
        for call in CALLS if libc else ():
            with contextlib.suppress(gdb.error):
                _, places = gdb.decode_line(call)  # raises if the C library has no such symbol
                self._starts += [(call, int(place.pc)) for place in places]
                self._requests[call] = _Request(call, self._log)
        if libc and not self._requests:
            raise TargetError(
                "the C library's brk, mmap and munmap were not found",
                slug="no-libc-symbols",
                hint="the program must have reached main ('break main', 'run')",
            )
        if until is not None:
            gdb.decode_line(until)
            self._until.append(InternalBreakpoint(until))

    def begin(self) -> None:
        """Record the request that the thread is about to make: gdb steps over breakpoints where it continues."""
        frame = gdb.newest_frame()
        for call, start in self._starts:
            if start <= frame.pc() < start + _LONGEST_PROLOGUE:
                self._log.event(MemoryCall(call, frame, self._log.memory))

    def __enter__(self) -> _Passing:
        return self

    def __exit__(self, *exception: object) -> None:
        delete_breakpoints([*self._requests.values(), *self._until])

    @property
    def numbers(self) -> set[int]:
        """The numbers of the breakpoints."""
        return {one.number for one in [*self._requests.values(), *self._until]}

    def run(self, alarm: Alarm) -> None:
        """Let the program run until something else stops it."""
        recorder.arm()
        gdb.execute("continue")
        if self._goes_on(alarm):
            self._stop_at_each(alarm)

    def _goes_on(self, alarm: Alarm) -> bool:
        # Ctrl-C while gdb handles a request interrupts nothing.
        return recorder.stopped_at({one.number for one in self._requests.values()}) and not alarm.by_user

    def _stop_at_each(self, alarm: Alarm) -> None:
        """Stop the program at each request: gdb itself doesn't stop for one that it has reported already."""
        for call, request in self._requests.items():
            request.delete()
            self._requests[call] = InternalBreakpoint(call)
        calls = {one.number: call for call, one in self._requests.items()}
        alarm.captured = True
        with Capture() as capture, gdb_setting("breakpoint always-inserted", "on"):
            while True:
                capture.forget()
                recorder.arm()
                gdb.execute("continue")
                for number in recorder.hit() & calls.keys():
                    self._log.event(MemoryCall(calls[number], gdb.newest_frame(), self._log.memory))
                if not self._goes_on(alarm):
                    break
            capture.finish()
        gdb.write(without_announcement(capture.final_text))


class _Catch:
    """gdb's own `catch syscall`, driven from the command: it also catches requests made without the C library."""

    def __init__(self, log: RequestLog, alarm: Alarm) -> None:
        self._log, self._alarm = log, alarm
        self._inside: set[int] = set()  # threads between a call and its return

    def run(self) -> None:
        """Let the program run, stopping at each request, until something else stops it."""
        gdb.execute(f"catch syscall {' '.join(CALLS)}", to_string=True)
        number = int(gdb.convenience_variable("bpnum"))
        if _is_entering():
            self._note()
        try:
            with Capture() as capture:
                while True:
                    capture.forget()
                    recorder.arm()
                    gdb.execute("continue")
                    # Ctrl-C while gdb handles a request interrupts nothing.
                    if not recorder.stopped_at({number}) or self._alarm.by_user:
                        break
                    self._note()
                capture.finish()
            gdb.write(without_announcement(capture.final_text))
        finally:
            gdb.execute(f"delete {number}", to_string=True)

    def _note(self) -> None:
        thread = gdb.selected_thread().num
        if thread in self._inside:
            self._inside.remove(thread)  # the return from it
            return
        self._inside.add(thread)
        self._log.event(MemoryCall(_call_name(), gdb.newest_frame(), self._log.memory, raw=True))


def _call_name() -> str:
    for register in ("orig_rax", "x8"):
        with contextlib.suppress(ValueError, gdb.error):
            number = int(gdb.newest_frame().read_register(register))
            return _NUMBERS.get((register, number), f"system call {number}")
    return "system call"


def _is_entering() -> bool:
    """Return whether a catchpoint of the user has stopped the selected thread in front of a system call."""
    try:
        call, result = (int(gdb.newest_frame().read_register(name)) for name in ("orig_rax", "rax"))
    except (ValueError, gdb.error):
        return False
    return result == -errno.ENOSYS and _NUMBERS.get(("orig_rax", call)) is not None


@contextlib.contextmanager
def _executions(log: RequestLog) -> Iterator[None]:
    """Notify *log* when the process executes another program."""
    space = gdb.current_progspace()

    def executed(event: gdb.Event) -> None:
        if event.progspace == space:
            log.executed()

    gdb.events.clear_objfiles.connect(executed)
    try:
        yield
    finally:
        gdb.events.clear_objfiles.disconnect(executed)


_ELSEWHERE = {REMOTE: "one behind gdbserver", VALGRIND: "one under valgrind", CORE: "a core file"}


def native_pid(what: str) -> int:
    """Return the pid of the running program; raises TargetError if *what* can't be done."""
    kind = target_kind()
    pid = real_pid()
    if kind == NOTHING or pid is None:
        raise TargetError("the program is not being run", slug="not-running", hint="type 'start' first")
    if kind != NATIVE:
        raise TargetError(
            f"{what} needs a process of this machine, not {_ELSEWHERE[kind]}",
            slug="not-native",
            hint="run gdb on the program itself",
        )
    return pid


class GrowthCommand(Driving):
    """`memwatch growth`."""

    def act(self, args: argparse.Namespace, stream: TextIO) -> None:
        pid = native_pid("memwatch growth")
        memory = ProcessMemory(pid)
        log = RequestLog(memory, above_bytes=args.above)
        began, cost = time.monotonic(), time.process_time()
        with contextlib.ExitStack() as stack:
            stack.callback(memory.close)
            stack.callback(log.close)
            # The catchpoint also catches the C library's requests.
            passing = stack.enter_context(_Passing(log))
            passing.watch(args.until, libc=not args.raw)
            passing.begin()
            stack.enter_context(recorder.recording(lambda: None))
            stack.enter_context(_executions(log))
            end = began + (math.inf if args.duration is None else args.duration)
            alarm = stack.enter_context(
                Alarm(pid, lambda: time.monotonic() >= end, every_seconds=0.01, captured=args.raw)
            )
            try:
                if args.raw:
                    _Catch(log, alarm).run()
                else:
                    passing.run(alarm)
            finally:
                log.end()
                growth = log.growth(seconds=time.monotonic() - began, cost_seconds=time.process_time() - cost)
                _show(growth, args, stream)
            stop = recorder.stop(wait=None, ours=passing.numbers, thread=None)
        ended = stop.ended
        if alarm.by_user:
            ended = "interrupted (Ctrl-C)"
        elif alarm.stopped:
            ended = ""
        if ended:
            warn(f"recording ended: {printable(ended)}")


def _show(growth: KernelRequests, args: argparse.Namespace, stream: TextIO) -> None:
    if args.json:
        stream.write(growth_json(growth))
        return

    print_growth(growth, console_on(stream), source_lines(), top=args.top)
