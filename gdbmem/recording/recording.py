"""Recording a series: from the target to a finished run."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from gdbmem.errors import InputError
from gdbmem.linux.monitoring.cgroup import Family, Limit, make_family, tightest_limit, tightest_over
from gdbmem.linux.monitoring.children import ProcessEvents, listen
from gdbmem.linux.monitoring.sampling import boot_id, clock_of
from gdbmem.linux.monitoring.surroundings import Surroundings, find_gpus
from gdbmem.linux.monitoring.tree import Tree
from gdbmem.linux.process import process
from gdbmem.model.series import SeriesFacts, SeriesLine, Verdict
from gdbmem.recording.growing_lines import GrowingLines
from gdbmem.recording.recorder import SamplingPlan, SeriesRecorder
from gdbmem.recording.targets import Wanted, WatchTarget, find_again, find_target, target_of_program
from gdbmem.recording.triggers import Condition, Triggers
from gdbmem.recording.watched_program import WatchedProgram
from gdbmem.runs.distrust import check_own
from gdbmem.runs.run import Run, current_folder, open_run, timestamp
from gdbmem.series.store import Damaged, Recording, SeriesWriter, set_aside
from gdbmem.series.summary import summarize
from gdbmem.series.watching import View, WatchedView
from gdbmem.text import plural, printable

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
        view = _watched(ready, options.triggers, stack)
        lines = _growing_lines(ready, stack) if options.grow else None
        ending = SeriesRecorder(tree, ready.writer, plan, view, clock=clock, program=program).run()
        status = program.finish() if program is not None else 0
        _finish(ready, ending, status if program else None, _unseen(ready, tree))
        return Recorded(run, status, options.program, lines.finish() if lines is not None else None)


def _growing_lines(ready: _Ready, stack: contextlib.ExitStack) -> Optional[GrowingLines]:
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


def _watched(ready: _Ready, wanted: Sequence[tuple[Condition, str]], stack: contextlib.ExitStack) -> View:
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
    )
    stack.callback(triggers.close)
    return WatchedView(ready.view, triggers.see, glances=True)


def verdict_so_far(folder: Path) -> Verdict:
    """Judge the recording in *folder* so far; inconclusive if it can't be read."""
    try:
        with contextlib.closing(Recording(folder)) as recording:
            return summarize(recording).verdict
    except (InputError, OSError) as error:
        return Verdict("inconclusive", "rss_bytes", f"the recording can't be read: {error}", 0)


def _unseen(ready: _Ready, tree: Tree) -> dict[str, float]:
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


def _finish(ready: _Ready, ending: str, status: Optional[int], unseen: Mapping[str, float]) -> None:
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
    return Run.create(name, parent=current_folder(), pid=os.getpid(), folder=Path(folder) if folder else None)


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
