"""When a trigger of a monitor fires."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.linux.monitoring.gpu_and_cgroup import Surroundings
from gdbmem.linux.monitoring.tree import Look
from gdbmem.model.series import Mark, ProcessSample, SeriesLine
from gdbmem.recording.triggers import Triggers, parse_condition
from gdbmem.runs.run import Run

MIB = 1 << 20


class Process:
    """An action that takes until it is told to end."""

    returncode: Optional[int] = None

    def poll(self) -> Optional[int]:
        return self.returncode

    def wait(self, _seconds: float) -> None:
        self.returncode = 0


def test_a_condition_that_comes_and_goes_while_its_action_runs_piles_up_no_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Process] = []

    def start(*_: object, **__: object) -> Process:
        started.append(Process())
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    notes: list[str] = []
    marks: list[Mark] = []
    wanted = [(parse_condition("rss > 10MiB"), "bundle")]
    run = Run.create("x", parent=tmp_path, pid=1, folder=tmp_path / "run")
    triggers = Triggers(
        run, wanted, judge=lambda: False, note=notes.append, mark=marks.append, cgroup_usage=lambda: None
    )

    def swing(t: float) -> None:
        lines = [SeriesLine(1, 4711, 5, "x", "", 0, 0.0)]
        for number, size in enumerate((20 * MIB, 5 * MIB)):
            triggers.see(Look(t + number, [(1, ProcessSample(rss_bytes=size))], lines, False, 1))

    for t in (0.0, 2.0, 4.0):
        swing(t)
    assert (len(started), len(marks)) == (1, 1)
    assert notes[-1] == "rss > 10MiB: rss is 20.0 MiB again, before the last bundle for it is done"
    started[0].returncode = 0
    swing(6.0)
    swing(8.0)
    triggers.close()
    assert (len(started), len(marks)) == (2, 2)


def test_a_cgroup_that_is_full_between_two_reads_of_its_statistics_fires_at_the_next_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Process())
    usage = tmp_path / "memory.usage_in_bytes"
    surroundings = Surroundings(cgroup=tmp_path)
    marks: list[Mark] = []
    triggers = Triggers(
        Run.create("x", parent=tmp_path, pid=1, folder=tmp_path / "run"),
        [(parse_condition("cgroup > 128MiB"), "explain")],
        judge=lambda: False,
        note=lambda _: None,
        mark=marks.append,
        cgroup_usage=surroundings.cgroup_usage,
    )
    lines = [SeriesLine(1, 4711, 5, "x", "", 0, 0.0)]
    for number, size in enumerate((100, 110, 140, 150, 90, 200)):
        usage.write_text(f"{size * MIB}\n")
        look = Look(number / 5, [(1, ProcessSample(rss_bytes=20 * MIB))], lines, False, 1)
        triggers.see(
            look
        )  # a sample of RSS only: the statistics of the cgroup are read every one to ten seconds
    assert [mark.text for mark in marks] == ["cgroup > 128MiB: cgroup is 140.0 MiB"], (
        "the action is still to be done"
    )
