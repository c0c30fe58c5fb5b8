"""`memwatch limit`: the program continues until its resident set exceeds a size."""

from __future__ import annotations

import argparse
from typing import Optional, TextIO

import gdb

from gdbmem.debugger.command import say
from gdbmem.debugger.memwatch.commands.command import Driving
from gdbmem.debugger.memwatch.commands.growth import native_pid
from gdbmem.debugger.memwatch.driving.locking import Alarm
from gdbmem.debugger.memwatch.driving.stop_recorder import own_place, recorder
from gdbmem.debugger.memwatch.gauges.account import accounts
from gdbmem.debugger.memwatch.gauges.gauge import make_gauge
from gdbmem.errors import UsageError
from gdbmem.linux.process.threads import SizeLimit
from gdbmem.text import format_size, parse_size, printable

_EVERY_SECONDS = 0.001


class LimitCommand(Driving):
    """`memwatch limit`."""

    def act(self, args: argparse.Namespace, stream: TextIO) -> None:
        if not args.argument:
            raise UsageError("name a size", hint="memwatch limit +100MiB, or memwatch limit 2GiB")
        pid = native_pid("memwatch limit")
        if args.source == "heap":
            raise UsageError("memwatch limit watches the resident set", hint="leave out --source heap")
        gauge = accounts.current(args.source).gauge
        if gauge.measures_heap:  # as set by an earlier command
            gauge = make_gauge("auto")
        now = gauge.read() or 0
        size = parse_size(args.argument)
        limit = now + size if args.argument.lstrip().startswith(("+", "-")) else size
        if now > limit:
            raise UsageError(
                f"the program already holds {format_size(now)}",
                hint="memwatch limit +SIZE is relative to the present size",
            )
        watch = SizeLimit(pid, gauge.read, limit)
        with recorder.recording(gauge.read), Alarm(pid, watch.is_past, every_seconds=_EVERY_SECONDS) as alarm:
            recorder.arm()
            gdb.execute("continue")
            stop = recorder.stop(wait=None, ours=frozenset(), thread=None)
        if alarm.stopped and not alarm.by_user:
            self._say_where(watch, limit, stop.reading)
            return
        how = "interrupted (Ctrl-C)" if alarm.stopped else printable(stop.ended or "stopped")
        if watch.passed_bytes is None:
            say(f"The limit of {format_size(limit)} was not reached: {how}.")
        else:
            say(f"The resident set passed {format_size(limit)}, but before it could be stopped there: {how}.")

    @staticmethod
    def _say_where(watch: SizeLimit, limit: int, size_bytes: Optional[int]) -> None:
        over = format_size((size_bytes or watch.passed_bytes or limit) - limit)
        passed = f"The resident set passed {format_size(limit)} in"
        tid = watch.grower.tid if watch.grower else None
        grower = next((t for t in gdb.selected_inferior().threads() if t.ptid[1] == tid), None)
        if grower is None:
            has_ended = tid is not None or (watch.grower and watch.grower.has_ended)
            which = (
                "a thread that has ended" if has_ended else "an unknown thread (no page fault was counted)"
            )
            say(f"{passed} {which}; the program was stopped {over} above.")
            return
        if grower.num != gdb.selected_thread().num:
            gdb.execute(f"thread {grower.num}")  # which prints its location
        say(
            f"{passed} thread {grower.num}, {own_place() or 'somewhere'}; "
            f"it was stopped {over} above (sampled every millisecond)."
        )
