"""Ctrl-C in every command that runs the program, for every kind of target: how long until the prompt is back.

Shared by a test and a race (benchmarks/bench_interrupting.py).
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pexpect

from gdbmem.setup.gdb_python import loader_file
from tests.live.memwatching import SETTINGS, line_of
from tests.live.user import GDBMEM, PROMPT, User, Word, at_terminal, environment, packages
from tests.zoo.keeping import wait_until

WAYS = ("default", "blocked", "ignored", "handled", "sigwait", "signalfd")
HANDLES = ("stop print nopass", "stop print pass", "nostop noprint pass", "nostop print nopass")
ATTACHED, LAUNCHED = "gdb -p", "launch --engine"
_INTERRUPTED = re.compile(
    rb"interrupted|received signal SIG(?:INT|TRAP)|does not receive the SIGSTOP|Quit|Stopped by Ctrl-C"
    # gdb 13's own error where Ctrl-C comes while it looks for the callers of inlined code (once in some 200 presses).
    rb"|failed to find previous frame when computing inline frame id"
)
_AGAIN_SECONDS = 2.0  # then a user presses Ctrl-C a second time
_STEPS = ("memwatch advance show_start", "memwatch next 1000000")
_NATIVE = (
    *_STEPS,
    "memwatch limit +9GiB",
    "memwatch growth",
    "memwatch growth --raw",
    "memwatch function main",
)


class Kind(NamedTuple):
    """A target: how its gdb got it, how it handles SIGINT, and the setting of `handle SIGINT`."""

    host: str
    way: str
    handle: str = HANDLES[0]

    def __str__(self) -> str:
        return f"{self.host}, SIGINT {self.way}, handle {self.handle}"

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands in which Ctrl-C is ours to answer."""
        if self.host == ATTACHED:
            return _NATIVE
        return (*(_STEPS if self.host.endswith("massif") else _NATIVE), "continue")


KINDS = (
    *(Kind(ATTACHED, way) for way in WAYS),
    *(Kind(ATTACHED, way, handle) for way in ("default", "handled", "sigwait") for handle in HANDLES[1:]),
    Kind(ATTACHED, "blocked", HANDLES[2]),
)
LAUNCHES = tuple(
    Kind(f"{LAUNCHED} {engine}", way)
    for engine, way in (
        ("none", "blocked"),
        ("none", "signalfd"),
        ("gperftools", "blocked"),
        ("massif", "default"),
    )
)


class Pressed(NamedTuple):
    """Results of Ctrl-C in each command of one kind of target.

    The terminal itself sends each SIGINT to a launched program, as without gdbmem: what waits there is not compared.
    """

    seconds: Mapping[str, float]  # from the key to the prompt, by command
    signals_taken: int  # by the program, which are none of ours
    changes: str  # of what the program blocks, ignores and handles, and what waits; "" for none


def press_in_each(
    kind: Kind,
    program: Path,
    folder: Path,
    *,
    late_seconds: float = math.inf,
    tries: int = 1,
    commands: Sequence[str] = (),
) -> Pressed:
    """Press Ctrl-C in each command, of *kind* if none are given; raises where no prompt comes or the program has gone.

    Where it came after more than *late_seconds*, up to *tries* times: the fastest one counts.
    """
    with _stopped(kind, program, folder) as (user, pid):
        before = _signals(pid, kind)
        seconds = {}
        for command in commands or kind.commands:
            seconds[command] = _press(user, command, pid)
            for _ in range(tries - 1):
                if seconds[command] > late_seconds:
                    seconds[command] = min(seconds[command], _press(user, command, pid))
        changes = "" if (after := _signals(pid, kind)) == before else f"{before} became {after}"
        taken = re.findall(r"\$\d+ = (\d+)", user.type("print taken"))
        user.type("set var done = 1")
    return Pressed(seconds, int(taken[0]), changes)


@contextlib.contextmanager
def _stopped(kind: Kind, program: Path, folder: Path) -> Iterator[tuple[User, int]]:
    """Yield gdb at its prompt with the program that has begun; its pid is 0 under valgrind."""
    if kind.host != ATTACHED:
        words: list[Word] = [GDBMEM, *kind.host.split(), program, "--", kind.way]
        with at_terminal(words, folder) as user:
            user.prompt()
            _begin(user, kind)
            yield user, _pid(user)
            user.quit()
        return
    process = subprocess.Popen([program, kind.way], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        setup = [word for line in SETTINGS for word in ("-iex", line)]
        words = ["gdb", "-nx", "-q", *setup, "-x", loader_file(), "-p", str(process.pid)]
        with at_terminal(words, folder, environment(XDG_DATA_HOME=packages())) as user:
            user.prompt()
            _begin(user, kind)
            yield user, process.pid
            user.type("detach")
            user.quit()
        if process.wait(20) != 0:
            raise RuntimeError(f"the program ended with {process.returncode}")
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _begin(user: User, kind: Kind) -> None:
    user.type("set confirm off")  # gdb asks about SIGINT
    user.type(f"handle SIGINT {kind.handle}")
    user.type(
        f"tbreak takes_sigint.c:{line_of('takes_sigint.c', '        use_memory();')}"
    )  # in main, which `advance` can't leave
    user.type("continue")


def _settle(user: User) -> None:
    """Read on until gdb waits for a command: Ctrl-C at a step's very end gives a second prompt."""
    user.send("echo settled\\n")
    user.child.expect(rb"\nsettled\r\n")
    user.child.expect(PROMPT)


def _press(user: User, command: str, pid: int) -> float:
    """Type *command*, press Ctrl-C once the program runs; return how long after the last press the prompt came."""
    user.send(command)
    if pid:
        wait_until(functools.partial(_runs, pid), 20)
    time.sleep(0.1 if pid else 0.7)
    for patience in (_AGAIN_SECONDS, user.child.timeout):
        pressed = time.monotonic()
        user.press("c")
        with contextlib.suppress(pexpect.TIMEOUT):
            user.child.expect(PROMPT, timeout=patience)
            seconds = time.monotonic() - pressed
            said = user.child.before
            _settle(user)
            if not (isinstance(said, bytes) and _INTERRUPTED.search(said)):
                raise RuntimeError(f"{command!r} ended by itself: {said!r}")
            return seconds
    raise RuntimeError(f"no prompt after Ctrl-C in {command!r}")


def _pid(user: User) -> int:
    found = re.findall(r"process (\d+)", user.type("info inferiors"))
    return int(found[0]) if found else 0


def _runs(pid: int) -> bool:
    """Return whether any thread runs: a step runs one of them, the others are stopped."""
    states = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return any("tracing stop" not in state for state in states)


def _signals(pid: int, kind: Kind) -> list[str]:
    if not pid:
        return []
    fields = ("SigBlk", "SigIgn", "SigCgt", *(("ShdPnd",) if kind.host == ATTACHED else ()))
    text = Path(f"/proc/{pid}/status").read_text()
    return [line for line in text.splitlines() if line.startswith(fields)]
