"""The recording half of `gdbmem monitor`: from the words of the command to a finished series."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional

from gdbmem.errors import InputError, TargetError
from gdbmem.launch.recorder import Plan, Recorder, View
from gdbmem.launch.watched import WatchedProgram
from gdbmem.linux import processes
from gdbmem.linux.cgroup import Limit, tightest_limit, tightest_over
from gdbmem.linux.clock import boot_id, clock_of
from gdbmem.linux.gpu import find_gpus
from gdbmem.linux.procevents import ProcessEvents, listen
from gdbmem.linux.surroundings import Surroundings
from gdbmem.linux.tree import Tree
from gdbmem.model.series import Line, SeriesFacts
from gdbmem.runs.run import Run, current_folder, open_run
from gdbmem.runs.series_store import Damaged, Recording, SeriesWriter, set_aside
from gdbmem.text import printable

if TYPE_CHECKING:
    import argparse

_DESCRIPTORS_WANTED = 65536


@dataclass(frozen=True)
class Target:
    """What is watched: how to find it, what to call it, and the words that find it again."""

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
    from gdbmem.cli.monitor_report import prepare_outputs, report_recorded

    with prepare_outputs(args) as outputs:
        recorded = record_series(args, words)
        return report_recorded(recorded.run, args, outputs, status=recorded.status, program=recorded.program)


def record_series(args: argparse.Namespace, words: Optional[list[str]]) -> Recorded:
    """Record as *args* say, the program *words* or what they name."""
    _allow_descriptors()
    with contextlib.ExitStack() as stack:
        # Listening begins before the program does: its first threads count too.
        events = None if args.no_children else listen()
        if events is not None:
            stack.callback(events.close)
        resumed = open_run(args.resume) if args.resume else None
        target = _again(resumed) if resumed else _target(args) if words is None else None
        run = resumed or _create(args, target.name if target else words[0] if words else "")
        program = None
        if words is not None:
            stack.callback(run.remove_if_empty)  # where the program can't be started
            program = _start(args, words, run)
        if program is not None:
            target = _program_target(program)
        assert target is not None
        if resumed is None:
            run.update(command=["gdbmem", *sys.argv[1:]], monitor=target.words, began=_now())
        writer = _writer(run, target, args, events)
        stack.callback(writer.close)
        tree = Tree(
            target.find,
            events=events,
            lines=_lines(run),
            follow=not args.no_children,
            budget=args.pss_budget / 100,
            roots_are_known=not target.may_return,
            leave_out={os.getpid()},  # a child of the shell that is watched
            surroundings=Surroundings(cgroup=_limit(target).folder, gpu=find_gpus()),
        )
        stack.callback(tree.close)
        _record(args, tree, writer, target, program, events)
        status = program.finish() if program is not None else 0
        run.update(ended=_now(), status=status if program else None)
        return Recorded(run, status, words)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


def _create(args: argparse.Namespace, name: str) -> Run:
    return Run.create(
        name, parent=current_folder(), pid=os.getpid(), folder=Path(args.run) if args.run else None
    )


def _lines(run: Run) -> list[Line]:
    with contextlib.closing(Recording(run.folder)) as recording:
        return recording.lines


def _record(
    args: argparse.Namespace,
    tree: Tree,
    writer: SeriesWriter,
    target: Target,
    program: Optional[WatchedProgram],
    events: Optional[ProcessEvents],
) -> None:
    duration = math.inf if args.duration is None else args.duration
    plan = Plan(args.interval, duration, stays=target.may_return and not args.until_exit)
    clock = clock_of(writer.facts)
    with _view(args, target, program) as shown:
        view: View = shown
        if events is None and not args.no_children:
            view.note(
                "the kernel's process events can't be read here: children and threads that live for less than an "
                "interval may be missed"
            )
        if processes.proc_is_hidden():
            view.note("/proc hides other users' processes (hidepid): only your own can be found")
        if args.prometheus:
            from gdbmem.report.prometheus import PrometheusView

            view = PrometheusView(view, *args.prometheus)
        Recorder(tree, writer, plan, view, clock=clock, program=program).run()


def _writer(
    run: Run, target: Target, args: argparse.Namespace, events: Optional[ProcessEvents]
) -> SeriesWriter:
    if args.resume:
        try:
            return SeriesWriter(run.folder)
        except Damaged as error:
            aside = set_aside(run.folder)
            print(
                f"gdbmem: {error.message}; it is kept as {printable(aside.name)}, a new one begins",
                file=sys.stderr,
            )
    limit = _limit(target)
    facts = SeriesFacts(
        target=target.name, interval_seconds=args.interval, began=time.time(), boot_id=boot_id(),
        boot_seconds=time.clock_gettime(time.CLOCK_BOOTTIME), limit_bytes=limit.size_bytes, limit_of=limit.whose,
        exact_threads=events is not None,
    )  # fmt: skip
    return SeriesWriter(run.folder, facts)


def _limit(target: Target) -> Limit:
    if "cgroup" in target.words:
        return tightest_over(Path(target.words["cgroup"]))
    return tightest_limit(next(iter(target.find()), os.getpid()))


@contextlib.contextmanager
def _view(args: argparse.Namespace, target: Target, program: Optional[WatchedProgram]) -> Iterator[View]:
    from gdbmem.report.live import LiveView, PlainView

    # A program that prints to the same terminal would run into the chart.
    shared = program is not None and args.stdout is None and not _captures(args) and sys.stdout.isatty()
    if args.plain or args.quiet or shared or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield PlainView(sys.stderr, quiet=args.quiet)
        return
    from gdbmem.report.console import make_console

    console = make_console(sys.stderr, color=False if args.no_color else None)
    with LiveView(console, target.name) as view:
        yield view


# -- targets --------------------------------------------------------------------------------------------------


def _target(args: argparse.Namespace) -> Target:
    if args.name is not None:
        pattern = args.name
        return Target(
            lambda: processes.by_name(pattern), pattern.pattern, {"name": pattern.pattern}, may_return=True
        )
    if args.user is not None:
        return _user(args.user)
    if args.cgroup is not None:
        return _cgroup(args.cgroup)
    return _pids({int(word): None for word in args.targets})


def _pids(wanted: dict[int, Optional[int]]) -> Target:
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
    return Target(
        find, name, {"pids": {str(pid): ticks for pid, (ticks, _) in born.items()}}, may_return=False
    )


def _user(name: str) -> Target:
    import pwd

    try:
        uid = int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise InputError(
            f"there is no user '{printable(name)}'", slug="no-such-user", hint="see getent passwd"
        ) from None
    return Target(lambda: processes.by_user(uid), f"user {name}", {"user": name}, may_return=True)


def _cgroup(path: str) -> Target:
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

    return Target(find, f"cgroup {folder.name or path}", {"cgroup": str(folder.resolve())}, may_return=True)


def _program_target(program: WatchedProgram) -> Target:
    stat = processes.stat_of(program.pid)
    ticks = stat.start_ticks if stat else 0
    name = Path(program.words[0]).name

    def find() -> set[int]:
        return {program.pid} if program.poll() is None else set()

    return Target(find, name, {"pids": {str(program.pid): ticks}, "program": program.words}, may_return=False)


def _again(run: Run) -> Target:
    words = run.facts.get("monitor")
    if not isinstance(words, dict):
        raise InputError(
            f"{printable(run.folder.name)} is no run of a monitor",
            slug="no-series",
            hint="name one that 'gdbmem monitor' made",
        )
    if "name" in words:
        pattern = re.compile(words["name"])
        return Target(lambda: processes.by_name(pattern), pattern.pattern, words, may_return=True)
    if "user" in words:
        return _user(words["user"])
    if "cgroup" in words:
        return _cgroup(words["cgroup"])
    return _pids({int(pid): ticks for pid, ticks in words["pids"].items()})


def _start(args: argparse.Namespace, words: list[str], run: Run) -> WatchedProgram:
    stdout = args.stdout or (str(run.folder / "stdout") if _captures(args) else None)
    return WatchedProgram(words, stdout=stdout, marks=args.mark, environment={"GDBMEM_RUN": str(run.folder)})


def _captures(args: argparse.Namespace) -> bool:
    return bool(args.json and args.output in (None, "-")) or args.output == "-"


def _allow_descriptors() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS_WANTED)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
