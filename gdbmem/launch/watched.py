"""The program that a monitor starts: its output is the user's, its lines may set marks."""

from __future__ import annotations

import collections
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Optional

from gdbmem.errors import InputError
from gdbmem.launch.program import NotExecutableError, NotFoundError
from gdbmem.text import printable


class WatchedProgram:
    """A child that is only watched: same terminal, same process group, it outlives a killed monitor."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        stdout: Optional[str] = None,
        marks: Optional[re.Pattern[str]] = None,
        environment: Optional[Mapping[str, str]] = None,
    ) -> None:
        """Start *words*; raises NotFoundError or NotExecutableError as a shell would say 127 and 126.

        Lines of its output that match *marks* are copied for take_marks(); its output then is a pipe.
        """
        self.words = list(words)
        self._marks = marks
        self._found: collections.deque[str] = collections.deque()
        self._reader: Optional[threading.Thread] = None
        target = None if stdout is None else _open(stdout)
        try:
            self._process = self._start(subprocess.PIPE if marks else target, environment)
            if marks is not None:
                copy_to = os.dup(sys.stdout.fileno() if target is None else target)
                self._reader = threading.Thread(target=self._copy, args=(copy_to,), daemon=True)
                self._reader.start()
        finally:
            if target is not None:
                os.close(target)
        self.pid = self._process.pid

    def _start(
        self, stdout: Optional[int], environment: Optional[Mapping[str, str]]
    ) -> subprocess.Popen[bytes]:
        name = printable(self.words[0])
        try:
            return subprocess.Popen(self.words, stdout=stdout, env={**os.environ, **(environment or {})})
        except FileNotFoundError:
            raise NotFoundError(
                f"no program '{name}'", slug="program-not-found", hint="check the name, or give its path"
            ) from None
        except OSError as error:
            raise NotExecutableError(
                f"{name} can't be executed: {error.strerror}",
                slug="not-executable",
                hint="is it the program itself? if so: chmod +x",
            ) from None

    def poll(self) -> Optional[int]:
        """Return the exit status as a shell shows it (128+N for signal N); None while it runs."""
        code = self._process.poll()
        return None if code is None else (code if code >= 0 else 128 - code)

    def signal(self, number: signal.Signals) -> None:
        """Send *number* to it."""
        self._process.send_signal(number)

    def take_marks(self) -> list[str]:
        """Return the lines that matched since the last call."""
        taken = []
        while self._found:
            taken.append(self._found.popleft())
        return taken

    def finish(self) -> int:
        """Wait for its end and for the rest of its output; return its status."""
        self._process.wait()
        if self._reader is not None:
            self._reader.join(2.0)  # a grandchild may hold the pipe open
        status = self.poll()
        assert status is not None
        return status

    def _copy(self, target: int) -> None:
        assert self._process.stdout is not None and self._marks is not None
        try:
            for line in self._process.stdout:
                os.write(target, line)
                text = line.decode(errors="backslashreplace").rstrip("\n")
                if self._marks.search(text):
                    self._found.append(text[:200])
        except OSError:
            pass  # the reader of our output has gone: the program gets EPIPE next
        finally:
            self._process.stdout.close()
            os.close(target)


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise InputError(
            f"cannot write {printable(path)}: {error.strerror}", slug="bad-stream", hint="name another file"
        ) from None
