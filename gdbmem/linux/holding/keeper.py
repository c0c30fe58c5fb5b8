"""A helper process for work that must not be interrupted, which survives if gdbmem is killed meanwhile.

A tracer must not die while a thread of the traced process makes a call for it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, NoReturn

from gdbmem.errors import GdbmemError, TargetError
from gdbmem.files import close_all_but

_LENGTH = struct.Struct("=Q")


class KeeperEndedError(Exception):
    """It was ended before it answered."""


class Awaiting:
    """The keeper's connection to the process that started it."""

    def __init__(self, theirs: socket.socket) -> None:
        self._socket = theirs

    def answer(self, answer: object, *descriptors: int) -> None:
        """Send *answer*, unless the other side has ended."""
        with contextlib.suppress(OSError):
            data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
            socket.send_fds(self._socket, [_LENGTH.pack(len(data))], list(descriptors))
            self._socket.sendall(data)

    def fail(self, error: Exception) -> None:
        """Send *error*, which is raised on the other side."""
        if isinstance(error, GdbmemError):
            self.answer(error.parts)
        else:
            self.answer(error)

    def has_gone(self, seconds: float) -> bool:
        """Wait for *seconds*; return at once whether the other side has closed, or was killed."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def await_end(self) -> None:
        """Wait until the other side has closed, or was killed."""
        with contextlib.suppress(OSError):
            self._socket.recv(1)


class Keeper:
    """The process; close() ends it and waits for it."""

    def __init__(self, work: Callable[[Awaiting], None], *kept: int) -> None:
        """Call *work* in a new process, which keeps only the descriptors *kept*."""
        self._socket, theirs = socket.socketpair()
        self._child = os.fork()
        if self._child == 0:
            _work(work, theirs, kept)
        theirs.close()

    def receive(self) -> tuple[object, list[int]]:
        """Return the answer, and descriptors. Raises the error that was the answer, and KeeperEndedError."""
        head, found, _, _ = socket.recv_fds(self._socket, _LENGTH.size, 1)
        if len(head) < _LENGTH.size:
            raise KeeperEndedError
        data = bytearray()
        size = _LENGTH.unpack(head)[0]
        while len(data) < size and (piece := self._socket.recv(min(size - len(data), 1 << 20))):
            data += piece
        try:
            answer = pickle.loads(data)  # of this very program
        except (EOFError, pickle.UnpicklingError) as error:
            raise KeeperEndedError from error
        if isinstance(answer, dict):
            raise TargetError(**answer)
        if isinstance(answer, Exception):
            raise answer
        return answer, found

    def close(self) -> bool:
        """Make it finish, and wait for its end; return whether it ended by itself."""
        self._socket.close()
        try:
            return os.WIFEXITED(os.waitpid(self._child, 0)[1])
        except ChildProcessError:
            return False


@contextlib.contextmanager
def spared_for_want_of_memory() -> Iterator[None]:
    """Exempt this process from the OOM killer during the block, if we have the right.

    The block must not read data whose size another process chooses.
    """
    score = Path("/proc/self/oom_score_adj")
    before = score.read_text()
    with contextlib.suppress(OSError):
        score.write_text("-1000")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            score.write_text(before)


def _work(work: Callable[[Awaiting], None], theirs: socket.socket, kept: tuple[int, ...]) -> NoReturn:
    try:
        _leave(theirs.fileno(), *kept)
        work(Awaiting(theirs))
    finally:
        os._exit(0)


def _leave(*kept: int) -> None:
    """Detach from the terminal, the open files and the process group, so that signals to the group don't reach it."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    close_all_but(*kept)
    while os.open(os.devnull, os.O_RDWR) < 2:
        pass
