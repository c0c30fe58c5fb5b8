"""A process that receives Ctrl-C in the program's process group: the terminal does not send it to gdb's group."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Optional

from gdbmem.launch.child import die_with_parent


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
