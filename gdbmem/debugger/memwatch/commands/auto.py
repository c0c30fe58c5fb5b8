"""`memwatch auto on`: the account at every stop, whatever its cause. It only reads; gdb drives."""

from __future__ import annotations

import argparse
import sys
from typing import Callable, NamedTuple, Optional

import gdb

from gdbmem.debugger.command import Command, say, warn
from gdbmem.debugger.location import real_pid
from gdbmem.debugger.memwatch.commands.showing import print_step
from gdbmem.debugger.memwatch.driving.stop_recorder import (
    has_commands,
    new_thread,
    recorder,
    selected_thread,
    thread_numbers,
)
from gdbmem.debugger.memwatch.gauges.gauge import accounts
from gdbmem.debugger.program import NATIVE, locking, target_kind
from gdbmem.debugger.stopping.stops import noticed
from gdbmem.debugger.terminal import source_file
from gdbmem.errors import GdbmemError, UsageError
from gdbmem.linux.memory.thread_shares import Part, divide
from gdbmem.linux.process.threads import Activity, activities, page_faults, ran_between
from gdbmem.model.steps import FREE, LOCKED, SHARED, Step


class _AutoState(NamedTuple):
    """Location and memory of the program at a stop."""

    pid: int
    size_bytes: Optional[int]
    function: Optional[str]
    file: Optional[str]
    line: Optional[int]
    thread: int
    threads: dict[int, int]  # gdb's numbers, by the kernel's
    activities: dict[int, Activity]  # by the kernel's numbers; empty if they can't be read
    faults: Optional[int] = None  # of all threads, also of those that ended


class Auto:
    """Prints a step's line at every stop."""

    def __init__(self) -> None:
        self.is_on = False
        self._watchers: list[Callable[[], None]] = []  # windows that draw at every stop
        self._stands: dict[int, _AutoState] = {}  # by inferior
        self._begun: dict[
            int, set[int]
        ] = {}  # by inferior: threads that began since its last stop, also ended ones
        self._problem = ""

    def turn(self, *, on: bool) -> None:
        """Switch printing on or off."""
        if on != self.is_on:
            self._listen(on or bool(self._watchers))
            self.is_on = on

    def watch(self, draw: Callable[[], None]) -> None:
        """Record stops, and call *draw* after each."""
        self._listen(True)
        self._watchers.append(draw)

    def unwatch(self, draw: Callable[[], None]) -> None:
        """Stop calling *draw*."""
        self._watchers.remove(draw)
        self._listen(self.is_on or bool(self._watchers))

    def _listen(self, listen: bool) -> None:
        listens = self.is_on or bool(self._watchers)
        if listen and not listens:
            self._stands.clear()
            self._begun.clear()
            self._problem = ""
            gdb.events.stop.connect(self._on_stop)
            gdb.events.new_thread.connect(self._on_new_thread)
            if selected_thread() is not None:
                self._look()
        elif listens and not listen:
            gdb.events.stop.disconnect(self._on_stop)
            gdb.events.new_thread.disconnect(self._on_new_thread)

    def _on_new_thread(self, event: gdb.Event) -> None:
        thread = new_thread(event)
        self._begun.setdefault(thread.inferior.num, set()).add(thread.num)

    @noticed
    def _on_stop(self, event: gdb.Event) -> None:
        if recorder.driving:
            return  # a memwatch command keeps this account itself
        if has_commands(event) and self._asks_gdb():
            return  # gdb would run them from here if called now: the next stop's account covers both
        step = self._look()
        if step is not None and self.is_on:
            print_step(step, sys.stdout)
        self._draw()

    @staticmethod
    def _asks_gdb() -> bool:
        try:
            return accounts.current().gauge.asks_gdb
        except (GdbmemError, gdb.error):
            return False

    def _draw(self) -> None:
        for draw in self._watchers:
            draw()

    def stand_here(self) -> None:
        """Count the next step from here: a memwatch command has accounted for everything before."""
        self._stands.clear()
        if (self.is_on or self._watchers) and selected_thread() is not None:
            self._look()
        self._draw()

    def _look(self) -> Optional[Step]:
        """Read the program's memory; return the step since the previous stop, if there was one."""
        try:
            account = accounts.current()
            now = self._stand(account.gauge.read())
        except (GdbmemError, gdb.error) as error:
            if str(error) != self._problem:  # once, not at every stop
                self._problem = str(error)
                warn(self._problem)
            return None
        inferior = gdb.selected_inferior().num
        before, begun = self._stands.get(inferior), self._begun.pop(inferior, set())
        self._stands[inferior] = now
        if before is None or before.pid != now.pid or before.size_bytes is None or now.size_bytes is None:
            return None
        ran = (_ran_between(before, now) | begun) - {now.thread}
        part = self._part(before, now) if ran and account.gauge.counts_pages else None
        delta = part.own_bytes if part else now.size_bytes - before.size_bytes
        step = Step(
            command="run",
            function=before.function,
            file=before.file,
            line=before.line,
            thread=now.thread,
            delta_bytes=delta,
            total_bytes=account.add(delta),
            source=account.gauge.source,
            exact=account.gauge.exact,
            heap_delta_bytes=delta if account.gauge.measures_heap else None,
            lock=SHARED if ran else LOCKED if locking() == "on" else FREE,
            shared_threads=tuple(sorted(ran)),
            others_bytes=part.others_bytes if part else None,
            divided_exactly=part is None or part.is_exact,
            note="; ".join(filter(None, [account.gauge.note, _doubt(part)])),
        )
        account.steps.append(step)
        return step

    @staticmethod
    def _stand(size_bytes: Optional[int]) -> _AutoState:
        inferior, frame = gdb.selected_inferior(), gdb.newest_frame()
        position = frame.find_sal()
        file = source_file(position.symtab)
        pid = (real_pid() or inferior.pid) if target_kind() == NATIVE else None
        return _AutoState(
            inferior.pid,
            size_bytes,
            frame.name(),
            file,
            position.line if file is not None else None,
            gdb.selected_thread().num,
            thread_numbers(),
            activities(pid) if pid is not None else {},
            page_faults(pid) if pid is not None else None,
        )

    @staticmethod
    def _part(before: _AutoState, now: _AutoState) -> Optional[Part]:
        """Return the change by the thread that stopped; None if its page faults don't determine it."""
        tid = gdb.selected_thread().ptid[1]
        if before.faults is None or now.faults is None or tid not in now.activities:
            return None
        assert before.size_bytes is not None and now.size_bytes is not None
        earlier = before.activities.get(tid)
        return divide(
            now.size_bytes - before.size_bytes,
            own_faults=now.activities[tid].faults - (earlier.faults if earlier else 0),
            faults=now.faults - before.faults,
            own_released=0,
            released=0,
            sees_releases=False,
        )


def _ran_between(before: _AutoState, now: _AutoState) -> set[int]:
    """Return gdb's numbers of the threads that ran between two stops; it has forgotten those that ended since."""
    numbers = {**before.threads, **now.threads}
    ran = ran_between(before.activities, now.activities)
    return {numbers[tid] for tid in ran if tid in numbers}


def _doubt(part: Optional[Part]) -> str:
    return "" if part is None or part.is_exact else "which thread released memory is unknown"


auto = Auto()


class AutoCommand(Command):
    """`memwatch auto`."""

    def operands(self) -> list[str]:
        return ["on", "off"]

    def run(self, args: argparse.Namespace) -> None:
        if args.state not in ("on", "off", ""):
            raise UsageError(f"'{args.state}' is neither on nor off", hint="memwatch auto on")
        if args.state:
            auto.turn(on=args.state == "on")
        say(f"memwatch auto is {'on' if auto.is_on else 'off'}.")
