"""The recording half of `gdbmem monitor`: from the words of the command to a finished series."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

from gdbmem.cli.monitor_outputs import prepare_outputs
from gdbmem.errors import InputError, TargetError
from gdbmem.linux import processes
from gdbmem.linux.monitoring.cgroup import Limit, tightest_limit, tightest_over
from gdbmem.linux.monitoring.clock import boot_id, clock_of
from gdbmem.linux.monitoring.family_cgroup import Family, make_family
from gdbmem.linux.monitoring.gpu import find_gpus
from gdbmem.linux.monitoring.process_events import ProcessEvents, listen
from gdbmem.linux.monitoring.surroundings import Surroundings
from gdbmem.linux.monitoring.tree import Tree
from gdbmem.model.series import SeriesFacts, SeriesLine
from gdbmem.monitoring.recorder import RecorderView, SamplingPlan, SeriesRecorder
from gdbmem.monitoring.watched_program import WatchedProgram
from gdbmem.runs.distrust import check_own
from gdbmem.runs.run import Run, current_folder, open_run
from gdbmem.series.store import Damaged, Recording, SeriesWriter, set_aside
from gdbmem.text import plural, printable

if TYPE_CHECKING:
    import argparse

    from gdbmem.model.verdict import Verdict

_DESCRIPTORS_WANTED = 65536


@dataclass(frozen=True)
class WatchTarget:
    """The watched processes: how to find them, their title, and the words that find them again."""

    find: Callable[[], set[int]]
    name: str
    words: dict[str, Any]
    may_return: bool  # more of its kind may come when all have gone


@dataclass(frozen=True)
class Recorded:
    """A series that has just been recorded."""

    run: Run
    status: int  # of the program; 0 where none was started
    program: Optional[list[str]]


def record(args: argparse.Namespace, words: Optional[list[str]]) -> int:
    """Record as *args* say, report, and return the exit status."""
    with prepare_outputs(args) as outputs:
        recorded = record_series(args, words)
        # Now, not before: 20 ms of CPU and some MiB that a recording has no use for.
        from gdbmem.cli.monitor_report import report_recorded

        return report_recorded(recorded.run, args, outputs, status=recorded.status, program=recorded.program)


def record_series(args: argparse.Namespace, words: Optional[list[str]]) -> Recorded:
    """Record as *args* say, the program *words* or what they name."""
    _allow_descriptors()
    with contextlib.ExitStack() as stack:
        ready = _prepare(args, words, stack)
        run, program, target = ready.run, ready.program, ready.target
        if not args.resume:
            run.update(command=["gdbmem", *sys.argv[1:]], monitor=target.words, began=_now())
        tree = _tree(ready, args)
        stack.callback(tree.close)
        duration = math.inf if args.duration is None else args.duration
        plan = SamplingPlan(args.interval, duration, stays=target.may_return and not args.until_exit)
        clock = clock_of(ready.writer.facts)
        view = _watched(ready, args, stack)
        ending = SeriesRecorder(tree, ready.writer, plan, view, clock=clock, program=program).run()
        status = program.finish() if program is not None else 0
        _finish(ready, ending, status if program else None)
        return Recorded(run, status, words)


def _watched(ready: _Ready, args: argparse.Namespace, stack: contextlib.ExitStack) -> RecorderView:
    """Return the view, and have what --when asks for done."""
    if not args.when:
        return ready.view
    from gdbmem.monitoring.triggers import Triggers
    from gdbmem.report.series.watching import WatchedView

    folder = ready.run.folder
    actions = args.do * len(args.when) if len(args.do) == 1 else [*args.do, *["bundle"] * len(args.when)]
    triggers = Triggers(
        ready.run,
        list(zip(args.when, actions)),
        judge=lambda: _verdict(folder).grows,
        note=ready.view.note,
        mark=ready.writer.mark,
    )
    stack.callback(triggers.close)
    return WatchedView(ready.view, triggers.see, glances=True)


def _verdict(folder: Path) -> Verdict:
    from gdbmem.series.summary import summarize

    with contextlib.closing(Recording(folder)) as recording:
        return summarize(recording).verdict


def _finish(ready: _Ready, ending: str, status: Optional[int]) -> None:
    """Write what is left to write; where that can't be, what was written before is still to be reported."""
    ready.writer.close()
    if ready.writer.lost_writes:
        writes = plural(ready.writer.lost_writes, "write")
        ready.view.note(f"the last samples could not be written and are lost ({writes})")
    try:
        ready.run.update(ended=_now(), ending=ending, status=status)
    except InputError as error:
        if not ready.run.folder.exists():
            raise
        ready.view.note(error.message)


@dataclass(frozen=True)
class _Ready:
    """All that the recording of a program, or of a target, needs."""

    target: WatchTarget
    run: Run
    writer: SeriesWriter
    view: RecorderView
    limit: Limit
    events: Optional[ProcessEvents]
    program: Optional[WatchedProgram]
    family: Optional[Family]


def _prepare(args: argparse.Namespace, words: Optional[list[str]], stack: contextlib.ExitStack) -> _Ready:
    # The program comes last: what can't be had leaves none behind, and its first look has nothing to wait for.
    events = None if args.no_children else listen()
    if events is not None:
        stack.callback(events.close)
    if args.resume:
        check_own(Path(args.resume))
    resumed = open_run(args.resume) if args.resume else None
    target = _again(resumed) if resumed else _target(args) if words is None else None
    limit = _limit(target)
    name = target.name if target else Path(words[0]).name if words else ""
    run = resumed or _create(args, name)
    undo = stack.enter_context(contextlib.ExitStack())
    if resumed is None:
        undo.callback(shutil.rmtree, run.folder)
    writer = _writer(run, name, limit, args, is_exact=events is not None)
    stack.callback(writer.close)
    view = stack.enter_context(
        _view(args, name, run.folder, starts_program=bool(words), hears=events is not None)
    )
    # Where PSS is not wanted, nobody asks for a total.
    family = make_family() if words is not None and args.pss_budget and not args.no_children else None
    if family is not None:
        stack.callback(family.close)
    program = None if words is None else _start(args, words, run, family)
    undo.pop_all()
    if program is not None:
        target = _program_target(program)
    assert target is not None
    return _Ready(target, run, writer, view, limit, events, program, family)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


def _create(args: argparse.Namespace, name: str) -> Run:
    return Run.create(
        name, parent=current_folder(), pid=os.getpid(), folder=Path(args.run) if args.run else None
    )


def _lines(run: Run) -> list[SeriesLine]:
    with contextlib.closing(Recording(run.folder)) as recording:
        return recording.lines


def _tree(ready: _Ready, args: argparse.Namespace) -> Tree:
    return Tree(
        ready.target.find,
        events=ready.events,
        lines=_lines(ready.run),
        follow=not args.no_children,
        budget=args.pss_budget / 100,
        roots_are_known=not ready.target.may_return,
        leave_out={os.getpid()},  # a child of the shell that is watched
        surroundings=Surroundings(cgroup=ready.limit.folder, gpu=find_gpus(), family=ready.family),
        family=ready.family,
    )


def _writer(run: Run, name: str, limit: Limit, args: argparse.Namespace, *, is_exact: bool) -> SeriesWriter:
    if args.resume:
        try:
            writer = SeriesWriter(run.folder)
            if not is_exact:
                writer.doubt_threads()
            return writer
        except Damaged as error:
            aside = set_aside(run.folder)
            print(
                f"gdbmem: {error.message}; it is kept as {printable(aside.name)}, a new one begins",
                file=sys.stderr,
            )
    facts = SeriesFacts(
        target=name, interval_seconds=args.interval, began=time.time(), boot_id=boot_id(),
        boot_seconds=time.clock_gettime(time.CLOCK_BOOTTIME), limit_bytes=limit.size_bytes, limit_of=limit.whose,
        exact_threads=is_exact,
    )  # fmt: skip
    return SeriesWriter(run.folder, facts)


def _limit(target: Optional[WatchTarget]) -> Limit:
    """Return the limit over *target*; without one, over this process and what it starts."""
    if target is None:
        return tightest_limit(os.getpid())
    if "cgroup" in target.words:
        return tightest_over(Path(target.words["cgroup"]))
    return tightest_limit(next(iter(target.find()), os.getpid()))


@contextlib.contextmanager
def _view(
    args: argparse.Namespace, name: str, folder: Path, *, starts_program: bool, hears: bool
) -> Iterator[RecorderView]:
    with _terminal_view(args, name, starts_program=starts_program) as shown:
        view: RecorderView = shown
        if not hears and not args.no_children:
            view.note(
                "the kernel's process events can't be read here: children and threads that live for less than an "
                "interval may be missed"
            )
        if processes.proc_is_hidden():
            view.note("/proc hides other users' processes (hidepid): only your own can be found")
        if args.prometheus:
            from gdbmem.report.series.prometheus import PrometheusView

            view = PrometheusView(
                view, *args.prometheus, tree_only=args.tree_only, judge=lambda: _verdict(folder)
            )
        yield view


@contextlib.contextmanager
def _terminal_view(args: argparse.Namespace, name: str, *, starts_program: bool) -> Iterator[RecorderView]:
    from gdbmem.report.series.plain_view import PlainView

    # A program that prints to the same terminal would run into the chart.
    shared = starts_program and args.stdout is None and not _captures(args) and sys.stdout.isatty()
    draws = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and _in_foreground()
    if args.plain or args.quiet or shared or not draws:
        plain = PlainView(sys.stderr, quiet=args.quiet)
        if shared and draws and not args.plain and not args.quiet:
            plain.note(
                "no chart, since the program prints to this terminal: --stdout FILE makes room for one"
            )
        yield plain
        return
    from gdbmem.report.console import make_console
    from gdbmem.report.series.live import LiveView

    console = make_console(sys.stderr, color=False if args.no_color else None)
    with LiveView(console, name) as view:
        yield view


def _in_foreground() -> bool:
    from gdbmem.report.series.keyboard import (
        in_foreground,  # with termios and tty; only where there is a terminal
    )

    return in_foreground()


# -- targets --------------------------------------------------------------------------------------------------


def _target(args: argparse.Namespace) -> WatchTarget:
    if args.name is not None:
        pattern = args.name
        return WatchTarget(
            lambda: processes.by_name(pattern), pattern.pattern, {"name": pattern.pattern}, may_return=True
        )
    if args.user is not None:
        return _user(args.user)
    if args.cgroup is not None:
        return _cgroup(args.cgroup)
    return _pids({int(word): None for word in args.targets})


def _pids(wanted: dict[int, Optional[int]]) -> WatchTarget:
    """Watch the *wanted* processes: pid → start ticks, None for whoever has the number now."""
    born = {}
    for pid, ticks in wanted.items():
        stat = processes.stat_of(pid)
        if stat is None or (ticks is not None and stat.start_ticks != ticks):
            if ticks is not None:
                continue
            hint = (
                "with hidepid only root sees others' processes" if processes.proc_is_hidden() else "see ps -e"
            )
            raise TargetError(f"there is no process {pid}", slug="no-such-process", hint=hint)
        born[pid] = (stat.start_ticks, stat.name)
    if not born:
        raise TargetError(
            "the processes of this run have ended", slug="no-such-process", hint="start a new run"
        )

    def find() -> set[int]:
        # The number alone is no identity: it is given away again.
        return {p for p, (ticks, _) in born.items() if (s := processes.stat_of(p)) and s.start_ticks == ticks}

    name = next(iter(born.values()))[1] + (f" and {len(born) - 1} more" if len(born) > 1 else "")
    return WatchTarget(
        find, name, {"pids": {str(pid): ticks for pid, (ticks, _) in born.items()}}, may_return=False
    )


def _user(name: str) -> WatchTarget:
    import pwd

    try:
        uid = int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise InputError(
            f"there is no user '{printable(name)}'", slug="no-such-user", hint="see getent passwd"
        ) from None
    return WatchTarget(lambda: processes.by_user(uid), f"user {name}", {"user": name}, may_return=True)


def _cgroup(path: str) -> WatchTarget:
    folder = Path(path)
    try:
        processes.by_cgroup(folder)
    except OSError as error:
        raise InputError(
            f"{printable(path)} is no cgroup that can be read: {error.strerror}",
            slug="no-such-cgroup",
            hint="name its folder, as in /sys/fs/cgroup/system.slice/NAME.service",
        ) from None

    def find() -> set[int]:
        with contextlib.suppress(OSError):
            return processes.by_cgroup(folder)
        return set()

    return WatchTarget(
        find, f"cgroup {folder.name or path}", {"cgroup": str(folder.resolve())}, may_return=True
    )


def _program_target(program: WatchedProgram) -> WatchTarget:
    stat = processes.stat_of(program.pid)
    ticks = stat.start_ticks if stat else 0
    name = Path(program.words[0]).name

    def find() -> set[int]:
        return {program.pid} if program.poll() is None else set()

    return WatchTarget(
        find, name, {"pids": {str(program.pid): ticks}, "program": program.words}, may_return=False
    )


def _again(run: Run) -> WatchTarget:
    words = run.facts.get("monitor")
    if not isinstance(words, dict):
        raise InputError(
            f"{printable(run.folder.name)} is no run of a monitor",
            slug="no-series",
            hint="name one that 'gdbmem monitor' made",
        )
    if "name" in words:
        pattern = re.compile(words["name"])
        return WatchTarget(lambda: processes.by_name(pattern), pattern.pattern, words, may_return=True)
    if "user" in words:
        return _user(words["user"])
    if "cgroup" in words:
        return _cgroup(words["cgroup"])
    return _pids({int(pid): ticks for pid, ticks in words["pids"].items()})


def _start(args: argparse.Namespace, words: list[str], run: Run, family: Optional[Family]) -> WatchedProgram:
    stdout = args.stdout or (str(run.folder / "stdout") if _captures(args) else None)
    return WatchedProgram(
        words,
        stdout=stdout,
        marks=args.mark,
        environment={"GDBMEM_RUN": str(run.folder)},
        before_exec=family.enter if family is not None else None,
    )


def _captures(args: argparse.Namespace) -> bool:
    return bool(args.json and args.output in (None, "-")) or args.output == "-"


def _allow_descriptors() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS_WANTED)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
