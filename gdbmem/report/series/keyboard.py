"""Reading single keys in a process that a shell may move to the background and back."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from typing import Optional

from gdbmem.linux.process.terminal_modes import TerminalModes

_NOT_OURS_SECONDS = 0.05  # interval of checks whether this process may read the terminal again


def in_foreground() -> bool:
    """Return whether this process is in the foreground; otherwise using the terminal would stop it."""
    for descriptor in (0, 2):
        with contextlib.suppress(OSError):  # no terminal, or not our controlling one
            return os.tcgetpgrp(descriptor) == os.getpgrp()
    return True


def reads_keys() -> bool:
    """Return whether a program on the terminal of the standard error reads single keys, as editors and pagers do."""
    with contextlib.suppress(OSError, termios.error):
        return not termios.tcgetattr(2)[3] & termios.ICANON
    return False


class Keyboard:
    """The terminal on the standard input, if it is one."""

    def __init__(self) -> None:
        """Change nothing yet."""
        self._modes: Optional[TerminalModes] = None  # the terminal's original settings

    def __enter__(self) -> Keyboard:
        if sys.stdin is not None and sys.stdin.isatty():
            self._modes = TerminalModes(sys.stdin.fileno())
            self.keep()
        return self

    def __exit__(self, *_: object) -> None:
        if self._modes is not None:
            if in_foreground():
                self._modes.restore()
            self._modes.close()

    def keep(self) -> None:
        """Set the mode for single keys again, because a shell that had the terminal meanwhile has changed it."""
        if self._modes is not None and in_foreground():
            local_modes = termios.tcgetattr(sys.stdin.fileno())[3]
            if local_modes & termios.ICANON:
                tty.setcbreak(sys.stdin.fileno())
                self._modes.note_ours()

    @property
    def descriptor(self) -> Optional[int]:
        """The descriptor to wait for; None without a terminal."""
        return sys.stdin.fileno() if self._modes is not None else None

    def read(self) -> Optional[str]:
        """Return the pending key, "" at the end of the input; None if there is none for this process."""
        if not in_foreground():
            time.sleep(_NOT_OURS_SECONDS)
            return None
        if not select.select([sys.stdin], [], [], 0)[0]:
            return None
        return os.read(sys.stdin.fileno(), 1).decode(errors="replace")
