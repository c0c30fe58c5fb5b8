"""`memwatch function`: one function, line by line, over some calls, by breakpoints on its own lines."""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Callable, NamedTuple, Optional, TextIO, Union

import gdb

from gdbmem.debugger.command import warn
from gdbmem.debugger.location import c_value, real_pid
from gdbmem.debugger.memwatch.commands.command import Driving
from gdbmem.debugger.memwatch.commands.showing import source_lines
from gdbmem.debugger.memwatch.driving.function_code import LineStart, find_place
from gdbmem.debugger.memwatch.driving.locking import Alarm
from gdbmem.debugger.memwatch.driving.memory_syscalls import Releases, is_alone
from gdbmem.debugger.memwatch.driving.stop_recorder import recorder
from gdbmem.debugger.memwatch.gauges.gauge import accounts
from gdbmem.debugger.memwatch.gauges.line_tally import (
    LineTally,
    SpareLines,
    count_unfinished,
    register,
    return_address,
)
from gdbmem.debugger.program import NATIVE, InternalBreakpoint, delete_breakpoints, numbers_of, target_kind
from gdbmem.debugger.terminal import console_on
from gdbmem.errors import GdbmemError, UsageError
from gdbmem.linux.memory.thread_shares import Sharing
from gdbmem.model.steps import FunctionProfile
from gdbmem.steps.by_line import function_json, print_function
from gdbmem.steps.quiet_lines import ALL_WATCHED
from gdbmem.text import format_duration, plural, printable

# Finds where a program continues after an exception or longjmp has left functions.


_WORD = (1 << 64) - 1
_DEEPEST_BYTES = 8 << 20  # between a longjmp and the setjmp of the same stack
_JUMPS = ("longjmp", "siglongjmp", "_longjmp", "__longjmp_chk")


class Landing(NamedTuple):
    """The destination of a jump."""

    stack: int  # the stack pointer there
    address: int


class Departure(NamedTuple):
    """A location that each jump passes."""

    location: str  # for gdb's `break`
    landing: Callable[[], Optional[Landing]]  # evaluated there; None: unknown, or on another stack


class _Buffer(NamedTuple):
    """The layout of a processor's jmp_buf, the same in glibc and musl: words."""

    parameter: str  # the register with its address
    stack: int
    address: int


_X86, _ARM = _Buffer("rdi", 6, 7), _Buffer("x0", 13, 11)


def departures() -> Iterator[Departure]:
    """Yield the locations to watch in the selected inferior."""
    with contextlib.suppress(gdb.error):  # a program without exceptions
        yield Departure(f"*{int(c_value('&__cxa_begin_catch')):#x}", _handler)
    # Not every C library is built with probes.
    if "longjmp_target" in str(gdb.execute("info probes stap libc ^longjmp_target$", to_string=True)):
        yield Departure(
            "-probe-stap libc:longjmp_target",
            lambda: Landing(register("sp"), int(gdb.parse_and_eval("$_probe_arg2"))),
        )
        return
    addresses = set()
    for name in _JUMPS:
        with contextlib.suppress(gdb.error):
            addresses.add(int(c_value(f"(long) &{name}")))
    for address in sorted(addresses):
        yield Departure(f"*{address:#x}", _jump_target)


def _handler() -> Landing:
    # Where the program's own code continues, not in the middle of a library.
    stack = register("sp")
    return Landing(stack, return_address(stack))


def _jump_target() -> Optional[Landing]:
    """Read the destination of the longjmp that begins here."""
    is_arm = gdb.newest_frame().architecture().name().startswith("aarch64")
    layout = _ARM if is_arm else _X86
    buffer, here = register(layout.parameter), register("sp")
    stack, address = (_word(buffer + 8 * number) for number in (layout.stack, layout.address))
    if not 0 <= stack - here < _DEEPEST_BYTES:
        # glibc keeps them mangled.
        guard = _word(int(c_value("(long) &__pointer_chk_guard"))) if is_arm else _x86_guard()
        stack, address = (
            (value if is_arm else (value >> 17 | value << 47) & _WORD) ^ guard for value in (stack, address)
        )
    return Landing(stack, address) if 0 <= stack - here < _DEEPEST_BYTES else None


def _x86_guard() -> int:
    return _word(register("fs_base") + 0x30)  # tcbhead_t.pointer_guard


def _word(address: int) -> int:
    return int.from_bytes(bytes(gdb.selected_inferior().read_memory(address & _WORD, 8)), "little")


class _Watch(InternalBreakpoint):
    """An invisible breakpoint that reports an event and does not stop the program, except for the last event."""

    def __init__(self, place: Union[int, str], act: Callable[[], bool], failures: list[str]) -> None:
        super().__init__(place)
        self._act = act
        self._failures = failures

    def stop(self) -> bool:
        try:
            return self._act()
        except (GdbmemError, gdb.error) as error:
            self._failures.append(str(error))
            return True


class _Watches:
    """All breakpoints of one tally; deleted at the end of the `with`."""

    def __init__(self, tally: LineTally, releases: Releases, spare: SpareLines, *, own_only: bool) -> None:
        self.failures: list[str] = []
        self._tally = tally
        self._spare = spare
        self._releases = releases
        self._own_only = own_only
        self._breakpoints: list[_Watch] = []
        self._returns: dict[int, _Watch] = {}

    def __enter__(self) -> _Watches:
        try:
            self._set()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _set(self) -> None:
        place, tally = self._tally.place, self._tally
        actions: dict[int, list[Callable[[], bool]]] = {place.start: [self._enter]}
        for _, behind in place.calls if self._own_only else ():
            actions.setdefault(behind, []).append(tally.called)
        for start in place.lines:
            actions.setdefault(start.address, []).append(functools.partial(self._on_line, start))
        for call, _ in place.calls if self._own_only else ():
            actions.setdefault(call, []).append(tally.calling)
        for address, acts in actions.items():
            self._breakpoints.append(_Watch(address, _in_turn(acts), self.failures))
            self._spare.add(address, self._breakpoints[-1])
        for one in departures():
            leave = functools.partial(self._leave, one)
            self._breakpoints.append(_Watch(one.location, leave, self.failures))
        self._releases.watch()
        for back in tally.resume():
            self._watch_return(back)
            self._spare.give_up()

    def __exit__(self, *exception: object) -> None:
        delete_breakpoints([*self._breakpoints, *self._returns.values()])

    @property
    def numbers(self) -> set[int]:
        return numbers_of([*self._breakpoints, *self._returns.values()])

    def _enter(self) -> bool:
        self._releases.watch()
        back = self._tally.entered()
        if back is not None:
            self._watch_return(back)
            self._spare.begin_call()
        return False

    def _on_line(self, start: LineStart) -> bool:
        is_over = self._tally.on_line(start)
        self._spare.attend()
        return is_over

    def _returned(self, back: int) -> bool:
        is_over = self._tally.returned(back)
        self._spare.attend()
        return is_over

    def _watch_return(self, back: int) -> None:
        if back not in self._returns:
            self._returns[back] = _Watch(back, functools.partial(self._returned, back), self.failures)

    def _leave(self, departure: Departure) -> bool:
        landing = departure.landing()
        if landing is not None and self._tally.landed(landing.stack):
            self._breakpoints.append(_Watch(landing.address, lambda: True, self.failures))
        return False


def _in_turn(acts: Sequence[Callable[[], bool]]) -> Callable[[], bool]:
    if len(acts) == 1:
        return acts[0]

    def act_all() -> bool:
        stops = [act() for act in acts]  # every one of them, whatever the first returns
        return any(stops)

    return act_all


class FunctionCommand(Driving):
    """`memwatch function`."""

    def act(self, args: argparse.Namespace, stream: TextIO) -> None:
        if args.calls < 1 or args.every < 1 or not args.argument:
            raise UsageError(
                "name a function, and at least one call", hint="memwatch function --calls 10 decode"
            )
        seconds = math.inf if args.duration is None else args.duration
        gauge = accounts.current(args.source).gauge
        place = find_place(args.argument)
        pid = real_pid() if gauge.counts_pages else None
        sharing = Sharing(gauge.read, pid, is_alone)
        # The ways between breakpoints leave out what calls do, and only of a local process can its pages be asked for.
        is_local = target_kind() == NATIVE and (gauge.counts_pages or gauge.measures_heap)
        if args.own or not is_local:
            place = place._replace(quiet=ALL_WATCHED)
        tally = LineTally(place, sharing, wanted_calls=args.calls, every=args.every)
        with (
            Releases(pid, sharing) as releases,
            contextlib.closing(SpareLines(tally, real_pid())) as spare,
            _Watches(tally, releases, spare, own_only=args.own) as watches,
            recorder.recording(gauge.read, asks_gdb=gauge.asks_gdb),
        ):
            recorder.arm()
            try:
                why = _run(seconds)
            finally:
                stop = recorder.stop(wait=None, ours=watches.numbers | releases.numbers, thread=None)
                count_unfinished(tally)
                profile = tally.profile(gauge.source, own_only=args.own)
        for failure in watches.failures[:1]:
            warn(failure)
        if stop.is_ordinary and not (args.json and stream is sys.stdout):
            gdb.execute("frame")
        _show(profile, args, stream)
        if not tally.is_complete:
            ended = why or stop.ended or "interrupted"
            warn(f"{printable(ended)}: {plural(tally.calls, 'call')} of {args.calls:,}")


def _run(seconds: float) -> str:
    """Resume the program; return why gdbmem stopped it: Ctrl-C, or that *seconds* are over; else ""."""
    pid = real_pid() if target_kind() == NATIVE else None
    if pid is None:
        gdb.execute("continue")
        return ""
    end = time.monotonic() + seconds
    with Alarm(pid, lambda: time.monotonic() >= end, every_seconds=0.01) as alarm:
        gdb.execute("continue")
    if not alarm.stopped:
        return ""
    return "interrupted (Ctrl-C)" if alarm.by_user else f"stopped after {format_duration(seconds)}"


def _show(profile: FunctionProfile, args: argparse.Namespace, stream: TextIO) -> None:
    if args.json:
        stream.write(function_json(profile, source_lines()))
        return

    print_function(profile, console_on(stream), source_lines())
