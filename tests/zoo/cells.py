"""One cell of the table: an animal, a command, and the result."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from gdbmem.launch.supervisor import TERM_PAUSES
from tests.live.user import GDBMEM, environment
from tests.zoo import answers
from tests.zoo.animals import IMAGE, INTERRUPTED, LINES, Animal
from tests.zoo.answers import CANNOT, REFUSED, UNKNOWN, WRONG, Answer, Seen
from tests.zoo.building import CannotRunHereError
from tests.zoo.commands import GDB, LAUNCH, SHELL, START, Command
from tests.zoo.keeping import END, GO_ON, Kept, Report, command_of, environment_of, kept, wait_until
from tests.zoo.terminal import FellError, Line, Session, TooSlowError, session
from tests.zoo.vitals import Vitals, harm, left_breakpoints, read_vitals

_PROLOGUE = ("set pagination off", "set confirm off", "break never_called")
_EPILOGUE = ("info breakpoints", "info signals SIGINT", "show scheduler-locking")
_IGNORED_BY_PYTHON = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1


@dataclass(frozen=True)
class Cell:
    animal: str
    command: str
    answer: Answer
    seconds: float
    said: str = ""  # all of it, for who looks into it


class WrongError(Exception):
    """A violation; the text describes it."""


def run_cell(animal: Animal, command: Command) -> Cell:
    """Return what came of *command* on *animal*."""
    begun, said = time.monotonic(), ""
    reason = why_not(animal, command)
    if reason:
        return Cell(animal.name, command.name, Answer(CANNOT, reason), 0)
    with scratch_folder() as folder:
        try:
            seen = _ON[command.kind](animal, command, folder)
            said, answer = seen.text, _judged(animal, command, seen)
        except CannotRunHereError as error:
            answer = Answer(CANNOT, str(error))
        except (WrongError, TooSlowError) as error:
            answer = Answer(WRONG, str(error))
        except FellError as error:
            answer, said = Answer(WRONG, "gdb, or what started it, ended"), str(error)
    return Cell(animal.name, command.name, answer, time.monotonic() - begun, said)


def run_gdb_cells(animal: Animal, commands: Sequence[Command]) -> list[Cell]:
    """Return what came of each of *commands*, typed into one gdb that is attached to *animal*.

    Wrong cells, and all if the animal was harmed, are repeated in a separate gdb and with a separate animal.
    """
    left = [command for command in commands if not why_not(animal, command)]
    cells: dict[str, Cell] = {}
    while left and not cells and not animal.ends_itself and not animal.is_traced:
        begun = time.monotonic()
        try:
            answered = _all_in_one_gdb(animal, left)
        except _SpoiltError as error:
            left = [
                c for c in left if c is not error.command and not (c.interrupts and error.command.interrupts)
            ]
            continue
        except (WrongError, TooSlowError, FellError, CannotRunHereError, OSError):
            break
        each = (time.monotonic() - begun) / len(left)
        for command, (answer, text) in zip(left, answered):
            if answer.outcome != WRONG:
                cells[command.name] = Cell(animal.name, command.name, answer, each, text)
    return [cells.get(command.name) or run_cell(animal, command) for command in commands]


class _SpoiltError(Exception):
    """One of several commands left a gdb that is of no more use."""

    def __init__(self, command: Command) -> None:
        super().__init__(command.name)
        self.command = command


def _all_in_one_gdb(animal: Animal, commands: Sequence[Command]) -> list[tuple[Answer, str]]:
    """Return the answer to each. Raises _SpoiltError, and WrongError where the animal was harmed."""
    with scratch_folder() as folder, kept(animal, folder) as one:
        before = read_vitals(one.pid)
        answered = []
        with session(
            [GDBMEM, "attach", str(one.pid)], folder, one.report, {}, _limits(commands[0])
        ) as typist:
            has_breakpoint, settings = _prepare(typist)
            for command in commands:
                rss = read_vitals(one.pid).rss_bytes
                typist.limit = command.limit
                (folder / "out.json").unlink(missing_ok=True)
                try:
                    texts = [typist.type(line) for line in command.lines] or ["done"]
                    _as_it_was(typist, has_breakpoint, settings)
                except (WrongError, TooSlowError, FellError):
                    raise _SpoiltError(command) from None
                now = read_vitals(one.pid).rss_bytes
                seen = Seen(animal, one.report, texts, folder, None, rss, now)
                answered.append((_judged(animal, command, seen), seen.text))
            typist.quit()
        one.report.give_order(GO_ON)
        _unharmed(one, before, replace(commands[0], calls_malloc=any(c.calls_malloc for c in commands)))
        return answered


def why_not(animal: Animal, command: Command) -> str:
    """Return why *command* on *animal* makes no sense; "" where it does."""
    if animal.is_damaged and not command.reads_heap:
        return "as plain: its heap alone differs"
    if animal.is_damaged and command.calls_malloc:
        return "malloc itself aborts, as it should"
    if command.needs_tick and LINES not in animal.knows:
        return "gdb finds no tick() in it"
    if command.kind not in (SHELL, GDB) and animal.unlaunchable:
        return animal.unlaunchable
    return ""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder of one cell's own."""
    folder = Path(tempfile.mkdtemp(prefix="zoo-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _judged(animal: Animal, command: Command, seen: Seen) -> Answer:
    for bug in answers.BUGS:
        if bug in seen.text:
            line = next(line for line in seen.text.splitlines() if bug in line)
            return Answer(WRONG, line[:300])
    answer = command.answer(seen)
    if answers.LITTLE_ROOM in seen.text:
        return Answer(
            REFUSED, next(line for line in seen.text.splitlines() if answers.LITTLE_ROOM in line)[:300]
        )
    must = command.asks in animal.knows and command.name not in animal.may_refuse
    if answer.outcome in (UNKNOWN, REFUSED) and must:
        return Answer(WRONG, f"it could be answered; {answer.outcome}: {answer.sentence}")
    return answer


# -- on a process that runs -------------------------------------------------------------------------------


def _in_shell(animal: Animal, command: Command, folder: Path) -> Seen:
    with kept(animal, folder) as one:
        before = read_vitals(one.pid)
        done = _shell(command, [word.replace("{pid}", str(one.pid)) for word in command.words], folder, {})
        rss = _unharmed(one, before, command)
        texts = [done.stdout, done.stderr]
        if command.interrupted_after:
            status = None if done.returncode in (0, 130) else done.returncode
            return Seen(animal, one.report, [*texts, "done"], folder, status, before.rss_bytes, rss)
        return Seen(animal, one.report, texts, folder, done.returncode, before.rss_bytes, rss)


def _in_gdb(animal: Animal, command: Command, folder: Path) -> Seen:
    with kept(animal, folder) as one:
        before = read_vitals(one.pid)
        words = [GDBMEM, *(word.replace("{pid}", str(one.pid)) for word in command.words)]
        try:
            with session(words, folder, one.report, {}, _limits(command)) as typist:
                texts = _type_all(typist, command)
        except FellError as error:
            if "gdbmem: " not in str(error):
                raise
            texts = [str(error)]  # it was refused before there was a gdb
        one.report.give_order(GO_ON)
        rss = _unharmed(one, before, command)
        return Seen(animal, one.report, texts, folder, None, before.rss_bytes, rss)


def _limits(command: Command) -> tuple[float, float, float]:
    return command.limit, command.after_ctrl_c, command.second_ctrl_c


def _type_all(typist: Session, command: Command) -> list[str]:
    has_breakpoint, settings = _prepare(typist)
    texts = [typist.type(line) for line in command.lines]
    _as_it_was(typist, has_breakpoint, settings)
    typist.quit()
    return texts or ["done"]


def _prepare(typist: Session) -> tuple[bool, list[str]]:
    """Set a breakpoint as a user does; return whether there is one, and gdb's settings."""
    has_breakpoint = "Breakpoint 1" in [_type(typist, line) for line in _PROLOGUE][-1]
    return has_breakpoint, [_type(typist, line) for line in _EPILOGUE[1:]]


def _as_it_was(typist: Session, has_breakpoint: bool, settings: list[str]) -> None:
    """Raise WrongError where a command has changed the user's breakpoints or settings."""
    listed, *after = [_type(typist, line) for line in _EPILOGUE]
    numbers = [line.split()[0] for line in listed.splitlines() if line[:1].isdigit()]
    if has_breakpoint and numbers != ["1"]:
        raise WrongError(f"the user's breakpoint 1 was alone, now there are: {', '.join(numbers) or 'none'}")
    if after != settings:
        raise WrongError(f"gdb's settings were {settings} and are {after}")


def _type(typist: Session, text: str) -> str:
    return typist.type(Line(text))


def _unharmed(one: Kept, before: Vitals, command: Command) -> int:
    """Return the animal's Rss. Raises WrongError where it isn't as it was before *command*."""
    if one.animal.ends_itself:
        _ended_by_itself(one)
        return before.rss_bytes
    if one.first.poll() is not None:
        raise WrongError(f"the process is dead (status {one.first.returncode})")
    try:
        found = _lasting_harm(one, before, command)
        if IMAGE not in one.animal.restless:
            found += left_breakpoints(one.pid)
        rss = read_vitals(one.pid).rss_bytes
    except OSError as error:
        raise WrongError(f"the process is dead ({error})") from None
    found += _heard(one.animal, one.report)
    if not one.animal.is_stopped and not _lives(one.report):
        found.append("it doesn't go on")
    if found:
        raise WrongError("; ".join(found))
    return rss


def _lasting_harm(one: Kept, before: Vitals, command: Command) -> list[str]:
    """Return what differs for more than a moment: the animal lives, and may just have mapped or started something."""
    tolerance = command.tolerance if not command.calls_malloc else 1 << 40
    found: list[str] = []

    def is_as_before() -> bool:
        found[:] = harm(one.animal, before, read_vitals(one.pid), tolerance)
        return not found

    wait_until(is_as_before, 1)
    return found


def _heard(animal: Animal, report: Report, presses: int = 0, *, is_ours: bool = False) -> list[str]:
    """Return what was done to the animal beside *presses* of Ctrl-C; who started it (*is_ours*) may end it."""
    if is_ours and report.last_signal == signal.SIGTERM and report.signals <= presses + len(TERM_PAUSES):
        return []
    found = []
    if report.signals > presses or (report.signals and report.last_signal != signal.SIGINT):
        found.append(f"{report.signals} signals were delivered to it, at last {report.last_signal}")
    if report.interrupted and INTERRUPTED not in animal.restless:
        found.append(f"{report.interrupted} of its system calls were interrupted")
    if report.refused:
        found.append(f"{report.refused} of its own calls went wrong")
    return found


def _lives(report: Report) -> bool:
    ticks = report.ticks
    return wait_until(lambda: report.ticks != ticks, 3)


def _ended_by_itself(one: Kept) -> None:
    try:
        status = one.first.wait(timeout=10)
    except subprocess.TimeoutExpired:
        raise WrongError("it doesn't come to its end") from None
    if status != 7:
        raise WrongError(f"it ended with status {status} instead of 7")


def _shell(
    command: Command, words: list[str], folder: Path, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run gdbmem with *words*. Raises TooSlowError."""
    with subprocess.Popen(
        [GDBMEM, *words], cwd=folder, env=environment(**env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            if command.interrupted_after:
                wait_until(
                    lambda: process.poll() is not None or _has_begun(process.pid, folder), command.limit
                )
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(command.interrupted_after)
                process.send_signal(signal.SIGINT)
            output, messages = process.communicate(timeout=command.limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise TooSlowError(f"it didn't end within {command.limit:g} s") from None
    return subprocess.CompletedProcess(words, process.returncode, output, messages)


def _has_begun(pid: int, folder: Path) -> bool:
    """Return whether gdbmem *pid* looks at a process, or records in *folder*: before, Python itself starts."""
    if any(folder.glob("gdbmem.*")):
        return True
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if re.match(rf"/proc/(?!{pid}/)\d+/", os.readlink(entry)):  # noqa: PTH115
                    return True
    return False


# -- starting a process -----------------------------------------------------------------------------------


def _by_launch(animal: Animal, command: Command, folder: Path) -> Seen:
    program, *arguments = command_of(animal, small=command.is_slowed)
    report = Report(folder)
    words = [GDBMEM, *command.words, *settings_of(animal), program, "--", *arguments]
    env = {"ZOO_REPORT": str(report.path)}
    try:
        with session(words, folder, report, env, _limits(command)) as typist:
            texts = _type_launched(typist, animal, command)
    except FellError as error:
        if "gdbmem: " not in str(error):
            raise
        texts = [str(error)]
    presses = sum(line.is_interrupted for line in command.lines) if animal.takes_interrupts else 0
    return _after_start(animal, report, texts, folder, None, presses)


def settings_of(animal: Animal) -> list[str]:
    """Return the options of a launch that give *animal* its environment."""
    return [word for name, value in animal.env.items() for word in ("--env", f"{name}={value}")]


def _type_launched(typist: Session, animal: Animal, command: Command) -> list[str]:
    for setting in _PROLOGUE[:2]:
        _type(typist, setting)
    texts = []
    for line in command.lines:
        texts.append(typist.type(line))
        if not command.valgrind and line.is_interrupted and typist.report.ready == 1:
            _masks_are_its_own(typist.report)
    typist.quit()
    return texts


def _masks_are_its_own(report: Report) -> None:
    if report.blocked:
        raise WrongError(f"it was started with signals blocked: {report.blocked:x}")
    if report.ignored & ~_IGNORED_BY_PYTHON:
        raise WrongError(f"it was started with signals ignored: {report.ignored:x}")


def _by_start(animal: Animal, command: Command, folder: Path) -> Seen:
    program = command_of(animal, small=command.is_slowed)
    report = Report(folder)
    words = [word for pattern in command.words for word in filled(pattern, animal, program, folder, report)]
    done = _shell(command, words, folder, {**environment_of(animal, report), "ZOO_TURNS": "60"})
    status = 0 if done.returncode == 7 else done.returncode  # the animal's own
    return _after_start(animal, report, [done.stdout, done.stderr], folder, status)


def filled(pattern: str, animal: Animal, program: list[str], folder: Path, report: Report) -> list[str]:
    """Return the words that *pattern* stands for where *program* is started; write the recipe that it asks for."""
    if pattern == "{program}":
        return program
    if pattern == "{quoted}":
        return [shlex.join(program)]
    if not pattern.startswith("{recipe:"):
        return [pattern]
    recipe = folder / "recipe.yaml"
    settings = {**environment_of(animal, report), "ZOO_TURNS": "60"}
    env = "".join(f"  {name}: '{value}'\n" for name, value in settings.items())
    arguments = ", ".join(f"'{word}'" for word in program[1:])
    recipe.write_text(
        f"program: {program[0]}\nargs: [{arguments}]\nenv:\n{env}engine: {pattern[8:-1]}\ntimeout: 60s\n"
        "points:\n  - at: tick\n    name: t\n    hits: {only: [2, 20]}\ndiff: [[t#1, t]]\n"
    )
    return [str(recipe)]


def _after_start(
    animal: Animal, report: Report, texts: list[str], folder: Path, status: Optional[int], presses: int = 0
) -> Seen:
    """Return what was seen of an animal that was given Ctrl-C *presses* times by the terminal itself."""
    report.give_order(END)  # processes that have been detached
    found = _heard(animal, report, presses, is_ours=True)
    if found and not (report.refused and len(found) == 1 and answers.LITTLE_ROOM in "\n".join(texts)):
        raise WrongError("; ".join(found))
    if report.pid and not wait_until(lambda: not Path(f"/proc/{report.pid}").exists(), 5):
        raise WrongError(f"process {report.pid} was left behind")
    return Seen(animal, report, texts, folder, status, 0, 0)


_ON = {SHELL: _in_shell, GDB: _in_gdb, LAUNCH: _by_launch, START: _by_start}
