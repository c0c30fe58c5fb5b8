"""The targets of a monitor: by pid, name, user or cgroup, those of an earlier run, or a program that it starts."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from gdbmem.errors import InputError, TargetError
from gdbmem.launch.program import NotExecutableError, NotFoundError
from gdbmem.linux.monitoring.cgroup import processes_in
from gdbmem.linux.monitoring.sampling import ProcessFiles
from gdbmem.linux.process import process
from gdbmem.linux.process.process import program_name, words_of
from gdbmem.recording.ranks_of_host import RanksHere
from gdbmem.runs.run import Run
from gdbmem.text import printable

_FIRST_RANK_SECONDS, _BETWEEN_SEARCHES = 30.0, 0.05


class WatchTarget(NamedTuple):
    """The watched processes: how to find them, their title, and the words that find them again."""

    find: Callable[[], set[int]]
    name: str
    words: dict[str, object]
    may_return: bool  # more of its kind may start after all have ended
    ranks: Optional[RanksHere] = None  # of a parallel job


class Wanted(NamedTuple):
    """The target as named by the user: one of these."""

    pids: Sequence[int] = ()
    name: Optional[re.Pattern[str]] = None  # of names and command lines
    user: Optional[str] = None
    cgroup: Optional[str] = None  # its folder
    job: Optional[str] = None  # of a launcher: its ranks on this host


def find_target(wanted: Wanted) -> WatchTarget:
    """Return the target *wanted*; raises TargetError or InputError if there is none."""
    if wanted.name is not None:
        return _named(wanted.name)
    if wanted.user is not None:
        return _user(wanted.user)
    if wanted.cgroup is not None:
        return _cgroup(wanted.cgroup)
    if wanted.job is not None:
        return _ranks_of(wanted.job)
    return _pids(dict.fromkeys(wanted.pids))


def _named(pattern: re.Pattern[str]) -> WatchTarget:
    return WatchTarget(
        lambda: process.by_name(pattern), pattern.pattern, {"name": pattern.pattern}, may_return=True
    )


def _pids(wanted: Mapping[int, Optional[int]]) -> WatchTarget:
    """Watch the *wanted* processes: pid → start ticks, None for the current process of that pid."""
    born = {}
    for pid, ticks in wanted.items():
        stat = process.stat_of(pid)
        if stat is None or (ticks is not None and stat.start_ticks != ticks):
            if ticks is not None:
                continue
            hint = (
                "with hidepid only root sees others' processes" if process.proc_is_hidden() else "see ps -e"
            )
            raise TargetError(f"there is no process {pid}", slug="no-such-process", hint=hint)
        born[pid] = (stat.start_ticks, program_name(stat.name, words_of(pid)))
    if not born:
        raise TargetError(
            "the processes of this run have ended", slug="no-such-process", hint="start a new run"
        )

    def find() -> set[int]:
        # The pid alone is not an identity: it is reused.
        return {p for p, (ticks, _) in born.items() if (s := process.stat_of(p)) and s.start_ticks == ticks}

    name = next(iter(born.values()))[1] + (f" and {len(born) - 1} more" if len(born) > 1 else "")
    return WatchTarget(
        find, name, {"pids": {str(pid): ticks for pid, (ticks, _) in born.items()}}, may_return=False
    )


def _user(name: str) -> WatchTarget:
    try:
        uid = int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise InputError(
            f"there is no user '{printable(name)}'", slug="no-such-user", hint="see getent passwd"
        ) from None
    return WatchTarget(lambda: process.by_user(uid), f"user {name}", {"user": name}, may_return=True)


def _cgroup(path: str) -> WatchTarget:
    folder = Path(path)
    try:
        (folder / "cgroup.procs").read_text()
    except OSError as error:
        raise InputError(
            f"{printable(path)} is not a cgroup that can be read: {error.strerror}",
            slug="no-such-cgroup",
            hint="name its folder, as in /sys/fs/cgroup/system.slice/NAME.service",
        ) from None

    words: dict[str, object] = {"cgroup": str(folder.resolve())}
    return WatchTarget(
        lambda: set(processes_in(folder)), f"cgroup {folder.name or path}", words, may_return=True
    )


def _ranks_of(job: str) -> WatchTarget:
    ranks = RanksHere(job)
    deadline = time.monotonic() + _FIRST_RANK_SECONDS
    while not ranks.find():
        if time.monotonic() > deadline:
            raise TargetError(
                f"no rank of the job {printable(job)} runs here",
                slug="no-such-process",
                hint="it is as the launcher names it in its variables: PMIX_NAMESPACE, SLURM_JOB_ID.STEP, …",
            )
        time.sleep(_BETWEEN_SEARCHES)
    return WatchTarget(ranks.find, f"ranks of {job}", {"job": job}, may_return=True, ranks=ranks)


def target_of_program(program: WatchedProgram) -> WatchTarget:
    """Watch a program started by the monitor."""
    stat = process.stat_of(program.pid)
    ticks = stat.start_ticks if stat else 0
    name = Path(program.words[0]).name

    def find() -> set[int]:
        return {program.pid} if program.poll() is None else set()

    return WatchTarget(
        find, name, {"pids": {str(program.pid): ticks}, "program": program.words}, may_return=False
    )


def find_again(run: Run) -> WatchTarget:
    """Return the target of *run*; raises InputError if it is not a run of a monitor."""
    words = run.facts.get("monitor")
    if not isinstance(words, dict):
        raise InputError(
            f"{printable(run.folder.name)} is not a run of a monitor",
            slug="no-series",
            hint="name one that 'gdbmem monitor' made",
        )
    if "name" in words:
        return _named(re.compile(words["name"]))
    if "user" in words:
        return _user(words["user"])
    if "cgroup" in words:
        return _cgroup(words["cgroup"])
    if "job" in words:
        return _ranks_of(str(words["job"]))
    return _pids({int(pid): ticks for pid, ticks in words["pids"].items()})


# A program that is started: its output goes to the user, and its lines may set marks.


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
        script = Path(__file__).with_name("program_output.py")
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
