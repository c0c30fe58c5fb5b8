"""One round: a command is begun, one of its processes is killed at a random moment, and what must be so is checked."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import pexpect

from gdbmem.errors import GdbmemError
from gdbmem.formats.opening import open_profile
from gdbmem.runs.run import has_series, is_run, open_run
from gdbmem.series.store import Recording
from tests.live.user import GDBMEM, PROMPT, User, environment
from tests.murder.killing import Family, Killer
from tests.murder.leader import LEADER
from tests.murder.scenes import GDB_ITSELF, LAUNCHER, PROGRAM, SCENES, WORKER, WORKER_SECONDS, Scene
from tests.processes import MARKER
from tests.zoo.answers import BUGS
from tests.zoo.cells import filled, scratch_folder, settings_of
from tests.zoo.commands import GDB, LAUNCH, SHELL
from tests.zoo.keeping import END, GO_ON, LATER, Kept, Report, command_of, environment_of, kept, wait_until
from tests.zoo.terminal import FellError, Line, Session, TooSlowError
from tests.zoo.vitals import Vitals, harm, left_breakpoints, read_vitals

_ENDED = re.compile(rb"=== ended: (\d+) ===")
_SECONDS = 40.0  # for anything to come to its end, on a busy machine
_CALM = 25.0  # for a process to be as it was: gdb may have to read symbols before it hears a signal
_ANNOUNCED = re.compile(r"(?:^|\n)\s*snapshot ([\w#]+): (?:heap|kept)")


@dataclass(frozen=True)
class Plan:
    """The plan of a round; the same for the same seed."""

    seed: int
    scene: Scene
    victim: str
    delay: float  # seconds after it was born
    at_quit: bool  # not then, but so long after 'quit' was typed


@dataclass
class Outcome:
    plan: Plan
    killed: bool = False
    harms: list[str] = field(default_factory=list)
    excused: str = ""  # known harm that can't be prevented
    repaired: str = ""  # in gdbmem's words
    seconds: float = 0
    said: str = ""


def planned(seed: int, text: str = "", only: str = "") -> Plan:
    """Return the round of *seed*, among scenes with *text* in their name, in which *only*, if named, is killed."""
    chance = random.Random(seed)
    possible = [scene for scene in SCENES if text in scene.name and (not only or only in scene.victims)]
    scene = chance.choice(possible)
    victim = only or chance.choice(scene.victims)
    at_quit = (
        scene.command.kind in (GDB, LAUNCH) and victim not in (PROGRAM, WORKER) and chance.random() < 0.2
    )
    span = 0.3 if at_quit else WORKER_SECONDS if victim == WORKER else scene.span
    return Plan(seed, scene, victim, chance.uniform(0, span), at_quit)


def run_round(plan: Plan) -> Outcome:
    """Execute *plan*. Raises CannotRunHereError where its animal can't be had here."""
    outcome, begun = Outcome(plan), time.monotonic()
    mark = uuid.uuid4().hex
    os.environ[MARKER] = mark
    with scratch_folder() as folder:
        if plan.scene.command.kind in (SHELL, GDB):
            with kept(plan.scene.animal, folder) as one:
                _on_process(outcome, mark, folder, one)
        else:
            _on_start(outcome, mark, folder)
    outcome.seconds = time.monotonic() - begun
    return outcome


def _on_process(outcome: Outcome, mark: str, folder: Path, one: Kept) -> None:
    words = [word.replace("{pid}", str(one.pid)) for word in outcome.plan.scene.command.words]
    before = read_vitals(one.pid)
    try:
        with _at_terminal(outcome, mark, folder, words, {}, one.report, one.pid) as family:
            one.report.give_order(GO_ON)
            if not (outcome.killed and outcome.plan.victim == PROGRAM):
                outcome.harms += _harm(outcome, one, before)
            outcome.harms += _left(family)
    finally:
        one.report.give_order(END)
    outcome.harms += _runs(outcome, folder)


def _on_start(outcome: Outcome, mark: str, folder: Path) -> None:
    scene, report = outcome.plan.scene, Report(folder)
    program = command_of(scene.animal, small=scene.command.valgrind)
    env = environment_of(scene.animal, report)
    if scene.command.kind == LAUNCH:
        words = [*scene.command.words, *settings_of(scene.animal), program[0], "--", *program[1:]]
    else:
        words = [
            word
            for pattern in scene.command.words
            for word in filled(pattern, scene.animal, program, folder, report)
        ]
        env = {**env, "ZOO_TURNS": "300"}
    with _at_terminal(outcome, mark, folder, words, env, report, 0) as family:
        if scene.program_outlives:
            report.give_order(END)
        outcome.harms += _left(family)
    outcome.harms += _runs(outcome, folder)


# -- somebody who types ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _at_terminal(
    outcome: Outcome,
    mark: str,
    folder: Path,
    words: list[str],
    env: Mapping[str, str],
    report: Report,
    program: int,
) -> Iterator[Family]:
    """Type gdbmem with *words*, kill a process meanwhile, and yield when the command has ended."""
    leader = [sys.executable, "-I", "-S", LEADER, GDBMEM, *words]
    everywhere = {"XDG_RUNTIME_DIR": str(folder / "runtime"), "TERM": "xterm"}
    (folder / "runtime").mkdir(mode=0o700)
    user = User(leader, folder, environment(**everywhere, **env), 60)
    user.child.timeout = _SECONDS
    try:
        settings = user.terminal_settings()
        family = Family(mark, user.pid, program)
        killer = Killer(family, outcome.plan.victim, outcome.plan.delay, wait_for_quit=outcome.plan.at_quit)
        killer.start()
        outcome.harms += _type(outcome, _Typist(user, report, _SECONDS, 10, 10), killer)
        killer.end()
        outcome.killed = bool(killer.killed)
        yield family
        outcome.harms += _terminal(user, settings)
        wait_until(lambda: not any((folder / "runtime").iterdir()), 5)
        outcome.harms += [
            f"left in the runtime folder: {path.name}" for path in (folder / "runtime").iterdir()
        ]
    finally:
        outcome.said = user.text
        with contextlib.suppress(ProcessLookupError):
            os.kill(user.pid, signal.SIGKILL)
        user.child.close(force=True)
    outcome.harms += [
        f"it said: {bug}" for bug in BUGS if bug in outcome.said and not _is_gdbs_own(outcome.said)
    ]


def _is_gdbs_own(said: str) -> bool:
    """Return whether a traceback is of the scripts that gdb brings, which a signal ends anywhere."""
    return "Traceback" in said and "/gdbmem/" not in said.partition("Traceback")[2]


class _Typist(Session):
    """Somebody at a terminal that stays when the command has ended."""

    def _prompt(self, seconds: float) -> bool:
        try:
            found = self.user.child.expect([PROMPT, _ENDED], timeout=seconds)
        except pexpect.TIMEOUT:
            return False
        if found == 1:
            raise FellError(self.user.text[-400:])
        return True

    def first_prompt(self) -> bool:
        return self._prompt(self.limit)


def _type(outcome: Outcome, typist: _Typist, killer: Killer) -> list[str]:
    """Type the lines of the scene until the command ends; return what was wrong."""
    command, user = outcome.plan.scene.command, typist.user
    try:
        if command.kind not in (GDB, LAUNCH):
            user.child.expect(_ENDED)
            raise FellError
        if not typist.first_prompt():
            return ["no prompt at the beginning"]
        for line in (Line("set confirm off"), Line("set pagination off"), *command.lines):
            typist.type(line)
        if not outcome.plan.at_quit:
            killer.join(_SECONDS)
        killer.quits.set()
        user.send("quit")
        user.child.expect(_ENDED)
    except FellError:
        pass
    except (TooSlowError, pexpect.TIMEOUT) as error:
        killer.end()
        return [f"it hangs{_after(killer)}: {str(error).splitlines()[0]}; it showed {user.text[-300:]!r}"]
    return []


def _after(killer: Killer) -> str:
    return f" after the {killer.kind} was killed" if killer.killed else ""


# -- what must be so afterwards ----------------------------------------------------------------------------


def _harm(outcome: Outcome, one: Kept, before: Vitals) -> list[str]:
    """Return what has been done to the process, now and when it loads a library, forks and starts a thread."""
    found = _lasting(one, before)
    if one.first.poll() is not None:
        return _death(outcome, one)
    if one.report.signals:
        found.append(f"{one.report.signals} signals were delivered to it, at last {one.report.last_signal}")
    for _ in range(2):
        one.report.give_order(LATER)
        if not wait_until(lambda: one.report.order == GO_ON or one.first.poll() is not None, 10):
            return [*found, "it doesn't go on"]
        if one.first.poll() is not None:
            return [*found, *_death(outcome, one)]
    if one.report.refused:
        found.append(f"{one.report.refused} of its calls went wrong later")
    return found


def _lasting(one: Kept, before: Vitals) -> list[str]:
    found: list[str] = []

    def is_as_before() -> bool:
        with contextlib.suppress(OSError):
            found[:] = harm(one.animal, before, read_vitals(one.pid), 1 << 40)
            found.extend(left_breakpoints(one.pid))
        return not found or one.first.poll() is not None

    wait_until(is_as_before, _CALM)
    return found


def _death(outcome: Outcome, one: Kept) -> list[str]:
    status = one.first.wait()
    by_breakpoint = status == -signal.SIGTRAP and outcome.plan.victim in (GDB_ITSELF, LAUNCHER)
    if by_breakpoint and outcome.killed:
        outcome.excused = "gdb was killed when a thread had just run into a breakpoint"
        return []
    return [f"the process is dead (status {status})"]


def _left(family: Family) -> list[str]:
    left: dict[int, str] = {}

    def is_none_left() -> bool:
        left.clear()
        left.update(family.members())
        return not left

    wait_until(is_none_left, _CALM)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"left behind: {what} {pid}" for pid, what in left.items()]


def _terminal(user: User, before: list[object]) -> list[str]:
    after: list[object] = []

    def is_as_before() -> bool:
        after[:] = user.terminal_settings()
        return after == before

    wait_until(is_as_before, 2)
    names = ("input", "output", "control", "local", "input speed", "output speed", "characters")
    return [
        f"the terminal's {name} modes were {old!r} and are {new!r}"
        for name, old, new in zip(names, before, after)
        if old != new
    ]


def _runs(outcome: Outcome, folder: Path) -> list[str]:
    """Return the announced snapshots that can't be read, and the wrong output of the next command on the run."""
    found, kept_names = [], set()
    for path in sorted(folder.glob("gdbmem.*")):
        try:
            if is_run(path):
                run = open_run(path)
                for record in run.snapshots:
                    kept_names |= {record.name, record.label}
                    if not record.name.startswith("unnamed-"):  # its file may be half of one
                        _ = open_profile(run.path(record)).snapshots
            if has_series(path):
                with contextlib.closing(Recording(path)) as recording:
                    _ = recording.lines
        except GdbmemError as error:
            found.append(f"{path.name}: {error.message}")
        found += _next_command(outcome, path)
    lost = set(_ANNOUNCED.findall(outcome.said.replace("\r", ""))) - kept_names
    return [*found, *(f"snapshot {name} was announced, and is lost" for name in sorted(lost))]


def _next_command(outcome: Outcome, run: Path) -> list[str]:
    done = subprocess.run(
        [GDBMEM, "show", run], capture_output=True, text=True, errors="replace", check=False, env=environment(),
        timeout=60,
    )  # fmt: skip
    said = done.stdout + done.stderr
    outcome.repaired += "".join(line for line in said.splitlines() if "was repaired" in line)
    if done.returncode not in (0, 1) or any(bug in said for bug in BUGS):
        return [f"'gdbmem show' says (status {done.returncode}): {said[-300:]}"]
    return []


def outcome_line(outcome: Outcome, root: Optional[Path] = None) -> str:
    """Return a line for people."""
    plan = outcome.plan
    when = f"{plan.delay:.2f} s after {'quit' if plan.at_quit else 'its birth'}"
    what = f"{plan.victim} {when}" if outcome.killed else f"{plan.victim} was not there {when}"
    end = "; ".join(outcome.harms) or outcome.excused or outcome.repaired
    sign = "HARM" if outcome.harms else "    "
    return (
        f"{plan.seed:6} {sign} {outcome.seconds:5.1f} s  {plan.scene.name}: {what}{': ' if end else ''}{end}"
    )
