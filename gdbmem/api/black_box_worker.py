"""The process of a black box: watches the limits over a monitor's processes, and records these before one is killed.

Arguments: the run folder, the longest wait in seconds, and what to do at the limit ("hold", "core": hold and write a
core, or "-"). A line on the standard output says that it watches; it ends with its standard input, or with the
processes. It has all of its code loaded, so that a record is begun, in a forked child, within milliseconds.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from gdbmem.allocators.glibc.heap import choose_walker
from gdbmem.api.growth import Binaries
from gdbmem.errors import GdbmemError
from gdbmem.files import close_all_but, replace_file
from gdbmem.inspection.live_process import explain_process
from gdbmem.inspection.process_core import write_core
from gdbmem.inspection.stacks import CopiedStack, NativeStack, copy_stacks, stacks_of_process, unwind
from gdbmem.ledger.document import ledger_json
from gdbmem.ledger.text import print_ledger
from gdbmem.linux.files.target_files import rights_of
from gdbmem.linux.monitoring.cgroup import allowed_bytes, process_in_cgroup, read_cgroup
from gdbmem.linux.monitoring.limits import (
    MOST_SECONDS,
    LimitEvents,
    LimitHold,
    Room,
    check_outside,
    rooms_of,
)
from gdbmem.linux.monitoring.sampling import clock_of
from gdbmem.linux.process.process import descendants, has_ended, memory_folder, parents
from gdbmem.linux.process.threads import is_ending
from gdbmem.model.calltree import Frame
from gdbmem.model.groups import CgroupProcess
from gdbmem.profiles.paths import frame_text
from gdbmem.python.stacks import print_stacks
from gdbmem.recording.targets import find_again
from gdbmem.runs.run import open_run
from gdbmem.series.black_box import (
    CORE,
    FILE,
    FOLDER,
    BlackBox,
    BlackBoxEnd,
    BlackBoxRecord,
    LevelReached,
    black_box_document,
)
from gdbmem.series.store import Recording
from gdbmem.symbols.address_names import GdbSymbols
from gdbmem.symbols.call_paths import Place, name_places
from gdbmem.terminal.console import make_console
from gdbmem.terminal.document import to_json
from gdbmem.text import printable

LEVELS = (0.5, 0.75, 0.9, 0.95, 0.98)  # shares of the limit that have a record
_OF_MACHINE = 0.9  # from which on the machine's own memory counts: it is often half full
_BACK = 0.1  # of the limit, below a level: it may be passed again
_AGAIN_SECONDS = 60.0  # between two records at one level
_KEPT = 8  # records; earlier ones are removed
_ERRORS = ".errors"  # instead of a part that failed
_READ = ".read"  # in the folder of a record: the process is no longer needed for it
_SHORTEST_SECONDS, _FIND_SECONDS = 0.02, 1.0
_FIND_BUDGET = 0.002  # of a CPU, for finding processes
_MOST_SECONDS = 120  # for one record
_LAST_SECONDS = 20.0  # for a record in progress at the end
_ENDING_SECONDS = 10.0  # that is waited for the end of a process that has lost its memory
_KILL_SECONDS = 1.0  # from the kernel's decision to kill to the end of the process, at most


class Recorder:
    """One record, which a forked process takes."""

    def __init__(self, facts: BlackBoxRecord, folder: Path, take: Callable[[], None]) -> None:
        """Begin it."""
        self.facts = facts
        self._folder = folder
        self.pid = os.fork()
        if not self.pid:
            status = 1
            try:
                os.setsid()
                signal.alarm(_MOST_SECONDS)  # which ends it, and lets go of the process
                close_all_but(0, 1, 2)  # the guard of a hold must see the end of this process's parent
                take()
                status = 0
            finally:
                os._exit(status)
        self.end = os.pidfd_open(self.pid)

    def is_free(self) -> bool:
        """Return whether the process is no longer needed: only names are still searched."""
        return self.is_done() or (self._folder / _READ).exists()

    def is_done(self, seconds: float = 0.0) -> bool:
        """Wait for up to *seconds*; return whether it has ended."""
        return bool(select.select([self.end], [], [], max(seconds, 0.0))[0])

    def finish(self) -> BlackBoxRecord:
        """Return the record with what there is of it; a process that still works on it goes on."""
        if self.is_done():
            os.waitpid(self.pid, 0)
        os.close(self.end)
        parts = sorted(
            each.name
            for each in self._folder.iterdir()
            if each.suffix in (".txt", ".json") or each.name == CORE
        )
        values: dict[str, float] = {}
        with contextlib.suppress(OSError, ValueError):
            for line in (self._folder / ".times").read_text().splitlines():
                name, _, value = line.partition(" ")
                values[name] = float(value)
        return self.facts._replace(
            parts=parts, ledger_t=values.get("ledger"), pause_seconds=values.get("pause")
        )


class _Process(NamedTuple):
    pid: int
    end: int  # a pidfd
    folder: Optional[Path]  # the control group with the first limit over it


class BlackBoxWorker:
    """Watches and records."""

    def __init__(self, run: Path, interval_seconds: float, *, holds: bool, writes_core: bool) -> None:
        """Watch the processes of the monitor's *run*, at least each *interval_seconds*."""
        self._run = run
        self._target = find_again(open_run(run))
        with contextlib.closing(Recording(run)) as recording:
            self._clock = clock_of(recording.facts)
        self._interval = interval_seconds
        self._holds = holds
        self._writes_core = writes_core
        self._hold: Optional[LimitHold] = None
        self._has_held = False
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        self._processes: dict[int, _Process] = {}
        self._next_find = 0.0
        self._watched: tuple[Path, ...] = ()  # the control groups whose events are awaited
        self._events: Optional[LimitEvents] = None
        self._last: Optional[tuple[float, int]] = None  # time, bytes left
        self._level = 0.0  # the highest that has been passed
        self._kills: list[tuple[float, Optional[int]]] = []  # times, and what the kernel has killed by then
        self._outs: list[float] = []  # when the memory was out, lately
        self._last_at: dict[float, float] = {}  # by level: the time of its last record
        self._count = 0
        self._recorders: list[Recorder] = []
        self._due: Optional[Room] = None
        self._is_over = False
        self._box = BlackBox(0.0, 0, "")
        (run / FOLDER).mkdir(mode=0o700, exist_ok=True)

    def watch(self) -> None:
        """Watch until the standard input or the processes end; then give back what is held."""
        try:
            self._find()
            if self._holds:
                self._take_hold()
            choose_walker()  # loads numpy, which a record would wait for
            print("watching", flush=True)
            while not self._is_over:
                self._turn()
            until = time.monotonic() + _LAST_SECONDS
            for recorder in list(self._recorders):
                recorder.is_done(until - time.monotonic())
                self._finish_record(recorder)
            self._await_ends()
        finally:
            if self._hold is not None:
                self._hold.release()
            self._save()

    def _await_ends(self) -> None:
        """Wait for the ends of processes that have lost their memory: the monitor takes them for ended before."""
        until = time.monotonic() + _ENDING_SECONDS
        while time.monotonic() < until and any(has_ended(pid) or is_ending(pid) for pid in self._processes):
            for descriptor, _ in self._poll.poll(1000 * _SHORTEST_SECONDS):
                self._note_end(descriptor)
            time.sleep(_SHORTEST_SECONDS)

    def _turn(self) -> None:
        now = time.monotonic()
        if now >= self._next_find:
            self._find()
        room = self._tightest()
        if room is not None:
            self._see(room)
        for recorder in [one for one in self._recorders if one.is_done()]:
            self._finish_record(recorder)
        if self._due is not None and not self._is_reading:
            self._start_record(self._due)
        self._check_hold()
        ready = self._poll.poll(1000 * self._pause(room))
        self._take_events()  # the kernel's decision comes before the end that it leads to
        for descriptor, _ in ready:
            if descriptor == 0:
                self._is_over = True
            self._note_end(descriptor)

    def _take_events(self) -> None:
        if self._events is not None and self._events.take():
            now = self._clock()
            self._outs = [*self._lately(self._outs, now), now]

    @staticmethod
    def _lately(times: Sequence[float], now: float) -> list[float]:
        return [t for t in times if now - t < 2 * _KILL_SECONDS]

    # -- processes and limits -------------------------------------------------------------------------------

    def _find(self) -> None:
        began = time.thread_time()
        roots = self._target.find()
        fresh = {*roots, *descendants(roots, parents())} - self._processes.keys()
        self._next_find = time.monotonic() + max(_FIND_SECONDS, (time.thread_time() - began) / _FIND_BUDGET)
        for pid in fresh:
            if has_ended(pid):  # its parent has not collected it yet
                continue
            with contextlib.suppress(OSError):
                end = os.pidfd_open(pid)
                rooms = rooms_of(pid)
                self._processes[pid] = _Process(pid, end, rooms[0].folder if rooms else None)
                self._poll.register(end, select.POLLIN)
        if not self._processes and not self._target.may_return:
            self._is_over = True
        folders = tuple(dict.fromkeys(room.folder for room in self._rooms() if room.folder is not None))
        if folders != self._watched and folders:  # one that has just ended is in none
            if self._events is not None:
                self._events.close()
            self._watched = folders
            self._events = LimitEvents(self._rooms(), LEVELS, self._poll)

    def _rooms(self) -> list[Room]:
        """Return the limits over the processes: those of the first of them, which mostly share them."""
        first = next((pid for pid in sorted(self._processes) if not has_ended(pid)), None)
        return rooms_of(first) if first is not None else []

    def _tightest(self) -> Optional[Room]:
        rooms = [room for room in self._rooms() if room.folder is not None or room.used >= _OF_MACHINE]
        return max(rooms, key=lambda room: room.used, default=None)

    def _pause(self, room: Optional[Room]) -> float:
        """Return how long to wait: not past half of the way to the next level at the present rate."""
        now = time.monotonic()
        if self._is_reading or (self._hold is not None and self._hold.is_at_limit()):
            return _SHORTEST_SECONDS
        if room is None:
            return self._interval
        last, self._last = self._last, (now, room.left_bytes)
        if last is None or room.left_bytes >= last[1] or now <= last[0]:
            return self._interval
        rate = (last[1] - room.left_bytes) / (now - last[0])
        level = next((level for level in LEVELS if level > room.used), 1.0)
        seconds = (level - room.used) * room.limit_bytes / rate / 2
        return min(max(seconds, _SHORTEST_SECONDS), self._interval)

    def _see(self, room: Room) -> None:
        """Note the level that is used in *room*; a record is due at each that is passed."""
        now = self._clock()
        self._kills = [*[one for one in self._kills if now - one[0] < 2 * _KILL_SECONDS], (now, room.kills)]
        if room.used > self._box.highest:
            self._box = self._box._replace(
                highest=room.used, limit_bytes=room.limit_bytes, limit_of=room.whose
            )
        passed = [level for level in LEVELS if level <= room.used]
        level = passed[-1] if passed else 0.0
        if level > self._level:
            fresh = [LevelReached(one, now) for one in passed if one > self._level]
            before = [one for one in self._box.reached if one.level not in passed or one.level <= self._level]
            self._box = self._box._replace(reached=[*before, *fresh])
            self._level = level
            if now - self._last_at.get(level, -math.inf) >= _AGAIN_SECONDS:
                self._last_at[level] = now
                self._due = room
        elif self._level and room.used < self._level - _BACK:
            self._level = level

    def _note_end(self, descriptor: int) -> None:
        for process in [each for each in self._processes.values() if each.end == descriptor]:
            now = self._clock()
            self._poll.unregister(descriptor)
            os.close(descriptor)
            del self._processes[process.pid]
            # Its memory, and with that the level, may be gone before its end is seen; so may be its record's.
            records = [*self._box.records, *(recorder.facts for recorder in self._recorders)]
            if self._level or any(one.pid == process.pid for one in records):
                is_killed = self._was_killed(process, now)
                kill_t = min(self._lately(self._outs, now), default=None) if is_killed else None
                end = BlackBoxEnd(now, process.pid, is_killed, kill_t)
                self._outs = []
                self._box = self._box._replace(ends=[*self._box.ends, end][-_KEPT:])
                self._save()
            self._next_find = 0.0

    def _was_killed(self, process: _Process, now: float) -> Optional[bool]:
        """Return whether the kernel has killed *process*: it counts its kills, and does not say of whom."""
        before = [kills for t, kills in self._kills if t <= now - _KILL_SECONDS or t == self._kills[0][0]]
        kills = read_cgroup(process.folder).events.get("oom_kill") if process.folder is not None else None
        if kills is None or not before or before[-1] is None:
            return None
        ends = 1 + sum(now - one.t < _KILL_SECONDS for one in self._box.ends)
        fresh = kills - before[-1]
        return False if not fresh else True if fresh >= ends else None

    # -- records --------------------------------------------------------------------------------------------

    def _start_record(self, room: Room) -> None:
        self._due = None
        allowed = allowed_bytes(room.folder, room.limit_bytes)
        chosen = [
            one
            for pid in self._processes
            if (one := _in_cgroup(pid, allowed)) is not None and not has_ended(pid)
        ]
        if not chosen:
            return
        # The kernel kills the one with the greatest badness; those that it never kills are asked last.
        victim = max(chosen, key=lambda one: (one.badness_bytes or 0, one.pss_bytes))
        self._count += 1
        name = f"{FOLDER}/{self._count:04d}"
        folder = self._run / name
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
        except OSError as error:
            self._add_note(f"black box: nothing can be recorded: {error.strerror}")
            return
        is_held = self._hold is not None and self._hold.is_at_limit()
        used = room.limit_bytes - room.left_bytes
        facts = BlackBoxRecord(
            self._clock(),
            room.used,
            used,
            room.limit_bytes,
            room.whose,
            victim.pid,
            victim.name,
            name,
            is_held,
        )
        core_until = None
        if is_held and self._hold is not None and self._writes_core:
            core_until = time.monotonic() + MOST_SECONDS - self._hold.seconds
        recorder = Recorder(facts, folder, lambda: take_record(victim.pid, folder, self._clock, core_until))
        self._recorders.append(recorder)
        self._poll.register(recorder.end, select.POLLIN)

    @property
    def _is_reading(self) -> bool:
        """True while a record needs the process, which only one can read at a time."""
        return not all(recorder.is_free() for recorder in self._recorders)

    def _finish_record(self, recorder: Recorder) -> None:
        self._recorders.remove(recorder)
        self._poll.unregister(recorder.end)
        record = recorder.finish()
        with contextlib.suppress(OSError):
            self._add_note((self._run / record.folder / f"{CORE}{_ERRORS}").read_text().strip())
        records = sorted([*self._box.records, record], key=lambda one: one.t)
        for old in records[:-_KEPT]:
            shutil.rmtree(self._run / old.folder, ignore_errors=True)
        self._box = self._box._replace(records=records[-_KEPT:])
        self._save()

    def _add_note(self, text: str) -> None:
        if text not in self._box.notes:
            self._box = self._box._replace(notes=[*self._box.notes, text])

    def _save(self) -> None:
        document = black_box_document(self._box)
        with contextlib.suppress(OSError):
            replace_file(self._run / FOLDER / FILE, to_json(document or {}))

    # -- holding --------------------------------------------------------------------------------------------

    def _take_hold(self) -> None:
        rooms = self._rooms()
        folders = [room.folder for room in rooms if room.folder is not None]
        if not rooms:
            return  # no process is left
        if not folders:
            self._add_note("--hold: no control group of the processes has a limit; nothing is held")
            return
        try:
            for folder in folders:  # one above is as full at least: it may be out of memory first
                check_outside(folder)
            self._hold = LimitHold(folders[0])
        except GdbmemError as error:
            self._add_note(f"--hold: {error.message}; nothing is held")

    def _check_hold(self) -> None:
        """Record what stands at the limit, then let the kernel go on."""
        hold = self._hold
        if hold is None or not hold.is_at_limit():
            return
        if hold.since is None:
            hold.note_limit()
            self._due = None
        if self._is_reading:
            return
        if not self._has_held:
            self._has_held = True
            room = self._tightest()
            if room is not None:
                self._start_record(room)
                return
        self._box = self._box._replace(held_seconds=hold.seconds)
        self._outs = []  # the kill begins now
        hold.release()
        self._hold = None
        self._save()


def _in_cgroup(pid: int, allowed: int) -> Optional[CgroupProcess]:
    with contextlib.suppress(PermissionError):
        return process_in_cgroup(pid, allowed)
    return None


def take_record(
    pid: int, folder: Path, clock: Callable[[], float], core_until: Optional[float] = None
) -> None:
    """Write what is known of process *pid* into *folder*, one file after the other; errors into files, too.

    It includes a core if that can be written until *core_until*, of time.monotonic().
    """
    copied: list[_Copied] = []
    steps: Sequence[tuple[str, Callable[[], object]]] = (
        ("smaps", lambda: _smaps(pid, folder)),
        # This takes some milliseconds; they are named at the end.
        ("stacks", lambda: copied.append(_copy_stacks(pid))),
        ("explain", lambda: _ledger(pid, folder, clock)),
        ("python", lambda: _python(pid, folder)),
        (
            "core",
            lambda: write_core(pid, folder / CORE, until=core_until) if core_until is not None else None,
        ),
        ("read", (folder / _READ).touch),
        ("stacks", lambda: _name_stacks(pid, folder, copied[0]) if copied else None),
    )
    for name, write in steps:
        try:
            write()
        except (GdbmemError, OSError, ValueError) as error:
            with contextlib.suppress(OSError):
                (folder / f"{name}{_ERRORS}").write_text(f"{printable(str(error))}\n")
            if isinstance(error, GdbmemError) and error.slug == "thread-stuck":
                return  # only the end of this process lets go of a thread that it could not stop


def _smaps(pid: int, folder: Path) -> None:
    (folder / "smaps.txt").write_bytes(Path(f"{memory_folder(pid)}/smaps").read_bytes())


def _ledger(pid: int, folder: Path, clock: Callable[[], float]) -> None:
    # A copy would be charged to the group for each page that the process writes meanwhile.
    ledger = explain_process(pid, fork=False, say=lambda _: None)
    ledger.check()
    replace_file(folder / "explain.json", ledger_json(ledger))
    (folder / ".times").write_text(f"ledger {clock()}\npause {ledger.pause_seconds or 0.0}\n")
    with (folder / "explain.txt").open("w", encoding="utf-8", errors="backslashreplace") as stream:
        print_ledger(ledger, make_console(stream, color=False))


class _Copied(NamedTuple):
    """The stacks of a process, to be unwound."""

    stacks: Sequence[CopiedStack]
    maps: bytes
    uid: int  # of the process: it decides which files are opened with our rights


def _copy_stacks(pid: int) -> _Copied:
    uid = rights_of(pid).uid
    return _Copied(*copy_stacks(pid), uid)


def _name_stacks(pid: int, folder: Path, copied: _Copied) -> None:
    with Binaries(None if has_ended(pid) else pid, [copied.uid]) as binaries:
        stacks = unwind(copied.stacks, copied.maps, binaries.table)
        places = list(dict.fromkeys(place for one in stacks for place in one.places))
        plain = {
            place: (Frame(f"0x{place.offset:x}", object=place.binary.path if place.binary else None),)
            for place in places
        }
        _write_stacks(
            folder, stacks, plain
        )  # before a debugger is asked for names: the files may soon be gone
        chains, _ = name_places(places, GdbSymbols(), binaries.may_open, {})
    _write_stacks(folder, stacks, dict(zip(places, chains)))


def _write_stacks(
    folder: Path, stacks: Sequence[NativeStack], names: Mapping[Place, Sequence[Frame]]
) -> None:
    lines = []
    for stack in stacks:
        lines.append(f"Thread {stack.tid} ({stack.name})")
        frames = [frame for place in stack.places for frame in names[place]]
        lines += [f"#{number} {frame_text(frame)}" for number, frame in enumerate(frames)]
        lines += [] if stack.is_whole else ["   (the callers further out could not be read)"]
    replace_file(folder / "stacks.txt", "".join(f"{printable(line)}\n" for line in lines))


def _python(pid: int, folder: Path) -> None:
    try:
        stacks = stacks_of_process(pid, fork=False, swapped=False, say=lambda _: None)
    except GdbmemError as error:
        if error.slug in ("python-unknown", "python-no-frames"):  # it is no Python program
            return
        raise
    with (folder / "python.txt").open("w", encoding="utf-8", errors="backslashreplace") as stream:
        print_stacks(stacks, make_console(stream, color=False))


def main(arguments: Sequence[str]) -> int:
    """Watch the run that *arguments* name; the last line of the standard error says why that can't be done."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with its standard input
    run, seconds, hold = arguments
    try:
        BlackBoxWorker(Path(run), float(seconds), holds=hold != "-", writes_core=hold == "core").watch()
    except GdbmemError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
