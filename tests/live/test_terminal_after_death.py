"""A terminal echoes and hands on lines again when what changed its modes was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gdbmem.linux.process.terminal_modes import as_stty
from tests.conftest import Program
from tests.live.user import GDBMEM, User, environment, packages
from tests.murder.leader import LEADER
from tests.zoo.keeping import wait_until

pytestmark = [pytest.mark.needs("gdb", "gcc", "stty"), pytest.mark.usefixtures("no_process_left")]


def at_shell(words: list[str], folder: Path) -> User:
    """Return a user who has typed *words* in a shell, which outlives them and leaves the terminal as it is."""
    return User([sys.executable, "-I", "-S", LEADER, *words], folder, environment(TERM="xterm"), 60)


def kill_command(user: User) -> None:
    (command,) = psutil.Process(user.pid).children()
    command.kill()
    user.see("=== ended: 9 ===")


def end(user: User) -> None:
    os.kill(user.pid, signal.SIGKILL)
    user.child.close(force=True)


def test_the_terminal_echoes_again_when_a_monitor_with_a_chart_was_killed(tmp_path: Path) -> None:
    user = at_shell([GDBMEM, "monitor", "--for", "1min", str(os.getpid())], tmp_path)
    try:
        before = user.terminal_settings()
        assert wait_until(lambda: user.terminal_settings() != before, 20)
        time.sleep(0.2)
        kill_command(user)
        assert wait_until(lambda: user.terminal_settings() == before, 10)
    finally:
        end(user)


def test_a_shell_that_has_set_the_modes_itself_keeps_them_when_a_monitor_was_killed(tmp_path: Path) -> None:
    user = at_shell([GDBMEM, "monitor", "--for", "1min", str(os.getpid())], tmp_path)
    try:
        before = user.terminal_settings()
        assert wait_until(lambda: user.terminal_settings() != before, 20)
        (command,) = psutil.Process(user.pid).children()
        (keeper,) = [child for child in command.children() if child.name() == "sh"]
        keeper.suspend()
        kill_command(user)
        subprocess.run(["stty", "raw"], stdin=user.child.child_fd, check=True)
        own = user.terminal_settings()
        keeper.resume()
        assert wait_until(lambda: not keeper.is_running(), 10)
        assert user.terminal_settings() == own != before
    finally:
        end(user)


@pytest.mark.parametrize("engine", ["massif", "none"])
def test_the_terminal_echoes_again_when_a_launcher_was_killed_and_its_gdb_too(
    engine: str, program: Program, tmp_path: Path
) -> None:
    packages()
    user = at_shell([GDBMEM, "launch", "--engine", engine, str(program("goes_on"))], tmp_path)
    try:
        before = user.terminal_settings()
        user.prompt()
        assert wait_until(lambda: user.terminal_settings() != before, 5)
        (command,) = psutil.Process(user.pid).children()
        (gdb,) = [child for child in command.children() if child.name() == "gdb"]
        gdb.suspend()
        kill_command(user)
        gdb.kill()
        assert wait_until(lambda: user.terminal_settings() == before, 20)
    finally:
        end(user)


def test_modes_are_writtenas_stty_reads_them() -> None:
    import termios

    master, terminal = os.openpty()
    try:
        said = subprocess.run(
            ["stty", "-g"], stdin=terminal, capture_output=True, text=True, check=True
        ).stdout
        assert as_stty(termios.tcgetattr(terminal)) == said.strip()
        subprocess.run(["stty", "raw", "-echo"], stdin=terminal, check=True)
        said = subprocess.run(
            ["stty", "-g"], stdin=terminal, capture_output=True, text=True, check=True
        ).stdout
        assert as_stty(termios.tcgetattr(terminal)) == said.strip()
    finally:
        os.close(master)
        os.close(terminal)
