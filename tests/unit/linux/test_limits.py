"""Limits over a process, and holding the kernel's kill at one."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from gdbmem.errors import TargetError
from gdbmem.linux.holding import limit_hold
from gdbmem.linux.monitoring import limits
from gdbmem.linux.monitoring.limits import LimitEvents, Room, rooms_of

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
    monkeypatch.setattr(limits, "cgroup_of", lambda pid: folder)
    return folder


def test_pages_of_files_that_can_be_dropped_are_not_taken_for_the_end_of_the_memory(second: Path) -> None:
    first = rooms_of(1)[0]
    assert first == Room("its control group", second, 100 * MIB, 30 * MIB, 3)
    assert first.used == pytest.approx(0.7)


def test_events_of_a_cgroup_that_is_gone_end_no_black_box(second: Path) -> None:
    (second / "memory.events").unlink()
    events = LimitEvents([Room("its control group", second, 100, 50)], [0.5], select.poll())
    events.take()
    events.close()
    events.close()


def test_a_hold_that_would_hold_gdbmem_itself_is_refused(
    second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_hold, "cgroup_of", lambda pid: second / "below")
    with pytest.raises(TargetError, match="gdbmem itself is in that control group"):
        limit_hold.LimitHold(second)
    assert (second / "memory.high").read_text() == "max\n"


def test_a_group_whose_killer_is_off_already_is_left_alone(second: Path) -> None:
    (second / "memory.oom_control").write_text("oom_kill_disable 1\nunder_oom 0\noom_kill 0\n")
    with pytest.raises(TargetError, match="switched off already"):
        limit_hold.LimitHold(second)
