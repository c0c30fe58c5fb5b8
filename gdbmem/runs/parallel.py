"""Parallel work in forked processes, because one Python process reads one file at a time."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
from collections.abc import Sequence
from typing import Any, Callable, Generic, NoReturn, Optional, TypeVar

_T = TypeVar("_T")


def side_by_side(tasks: Sequence[Callable[[], _T]]) -> list[_T]:
    """Return the results of *tasks*, in order; as many run in parallel as there are processors.

    Results must be picklable. A task that fails in another process is repeated in this one, so its exception is raised
    here.
    """
    at_once = min(len(tasks), len(os.sched_getaffinity(0)))
    if threading.active_count() > 1:  # a lock that one of them holds would stay locked in a forked process
        at_once = 1
    shares = [tasks[first::at_once] for first in range(at_once)]
    with contextlib.ExitStack() as stack:
        helpers = [stack.enter_context(_ForkedHelper(share)) for share in shares[1:]]
        found = [[task() for task in shares[0]], *(helper.results() for helper in helpers)]
    in_order: list[Any] = [None] * len(tasks)
    for first, results in enumerate(found):
        in_order[first::at_once] = results
    return in_order


class _ForkedHelper(Generic[_T]):
    """A forked process that does *tasks*, and ends with the context."""

    def __init__(self, tasks: Sequence[Callable[[], _T]]) -> None:
        self._tasks = tasks
        self._pid: Optional[int] = None

    def __enter__(self) -> _ForkedHelper[_T]:
        read_end, write_end = os.pipe()
        self._answer = os.fdopen(read_end, "rb")
        with contextlib.suppress(OSError):  # no process is to be had
            self._pid = os.fork()
        if self._pid == 0:
            _work(self._tasks, write_end)
        os.close(write_end)
        return self

    def results(self) -> list[_T]:
        """Return the results of the tasks; if the process failed, do them here."""
        data = self._answer.read()
        done: list[_T] = pickle.loads(data) if self._wait() == 0 else [task() for task in self._tasks]
        return done

    def _wait(self) -> int:
        if self._pid is None:
            return -1
        pid, self._pid = self._pid, None
        return os.waitpid(pid, 0)[1]

    def __exit__(self, *_: object) -> None:
        self._answer.close()
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._wait()


def _work(tasks: Sequence[Callable[[], Any]], write_end: int) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        data = pickle.dumps([task() for task in tasks], pickle.HIGHEST_PROTOCOL)
        with os.fdopen(write_end, "wb") as stream:
            stream.write(data)
        status = 0
    finally:  # silently: the process that started this one meets the same failure again
        os._exit(status)
