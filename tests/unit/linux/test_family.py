"""Below which cgroup a new one may be made: where no limit is lifted, and no other program manages it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gdbmem.linux.monitoring.cgroup import divisible


@pytest.fixture
def slice_of_a_user(tmp_path: Path) -> Path:
    """Return what a systemd has delegated, as cgroup 2 shows it, with a unit in it that we are in."""
    above = tmp_path / "user@1000.service" / "app.slice"
    (above / "ours.scope").mkdir(parents=True)
    (above / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (above / "ours.scope" / "cgroup.subtree_control").write_text("\n")
    for name in ("memory.max", "memory.high", "pids.max"):
        (above / "ours.scope" / name).write_text("max\n")
    (above / "ours.scope" / "cpu.max").write_text("max 100000\n")
    try:
        os.setxattr(above.parent, "user.delegate", b"1")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    return above


def test_where_systemd_has_delegated_memory_the_new_one_lies_beside_ours(slice_of_a_user: Path) -> None:
    assert divisible(slice_of_a_user / "ours.scope") == slice_of_a_user


def test_no_program_leaves_a_limit_behind(slice_of_a_user: Path) -> None:
    (slice_of_a_user / "ours.scope" / "memory.max").write_text("1073741824\n")
    assert divisible(slice_of_a_user / "ours.scope") is None


def test_what_was_not_delegated_is_left_alone(slice_of_a_user: Path) -> None:
    os.removexattr(slice_of_a_user.parent, "user.delegate")
    assert divisible(slice_of_a_user / "ours.scope") is None


def test_where_memory_is_not_handed_down_there_is_none(slice_of_a_user: Path) -> None:
    (slice_of_a_user / "cgroup.subtree_control").write_text("cpu pids\n")
    assert divisible(slice_of_a_user / "ours.scope") is None


def test_of_cgroup_1_the_new_one_lies_in_ours_and_under_its_limits(tmp_path: Path) -> None:
    (tmp_path / "memory.usage_in_bytes").write_text("4096\n")
    assert divisible(tmp_path) == tmp_path
