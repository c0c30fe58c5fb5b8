"""`memwatch growth`: the program runs on, and every request to the kernel for memory is recorded."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Optional, TextIO

import gdb

from gdbmem.debugger.command import warn
from gdbmem.debugger.memwatch.alarm import Alarm
from gdbmem.debugger.memwatch.capture import Capture
from gdbmem.debugger.memwatch.command import Driving
from gdbmem.debugger.memwatch.recorder import recorder
from gdbmem.debugger.memwatch.requests import Key, Request, Requests, expected_bytes
from gdbmem.debugger.place import real_pid
from gdbmem.debugger.target import CORE, NATIVE, NOTHING, REMOTE, VALGRIND, target_kind
from gdbmem.errors import TargetError
from gdbmem.linux.resident import ProcessMemory, Statm
from gdbmem.model.calltree import Frame
from gdbmem.model.growth import Growth, GrowthPath
from gdbmem.text import printable
from gdbmem.units import parse_duration, parse_size

if TYPE_CHECKING:
    import argparse

    from gdbmem.arguments import ArgumentParser

CALLS = ("brk", "mmap", "munmap", "mremap", "madvise", "shmat")
_DEEPEST = 48

_NUMBERS = {
    **{("orig_rax", n): call for n, call in ((12, "brk"), (9, "mmap"), (11, "munmap"), (25, "mremap"),
                                             (28, "madvise"), (30, "shmat"))},
    **{("x8", n): call for n, call in ((214, "brk"), (222, "mmap"), (215, "munmap"), (216, "mremap"),
                                       (233, "madvise"), (196, "shmat"))},
}  # fmt: skip


class Log:
    """What each request did: told from the address space before it and before the next one."""

    def __init__(self, memory: ProcessMemory, *, above_bytes: int) -> None:
        self.events = self.left_out = 0
        self.mapped_bytes = self.resident_bytes = 0
        self._memory = memory
        self._above = above_bytes
        self._sums: dict[Key, list[int]] = {}  # calls, mapped, resident
        self._frames: dict[tuple[int, ...], list[Frame]] = {}
        self._requests = Requests()
        self._last: Optional[tuple[Key, Statm]] = None

    def event(self, call: str, *, raw: bool = False) -> None:
        """The selected thread is about to make *call*."""
        before = self._memory.statm()
        if before is None:
            return
        self.events += 1
        thread = gdb.selected_thread().num
        self._settle(before, thread)
        frames = _path()
        key = (call, thread, tuple(frame.pc() for frame in frames))
        if key[2] not in self._frames:
            self._frames[key[2]] = [_described(frame) for frame in frames]
        self._requests.add(thread, Request(key, expected_bytes(call, frames[0], self._memory.pid, raw=raw)))
        self._last = (key, before)

    def end(self) -> None:
        """Account for the last requests."""
        if self._last is not None:
            # Of a process that has ended nobody can tell what its last request did.
            self._settle(self._memory.statm() or self._last[1], None)
        self._last = None

    def _settle(self, now: Statm, thread: Optional[int]) -> None:
        if self._last is None:
            return
        last, before = self._last
        change = now.size_bytes - before.size_bytes
        touched = now.resident_bytes - before.resident_bytes
        self.mapped_bytes += change
        self.resident_bytes += touched
        granted = self._requests.granted(change, thread)
        for key, mapped in granted:
            self._add(key, mapped)
        # Pages are touched after a request, by whom can't be told: they stand with the one before.
        sums = self._sums.get(granted[-1][0] if granted else last)
        if sums is not None:
            sums[2] += touched

    def _add(self, key: Key, mapped: int) -> None:
        if abs(mapped) < self._above:
            self.left_out += 1
            return
        sums = self._sums.setdefault(key, [0, 0, 0])
        sums[0] += 1
        sums[1] += mapped

    def growth(self, *, seconds: float, cost_seconds: float) -> Growth:
        """Return what was recorded."""
        paths = [
            GrowthPath(call, thread, calls, mapped, resident, self._frames[addresses])
            for (call, thread, addresses), (calls, mapped, resident) in self._sums.items()
        ]
        paths.sort(key=lambda path: (-abs(path.mapped_bytes), -abs(path.resident_bytes)))
        return Growth(
            paths, self.events, self.left_out, seconds, cost_seconds, self.mapped_bytes, self.resident_bytes
        )


def _path() -> list[gdb.Frame]:
    frames: list[gdb.Frame] = []
    frame = gdb.newest_frame()
    while frame is not None and len(frames) < _DEEPEST:
        frames.append(frame)
        frame = frame.older()
    return frames


def _described(frame: gdb.Frame) -> Frame:
    position = frame.find_sal()
    file = position.symtab.fullname() if position.symtab is not None else None
    library = None if file else gdb.solib_name(frame.pc())
    line = position.line if file else None
    return Frame(frame.name(), file, line, library, frame.type() == gdb.INLINE_FRAME)


class _Request(gdb.Breakpoint):  # type: ignore[misc]  # gdb's module has no types
    def __init__(self, call: str, log: Log) -> None:
        super().__init__(call, internal=True)
        self.silent = True
        self._call = call
        self._log = log

    def stop(self) -> bool:
        self._log.event(self._call)
        return False


class _Until(gdb.Breakpoint):  # type: ignore[misc]
    def __init__(self, location: str) -> None:
        super().__init__(location, internal=True)
        self.silent = True


@contextlib.contextmanager
def _breakpoints(log: Log, until: Optional[str], *, libc: bool) -> Iterator[set[int]]:
    made: list[gdb.Breakpoint] = []
    try:
        for call in CALLS if libc else ():
            with contextlib.suppress(gdb.error):
                gdb.decode_line(call)  # raises where the C library has no such symbol
                made.append(_Request(call, log))
        if libc and not made:
            raise TargetError(
                "the C library's brk, mmap and munmap are not to be found",
                slug="no-libc-symbols",
                hint="is the program past its start? ('break main', 'run')",
            )
        if until is not None:
            gdb.decode_line(until)
            made.append(_Until(until))
        yield {one.number for one in made}
    finally:
        for one in made:
            if one.is_valid():
                one.delete()


class _Catch:
    """gdb's own `catch syscall`, driven from the command: it sees requests that go past the C library too."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._inside: set[int] = set()  # threads between a call and its return

    def run(self) -> None:
        """Let the program run, stopping at each request, until something else stops it."""
        gdb.execute(f"catch syscall {' '.join(CALLS)}", to_string=True)
        number = int(gdb.convenience_variable("bpnum"))
        try:
            with Capture() as capture:
                while True:
                    capture.forget()
                    recorder.arm()
                    gdb.execute("continue")
                    if not recorder.stopped_at(number):
                        break
                    self._note()
                capture.finish()
            gdb.write(capture.final_text)
        finally:
            gdb.execute(f"delete {number}", to_string=True)

    def _note(self) -> None:
        thread = gdb.selected_thread().num
        if thread in self._inside:
            self._inside.remove(thread)  # the return from it
            return
        self._inside.add(thread)
        self._log.event(_call_name(), raw=True)


def _call_name() -> str:
    for register in ("orig_rax", "x8"):
        with contextlib.suppress(ValueError, gdb.error):
            number = int(gdb.newest_frame().read_register(register))
            return _NUMBERS.get((register, number), f"system call {number}")
    return "system call"


_ELSEWHERE = {REMOTE: "behind gdbserver", VALGRIND: "under valgrind", CORE: "that is a core file"}


def native_pid(what: str) -> int:
    """Return the pid of the running program; raises TargetError where *what* can't be done."""
    kind = target_kind()
    pid = real_pid()
    if kind == NOTHING or pid is None:
        raise TargetError("the program is not being run", slug="not-running", hint="type 'start' first")
    if kind != NATIVE:
        raise TargetError(
            f"{what} needs a process of this machine, not one {_ELSEWHERE[kind]}",
            slug="not-native",
            hint="run gdb on the program itself",
        )
    return pid


class GrowthCommand(Driving):
    """`memwatch growth`."""

    has_source = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--above", metavar="SIZE", default="0", help="only requests of at least SIZE")
        parser.add_argument("--for", dest="duration", metavar="TIME", help="stop after this long")
        parser.add_argument("--until", metavar="LOCATION", help="stop there")
        parser.add_argument("--raw", action="store_true", help="see requests that go past the C library")
        parser.add_argument("--top", metavar="N", type=int, default=10, help="list N paths")

    def act(self, args: argparse.Namespace, stream: TextIO) -> None:
        above = parse_size(args.above)
        duration = parse_duration(args.duration) if args.duration else None
        pid = native_pid("memwatch growth")
        memory = ProcessMemory(pid)
        log = Log(memory, above_bytes=above)
        began, cost = time.monotonic(), time.process_time()
        with contextlib.ExitStack() as stack:
            stack.callback(memory.close)
            # The catchpoint sees the C library's requests as well.
            ours = stack.enter_context(_breakpoints(log, args.until, libc=not args.raw))
            stack.enter_context(recorder.recording(lambda: None))
            alarm = None
            if duration is not None:
                end = began + duration
                alarm = stack.enter_context(Alarm(pid, lambda: time.monotonic() >= end, every_seconds=0.01))
            try:
                if args.raw:
                    _Catch(log).run()
                else:
                    recorder.arm()
                    gdb.execute("continue")
            finally:
                log.end()
                growth = log.growth(seconds=time.monotonic() - began, cost_seconds=time.process_time() - cost)
                _show(growth, args, stream)
            stop = recorder.stop(wait=None, ours=ours, thread=None)
        if stop.ended and not (alarm is not None and alarm.rang):
            warn(f"recording ended: {printable(stop.ended)}")


def _show(growth: Growth, args: argparse.Namespace, stream: TextIO) -> None:
    from gdbmem.report.growth import growth_json, print_growth

    if args.json:
        stream.write(growth_json(growth))
        return
    from gdbmem.debugger.memwatch.showing import source_lines
    from gdbmem.debugger.terminal import console_on

    print_growth(growth, console_on(stream), source_lines(), top=args.top)
