"""The process that reads a heap for gdb: what gdb makes of its end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gdbmem.errors import TargetError, ToolError
from gdbmem.inspection import interpreters


def answer_with(monkeypatch: pytest.MonkeyPatch, status: int, output: str = "") -> None:
    done = subprocess.CompletedProcess(["python"], status, output)
    monkeypatch.setattr(interpreters, "_run", lambda python, request, descriptor: done)
    monkeypatch.setattr(interpreters, "interpreters", lambda: iter([Path("python")]))


def test_a_worker_without_numpy_leaves_the_work_to_gdb(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, 1)  # as of any uncaught exception
    assert interpreters.explain_for_gdb({}, 0) is None


def test_a_killed_worker_is_told_and_gdb_does_not_take_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, -9)
    with pytest.raises(ToolError, match="ended by SIGKILL"):
        interpreters.explain_for_gdb({}, 0)


def test_a_workers_refusal_is_told_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(
        monkeypatch,
        interpreters._REFUSED,
        '{"message": "it has ended", "slug": "process-ended", "hint": ""}',
    )
    with pytest.raises(TargetError, match="it has ended"):
        interpreters.explain_for_gdb({}, 0)
