"""The program that a monitor starts: its output goes to the user, and its lines may set marks."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable, Optional

from gdbmem.errors import InputError
from gdbmem.launch.program import NotExecutableError, NotFoundError
from gdbmem.linux.monitoring.sampling import ProcessFiles
from gdbmem.text import printable

_LAST_OUTPUT_SECONDS = 2.0  # a grandchild may keep the program's output open forever
_LONGEST_REPORT = 1 << 16


class WatchedProgram:
    """A child that is only watched: same terminal, same process group; it survives a killed monitor."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        stdout: Optional[str] = None,
        marks: Optional[re.Pattern[str]] = None,
        environment: Optional[Mapping[str, str]] = None,
        before_exec: Optional[Callable[[], None]] = None,
    ) -> None:
        """Start *words*; raises NotFoundError or NotExecutableError (127 and 126 in a shell).

        Lines of its output that match *marks* are reported by take_marks(); its output then is a pipe to a relay.
        """
        self.words = list(words)
        self._left: Optional[int] = None
        self._peak = 0
        target = None if stdout is None else _open(stdout)
        try:
            self._relay = None if marks is None else _Relay(marks, target)
            output = target if self._relay is None else self._relay.output
            try:
                self._process = self._start(output, environment, before_exec)
            finally:
                if self._relay is not None:
                    self._relay.close_output()
        finally:
            if target is not None:
                os.close(target)
        self.pid = self._process.pid

    def _start(
        self,
        stdout: Optional[int],
        environment: Optional[Mapping[str, str]],
        before_exec: Optional[Callable[[], None]],
    ) -> subprocess.Popen[bytes]:
        name = printable(self.words[0])
        try:
            environment = {**os.environ, **(environment or {})}
            # Inherited descriptors are the program's (a shell's <(…), make's jobserver, PMI_FD); those of this process
            # are closed at exec.
            return subprocess.Popen(
                self.words, stdout=stdout, env=environment, preexec_fn=before_exec, close_fds=False
            )
        except FileNotFoundError:
            raise NotFoundError(
                f"there is no program '{name}'",
                slug="program-not-found",
                hint="check the name, or give its path",
            ) from None
        except OSError as error:
            raise NotExecutableError(
                f"{name} can't be executed: {error.strerror}",
                slug="not-executable",
                hint="if it is the program itself, type: chmod +x",
            ) from None

    def poll(self) -> Optional[int]:
        """Return the exit status as a shell shows it (128+N for signal N); None while it runs.

        Until finish() it stays a zombie, for which the kernel shows the resource usage.
        """
        if self._process.returncode is None:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return None
            return ended.si_status if ended.si_code == os.CLD_EXITED else 128 + ended.si_status
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    def signal(self, number: signal.Signals) -> None:
        """Send *number* to it."""
        self._process.send_signal(number)

    def leave(self, status: int) -> None:
        """Make it continue when this process ends, with *status*."""
        self._left = status

    @property
    def peak_bytes(self) -> Optional[int]:
        """The peak RSS of it, or of a collected child; None before finish(), or if our own was higher.

        The kernel inherits the peak across an exec: the child has ours, and our own ru_maxrss that of our parent.
        """
        with contextlib.closing(ProcessFiles(os.getpid())) as files:
            own = files.status_sizes()["VmHWM"]
        return self._peak if self._peak > own else None

    @property
    def reports(self) -> Optional[int]:
        """The descriptor that can be read when take_marks() has something to return; None if lines set no marks."""
        return None if self._relay is None else self._relay.reports

    def take_marks(self) -> list[tuple[float, str]]:
        """Return the lines that matched since the last call, with the CLOCK_BOOTTIME at which they were written."""
        return [] if self._relay is None else self._relay.take()

    def finish(self) -> int:
        """Wait for its end and for the rest of its output; return its status."""
        status = self.poll()
        if status is None and self._left is not None:
            return self._left
        if self._process.returncode is None:
            _, ended, usage = os.wait4(self.pid, 0)  # the usage of this child only: compare starts several
            self._process.returncode = os.waitstatus_to_exitcode(ended)
            self._peak = 1024 * usage.ru_maxrss
        if self._relay is not None:
            self._relay.wait(_LAST_OUTPUT_SECONDS)
        status = self.poll()
        assert status is not None
        return status


class _Relay:
    """Copies the program's output to its destination, and survives if this process is killed."""

    def __init__(self, marks: re.Pattern[str], target: Optional[int]) -> None:
        """Copy *output* to *target*, or to our standard output."""
        end, self.output = os.pipe()
        self.reports, reports = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        script = Path(__file__).with_name("relay.py")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), marks.pattern, str(reports)],
                stdin=end, stdout=target, pass_fds=(reports,), cwd="/", start_new_session=True,
            )  # fmt: skip
        except OSError:
            os.close(self.output)
            os.close(self.reports)
            raise
        finally:
            os.close(end)
            os.close(reports)
        self._rest = b""

    def close_output(self) -> None:
        """Leave the output to the program alone."""
        os.close(self.output)

    def take(self) -> list[tuple[float, str]]:
        """Return the reports since the last call."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.reports, _LONGEST_REPORT):
                self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        found = []
        for line in lines:
            seconds, _, text = line.decode(errors="backslashreplace").partition(" ")
            found.append((float(seconds), text))
        return found

    def wait(self, seconds: float) -> None:
        """Wait for the end of the output, up to *seconds*."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise InputError(
            f"cannot write {printable(path)}: {error.strerror}", slug="bad-stream", hint="name another file"
        ) from None
