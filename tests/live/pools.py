"""Stock TensorFlow and onnxruntime for tests: the environments that scripts/setup bfc makes, and servers in them."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Union

import pytest

from tests.conftest import PROGRAMS

_CACHE = os.environ.get("XDG_CACHE_HOME", "")
FOLDER = (Path(_CACHE) if _CACHE.startswith("/") else Path.home() / ".cache") / "gdbmem/bfc"
NEWEST, OLDER = "newest", ("2.15", "2.9", "2.4")


def environment_python(name: str) -> Path:
    """Return the Python of the environment *name*; skips the test where it isn't here, also in CI."""
    folder = FOLDER / name
    if not (folder / "ready").exists():
        option = "" if name == NEWEST else " --all"
        pytest.skip(f"no environment {name}: 'scripts/setup bfc{option}' makes it")
    return folder / "bin/python"


class Server:
    """A program that answers each line of its input by one."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def receive(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server has ended: {self.process.wait(10)}"
        return line.strip()

    def ask(self, *words: object) -> str:
        self.send(*words)
        return self.receive()


@contextlib.contextmanager
def serving(process: subprocess.Popen[str]) -> Iterator[Server]:
    """Yield the program that is started as *process*, once it is ready; end it with the block."""
    try:
        one = Server(process)
        assert one.receive() == "ready"
        yield one
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def server(
    name: str, program: str, *, stderr: Union[int, IO[Any]] = subprocess.DEVNULL, **environment: str
) -> Iterator[Server]:
    """Run tests/programs/bfc/PROGRAM.py in the environment *name* until the block ends."""
    python = environment_python(name)
    process = subprocess.Popen(
        [python, PROGRAMS / "bfc" / f"{program}.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONNOUSERSITE": "1", **environment},
    )
    with serving(process) as one:
        yield one
