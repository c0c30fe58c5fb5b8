"""A set of processes and all that descend from them, followed through forks, deaths and respawns."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Callable, Optional

from gdbmem.linux.glance import Glances, statm_reader
from gdbmem.linux.processes import descendants, parents, stat_of
from gdbmem.linux.procevents import ProcessEvents
from gdbmem.linux.readings import Shares, quick_reading, total_of, with_pss, with_sizes
from gdbmem.linux.sampling import ProcessFiles, ProcessGone, Stat
from gdbmem.linux.surroundings import Surroundings
from gdbmem.linux.tally import Tally
from gdbmem.model.series import TREE, Line, Reading

_FIND_EVERY_SECONDS = 1.0  # processes by name, user or cgroup are looked for this often
_MAPPINGS_EVERY = 4  # one sweep in so many reads all mappings too: that costs several times as much
# The looks between two whole ones read RSS only; the more a whole one costs, the fewer there are.
_WHOLE_EVERY_SECONDS, _WHOLE_AT_LEAST_EVERY = 1.95, 9.95
_WHOLE_BUDGET = 0.0001  # of a CPU
_SEARCH_BUDGET = 0.01  # of a CPU, for finding processes and children where the kernel doesn't report them


@dataclass(frozen=True)
class Look:
    """What one look at the tree found."""

    t: float
    readings: Sequence[tuple[int, Reading]]  # by line; the tree's own is on TREE
    changed_lines: Sequence[Line]
    swept: bool  # PSS and the like were read
    alive: int


class _Process:
    """One process that is followed."""

    def __init__(self, files: ProcessFiles, stat: Stat, line: Line) -> None:
        self.files = files
        self.stat = stat
        self.line = line
        self.threads_started = 0
        self.thread_ids: set[int] = set()
        self.denied = False


class Tree:
    """The processes that *find_roots* returns and their descendants."""

    def __init__(
        self,
        find_roots: Callable[[], set[int]],
        *,
        events: Optional[ProcessEvents],
        lines: Iterable[Line] = (),
        budget: float = 0.01,
        follow: bool = True,
        surroundings: Optional[Surroundings] = None,
        roots_are_known: bool = False,
        leave_out: Collection[int] = (),
    ) -> None:
        """Follow on from *lines*, children too with *follow*; *budget* is the share of a CPU for reading PSS.

        With *roots_are_known* no more of them come once those that there are have been found. Processes to *leave_out*,
        and what descends from them, are nobody's children.
        """
        self._find_roots = find_roots
        self._left_out = leave_out
        self._roots_are_known = roots_are_known
        self._events = events
        self._budget = budget
        self._follows = follow
        self._surroundings = surroundings or Surroundings()
        self._shares: list[Shares] = []  # of the last sweep
        self._tally = Tally(counts_children=follow)
        self._processes: dict[int, _Process] = {}
        self._lines = {line.number: line for line in lines}
        self._by_process = {(line.pid, line.start_ticks): line.number for line in self._lines.values()}
        self._orphaned: dict[tuple[str, int], list[int]] = {}  # (name, parent's line) → lines of the dead
        for line in reversed(list(self._lines.values())):
            self._orphaned.setdefault((line.name, line.parent), []).append(line.number)
        self._changed: dict[int, Line] = {}
        self._next_find = self._next_search = self._next_sweep = 0.0
        self._must_search = events is None
        self._started = 0  # processes, as far as they were seen
        self.glances = Glances(0.0, b"", statm_reader([]))
        self.sweeps = 0
        self.denied = 0  # processes whose PSS may not be read
        self.events_lost = False
        self._lists_children = True

    @property
    def alive(self) -> int:
        """How many processes are followed now."""
        return len(self._processes)

    @property
    def reads_pss(self) -> bool:
        """Whether PSS is read at all."""
        return self._budget > 0

    @property
    def pids(self) -> set[int]:
        """The processes followed now."""
        return set(self._processes)

    def close(self) -> None:
        """Give all descriptors back."""
        for process in self._processes.values():
            process.files.close()

    def look(self, t: float, *, sweep: Optional[bool] = None) -> Look:
        """Read everything at time *t*; PSS too when *sweep*, or when the budget allows it."""
        began = time.thread_time()
        self._follow(t)
        if sweep is None:
            sweep = self._budget > 0 and t >= self._next_sweep
        around = self._surroundings.read(t)
        begin = time.thread_time()
        readings, last_words = [], []
        self._shares.clear()
        for pid, process in list(self._processes.items()):
            try:
                reading = self._read(process, sweep=sweep)
                if around is not None and pid in around.gpu:
                    reading = reading._replace(gpu_bytes=around.gpu[pid])
                readings.append((process.line.number, reading))
            except ProcessGone:
                # Threads started since the look before belong to it, although its memory has gone.
                last_words.append((process.line.number, Reading(threads_started=process.threads_started)))
                self._bury(pid, t)
        if sweep:
            seconds = time.thread_time() - begin
            self.sweeps += 1
            self._next_sweep = t + seconds / self._budget if self._budget > 0 else 0.0
        cgroup = self._surroundings.read_cgroup() if last_words else around.cgroup if around else {}
        if readings or cgroup:
            total = total_of([reading for _, reading in readings], self._shares, sweep=sweep)
            readings.append((TREE, total._replace(**self._counters(), **cgroup)))
        changed, self._changed = list(self._changed.values()), {}
        self._plan_glances(t, 0.0 if sweep else time.thread_time() - began)
        return Look(t, readings + last_words, changed, sweep, self.alive)

    @property
    def events(self) -> Optional[ProcessEvents]:
        """What can be polled for news of births; None: has_grown() has to be asked each time."""
        return self._events

    def _counters(self) -> dict[str, Any]:
        counts = self._tally.total((pid, process.stat) for pid, process in self._processes.items())
        started = sum(process.threads_started for process in self._processes.values())
        return {**counts._asdict(), "threads_started": self._tally.dead_threads + started}

    def has_grown(self, t: float) -> bool:
        """Take in what was started; tell whether processes were, for which a whole look is due."""
        before = self._started
        if self._follows:
            self._seek(t)
        if self._events is None:
            for process in self._processes.values():
                if process.stat.threads > 1:
                    self._count_threads(process)
        if self._started != before:
            self.glances = self.glances._replace(until=t)
        return self._started != before

    def _plan_glances(self, t: float, seconds: float) -> None:
        """Plan what to glance at, and until when; the whole look before took *seconds* of CPU."""
        processes = list(self._processes.values())
        # Without a process there is nothing to glance at: then each look is a whole one.
        pause = min(max(_WHOLE_EVERY_SECONDS, seconds / _WHOLE_BUDGET), _WHOLE_AT_LEAST_EVERY)
        until = t + pause if processes else t
        if self._budget > 0:
            until = min(until, self._next_sweep)
        lines = b" ".join(b"%d" % process.line.number for process in processes)
        self.glances = Glances(until, lines, statm_reader([p.files.statm_descriptor for p in processes]))

    # -- who belongs to it ----------------------------------------------------------------------------------

    def _follow(self, t: float) -> None:
        if t >= self._next_find:
            begin = time.thread_time()
            roots = self._find_roots()
            fresh = roots - self._processes.keys()
            for pid in fresh:
                self._adopt(pid, t)
            if fresh and self._follows:
                for pid in descendants(roots, parents()):
                    self._adopt(pid, t)
            taken = time.thread_time() - begin
            self._next_find = t + max(_FIND_EVERY_SECONDS, taken / _SEARCH_BUDGET)
            if self._roots_are_known and not fresh - self._processes.keys():
                self._next_find = math.inf
        if self._follows:
            self._seek(t)

    def _seek(self, t: float) -> None:
        """Take in the children that were born since the last time."""
        if self._events is not None:
            self._started += self._hear(self._events, t)
            self._must_search = self._must_search or self._events.lost
        if self._must_search and t >= self._next_search:
            begin = time.thread_time()
            self._started += self._ask_for_children(t)
            self._next_search = t + (time.thread_time() - begin) / _SEARCH_BUDGET
            self._must_search = self._events is None

    def _hear(self, events: ProcessEvents, t: float) -> int:
        born: dict[int, int] = {}  # pid → threads started
        for parent, pid, group in events.drain():
            if pid != group:
                if group in self._processes:
                    self._processes[group].threads_started += 1
                elif group in born:
                    born[group] += 1
            elif parent in self._processes or parent in born:
                born[pid] = 0
        self.events_lost = self.events_lost or events.lost
        for pid, threads in born.items():
            if pid in self._processes:  # its number has been used again already
                self._bury(pid, t)
            process = self._adopt(pid, t)
            if process is not None:
                process.threads_started = threads
        return len(born)

    def _ask_for_children(self, t: float) -> int:
        if not self._lists_children:
            found = [p for p in descendants(self.pids, parents()) if self._adopt(p, t)]
            return len(found)
        started = 0
        todo = list(self._processes.values())
        while todo:
            process = todo.pop()
            try:
                children = process.files.children(process.stat.threads)
            except ProcessGone:
                self._lists_children = stat_of(process.files.pid) is None
                continue
            for pid in children:
                if pid not in self._processes and (child := self._adopt(pid, t)) is not None:
                    started += 1
                    todo.append(child)
        return started

    def _adopt(self, pid: int, t: float) -> Optional[_Process]:
        if pid in self._processes or pid in self._left_out:
            return None
        try:
            files = ProcessFiles(pid)
        except ProcessGone:
            return None
        try:
            stat = files.stat()
            command = files.command()
        except (ProcessGone, PermissionError):
            files.close()
            return None
        process = _Process(files, stat, self._line_for(pid, stat, command, t))
        self._processes[pid] = process
        return process

    def _line_for(self, pid: int, stat: Stat, command: str, t: float) -> Line:
        parent = self._processes.get(stat.parent)
        above = parent.line.number if parent else TREE
        number = self._by_process.get((pid, stat.start_ticks))  # after --resume: the same process still
        line = self._heir(stat.name, above) if number is None else self._lines[number]
        if line is None:
            line = Line(len(self._lines) + 1, pid, stat.start_ticks, stat.name, command, above, t)
        else:
            again = (line.pid, line.start_ticks) != (pid, stat.start_ticks)
            line = replace(
                line, pid=pid, start_ticks=stat.start_ticks, name=stat.name, command=command, gone=None,
                respawns=line.respawns + again,
            )  # fmt: skip
        self._note(line)
        return line

    def _heir(self, name: str, above: int) -> Optional[Line]:
        # A worker that died leaves its line to the next child of that name.
        numbers = self._orphaned.get((name, above), [])
        while numbers:
            line = self._lines[numbers.pop()]
            if line.pid not in self._processes:
                return line
        return None

    def _note(self, line: Line) -> None:
        self._lines[line.number] = line
        self._by_process[line.pid, line.start_ticks] = line.number
        self._changed[line.number] = line

    def _bury(self, pid: int, t: float) -> None:
        process = self._processes.pop(pid)
        process.files.close()
        self._tally.bury(
            pid,
            process.stat,
            threads_started=process.threads_started,
            parent_is_followed=process.stat.parent in self._processes,
        )
        self._by_process.pop((process.line.pid, process.line.start_ticks), None)
        self._note(replace(process.line, gone=t))
        self._orphaned.setdefault((process.line.name, process.line.parent), []).append(process.line.number)

    # -- what it holds --------------------------------------------------------------------------------------

    def _read(self, process: _Process, *, sweep: bool) -> Reading:
        stat = process.files.stat()
        if stat.name != process.stat.name:  # it has executed another program
            process.line = replace(process.line, name=stat.name, command=process.files.command())
            self._note(process.line)
        process.stat = stat
        if self._events is None:
            self._count_threads(process)
        reading = quick_reading(process.files, stat, process.threads_started)
        if not sweep:
            return reading
        reading = with_sizes(reading, process.files)
        if not process.denied:
            try:
                mappings = self.sweeps % _MAPPINGS_EVERY == 0
                reading, shares = with_pss(reading, process.files, mappings=mappings)
                self._shares.append(shares)
            except PermissionError:
                process.denied = True
                self.denied += 1
        return reading

    def _count_threads(self, process: _Process) -> None:
        if process.stat.threads == 1 and len(process.thread_ids) == 1:
            return
        ids = set(process.files.thread_ids())
        if process.thread_ids:
            process.threads_started += len(ids - process.thread_ids)
        process.thread_ids = ids
