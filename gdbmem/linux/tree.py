"""A set of processes and all that descend from them, followed through forks, deaths and respawns."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Callable, Optional

from gdbmem.linux.processes import descendants, parents, stat_of
from gdbmem.linux.procevents import ProcessEvents
from gdbmem.linux.rollup import Rollup
from gdbmem.linux.sampling import ProcessFiles, ProcessGone, Stat
from gdbmem.model.series import READING_FIELDS, TREE, Line, Reading

_FIND_EVERY_SECONDS = 1.0  # processes by name, user or cgroup are looked for this often
_MAPPINGS_EVERY = 4  # one sweep in so many reads all mappings too: that costs several times as much
_SUMMED = frozenset(READING_FIELDS) - {"rss_bytes", "shared_bytes"}
_READ_EACH_TIME = ("minor_faults", "major_faults", "threads", "threads_started", "cpu_seconds")


@dataclass(frozen=True)
class Look:
    """What one look at the tree found."""

    t: float
    readings: Sequence[tuple[int, Reading]]  # by line; the tree's own is on TREE
    changed_lines: Sequence[Line]
    swept: bool  # PSS and the like were read
    alive: int
    processes_started: int  # since the look before, as far as they were seen


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
    ) -> None:
        """Follow on from *lines*, children too with *follow*; *budget* is the share of a CPU for reading PSS."""
        self._find_roots = find_roots
        self._events = events
        self._budget = budget
        self._follows = follow
        self._processes: dict[int, _Process] = {}
        self._lines = {line.number: line for line in lines}
        self._by_process = {(line.pid, line.start_ticks): line.number for line in self._lines.values()}
        self._orphaned: dict[tuple[str, int], list[int]] = {}  # (name, parent's line) → lines of the dead
        for line in reversed(list(self._lines.values())):
            self._orphaned.setdefault((line.name, line.parent), []).append(line.number)
        self._changed: dict[int, Line] = {}
        self._next_find = 0.0
        self._next_sweep = 0.0
        self.sweeps = 0
        self.sweep_seconds = 0.0  # CPU time
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
        started = self._follow(t)
        if sweep is None:
            sweep = self._budget > 0 and t >= self._next_sweep
        begin = time.thread_time()
        readings, last_words = [], []
        for pid, process in list(self._processes.items()):
            try:
                readings.append((process.line.number, self._read(process, t, sweep=sweep)))
            except ProcessGone:
                # Threads started since the look before belong to it, although its memory has gone.
                last_words.append((process.line.number, Reading(threads_started=process.threads_started)))
                self._bury(pid, t)
        if sweep:
            seconds = time.thread_time() - begin
            self.sweeps += 1
            self.sweep_seconds += seconds
            self._next_sweep = t + seconds / self._budget if self._budget > 0 else 0.0
        if readings:
            readings.append((TREE, self._total([reading for _, reading in readings], sweep=sweep)))
        changed, self._changed = list(self._changed.values()), {}
        return Look(t, readings + last_words, changed, sweep, self.alive, started)

    # -- who belongs to it ----------------------------------------------------------------------------------

    def _follow(self, t: float) -> int:
        started = 0
        if t >= self._next_find:
            self._next_find = t + _FIND_EVERY_SECONDS
            roots = self._find_roots()
            fresh = roots - self._processes.keys()
            for pid in fresh:
                self._adopt(pid, t)
            if fresh and self._follows:
                for pid in descendants(roots, parents()):
                    self._adopt(pid, t)
        if not self._follows:
            return 0
        if self._events is not None:
            started = self._hear(self._events, t)
        if self._events is None or self._events.lost:
            started += self._ask_for_children(t)
        return started

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
        if pid in self._processes:
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
        self._by_process.pop((process.line.pid, process.line.start_ticks), None)
        self._note(replace(process.line, gone=t))
        self._orphaned.setdefault((process.line.name, process.line.parent), []).append(process.line.number)

    # -- what it holds --------------------------------------------------------------------------------------

    def _read(self, process: _Process, t: float, *, sweep: bool) -> Reading:
        stat = process.files.stat()
        statm = process.files.statm()
        if stat.name != process.stat.name:  # it has executed another program
            process.line = replace(process.line, name=stat.name, command=process.files.command())
            self._note(process.line)
        process.stat = stat
        if self._events is None:
            self._count_threads(process)
        reading = Reading(
            rss_bytes=statm.rss_bytes,
            shared_bytes=statm.shared_bytes,
            minor_faults=stat.minor_faults,
            major_faults=stat.major_faults,
            threads=stat.threads,
            threads_started=process.threads_started,
            cpu_seconds=stat.cpu_seconds,
        )
        return self._with_sweep(process, reading) if sweep else reading

    def _count_threads(self, process: _Process) -> None:
        if process.stat.threads == 1 and len(process.thread_ids) == 1:
            return
        ids = set(process.files.thread_ids())
        if process.thread_ids:
            process.threads_started += len(ids - process.thread_ids)
        process.thread_ids = ids

    def _with_sweep(self, process: _Process, reading: Reading) -> Reading:
        sizes = process.files.status_sizes()
        reading = replace(
            reading,
            anonymous_bytes=sizes.get("RssAnon"),
            file_bytes=sizes.get("RssFile"),
            shmem_bytes=sizes.get("RssShmem"),
            swap_bytes=sizes.get("VmSwap"),
        )
        if process.denied:
            return reading
        try:
            rollup = process.files.rollup()
            mappings = process.files.named_mappings() if self.sweeps % _MAPPINGS_EVERY == 0 else None
            open_files = process.files.open_files()
        except PermissionError:
            process.denied = True
            self.denied += 1
            return reading
        return replace(
            _from_rollup(reading, rollup),
            open_files=open_files,
            heap_bytes=None if mappings is None else mappings.get("[heap]", 0),
            stack_bytes=None if mappings is None else mappings.get("[stack]", 0),
        )

    def _total(self, readings: Sequence[Reading], *, sweep: bool) -> Reading:
        if len(readings) == 1:
            return readings[0]
        # The sum of RSS would count a shared page once for each process: it is no total, so there is none.
        sums: dict[str, Optional[float]] = {}
        for name in _SUMMED if sweep else _READ_EACH_TIME:
            values = [getattr(reading, name) for reading in readings]
            sums[name] = None if None in values else sum(values)
        return Reading(**sums)  # type: ignore[arg-type]  # sums of ints are ints

    def biggest(self) -> Counter[int]:
        """Return line → RSS at the last look (for tables)."""
        found: Counter[int] = Counter()
        for process in self._processes.values():
            try:
                found[process.line.number] = process.files.statm().rss_bytes
            except ProcessGone:
                continue
        return found


def _from_rollup(reading: Reading, rollup: Rollup) -> Reading:
    return replace(
        reading,
        pss_bytes=rollup.pss_bytes,
        uss_bytes=rollup.uss_bytes,
        private_dirty_bytes=rollup.private_dirty_bytes,
        shared_dirty_bytes=rollup.shared_dirty_bytes,
        swap_bytes=rollup.swap_bytes,
    )
