"""Completion by Tab, in each shell."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from gdbmem.cli.commands.completion import candidates
from gdbmem.runs.run import Run
from tests.live.user import GDBMEM

START = {
    "bash": (["--norc", "--noprofile"], 'eval "$(gdbmem completion bash)"'),
    "zsh": (["-f"], 'autoload -U compinit; compinit -u -D; eval "$(gdbmem completion zsh)"'),
    "fish": ([], "gdbmem completion fish | source"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a run of two snapshots."""
    run = Run.create("decoder", parent=tmp_path, pid=1, folder=tmp_path / "run")
    run.update(program="decoder")
    for name in ("loaded", "reset"):
        file = run.next_file("massif")
        (run.folder / file).write_text("x")
        run.append(name, file=file, engine="massif")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(
    params=[pytest.param(shell, marks=pytest.mark.needs(shell)) for shell in START],
)
def shell(request: pytest.FixtureRequest, folder: Path) -> Iterator[pexpect.spawn[str]]:
    options, line = START[request.param]
    environment = {
        "PATH": f"{Path(GDBMEM).parent}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb", "LANG": "C.UTF-8",
    }  # fmt: skip
    child = pexpect.spawn(
        request.param, options, cwd=str(folder), env=environment, encoding="utf-8", timeout=40, dimensions=(40, 200)
    )  # fmt: skip
    child.sendline(f"{line}; echo rea''dy")
    child.expect("ready\r?\n")
    yield child
    child.close(force=True)


def test_tab_completes(shell: pexpect.spawn[str]) -> None:
    for typed, completed in (
        ("gdbmem uninst", "uninstall"),
        ("gdbmem diff --norm", "--normalize"),
        ("gdbmem show run:loa", "run:loaded"),
        ("gdbmem diff --by func", "function"),
    ):
        shell.send(f"{typed}\t")
        shell.expect(re.escape(completed))
        shell.sendcontrol("u")  # Ctrl-C would also discard what is typed next


def test_words_before_a_program_are_completed_and_its_own_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a file of such a name, as dist, is completed
    assert candidates(["gdbmem", "expl"]) == ["explain"]
    assert "--engine" in candidates(["gdbmem", "launch", "--"])
    assert candidates(["gdbmem", "launch", "--", "program", "--e"]) == []
    assert candidates(["gdbmem", "launch", "--engine", "tr"]) == ["tracemalloc"]
    assert candidates(["gdbmem", "recipe", ""]) == ["check"]
    assert candidates(["gdbmem", "bfc", "di"]) == ["diff"] and candidates(["gdbmem", "bfc", ""]) == []
    assert candidates(["gdbmem", "help", "format-unk"]) == ["format-unknown"]
    assert candidates(["gdbmem", "show", "no-such:x"]) == candidates(["gdbmem"]) == []


def test_the_snapshots_of_a_run_are_completed(folder: Path) -> None:
    assert candidates(["gdbmem", "show", "run:"]) == ["run:loaded", "run:reset"]
    assert candidates(["gdbmem", "diff", "run:loaded", "run:re"]) == ["run:reset"]
