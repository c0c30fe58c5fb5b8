"""Holding the kernel's kill in a cgroup of version 2, as far as its files show, and the guard that undoes it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from gdbmem.linux.monitoring import limits
from tests.live.user import SECONDS

pytestmark = pytest.mark.usefixtures("no_process_left")

MIB = 1 << 20


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """Return a folder like that of a cgroup of version 2, at 80 of 100 MiB."""
    for name, value in {"memory.max": 100 * MIB, "memory.current": 80 * MIB, "memory.high": "max"}.items():
        (tmp_path / name).write_text(f"{value}\n")
    return tmp_path


@pytest.mark.parametrize("is_changed_by_others", [False, True])
def test_a_hold_of_version_2_puts_back_what_was_there_unless_others_have_changed_it(
    second: Path, is_changed_by_others: bool
) -> None:
    hold = limits.LimitHold(second)
    high = second / "memory.high"
    assert int(high.read_text()) == 90 * MIB
    assert not hold.is_at_limit()
    (second / "memory.current").write_text(f"{95 * MIB}\n")
    assert hold.is_at_limit()
    if is_changed_by_others:
        high.write_text("1000\n")
    hold.release()
    hold.release()
    assert high.read_text().strip() == ("1000" if is_changed_by_others else "max")


def test_the_guard_puts_it_back_if_the_holder_is_killed(second: Path) -> None:
    ready, told = os.pipe()
    holder = os.fork()
    if not holder:
        limits.LimitHold(second)
        os.write(told, b"x")
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    assert (second / "memory.high").read_text() != "max\n"
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    until = time.monotonic() + SECONDS
    while (second / "memory.high").read_text().strip() != "max" and time.monotonic() < until:
        time.sleep(0.01)
    assert (second / "memory.high").read_text().strip() == "max"
    os.close(ready)
    os.close(told)
