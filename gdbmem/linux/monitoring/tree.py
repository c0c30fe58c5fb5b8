"""A set of processes and their descendants, followed through forks, exits and respawns."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Collection, Container, Iterable, Sequence
from typing import Callable, NamedTuple, Optional

from gdbmem.linux.memory.hugetlb import SharedHugetlb
from gdbmem.linux.monitoring.cgroup import Family, Limit
from gdbmem.linux.monitoring.children import CopiedPages, ExitedUsage, ProcessEvents, StoppedTime
from gdbmem.linux.monitoring.gpu_and_cgroup import Surroundings
from gdbmem.linux.monitoring.sampling import (
    Copies,
    Glance,
    Glances,
    ProcessFiles,
    ProcessGone,
    RoundEnding,
    Shares,
    family_row,
    faults_reader,
    has_ended,
    matters,
    quick_reading,
    statm_reader,
    total_of,
    with_pss,
    with_sizes,
    without_memory,
)
from gdbmem.linux.process.process import Stat, descendants, parents, program_name, stat_of
from gdbmem.linux.process.sharing import share_memory
from gdbmem.model.series import TREE, ProcessSample, SeriesLine

# Assigns processes to the lines of a series: a respawned worker gets the line of one with its name.


class SeriesLines:
    """The lines of a tree."""

    def __init__(self, lines: Iterable[SeriesLine]) -> None:
        """Continue with *lines*."""
        self._lines = {line.number: line for line in lines}
        self._by_process = {(line.pid, line.start_ticks): line.number for line in self._lines.values()}
        # (name, parent's line) → lines of ended processes.
        self._orphaned: dict[tuple[str, int], list[int]] = {}
        for line in reversed(list(self._lines.values())):
            self._orphaned.setdefault((line.name, line.parent), []).append(line.number)
        self._changed: dict[int, SeriesLine] = {}

    @property
    def count(self) -> int:
        """The number of lines."""
        return len(self._lines)

    def take(
        self, pid: int, stat: Stat, command: str, above: int, t: float, alive: Container[int]
    ) -> SeriesLine:
        """Return the line of *pid*, whose parent has the line *above*; the processes *alive* keep theirs."""
        name = program_name(stat.name, command.split(" "))
        number = self._by_process.get((pid, stat.start_ticks))  # after --resume: the same process still
        line = self._heir(name, above, alive) if number is None else self._lines[number]
        if line is None:
            line = SeriesLine(len(self._lines) + 1, pid, stat.start_ticks, name, command, above, t)
        else:
            again = (line.pid, line.start_ticks) != (pid, stat.start_ticks)
            line = line._replace(pid=pid, start_ticks=stat.start_ticks, name=name, command=command, gone=None,
                respawns=line.respawns + again,
            )  # fmt: skip
        self._note(line)
        return line

    def _heir(self, name: str, above: int, alive: Container[int]) -> Optional[SeriesLine]:
        numbers = self._orphaned.get((name, above), [])
        while numbers:
            line = self._lines[numbers.pop()]
            if line.pid not in alive:
                return line
        return None

    def rename(self, line: SeriesLine, name: str, command: str, *, was_read: bool) -> SeriesLine:
        """Return *line* for a process that has executed another program, or *was_read* as an earlier one."""
        name = program_name(name, command.split(" "))
        line = line._replace(name=name, command=command, earlier=line.names if was_read else line.earlier)
        self._note(line)
        return line

    def bury(self, line: SeriesLine, t: float) -> None:
        """Release *line*, whose process had ended at time *t*, for reuse."""
        self._by_process.pop((line.pid, line.start_ticks), None)
        self._note(line._replace(gone=t))
        self._orphaned.setdefault((line.name, line.parent), []).append(line.number)

    def take_changed(self) -> list[SeriesLine]:
        """Return the lines that have changed since the last call."""
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def _note(self, line: SeriesLine) -> None:
        self._lines[line.number] = line
        self._by_process[line.pid, line.start_ticks] = line.number
        self._changed[line.number] = line


_FIND_EVERY_SECONDS = 1.0  # interval of searches for processes by name, user or cgroup
_MAPPINGS_EVERY = 4  # one sweep in this many also reads all mappings, which costs several times as much
# The samples between two complete ones read RSS only; the more a complete one costs, the fewer there are.
_WHOLE_EVERY_SECONDS, _WHOLE_AT_LEAST_EVERY = 1.95, 9.95
_WHOLE_BUDGET = 0.0001  # of a CPU
# PSS is read again in one sample until no process has started or ended meanwhile; the wait before each round.
_BEFORE_ROUNDS = (0.0, 0.004, 0.02, 0.05)
_DYING_SECONDS = 0.02  # wait for a process that is releasing its memory before the next round
_FORKING_SECONDS = 0.003  # a fork shares all pages some time before the kernel reports the child
_ENOUGH_BUDGET = 0.0025  # of a CPU, for PSS if there are other values
_SEARCH_BUDGET = 0.01  # of a CPU, for finding processes and children if the kernel doesn't report them


_Readings = list[tuple[int, ProcessSample]]  # by pid
_Reader = Callable[[], bytes]
_FamilyReader = Callable[[], Optional[int]]


class Look(NamedTuple):
    """The result of one scan of the tree."""

    t: float
    readings: Sequence[tuple[int, ProcessSample]]  # by line; the tree's own is on TREE
    changed_lines: Sequence[SeriesLine]
    swept: bool  # PSS and the like were read
    alive: int
    begun: Optional[Glance] = None  # what was read first, where a process has ended before the rest was read


class _Process:
    """One followed process."""

    def __init__(self, files: ProcessFiles, stat: Stat, line: SeriesLine, *, is_new: bool) -> None:
        self.files = files
        self.stat = stat
        self.waited_before = stat.waited
        self.line = line
        self.threads_started = 0
        self.thread_ids: set[int] = set()
        self.denied = False
        self.is_read = False
        self.first_peak: Optional[int] = 0 if is_new else None  # VmHWM when it was first read


class Tree:
    """The processes that *find_roots* returns and their descendants."""

    def __init__(
        self,
        find_roots: Callable[[], set[int]],
        *,
        events: Optional[ProcessEvents],
        lines: Iterable[SeriesLine] = (),
        budget: float = 0.01,
        follow: bool = True,
        surroundings: Optional[Surroundings] = None,
        roots_are_known: bool = False,
        leave_out: Collection[int] = (),
        family: Optional[Family] = None,
    ) -> None:
        """Continue from *lines*, with *follow* including children; *budget* is the fraction of a CPU for reading PSS.

        With *roots_are_known* no more of them appear once the existing ones are found. Processes to *leave_out*, and
        their descendants, are ignored. The *family* is the cgroup of exactly these processes.
        """
        self._find_roots = find_roots
        self._left_out = leave_out
        self._family = family
        self._roots_are_known = roots_are_known
        self._events = events
        self._budget = budget
        self._follows = follow
        self._surroundings = surroundings or Surroundings()
        self._shares: list[Shares] = []  # of the last sweep
        self._hugetlb = SharedHugetlb()
        self._tally = ExitedUsage(counts_children=follow)
        self._copied = CopiedPages()
        self._ending = RoundEnding()
        self._inspected = Copies()
        self._processes: dict[int, _Process] = {}
        self._lines = SeriesLines(lines)
        self._next_find = self._next_search = self._next_sweep = 0.0
        self._must_search = events is None
        # Ended since the last events were read, which may tell of their children.
        self._gone: set[int] = set()
        self._started = 0  # processes, as far as they were observed
        self.glances = Glances(0.0, b"", statm_reader([]))
        self.sweeps = 0
        self._round_began = 0.0
        self._round_held: Optional[int] = None  # by the family, in the middle of the sample
        self.torn = 0  # rounds without a total of PSS
        self.denied = 0  # processes whose PSS may not be read
        self.stopped = StoppedTime()
        self.children_left_out = 0  # that were not followed, the most at one time
        self.events_lost = False
        self._lists_children = True

    @property
    def alive(self) -> int:
        """The number of processes followed now."""
        return len(self._processes)

    @property
    def is_dying(self) -> bool:
        """True while the kernel takes the memory of a process that can no longer be read: up to seconds."""
        return self._ending.are_there()

    @property
    def reads_pss(self) -> bool:
        """True if PSS is read at all."""
        return self._budget > 0

    @property
    def limit(self) -> Optional[Limit]:
        """The limit of the cgroup that the program has entered since its start; None if it has not."""
        return self._surroundings.limit

    @property
    def pids(self) -> set[int]:
        """The processes followed now."""
        return set(self._processes)

    def cgroup_usage(self) -> Optional[int]:
        """Return the usage of the cgroup with the limit now, bytes; None if there is none."""
        return self._surroundings.cgroup_usage()

    def close(self) -> None:
        """Close all descriptors."""
        for process in self._processes.values():
            process.files.close()

    def look(self, t: float, *, sweep: Optional[bool] = None) -> Look:
        """Read everything at time *t*; PSS too when *sweep*, or when the budget allows it."""
        began = time.thread_time()
        self._follow(t)
        if sweep is None:
            sweep = self._budget > 0 and t >= self._next_sweep and not self._inspected.are_there()
        around = self._surroundings.read(t)
        begin = time.thread_time()
        began_to_read = time.monotonic()
        begun = self._glance(t) if sweep else None  # the rest takes long for a large process
        readings, last_words, is_torn = self._read_all(t, sweep=sweep)
        in_hugetlb = {pid: reading.hugetlb_bytes for pid, reading in readings if reading.hugetlb_bytes}
        # Summed up, PostgreSQL's buffers would count once for each of its processes.
        together = self._hugetlb.used(in_hugetlb) if len(in_hugetlb) > 1 and not is_torn else None
        if sweep:
            t += self._round_began - began_to_read
            seconds = time.thread_time() - begin
            self.sweeps += 1
            self.torn += is_torn
            self._next_sweep = t + seconds / self._share if self._budget > 0 else 0.0
        if around is not None:
            readings = [(pid, r._replace(gpu_bytes=around.gpu.get(pid))) for pid, r in readings]
        is_final = bool(last_words) or (not self._processes and self.is_dying)
        cgroup = self._surroundings.read_cgroup() if is_final else around.cgroup if around else {}
        found = [(self._processes[pid].line.number, reading) for pid, reading in readings]
        if found or cgroup or last_words:
            total = total_of([reading for _, reading in found], self._shares, sweep=sweep, is_torn=is_torn)
            if len(in_hugetlb) > 1:
                total = total._replace(hugetlb_bytes=together)
            # Its end does not make a program smaller: the kernel takes the memory of its last process.
            held = self._round_held if readings else None
            found.append((TREE, total._replace(family_bytes=held, **self._counters(), **cgroup)))
        stats = [process.stat for process in self._processes.values()]
        self.stopped.add(t, [stat.state for stat in stats], [stat.own for stat in stats])
        if not self._follows:
            self._count_children()
        changed = self._lines.take_changed()
        self._plan_glances(t, 0.0 if sweep else time.thread_time() - began)
        heirs = {line for line, _ in found}
        found += [words for words in last_words if words[0] not in heirs]
        return Look(t, found, changed, sweep, self.alive, begun if last_words else None)

    def _glance(self, t: float) -> Optional[Glance]:
        """Read RSS only; None if there is no process, or if one has ended."""
        glances = self._glances(t)
        if not glances.lines:
            return None
        held = glances.read_family() if glances.read_family is not None else None
        statm = glances.read()
        return Glance(t, glances.lines, statm, family_row(held)) if statm else None

    def _count_children(self) -> None:
        children: set[int] = set()
        collected = 0  # processes that had others, which have ended
        for process in self._processes.values():
            collected += process.stat.waited != process.waited_before
            with contextlib.suppress(ProcessGone, FileNotFoundError):
                children |= set(process.files.children(process.stat.threads))
        seen = max(len(children - self._processes.keys()), collected)
        self.children_left_out = max(self.children_left_out, seen)

    def _held(self) -> Optional[int]:
        return self._family.held_bytes() if self._family is not None else None

    @property
    def _share(self) -> float:
        """The fraction of a CPU for reading PSS: less than the budget for a single process, whose total is its RSS."""
        is_known = self._lines.count <= 1
        return min(self._budget, max(_ENOUGH_BUDGET, self._budget / 4)) if is_known else self._budget

    def _read_all(self, t: float, *, sweep: bool) -> tuple[_Readings, list[tuple[int, ProcessSample]], bool]:
        """Return the readings by pid, the last readings of ended ones by line, and whether a total is torn.

        PSS divides a page among the processes that map it. So values read before and after the start or end of a
        process are inconsistent, and are read again.
        """
        last_words: list[tuple[int, ProcessSample]] = []
        for pause in _BEFORE_ROUNDS:
            time.sleep(pause)
            self._round_began, held = time.monotonic(), self._held()
            before, is_settled = len(last_words), not sweep or self._ending.wait(_DYING_SECONDS)
            readings: _Readings = []
            self._shares.clear()
            gone: list[int] = []
            for pid, process in self._processes.items():
                try:
                    readings.append((pid, self._read(process, t, sweep=sweep)))
                except ProcessGone:
                    # Threads started since the previous sample belong to it, although its memory is released.
                    last_words.append(
                        (process.line.number, ProcessSample(threads_started=process.threads_started))
                    )
                    gone.append(pid)
            for pid in reversed(gone):  # children first: their usage is also in that of their parents
                self._bury(pid, t)
            self._round_held = self._held_meanwhile(held)
            if not sweep:
                return readings, last_words, False
            changes = (not is_settled) + len(last_words) - before + self._changes(t)
            if not changes and matters(dict(readings), changes=1):
                time.sleep(_FORKING_SECONDS)
                changes = self._changes(t)
            if not changes:
                return readings, last_words, False
        readings = [(pid, reading) for pid, reading in readings if pid in self._processes]
        known = dict(readings)
        parents = [each.stat.parent for pid, each in self._processes.items() if pid not in known]
        changes = max(changes - len(parents), 0)
        return readings, last_words, matters(known, parents=parents, changes=changes)

    def _held_meanwhile(self, before: Optional[int]) -> Optional[int]:
        """Return what the family held between *before* and now; None if it has less because a process ended."""
        after = self._held()
        if before is None or after is None:
            return after
        if after < before and any(has_ended(process.files) for process in self._processes.values()):
            return None
        return (before + after) // 2

    def _changes(self, t: float) -> int:
        """Add started processes; return their number, with those of known ones that have ended, and of copies."""
        before = self._started
        if self._follows:
            self._seek(t, at_once=True)
        ended = sum(has_ended(process.files) for process in self._processes.values())
        return self._started - before + self._inspected.are_there() + ended

    @property
    def events(self) -> Optional[ProcessEvents]:
        """The descriptor that becomes readable at new processes; None: call has_grown() each time."""
        return self._events

    def _counters(self) -> dict[str, Optional[int]]:
        counts = self._tally.total((pid, process.stat) for pid, process in self._processes.items())
        started = sum(process.threads_started for process in self._processes.values())
        copied, copiers = self._copied.total()
        return {
            **counts._asdict(),
            "threads_started": self._tally.dead_threads + started,
            "copied_bytes": copied if self._budget > 0 else None,
            "copiers": copiers if self._budget > 0 else None,
            "torn_rounds": self.torn if self._budget > 0 else None,
            "family_kernel_bytes": self._family.kernel_bytes() if self._family is not None else None,
        }

    def has_grown(self, t: float) -> bool:
        """Add started tasks; return whether there were processes, for which a complete sample is due."""
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
        """Plan the quick samples until the next complete one; the previous complete one took *seconds* of CPU."""
        # Without a process there is nothing to sample quickly: then each sample is complete.
        pause = min(max(_WHOLE_EVERY_SECONDS, seconds / _WHOLE_BUDGET), _WHOLE_AT_LEAST_EVERY)
        until = t + pause if self._processes else t
        if self._budget > 0:
            until = min(until, self._next_sweep, self._copied.next_look or math.inf)
        self.glances = self._glances(until)

    def _glances(self, until: float) -> Glances:
        lines = b" ".join(b"%d" % process.line.number for process in self._processes.values())
        return Glances(until, lines, *self._readers([each.files for each in self._processes.values()]))

    def _readers(self, files: Sequence[ProcessFiles]) -> tuple[_Reader, Optional[_FamilyReader]]:
        """Return the reader of RSS, and the source of its total: the family, else the pages that each has copied."""
        if len(files) > 1 and self._family is None and self._budget > 0:
            return faults_reader([(each.statm_descriptor, each.stat_descriptor) for each in files]), None
        is_family = self._family is not None and (len(files) > 1 or self._lines.count > 1)
        read = self._family.held_bytes if is_family and self._family is not None else None
        return statm_reader([each.statm_descriptor for each in files]), read

    # -- members --------------------------------------------------------------------------------------------

    def _follow(self, t: float) -> None:
        if t >= self._next_find:
            begin, is_first, program = time.thread_time(), not self._next_find, self._surroundings.program
            roots = self._find_roots()
            fresh = roots - self._processes.keys()
            for pid in fresh:
                # One that ran before the recording may have had its peak before, too.
                self._adopt(pid, t, is_new=not is_first or pid == program)
            if is_first and program is not None and program not in self._processes:
                self._gone.add(program)  # a daemon's parent
            if fresh and self._follows:
                for pid in descendants(roots, parents()):
                    self._adopt(pid, t, is_new=False)
            taken = time.thread_time() - begin
            self._next_find = t + max(_FIND_EVERY_SECONDS, taken / _SEARCH_BUDGET)
            if self._roots_are_known and not fresh - self._processes.keys():
                self._next_find = math.inf
        if self._follows:
            self._seek(t)

    def _seek(self, t: float, *, at_once: bool = False) -> None:
        """Add the children started since the last time; without events periodically, or *at_once*."""
        if self._events is not None:
            self._started += self._hear(self._events, t)
            self._must_search = self._must_search or self._events.lost
        if self._must_search and (at_once or t >= self._next_search):
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
            elif parent in self._processes or parent in born or parent in self._gone:
                born[pid] = 0
        self._gone.clear()
        self.events_lost = self.events_lost or events.lost
        for pid, threads in born.items():
            if pid in self._processes:  # its pid has been reused already
                self._bury(pid, t)
            process = self._adopt(pid, t)
            if process is not None:
                process.threads_started = threads
            else:
                self._gone.add(pid)
        return len(born)

    def _ask_for_children(self, t: float) -> int:
        # A daemon may have left its parent before both were seen: only the program's own cgroup still has it.
        members = self._family.members() if self._family is not None else []
        started = sum(self._adopt(pid, t) is not None for pid in members)
        if not self._lists_children:
            found = [p for p in descendants(self.pids, parents()) if self._adopt(p, t)]
            return started + len(found)
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

    def _adopt(self, pid: int, t: float, *, is_new: bool = True) -> Optional[_Process]:
        if pid in self._processes or pid in self._left_out:
            return None
        try:
            files = ProcessFiles(pid)
        except ProcessGone:
            return None
        try:
            stat = files.stat()
            command = files.command()
            if self._inspected.take(files):
                return None
        except (ProcessGone, PermissionError):
            files.close()
            return None
        parent = self._processes.get(stat.parent)
        above = parent.line.number if parent else TREE
        process = _Process(
            files, stat, self._lines.take(pid, stat, command, above, t, self._processes), is_new=is_new
        )
        if parent is not None and self._budget > 0 and not share_memory(pid, parent.files.pid):
            self._copied.born(pid, files, parent.files, t, now=is_new)
        self._processes[pid] = process
        return process

    def _bury(self, pid: int, t: float) -> None:
        process = self._processes.pop(pid)
        if self._events is not None:
            self._gone.add(pid)
        process.stat = process.files.last_stat() or process.stat
        process.files.close()
        self._copied.died(pid)
        self._ending.add(pid, process.stat)
        self._tally.bury(
            pid,
            process.stat,
            threads_started=process.threads_started,
            parent_is_followed=process.stat.parent in self._processes,
        )
        self._lines.bury(process.line, t)

    # -- readings -------------------------------------------------------------------------------------------

    def _read(self, process: _Process, t: float, *, sweep: bool) -> ProcessSample:
        stat = process.files.stat()
        if stat.name != process.stat.name:  # it has executed another program
            command = process.files.command()
            process.line = self._lines.rename(process.line, stat.name, command, was_read=process.is_read)
        process.stat = stat
        self._copied.saw(process.files, stat, t)
        if self._events is None:
            self._count_threads(process)
        reading = quick_reading(process.files, stat, process.threads_started)
        process.is_read = True
        if not sweep:
            return reading
        reading = _known_peak(process, with_sizes(reading, process.files))
        if not process.denied:
            try:
                mappings = self.sweeps % _MAPPINGS_EVERY == 0
                reading, shares = with_pss(reading, process.files, mappings=mappings)
                if self._has_parents_memory(process):
                    reading, shares = without_memory(reading)
                else:
                    self._copied.read(process.files.pid, process.files, reading)
                self._shares.append(shares)
            except PermissionError:
                process.denied = True
                self.denied += 1
        return reading

    def _has_parents_memory(self, process: _Process) -> bool:
        """Return whether the memory of *process* is that of its parent, for which it is counted."""
        parent = process.stat.parent
        return parent in self._processes and share_memory(process.files.pid, parent)

    def _count_threads(self, process: _Process) -> None:
        if process.stat.threads == 1 and len(process.thread_ids) == 1:
            return
        ids = set(process.files.thread_ids())
        if process.thread_ids:
            process.threads_started += len(ids - process.thread_ids)
        process.thread_ids = ids


def _known_peak(process: _Process, reading: ProcessSample) -> ProcessSample:
    """Return *reading* without its peak if that may have been reached before the recording."""
    if process.first_peak is None:
        process.first_peak = reading.peak_rss_bytes
    known = reading.peak_rss_bytes is not None and reading.peak_rss_bytes > (process.first_peak or 0)
    return reading if known else reading._replace(peak_rss_bytes=None)
