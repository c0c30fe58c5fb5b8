"""The recording of a program's page faults beside gdb, from its first instruction on, and snapshots of it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path
from typing import Optional

import gdb

from gdbmem.debugger.command import warn
from gdbmem.debugger.location import real_pid
from gdbmem.errors import GdbmemError, TargetError, ToolError, sentence_of
from gdbmem.files import NEUTRAL_FOLDER
from gdbmem.inspection.interpreters import own_python

_WORKER = "gdbmem.api.growth_worker"


class _Worker:
    """One process that records; it ends with its standard input, and so with gdb."""

    def __init__(self, pid: int, period: int) -> None:
        """Begin to record process *pid*. Raises ToolError without an interpreter, TargetError for a refusal."""
        self.pid = pid
        python, environment = own_python("engine faults", _WORKER)
        self._process = subprocess.Popen(
            [*python, str(pid), str(period)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=NEUTRAL_FOLDER,
            start_new_session=True,  # Ctrl-C is for gdb
        )
        try:
            _refuse(self._answer())
        except BaseException:
            self.close()
            raise

    def write(self, path: Path) -> None:
        """Write a snapshot to the new file *path*. Raises TargetError if that is impossible."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(os.fsencode(path) + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise _gone(self.pid) from None
        answer = self._answer()
        while answer.get("file") != str(path):  # of one that Ctrl-C cut short
            answer = self._answer()
        _refuse(answer)

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()

    def _answer(self) -> dict[str, str]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise _gone(self.pid)
        return dict(json.loads(line))


def _refuse(answer: dict[str, str]) -> None:
    if "message" in answer:
        raise TargetError(answer["message"], slug=answer["slug"], hint=answer["hint"])


def _gone(pid: int) -> ToolError:
    return ToolError(
        f"the recording of process {pid}'s page faults has ended",
        slug="faults-recorder-gone",
        hint="start the program again: type 'run'",
    )


class ProgramFaults:
    """Follows the selected inferior: each process that gdb starts is recorded from its first instruction on."""

    def __init__(self) -> None:
        self._worker: Optional[_Worker] = None
        self._period = 0
        self._watches = False

    def follow(self, period: int) -> None:
        """Begin with the program that has just been started, and do so for those that come in its place."""
        self._period = period
        self._begin()
        if not self._watches:
            self._watches = True
            gdb.events.new_objfile.connect(self._symbols_come)

    def keep(self, path: Path) -> None:
        """Write a snapshot of the stopped process to the new file *path*. Raises GdbmemError."""
        pid = real_pid()
        if self._worker is None or self._worker.pid != pid:
            warn(
                "the page faults of this process are recorded from here on; earlier memory does not count as growth"
            )
            self._begin()
        assert self._worker is not None
        self._worker.write(path)

    def _begin(self) -> None:
        pid = real_pid()
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        assert pid is not None
        self._worker = _Worker(pid, self._period)

    # gdb reads symbols of a program that it has started before that runs.
    def _symbols_come(self, event: gdb.Event) -> None:
        pid = real_pid()
        if not pid or (self._worker is not None and self._worker.pid == pid):
            return
        try:
            self._begin()
        except GdbmemError as error:
            warn(sentence_of(error))


program_faults = ProgramFaults()
