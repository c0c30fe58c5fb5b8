"""Recording a series, from the target to a finished run: its loop samples a tree at regular times."""

import contextlib
import errno
import math
import os
import re
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from gdbmem.errors import InputError
from gdbmem.linux.monitoring.cgroup import Family, Limit, make_family, tightest_limit, tightest_over
from gdbmem.linux.monitoring.children import ProcessEvents, listen
from gdbmem.linux.monitoring.gpu_and_cgroup import Surroundings, find_gpus
from gdbmem.linux.monitoring.sampling import Glance, clock_of, family_row
from gdbmem.linux.monitoring.tree import Look, Tree
from gdbmem.linux.process import process
from gdbmem.linux.process.process import boot_id
from gdbmem.model.series import TREE, Mark, ProcessSample, SeriesFacts, SeriesLine, Verdict
from gdbmem.recording.beside import BlackBoxProcess, GrowingLines
from gdbmem.recording.ranks_of_host import RanksHere
from gdbmem.recording.targets import (
    Wanted,
    WatchedProgram,
    WatchTarget,
    find_again,
    find_target,
    target_of_program,
)
from gdbmem.recording.triggers import Condition, Triggers
from gdbmem.runs.distrust import check_own
from gdbmem.runs.ranks import expanded, own_rank
from gdbmem.runs.run import Run, current_folder, open_run, timestamp
from gdbmem.series.store import Damaged, Recording, SeriesWriter, set_aside
from gdbmem.series.summary import summarize
from gdbmem.series.views import View, WatchedView
from gdbmem.text import plural, printable

# The loop of a monitor: samples a tree at regular times, stores the samples, and handles its end.


_THIN_EVERY_SECONDS = 60.0
_GRACE_SECONDS = 10.0  # time for a program to end after a signal
_DEAF_SECONDS = 0.1  # after the births of other programs: a child that lives for longer is seen


class SamplingPlan(NamedTuple):
    """The duration and the interval of a recording."""

    interval_seconds: float
    duration_seconds: float = math.inf
    stays: bool = False  # continue when no process is left: more may start


class SeriesRecorder:
    """Samples a tree until a signal, a key or the end of all processes."""

    def __init__(
        self,
        tree: Tree,
        writer: SeriesWriter,
        plan: SamplingPlan,
        view: View,
        *,
        clock: Callable[[], float],
        program: Optional[WatchedProgram] = None,
    ) -> None:
        """*clock* returns the seconds since the series began."""
        self._tree = tree
        self._writer = writer
        self._plan = plan
        self._view = view
        self._clock = clock
        self._program = program
        self._ending = ""
        self._wake = -1
        self._poll = select.poll()  # signals and keys
        self._listening = select.poll()  # and births
        self._kill_at: Optional[float] = None
        self._passed_on = 0  # the signal that was received, and passed on to the program
        self._paused = False
        self._marks_seen = len(writer.marks_since(0))
        self._reports = None if program is None else program.reports
        self._last_mark = self._sampled_mark = -math.inf  # the last one, and the last that had a sample
        self._next_thin = clock() + _THIN_EVERY_SECONDS
        self._must_check = True  # whether something may have ended
        self._troubled = False
        self._noted: set[str] = set()

    def run(self) -> str:
        """Record; return the reason for the end: "exit", "time", "signal" or "quit"."""
        with self._signals():
            begin = next_look = self._clock()
            end = begin + self._plan.duration_seconds
            while not self._ending:
                now = self._clock()
                if now >= next_look:
                    if self._looks_on:
                        self._look(now)
                        self._must_check = True
                    next_look = self._after(next_look, now)
                    if self._last_mark > now and self._is_due_for_a_mark(now):
                        next_look = self._clock()  # the sample began before the mark
                if self._must_check or now >= end:
                    self._check_end(now - begin)
                if self._looks_on and not self._ending:
                    next_look = self._glance(next_look, end)
                if not self._ending:
                    next_look = self._sleep(next_look, end)
            self._look_last()
        if self._program is not None:
            self._program.finish()
            self._take_marks()
            peak = self._program.peak_bytes
            if peak is not None:
                self._trouble(
                    self._writer.append(self._clock(), [(TREE, ProcessSample(peak_rss_bytes=peak))])
                )
        return self._ending

    def _after(self, look: float, now: float) -> float:
        """Return the time of the sample after *look*: a multiple of the interval, also after a stall."""
        interval = self._plan.interval_seconds
        return look + max(int((now - look) / interval) + 1, 1) * interval

    def _glance(self, next_look: float, end: float) -> float:
        """Read RSS only, repeatedly from *next_look* on, until other work is due; return when that is.

        After each sleep the processor's caches are cold: the cost depends on the memory touched here.
        """
        until, lines, read, read_family = self._tree.glances
        clock, keep, interval = self._clock, self._writer.glance, self._plan.interval_seconds
        searches = self._tree.events is None
        tells = self._program is not None or self._view.shows_glances
        listen = wait = self._listening.poll
        now, last = clock(), min(until, end)
        while True:
            due = min(next_look, end)
            until_heard = due if wait is listen else min(due, now + _DEAF_SECONDS)
            ready = wait(1000 * max(until_heard - now, 0.0))
            now = clock()
            if ready:
                if self._hears_a_mark(ready, now):
                    return now
                if not self._is_only_of_births(ready) or self._tree.has_grown(now):
                    break
                wait = self._poll.poll  # a machine on which many programs start must not keep this loop awake
                continue
            if now < due:
                wait = listen
                continue
            # Before statm, which a process that has ended meanwhile no longer has.
            held = read_family() if read_family is not None else None
            if now >= last or (searches and self._tree.has_grown(now)) or not (statm := read()):
                break
            glance = Glance(now, lines, statm, family_row(held))
            keep(glance)
            if tells:
                self._tell(glance)
            wait = listen
            next_look += interval
            if next_look <= now:
                next_look = self._after(next_look, now)
        return next_look

    def _hears_a_mark(self, ready: Sequence[tuple[int, int]], now: float) -> bool:
        """Take new marks if *ready* has their descriptor; return whether to take a sample at once."""
        events = dict(ready).get(self._reports or -1, 0)
        if events & select.POLLHUP and self._reports is not None:  # it would stay ready forever
            self._listening.unregister(self._reports)
            self._poll.unregister(self._reports)
            self._reports = None
        if events:
            self._take_marks()
        return bool(events) and self._is_due_for_a_mark(now)

    def _is_due_for_a_mark(self, now: float) -> bool:
        """Return whether to take a sample at once for a mark, at most one in an interval.

        Memory is often lowest at a mark, for a time that the interval misses.
        """
        is_due = now - self._sampled_mark >= self._plan.interval_seconds
        self._sampled_mark = now if is_due else self._sampled_mark
        return is_due

    def _is_only_of_births(self, ready: Sequence[tuple[int, int]]) -> bool:
        births = self._tree.events
        heard = {descriptor for descriptor, _ in ready} - {self._reports}
        return not heard or (births is not None and heard == {births.fileno()})

    def _tell(self, glance: Glance) -> None:
        self._take_marks()
        if self._view.shows_glances:
            self._view.show(Look(glance.t, glance.readings(), (), False, self._tree.alive))

    @property
    def _looks_on(self) -> bool:
        # Changes while a program is being ended do not count for the time before.
        return not self._paused and self._kill_at is None

    def _look_last(self) -> None:
        if self._looks_on and self._tree.alive:
            self._look(self._clock(), sweep=self._tree.reads_pss)

    def _mark(self, text: str) -> None:
        self._trouble(self._writer.mark(Mark(self._clock(), text)))

    def _look(self, now: float, *, sweep: Optional[bool] = None) -> None:
        look = self._tree.look(now, sweep=sweep)
        limit = self._tree.limit
        if limit is not None:
            self._writer.limit(limit.size_bytes, limit.whose)
        if look.begun is not None:
            self._writer.glance(look.begun)
        if look.readings or look.changed_lines:
            self._trouble(self._writer.append(look.t, look.readings, look.changed_lines))
        self._take_marks()
        for mark in self._writer.marks_since(self._marks_seen):
            self._marks_seen += 1
            self._view.marked(mark)
        if now >= self._next_thin:
            self._writer.thin(now)
            self._next_thin = now + _THIN_EVERY_SECONDS
        self._warn()
        self._view.show(look)

    def _warn(self) -> None:
        """Report, once each, facts that the numbers don't show."""
        if self._writer.has_gone:
            self._note_once(
                "the run folder has been removed, renamed or replaced; the recording is lost if it was removed"
            )
        if self._tree.denied:
            self._note_once("some processes belong to other users: their PSS and USS can't be read, only RSS")
        if self._tree.events_lost:
            self._writer.doubt_threads()
            self._note_once("the kernel has dropped process events: threads started are a lower bound")

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._view.note(text)

    def _take_marks(self) -> None:
        if self._program is not None:
            for boottime, line in self._program.take_marks():
                ago = time.clock_gettime(time.CLOCK_BOOTTIME) - boottime
                self._last_mark = self._clock() - ago
                self._trouble(self._writer.mark(Mark(self._last_mark, line)))

    def _trouble(self, reason: str) -> None:
        if reason and not self._troubled:
            self._view.note(
                f"the series can't be written at present ({reason}); samples are kept in memory until it can be"
            )
        elif self._troubled and not reason:
            lost = self._writer.lost_writes
            self._view.note(f"the series is being written again; {lost or 'no'} writes were lost")
        self._troubled = bool(reason)

    def _check_end(self, elapsed: float) -> None:
        if self._program is not None:
            if self._program.poll() is not None:
                self._ending = self._ending or "exit"
            elif self._kill_at is not None and self._clock() >= self._kill_at:
                self._end_or_leave(self._program)
        elif not self._tree.alive and not self._tree.is_dying and not self._plan.stays:
            self._ending = "exit"
        self._must_check = self._kill_at is not None
        if elapsed >= self._plan.duration_seconds:
            self._end_program("time")

    def _end_program(self, reason: str, number: signal.Signals = signal.SIGTERM) -> None:
        if self._program is None or self._program.poll() is not None:
            self._ending = reason
        elif self._kill_at is None:
            self._look_last()
            self._program.signal(number)
            self._kill_at = self._clock() + _GRACE_SECONDS
            self._passed_on = number if reason == "signal" else 0

    def _end_or_leave(self, program: WatchedProgram) -> None:
        if not self._passed_on:
            program.signal(signal.SIGKILL)
            return
        name = signal.Signals(self._passed_on).name
        self._view.note(f"the program, pid {program.pid}, did not end on {name} and is left running")
        program.leave(128 + self._passed_on)
        self._ending = "signal"

    def _sleep(self, next_look: float, end: float) -> float:
        """Wait until *next_look*, *end*, a signal, a key or a mark; return the time of the next sample."""
        seconds = max(min(next_look, end) - self._clock(), 0.0)
        if self._kill_at is not None:
            seconds = min(seconds, 0.1)
        events = self._poll.poll(1000 * seconds)
        ready = {descriptor for descriptor, _ in events} - {self._reports}
        now = self._clock()
        if self._hears_a_mark(events, now):
            next_look = now
        if not ready:
            return next_look
        self._must_check = True
        if self._wake in ready:
            for number in os.read(self._wake, 512):
                self._obey(number)
        if ready != {self._wake}:
            self._press(self._view.key())
        return next_look

    def _obey(self, number: int) -> None:
        if number == signal.SIGUSR1:
            self._mark("SIGUSR1")
        elif number in (signal.SIGTERM, signal.SIGHUP):
            self._end_program("signal", signal.Signals(number))
        elif number == signal.SIGINT and self._program is None:
            self._ending = "signal"  # a started program gets it from the terminal, too: its end ends us

    def _press(self, wish: str) -> None:
        if wish == "quit":
            self._end_program("quit")
        elif wish == "mark":
            self._mark(time.strftime("key %H:%M:%S"))
        elif wish == "pause":
            self._paused = not self._paused

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        self._wake, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        numbers: Sequence[signal.Signals] = (
            signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD, signal.SIGWINCH,
        )  # fmt: skip
        for descriptor in (self._wake, self._view.keyboard(), self._reports):
            if descriptor is not None:
                self._poll.register(descriptor, select.POLLIN)
                self._listening.register(descriptor, select.POLLIN)
        if self._tree.events is not None:
            self._listening.register(self._tree.events, select.POLLIN)
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # nohup
            numbers = [number for number in numbers if number != signal.SIGHUP]
        before = {number: signal.signal(number, lambda *_: None) for number in numbers}
        old_wake = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(old_wake)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._wake)
            os.close(write_end)


_DESCRIPTORS_WANTED = 65536
GROWN = "grown.faults"  # in the run's folder: the lines that made the processes grow

OpenView = Callable[[str, Path], "contextlib.AbstractContextManager[View]"]
"""Opens what shows the recording while it runs; gets the target's name and the run's folder."""


class RecordingOptions(NamedTuple):
    """Options of a recording. One of *program*, *resume* and *wanted* is given."""

    program: Optional[Sequence[str]]  # its path or name, and its arguments
    resume: Optional[str]  # the folder of the run to continue
    wanted: Wanted  # the target if no program is started
    run: Optional[str]  # the folder to record in; None: one is created in the current folder
    interval_seconds: float
    duration_seconds: float
    until_exit: bool  # do not wait for more processes of the kind
    follow: bool  # include children
    pss_percent: float  # of one CPU, at most, for reading PSS and USS
    stdout: Optional[str]  # the file that the program writes to
    captures: bool  # without *stdout* the program's output goes into the run
    mark: Optional[re.Pattern[str]]  # a line of the program's output that matches sets a mark
    triggers: Sequence[tuple[Condition, str]]  # conditions and actions
    grow: bool = False  # also record the lines that make the processes grow
    black_box: bool = False  # record processes that come near a limit
    holds: bool = False  # keep the kernel from killing at the limit while it does
    writes_core: bool = False  # with *holds*: of the process that is held


class Recorded(NamedTuple):
    """A completed recording."""

    run: Run
    status: int  # of the program; 0 if none was started
    program: Optional[Sequence[str]]
    grown: Optional[str] = None  # the report on the lines that made the processes grow


def record_series(options: RecordingOptions, open_view: OpenView, command: Sequence[str]) -> Recorded:
    """Record according to *options*; *command* is stored in the run."""
    _allow_descriptors()
    with contextlib.ExitStack() as stack:
        ready = _prepare(options, open_view, stack)
        run, program, target = ready.run, ready.program, ready.target
        if not options.resume:
            run.update(command=list(command), monitor=target.words, began=timestamp())
        tree = _tree(ready, options)
        stack.callback(tree.close)
        stays = target.may_return and not options.until_exit
        plan = SamplingPlan(options.interval_seconds, options.duration_seconds, stays=stays)
        clock = clock_of(ready.writer.facts)
        view = _watched(ready, options.triggers, tree, stack)
        if target.ranks is not None:
            target.ranks.listen()
            stack.callback(target.ranks.close)
            view = WatchedView(view, lambda look: _note_ranks(run, target.ranks))
        lines = _growing_lines(ready, stack) if options.grow or options.black_box else None
        box = _black_box(ready, options, stack) if options.black_box else None
        ending = SeriesRecorder(tree, ready.writer, plan, view, clock=clock, program=program).run()
        _note_ranks(run, target.ranks)
        status = program.finish() if program is not None else 0
        if box is not None:
            box.close()
        _finish(ready, ending, status if program else None, _unseen(ready, tree))
        return Recorded(run, status, options.program, lines.finish() if lines is not None else None)


def _black_box(
    ready: "_Ready", options: RecordingOptions, stack: contextlib.ExitStack
) -> Optional[BlackBoxProcess]:
    """Start the black box; on failure report it and continue without."""
    box = BlackBoxProcess(
        ready.run.folder,
        options.interval_seconds,
        holds=options.holds,
        writes_core=options.writes_core,
    )
    stack.callback(box.close)
    if box.refusal:
        ready.view.note(f"no black box: {box.refusal}")
        return None
    return box


def _growing_lines(ready: "_Ready", stack: contextlib.ExitStack) -> Optional[GrowingLines]:
    """Start recording the lines that make the processes grow; on failure report it and continue without."""
    pids = sorted(ready.target.find())
    if not pids:
        ready.view.note("--grow records nothing, because none of the processes is running yet")
        return None
    lines = GrowingLines(pids, ready.run.folder / GROWN)
    stack.callback(lines.close)
    if lines.refusal:
        ready.view.note(f"growing lines are not recorded: {lines.refusal}")
        return None
    if ready.program is not None:
        ready.view.note("growing lines are recorded from now on; the program was already running")
    return lines


def _watched(
    ready: "_Ready", wanted: Sequence[tuple[Condition, str]], tree: Tree, stack: contextlib.ExitStack
) -> View:
    """Return the view, extended by the triggers *wanted*."""
    if not wanted:
        return ready.view
    folder = ready.run.folder
    triggers = Triggers(
        ready.run,
        wanted,
        judge=lambda: verdict_so_far(folder).grows,
        note=ready.view.note,
        mark=ready.writer.mark,
        cgroup_usage=tree.cgroup_usage,
    )
    stack.callback(triggers.close)
    return WatchedView(ready.view, triggers.see, glances=True)


def _note_ranks(run: Run, ranks: Optional[RanksHere]) -> None:
    """Keep which process is which rank, and how it has ended."""
    found = ranks.take_changed() if ranks is not None else []
    if found:
        with contextlib.suppress(InputError):  # a full disk, which the writer of the series reports
            known = {
                (one.get("pid"), one.get("start_ticks")): one for one in run.facts.get("node_ranks") or ()
            }
            known.update({(one["pid"], one["start_ticks"]): one for one in found})
            run.update(node_ranks=list(known.values()))


def verdict_so_far(folder: Path) -> Verdict:
    """Judge the recording in *folder* so far; inconclusive if it can't be read."""
    try:
        with contextlib.closing(Recording(folder)) as recording:
            return summarize(recording).verdict
    except (InputError, OSError) as error:
        return Verdict("inconclusive", "rss_bytes", f"the recording can't be read: {error}", 0)


def _unseen(ready: "_Ready", tree: Tree) -> dict[str, float]:
    """Return what the samples don't show, for the gate that judges them; with the earlier part of a series."""
    now: dict[str, float] = {
        "stopped_seconds": tree.stopped.seconds,
        "children": tree.children_left_out,
        # Of processes by name, by user or in a cgroup some may not have been found.
        "hidden_processes": ready.target.may_return and process.proc_is_hidden(),
        "lost_writes": ready.writer.lost_writes,
    }
    before = ready.run.facts.get("unseen")
    before = before if isinstance(before, dict) else {}
    return {name: value + _number(before.get(name)) for name, value in now.items()}


def _number(value: object) -> float:
    return value if isinstance(value, (int, float)) else 0


def _finish(ready: "_Ready", ending: str, status: Optional[int], unseen: Mapping[str, float]) -> None:
    """Write the rest; on failure the data written before is still reported."""
    ready.writer.close()
    if ready.writer.lost_writes:
        writes = plural(ready.writer.lost_writes, "write")
        ready.view.note(f"the last samples could not be written and are lost ({writes})")
    try:
        ready.run.update(ended=timestamp(), ending=ending, status=status, unseen=unseen)
    except InputError as error:
        if ready.run.held.is_in_place:
            ready.view.note(error.message)
    if not ready.run.held.is_in_place:  # where it is now, nobody knows
        raise ready.run.unwritable(OSError(errno.ESTALE, os.strerror(errno.ESTALE)))


class _Ready(NamedTuple):
    """Everything that the recording of a program, or of a target, needs."""

    target: WatchTarget
    run: Run
    writer: SeriesWriter
    view: View
    limit: Limit
    events: Optional[ProcessEvents]
    program: Optional[WatchedProgram]
    family: Optional[Family]


def _prepare(options: RecordingOptions, open_view: OpenView, stack: contextlib.ExitStack) -> _Ready:
    # The program is started last: an earlier failure leaves none behind, and its first sample has no delay.
    events = listen() if options.follow else None
    if events is not None:
        stack.callback(events.close)
    if options.resume:
        check_own(Path(options.resume))
    words = options.program
    resumed = open_run(options.resume) if options.resume else None
    target = find_again(resumed) if resumed else find_target(options.wanted) if words is None else None
    limit = _limit(target)
    name = target.name if target else Path(words[0]).name if words else ""
    run = resumed or _create(options.run, name)
    undo = stack.enter_context(contextlib.ExitStack())
    if resumed is None:
        undo.callback(run.remove)
    writer = _writer(run, name, limit, options, is_exact=events is not None)
    stack.callback(writer.close)
    view = stack.enter_context(open_view(name, run.folder))
    _note_blind_spots(view, hears=events is not None or not options.follow)
    # Without PSS there is no total.
    family = make_family() if words is not None and options.pss_percent and options.follow else None
    if family is not None:
        stack.callback(family.close)
    program = None if words is None else _start(words, options, run, family)
    undo.pop_all()
    if program is not None:
        target = target_of_program(program)
    assert target is not None
    return _Ready(target, run, writer, view, limit, events, program, family)


def _note_blind_spots(view: View, *, hears: bool) -> None:
    if not hears:
        view.note(
            "the kernel's process events can't be read here: children and threads that live for less than an "
            "interval may be missed"
        )
    if process.proc_is_hidden():
        view.note("/proc hides other users' processes (hidepid): only your own can be found")


def _create(folder: Optional[str], name: str) -> Run:
    rank, pid = own_rank(), os.getpid()
    path = Path(expanded(folder, rank, pid)) if folder else None
    return Run.create(name, parent=current_folder(), pid=pid, folder=path, rank=rank)


def _lines(run: Run) -> list[SeriesLine]:
    with contextlib.closing(Recording(run.folder)) as recording:
        return recording.lines


def _tree(ready: _Ready, options: RecordingOptions) -> Tree:
    return Tree(
        ready.target.find,
        events=ready.events,
        lines=_lines(ready.run),
        follow=options.follow,
        budget=options.pss_percent / 100,
        roots_are_known=not ready.target.may_return,
        leave_out={os.getpid()},  # a child of the watched shell
        surroundings=Surroundings(
            cgroup=ready.limit.folder,
            gpu=find_gpus(),
            family=ready.family,
            program=ready.program.pid if ready.program is not None else None,
        ),
        family=ready.family,
    )


def _writer(run: Run, name: str, limit: Limit, options: RecordingOptions, *, is_exact: bool) -> SeriesWriter:
    if options.resume:
        try:
            writer = SeriesWriter(run.folder)
            if not is_exact:
                writer.doubt_threads()
            return writer
        except Damaged as error:
            aside = set_aside(run.place)
            print(
                f"gdbmem: {error.message}; it is kept as {printable(aside.name)}, a new one begins",
                file=sys.stderr,
            )
    facts = SeriesFacts(
        target=name, interval_seconds=options.interval_seconds, began=time.time(), boot_id=boot_id(),
        boot_seconds=time.clock_gettime(time.CLOCK_BOOTTIME), limit_bytes=limit.size_bytes, limit_of=limit.whose,
        reads_pss=options.pss_percent > 0, exact_threads=is_exact,
    )  # fmt: skip
    return SeriesWriter(run.folder, facts)


def _limit(target: Optional[WatchTarget]) -> Limit:
    """Return the limit that applies to *target*; without a target to this process and its children."""
    if target is None:
        return tightest_limit(os.getpid())
    if "cgroup" in target.words:
        return tightest_over(Path(str(target.words["cgroup"])))
    return tightest_limit(next(iter(target.find()), os.getpid()))


def _start(
    words: Sequence[str], options: RecordingOptions, run: Run, family: Optional[Family]
) -> WatchedProgram:
    return WatchedProgram(
        list(words),
        stdout=options.stdout or (str(run.place / "stdout") if options.captures else None),
        marks=options.mark,
        environment={"GDBMEM_RUN": str(run.folder)},
        before_exec=family.enter if family is not None else None,
    )


def _allow_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS_WANTED)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
