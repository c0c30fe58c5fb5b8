"""`gdbmem launch --recipe FILE`: a recipe played by an unattended gdb."""

from __future__ import annotations

import contextlib
import functools
import re
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Callable, Optional

from gdbmem.errors import InputError, Interrupted, Notice
from gdbmem.formats.opening import open_profile
from gdbmem.json_values import as_json
from gdbmem.launch import messages
from gdbmem.launch.child import Child
from gdbmem.launch.job import Job, Launch, gdb_environment, gdb_program, open_launch, problems
from gdbmem.launch.native import lent_output
from gdbmem.recipes.recipe import Point, Recipe
from gdbmem.runs.run import Run
from gdbmem.runs.unseen import RunEnd, end_facts
from gdbmem.setup.gdb_packages import ensure_private_folder
from gdbmem.setup.gdb_python import gdb_call, loader_file
from gdbmem.text import format_duration, plural, printable

Progress = Callable[[str], None]

_ENDS = ("program-signal", "program-ended")  # notices on how the program ended
_PYTHON_LINE = re.compile(r"\.pyw?(?::|$)")
_PLAY = gdb_call("launched.recipe", "play()")


@dataclass
class PlayedPoint:
    """The outcome of one point."""

    name: str
    at: str
    place: str  # in the recipe's file
    hits: int = 0
    snapshots: list[str] = field(default_factory=list)
    ledgers: list[str] = field(default_factory=list)
    containers: list[str] = field(default_factory=list)
    heaps: list[str] = field(default_factory=list)
    pending: bool = False  # the program has no such location
    # The errors of each action that failed the last time.
    failed: dict[str, str] = field(default_factory=dict)

    def recorded(self, action: str) -> list[str]:
        """Return the names of the results of *action* (snap, ledger, containers or heap) here."""
        results = {
            "snap": self.snapshots, "ledger": self.ledgers, "containers": self.containers, "heap": self.heaps,
        }  # fmt: skip
        return results[action]


@dataclass
class Outcome:
    """The outcome of a recipe."""

    run: Run
    points: list[PlayedPoint]
    notices: list[Notice] = field(default_factory=list)
    status: Optional[int] = None  # the program's, as in a shell
    interrupted: Optional[int] = None  # the signal that ended the launch
    timed_out: bool = False
    failure: str = ""  # of gdbmem, gdb or valgrind
    seconds: float = 0.0
    meant: Optional[int] = 0  # the status that the program is meant to end with; None: any
    replaced: bool = False  # the program executed another one, which valgrind did not follow
    forks: int = 0  # children that ran the program's own code
    vforks: list[int] = field(default_factory=list)  # processes of those that shared its memory meanwhile
    own: int = 0  # processes that executed its own file
    fork_peak_bytes: Optional[int] = None  # the most that one of them had mapped
    signalled: str = (
        ""  # the signal of an error of the program, with its place, after which nothing was recorded
    )

    @property
    def end(self) -> RunEnd:
        """How the program ended."""
        said = [one.message for one in self.notices if one.slug in _ENDS]
        return RunEnd(
            self.status,
            self.meant,
            said[-1] if said else "",
            self.failure,
            replaced=self.replaced,
            forks=self.forks,
            own=self.own,
            fork_peak_bytes=self.fork_peak_bytes,
            signalled=self.signalled,
        )


def play_recipe(recipe: Recipe, job: Job, *, progress: Progress, command: Sequence[str]) -> Outcome:
    """Play *recipe* on *job* and return the outcome; captured data stays in its run."""
    ensure_private_folder(job.gdb)
    points = [PlayedPoint(point.name, point.at, recipe.place(point.position)) for point in recipe.points]
    player = _Player(points, recipe.points, progress)
    began = time.monotonic()
    outcome: Optional[Outcome] = None
    launch: Optional[Launch] = None
    try:
        plan = messages.RecipePlan(recipe.to_plan())
        with (
            lent_output() if job.is_native else contextlib.nullcontext() as output,
            open_launch(job, hear=player.hear, plan=plan, command=command, output=output) as launch,
        ):
            outcome = player.outcome = Outcome(launch.run, points, job.notices(), meant=recipe.ends)
            _play(launch, recipe.timeout_seconds, outcome)
    except Interrupted as interrupted:
        if outcome is None:
            raise
        outcome.interrupted = int(interrupted.number)
    assert outcome is not None and launch is not None
    outcome.seconds = time.monotonic() - began
    outcome.notices += problems(launch)
    if launch.supervisor.past and outcome.status is None:
        outcome.status = launch.supervisor.past[-1].child.status
    _note_forks(launch, outcome)
    _note_end(recipe, outcome)
    if launch.run.folder.is_dir():  # it was removed if nothing was recorded
        try:
            launch.run.update(
                recipe=recipe.to_plan(),
                points=[vars(point) for point in points],
                end=end_facts(outcome.end),
                warnings=[as_json(notice) for notice in outcome.notices],
            )
        except InputError as error:  # a full disk: the results are still reported
            outcome.failure = outcome.failure or str(error)
    return outcome


def _note_end(recipe: Recipe, outcome: Outcome) -> None:
    """Report how the program ended if that is judged, and nothing else has reported it."""
    said = outcome.failure or any(one.slug in _ENDS for one in outcome.notices)
    if recipe.expectations and not said and outcome.interrupted is None:
        ends = [one for one in outcome.end.unseen() if one.slug == "program-failed"]
        outcome.notices += [Notice("program-failed", one.message) for one in ends]


def _note_forks(launch: Launch, outcome: Outcome) -> None:
    """Count the processes that ran the program's code; under valgrind each wrote a file when it ended.

    That of massif has all that the process had mapped if it counts pages.
    """
    births = launch.supervisor.births
    children = births.children(outcome.vforks) if births is not None else None
    if children is not None and launch.job.is_native:
        outcome.forks = children.forked
    if children is not None and not getattr(launch.job.options, "trace_children", False):
        outcome.own = children.own
    past = launch.supervisor.past
    files = [file for process in past for file in process.histories_of_children()]
    without = sum(process.children_without_history() for process in past)
    if (
        children is not None and not launch.job.is_native
    ):  # a short one that was killed, or may not write there
        without = max(without, children.forked - len(files))
    outcome.forks += len(files) + without
    if without or not files or not getattr(launch.job.options, "pages_as_heap", False):
        return
    try:
        profiles = [open_profile(file) for file in files]
    except InputError:
        return
    peaks = [one.heap_bytes for profile in profiles for one in profile.snapshots]
    outcome.fork_peak_bytes = max(peaks, default=0)


def _play(launch: Launch, timeout: Optional[float], outcome: Outcome) -> None:
    supervisor = launch.supervisor
    process = None if launch.job.is_native else supervisor.start_valgrind()
    with (launch.run.place / "gdb.log").open("wb") as stream:
        child = Child(
            [launch.job.gdb, "-q", "-nx", "-batch", "-x", str(loader_file()), "-ex", _PLAY,
             *gdb_program(launch.job)],
            environment=gdb_environment(launch),
            stdin=subprocess.DEVNULL,
            stdout=stream.fileno(),
            stderr=subprocess.STDOUT,
            native_signals=True,
        )  # fmt: skip
    supervisor.gdb = child
    if not supervisor.wait_for_gdb(child, timeout):
        outcome.timed_out = True
        outcome.failure = (
            f"the program had not ended after {format_duration(timeout or 0.0)} (timeout in the recipe)"
        )
        return
    if process is not None and outcome.status is None:
        # gdb ends a moment before valgrind, which still writes its file.
        supervisor.wait(lambda: not process.child.alive, 2.0)
    if process is not None and not process.child.alive:
        outcome.status = process.child.status
    elif outcome.status is None and not outcome.failure:
        log = printable(str(launch.run.folder / "gdb.log"))
        outcome.failure = f"gdb ended before the program did; its messages are in {log}"


class _Player:
    """Handles the notifications of the gdb that plays the recipe, and prints progress lines."""

    def __init__(self, points: list[PlayedPoint], asked: Sequence[Point], progress: Progress) -> None:
        self._points = points
        self._asked = asked
        self._progress = progress
        self.outcome: Optional[Outcome] = None
        self._reported: Counter[Notice] = Counter()  # failed actions and signals
        self._explained: set[int] = set()  # points already reported to have recorded nothing
        self._counts = False  # whether a snapshot has counted anything
        self._noticed: defaultdict[str, list[str]] = defaultdict(list)  # gdb's warnings, by their slug

    def hear(self, message: messages.Message) -> None:
        """Record *message* in the outcome."""
        assert self.outcome is not None, "gdb starts after the run folder was made"
        self._note(message, self.outcome)

    @functools.singledispatchmethod
    def _note(self, message: messages.Message, outcome: Outcome) -> None:
        raise TypeError(f"gdb sent {type(message).__name__}")  # answers and questions are not notifications

    @_note.register
    def _on_started(self, _: messages.RecipeStarted, outcome: Outcome) -> None:
        engine = outcome.run.facts.get("engine", "massif")
        points = plural(len(self._points), "point")
        how = "without a heap profiler" if engine == "none" else f"under {engine}"
        self._progress(f"the program runs {how}, {points} to be recorded")

    @_note.register
    def _on_hit(self, message: messages.Hit, outcome: Outcome) -> None:
        point = self._points[message.point]
        outcome.signalled = ""
        point.hits = max(point.hits, message.hit)  # all of them are reported at the program's end only
        for result in message.results:
            self._note_result(point, result, outcome)

    def _note_result(self, point: PlayedPoint, result: messages.ActionResult, outcome: Outcome) -> None:
        if result.label is not None:
            point.recorded(result.action).append(result.label)
            point.failed.pop(result.action, None)
        if result.error is not None:
            point.failed[result.action] = result.error
            text = f"{point.place}: {result.action} at {point.name}: {result.error}"
            self._report(Notice("action-failed", text), outcome)
        if result.warning is not None:
            self._on_blind(result.warning, outcome)
        if result.room is not None and all(known.slug != "little-room" for known in outcome.notices):
            outcome.notices.append(Notice("little-room", result.room))
        if result.heap_bytes and not self._counts:
            # A program that has not allocated anything yet is not a blind spot.
            self._counts = True
            outcome.notices[:] = [known for known in outcome.notices if known.slug != "own-allocator"]
        said = result.error or result.text
        is_snapshot = result.action == "snap" and result.label is not None
        name = result.label or point.name
        self._progress(said if is_snapshot else f"{name}: {result.action}: {said.rstrip()}")

    def _report(self, notice: Notice, outcome: Outcome) -> bool:
        """Report *notice* once, with its number of occurrences; return whether this is the first."""
        self._reported[notice] += 1
        times = self._reported[notice]
        if times == 1:
            outcome.notices.append(notice)
            return True
        text = notice.message
        before = notice if times == 2 else notice._replace(message=f"{text} ({times - 1:,} times)")
        at = outcome.notices.index(before)
        outcome.notices[at] = notice._replace(message=f"{text} ({times:,} times)")
        return False

    def _on_blind(self, text: str, outcome: Outcome) -> None:
        under_massif = outcome.run.facts.get("engine") == "massif"
        notice = Notice("massif-blind" if under_massif else "own-allocator", text)
        known = any(before.slug == notice.slug for before in outcome.notices)
        if not known and (under_massif or not self._counts):
            outcome.notices.append(notice)

    @_note.register
    def _on_unresolved(self, message: messages.Unresolved, outcome: Outcome) -> None:
        point = self._points[message.point]
        point.pending = True
        self._explained.add(message.point)
        outcome.notices.append(Notice("point-unresolved", f"{point.place}: {point.at}: {message.sentence}"))

    @_note.register
    def _on_calls_unclear(self, message: messages.CallsUnclear, outcome: Outcome) -> None:
        point = self._points[message.point]
        notice = Notice("inlined-unclear", f"{point.place}: {message.sentence}")
        if notice not in outcome.notices:
            outcome.notices.append(notice)
            self._progress(notice.message)

    @_note.register
    def _on_noticed(self, message: messages.Noticed, outcome: Outcome) -> None:
        """Report the first of a kind, with the number of others."""
        self._noticed[message.slug].append(message.sentence)
        first, *others = self._noticed[message.slug]
        self._progress(message.sentence)
        more = f" (and {len(others):,} more)" if others else ""
        outcome.notices = [one for one in outcome.notices if one.slug != message.slug]
        outcome.notices.append(Notice(message.slug, first + more))

    @_note.register
    def _on_point_failed(self, message: messages.PointFailed, outcome: Outcome) -> None:
        point = self._points[message.point]
        self._explained.add(message.point)
        text = f"{point.place}: {point.at}: {message.sentence}; this point was left out from there"
        outcome.notices.append(Notice("point-failed", text))

    @_note.register
    def _on_stopped(self, message: messages.Stopped, outcome: Outcome) -> None:
        outcome.signalled = f"{message.sentence} in {message.place or 'an unknown place'}"
        text = f"the program got {outcome.signalled}"
        if self._report(Notice("program-signal", text), outcome):
            self._progress(text)

    @_note.register
    def _on_failed(self, message: messages.Failed, outcome: Outcome) -> None:
        outcome.failure = message.sentence

    @_note.register
    def _on_connection_lost(self, _: messages.ConnectionLost, outcome: Outcome) -> None:
        self._progress("the program ended")

    @_note.register
    def _on_point(self, message: messages.PointReport, outcome: Outcome) -> None:
        point = self._points[message.point]
        point.hits = message.hits
        if message.left:
            text = (
                f"{point.place}: {plural(message.left, 'call')} of '{printable(point.at)}' left by an exception or "
                "longjmp, where 'after' records nothing; a point where it is caught would"
            )
            outcome.notices.append(Notice("call-left", text))
        if message.unfinished and message.recorded:
            text = (
                f"{point.place}: {plural(message.unfinished, 'call')} of '{printable(point.at)}' had not returned when"
                " their thread or the program ended, so 'after' recorded nothing for them"
            )
            outcome.notices.append(Notice("call-unfinished", text))
        if message.recorded or message.point in self._explained:
            return
        if message.pending:
            point.pending = True
            text = f"{point.place}: the program has no location '{printable(point.at)}'; {_why_nowhere(point.at)}"
            outcome.notices.append(Notice("point-unresolved", text))
        else:
            hits = _why_unrecorded(self._asked[message.point], message.hits)
            text = f"{point.place}: '{printable(point.at)}' {hits}"
            outcome.notices.append(Notice("point-never-hit", text))

    @_note.register
    def _on_finished(self, message: messages.Finished, outcome: Outcome) -> None:
        outcome.status = message.fate.status
        outcome.forks += message.forks
        outcome.vforks += message.vforks
        outcome.replaced = message.fate.replaced
        if message.fate.sentence:
            outcome.notices.append(Notice("program-ended", message.fate.sentence))


def _why_unrecorded(point: Point, hits: int) -> str:
    """Return how often *point* was hit with its condition true, and why that recorded nothing."""
    if not hits:
        return f"was never hit with {printable(point.when)} (when)" if point.when else "was never hit"
    times = f"was hit {plural(hits, 'time')}"
    if not any(point.hits.wants(hit) for hit in range(1, hits + 1)):
        return f"{times}, never as required by 'hits'"
    if point.after:
        return f"{times}, and never returned to its caller ('after'): its thread was ended in it, or the program was"
    return f"{times}, but nothing was recorded"


def _why_nowhere(place: str) -> str:
    if _PYTHON_LINE.search(place):
        return (
            "gdb knows places in C and C++; a C function that the script calls can mark one in Python,"
            " as os.getppid() does for 'at: getppid'"
        )
    return (
        "is it built with -g? A compiler can also inline a function without a trace: then put the point at a line of"
        " its caller"
    )
