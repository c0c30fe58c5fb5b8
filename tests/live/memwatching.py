"""Runs gdb with gdbmem loaded on a test program, and reads the steps that memwatch wrote."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gdbmem.setup.gdb_python import loader_file
from tests.live.user import SECONDS, packages

SETTINGS = ("set pagination off", "set confirm off", "set debuginfod enabled off")


class Said(NamedTuple):
    output: str  # gdb's and the program's
    complaints: str


def run_gdb(
    program: Path,
    commands: Sequence[str],
    *,
    folder: Path,
    seconds: float = SECONDS,
    is_installed: bool = True,
) -> Said:
    """Run *commands* in gdb on *program*, each as if typed: an error doesn't end the others.

    Without *is_installed* gdb's Python has only what the system gives it.
    """
    script = folder / "commands.gdb"
    script.write_text("".join(_forgiving(command) for command in (*SETTINGS, *commands)))
    done = subprocess.run(
        ["gdb", "-nx", "-q", "-batch", "-x", str(loader_file()), "-x", str(script), str(program)],
        cwd=folder,
        env={**os.environ, "XDG_DATA_HOME": packages() if is_installed else str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Said(done.stdout, done.stderr)


def answers(
    program: Path, before: Sequence[str], command: str, further: Iterable[str], folder: Path
) -> dict[str, str]:
    """Return gdb's output on *program* for *command* with each of the words *further*, after the commands *before*."""
    words = list(further)
    lines = [line for one in words for line in ("echo ----\\n", f"{command} {one}")]
    said = run_gdb(program, [*before, *lines], folder=folder)
    assert "Traceback" not in said.output + said.complaints
    return dict(zip(words, said.output.split("----\n")[1:]))


def _forgiving(command: str) -> str:
    if "\n" in command:  # a block, such as a breakpoint's commands
        return command + "\n"
    return f"python\ntry: gdb.execute({command!r})\nexcept gdb.error as e: print('ERROR:', e)\nend\n"


def steps(folder: Path, name: str = "steps.json") -> list[dict[str, Any]]:
    """Return the steps of the JSON file *name* that memwatch wrote in *folder*."""
    found: list[dict[str, Any]] = json.loads((folder / name).read_text())["steps"]
    return found


def line_of(program: str, text: str) -> int:
    """Return the number of the first line of tests/programs/*program* that holds *text*."""
    source = Path(__file__).parents[1] / "programs" / program
    return next(n for n, line in enumerate(source.read_text().splitlines(), 1) if text in line)
