"""A process of our own that copies another one, and ends and collects the copy when that is done with, or we are gone.

Whoever traces a process must not die while it makes that process's thread call clone(), nor before the process has
collected the copy. The rest of a look at a process takes long and much memory, so that it is what is killed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import struct
from typing import Callable, Generic, NoReturn, Protocol, TypeVar

from gdbmem.errors import GdbmemError, TargetError
from gdbmem.files import close_all_but
from gdbmem.linux.holding.copying import Copy
from gdbmem.linux.process_memory import ProcMemory

_LENGTH = struct.Struct("=Q")


class _HasCopy(Protocol):
    @property
    def copy(self) -> Copy: ...


_Made = TypeVar("_Made", bound=_HasCopy)


class CopyKeeper(Generic[_Made]):
    """Yield the result of *make*, with a copy of process *pid*; the copy ends with the context."""

    def __init__(self, pid: int, memory: int, make: Callable[[], _Made]) -> None:
        """Have *make* called, in a process that has the descriptor *memory*; raises what it raises."""
        self._pid = pid
        self._socket, theirs = socket.socketpair()
        self._child = os.fork()
        if self._child == 0:
            _keep(theirs, memory, make)
        theirs.close()
        try:
            self.made, self._memory = self._receive()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> CopyKeeper[_Made]:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._memory)
        self.close()

    def memory(self) -> ProcMemory:
        """Return the memory of the copy."""
        return ProcMemory(self.made.copy.pid, os.dup(self._memory))

    def close(self) -> None:
        """Have the copy end, and wait until it is collected."""
        self._socket.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._child, 0)

    def _receive(self) -> tuple[_Made, int]:
        head, found, _, _ = socket.recv_fds(self._socket, _LENGTH.size, 1)
        if len(head) < _LENGTH.size:
            raise self._ended()
        with self._socket.makefile("rb") as stream:
            data = stream.read(_LENGTH.unpack(head)[0])
        try:
            answer = pickle.loads(data)  # of this very program
        except (EOFError, pickle.UnpicklingError) as error:
            raise self._ended() from error
        if isinstance(answer, dict):
            raise TargetError(**answer)
        if isinstance(answer, Exception):
            raise answer
        return answer, found[0]

    def _ended(self) -> TargetError:
        return TargetError(
            f"no copy of process {self._pid} can be made: the process that makes it was ended",
            slug="copy-refused",
            hint="leave out --fork",
        )


def _keep(theirs: socket.socket, memory: int, make: Callable[[], _HasCopy]) -> NoReturn:
    """Call *make*, hand over what it made, and end the copy as soon as the other side says so, or has gone."""
    try:
        _leave(theirs, memory)
        try:
            made = make()
        except GdbmemError as error:
            _send(theirs, {"message": error.message, "slug": error.slug, "hint": error.hint})
        except Exception as error:  # noqa: BLE001  (it is raised by whoever waits for this)
            _send(theirs, error)
        else:
            try:
                with ProcMemory(made.copy.pid) as copied:
                    _send(theirs, made, copied.descriptor)
                theirs.recv(1)
            finally:
                made.copy.kill()
    finally:
        os._exit(0)


def _leave(theirs: socket.socket, memory: int) -> None:
    """Leave the terminal, and all that is open; nobody ends a group of processes with this one in it."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    close_all_but(theirs.fileno(), memory)
    while os.open(os.devnull, os.O_RDWR) < 2:
        pass


def _send(theirs: socket.socket, answer: object, *descriptors: int) -> None:
    with contextlib.suppress(OSError):  # nobody waits for it any more
        data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        socket.send_fds(theirs, [_LENGTH.pack(len(data))], list(descriptors))
        theirs.sendall(data)
