"""Limits over a process, and holding the kernel's kill at one."""

from __future__ import annotations

import itertools
import os
import select
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gdbmem.errors import TargetError
from gdbmem.linux.monitoring import cgroup, gpu_and_cgroup, limits
from gdbmem.linux.monitoring.limits import LimitEvents, Room, rooms_of
from gdbmem.linux.process.process import text_of

MIB = 1 << 20


@pytest.fixture
def second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder like that of a cgroup of version 2, at 90 of 100 MiB."""
    folder = tmp_path / "fs" / "cgroup" / "job"
    folder.mkdir(parents=True)
    values = {"memory.max": 100 * MIB, "memory.current": 90 * MIB, "memory.high": "max"}
    for name, value in values.items():
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 3\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {20 * MIB}\n")
    monkeypatch.setattr(limits, "cgroup_of", lambda pid: None if pid == os.getpid() else folder)
    return folder


def test_pages_of_files_that_can_be_dropped_are_not_taken_for_the_end_of_the_memory(second: Path) -> None:
    first = rooms_of(1)[0]
    assert first == Room("its control group", second, 100 * MIB, 30 * MIB, 3)
    assert first.used == pytest.approx(0.7)


def test_a_program_that_enters_a_group_is_told_its_limit_however_dear_the_group_before_was_to_read(
    second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = second.parent
    monkeypatch.setattr(gpu_and_cgroup, "cgroup_of", lambda pid: home)
    monkeypatch.setattr(cgroup, "_ROOT", second.parent)
    monkeypatch.setattr(time, "thread_time", itertools.count().__next__)
    around = gpu_and_cgroup.Surroundings(cgroup=second.parent, program=1)
    assert around.read(0.0) is not None
    home = second
    assert around.read(0.5) is None, "once a second is enough"
    entered = around.read(1.0)
    assert entered is not None and entered.cgroup["cgroup_limit_bytes"] == 100 * MIB
    assert around.limit is not None and around.limit.size_bytes == 100 * MIB


def test_events_of_a_cgroup_that_is_gone_end_no_black_box(second: Path) -> None:
    (second / "memory.events").unlink()
    events = LimitEvents([Room("its control group", second, 100, 50)], [0.5], select.poll())
    events.take()
    events.close()
    events.close()


def test_a_group_of_version_2_that_was_out_of_memory_is_told_once(second: Path) -> None:
    poll = cast(select.poll, SimpleNamespace(register=lambda *_: None, unregister=lambda *_: None))
    events = LimitEvents([Room("its control group", second, 100, 50)], [0.5], poll)
    assert not events.take()
    (second / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 3\n")
    assert events.take() and not events.take()
    events.close()


def test_a_hold_that_would_hold_gdbmem_itself_is_refused(
    second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "cgroup_of", lambda pid: second / "below")
    with pytest.raises(TargetError, match="gdbmem itself is in that control group"):
        limits.LimitHold(second)
    assert (second / "memory.high").read_text() == "max\n"


def test_a_group_whose_killer_is_off_already_is_left_alone(second: Path) -> None:
    (second / "memory.oom_control").write_text("oom_kill_disable 1\nunder_oom 0\noom_kill 0\n")
    with pytest.raises(TargetError, match="switched off already"):
        limits.LimitHold(second)


def test_the_kernel_counts_the_adjustment_of_a_victim_in_whole_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 96 MiB a point is 24 pages, not 24.576: 1.1 MiB less for an adjustment of 500."""
    read = text_of
    adjusted = {f"/proc/{os.getpid()}/oom_score_adj": "500\n"}
    monkeypatch.setattr(cgroup, "text_of", lambda path: adjusted.get(path) or read(path))
    with_limit = cgroup.process_in_cgroup(os.getpid(), 96 * MIB)
    without = cgroup.process_in_cgroup(os.getpid(), 0)
    assert with_limit is not None and without is not None
    points = (with_limit.badness_bytes or 0) - (without.badness_bytes or 0)
    assert points == pytest.approx(500 * 24 * 4096, abs=512 << 10)


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({"memory.swap.max": "max"}, 1.0),
        ({"memory.swap.max": "0"}, 0.0),
        ({"memory.swappiness": "0"}, 0.0),
        ({"memory.memsw.limit_in_bytes": str(100 * MIB), "memory.swappiness": "60"}, 0.0),
    ],
)
def test_swap_that_a_group_may_use_counts_as_its_memory_for_the_kernels_adjustment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], most: float
) -> None:
    monkeypatch.setattr(cgroup, "text_of", lambda path: "MemTotal:  2048 kB\nSwapTotal:    1024 kB\n")
    for name, value in {"memory.swappiness": "60", **files}.items():
        (tmp_path / name).write_text(value)
    assert cgroup.allowed_bytes(tmp_path, 100 * MIB) == 100 * MIB + most * MIB
    assert cgroup.allowed_bytes(None, None) == 3 * MIB
