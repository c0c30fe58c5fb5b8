"""A separate terminal for the program (--own-terminal), connected to the one that gdb runs on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import termios
from typing import Any, Callable, Optional

from gdbmem.launch.child import die_with_parent

_END_OF_INPUT = b"\x04"


def _as_typed(settings: list[Any]) -> list[Any]:
    """Return terminal *settings* that pass each key on at once and unchanged, except Ctrl-C."""
    changed = [*settings[:6], list(settings[6])]
    changed[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON)
    changed[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
    changed[6][termios.VMIN], changed[6][termios.VTIME] = 1, 0
    return changed


class OwnTerminal:
    """A pseudo-terminal: the program's output is printed here; keys typed while it runs are its input.

    For programs that open /dev/tty or want isatty() and the window's size to be right. gdb reads the
    keyboard only at its prompt, so what is typed goes to the program, key by key, exactly while gdb lets it run.
    """

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.copy_size()
        self._running = False
        # Settings of the keyboard's terminal while the program has it.
        self._settings: Optional[list[Any]] = None

    def become_controlling(self) -> None:
        """Called in the child, in its new session: make this its controlling terminal."""
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def copy_size(self) -> None:
        """Give it the size of our terminal."""
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))

    def hear(self, running: bool) -> None:
        """Handle gdb's message that the program runs, and has the keyboard, or has stopped."""
        self._running = running
        with contextlib.suppress(termios.error):
            if running:
                self._settings = termios.tcgetattr(0)
                termios.tcsetattr(0, termios.TCSADRAIN, _as_typed(self._settings))
            elif self._settings is not None:
                termios.tcsetattr(0, termios.TCSADRAIN, self._settings)
                self._settings = None

    def sources(self) -> dict[int, Callable[[], None]]:
        """Return the descriptors to read now, each with its handler."""
        found: dict[int, Callable[[], None]] = {self.master: self._show}
        if self._running and os.isatty(0):
            found[0] = self._feed
        return found

    def _show(self) -> None:
        data = self._read(self.master)
        if data:
            os.write(1, data)

    def _feed(self) -> None:
        data = self._read(0)
        if data is not None:
            os.write(self.master, data or _END_OF_INPUT)

    @staticmethod
    def _read(descriptor: int) -> Optional[bytes]:
        try:
            return os.read(descriptor, 1 << 16)
        except OSError:  # EIO: the other end is not open at this moment
            return None

    def close(self) -> None:
        os.set_blocking(self.master, False)
        while data := self._read(self.master):  # the program's last output
            os.write(1, data)
        os.close(self.master)
        os.close(self.slave)


# A process that receives Ctrl-C in the program's process group: the terminal does not send it to gdb's group.


class Ear:
    """Joins the process group of a native program; each Ctrl-C sent to that group also reaches this process."""

    def __init__(self) -> None:
        self._group = 0
        self._pid: Optional[int] = None

    def move_to(self, pid: int) -> None:
        """Listen in the group of process *pid*; do nothing if we receive its signals anyway."""
        try:
            group = os.getpgid(pid)
        except ProcessLookupError:
            return
        if group == self._group:
            return
        self.close()
        self._group = group
        if group == os.getpgrp() or os.getsid(pid) != os.getsid(0):
            return
        us = os.getpid()
        self._pid = os.fork()  # safe here: this process has one thread
        if not self._pid:
            with contextlib.suppress(BaseException):
                _listen(us, group)
            os._exit(0)

    def close(self) -> None:
        """End it."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        self._pid, self._group = None, 0


def _listen(parent: int, group: int) -> None:
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    die_with_parent(signal.SIGKILL, parent)
    os.setpgid(0, group)
    while os.getppid() == parent:
        signal.sigwait((signal.SIGINT,))
        os.kill(parent, signal.SIGINT)
