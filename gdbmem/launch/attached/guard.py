"""Letting an attached process go when gdb or the launcher is killed.

A process of our own outlives both: it has a gdb without its launcher end, which detaches on SIGHUP, takes out the
breakpoints that a killed gdb left, and lets a process go on that a killed gdb left stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Container
from pathlib import Path
from typing import NoReturn, Optional

from gdbmem.errors import GdbmemError, Notice, TargetError
from gdbmem.files import close_all_but
from gdbmem.launch.attached.call_lock import hold_calls
from gdbmem.linux.files.target_side import TargetSide
from gdbmem.linux.holding.planted_breakpoints import planted, take_out
from gdbmem.linux.process.process import process_facts
from gdbmem.linux.process.processes import stat_of
from gdbmem.records import asdict
from gdbmem.runs.run import Run
from gdbmem.text import plural

_AGAIN_SECONDS = 2.0  # until a gdb, which may be busy reading symbols, gets the next signal
_LET_GO_SECONDS = 5.0
_MOST = 100  # breakpoints that the exit status can count
_UNKNOWN = 101
KILLED = "launcher-killed"  # the slug of what a run then says


class Guard:
    """Over process *pid*, while gdb is attached to it. End with dismiss() or let_go()."""

    def __init__(self, pid: int, side: TargetSide, calls: Path, run: Run, *, is_stopped: bool) -> None:
        """Begin to watch; *is_stopped*: it is to stay so.

        *calls* is the file of the lock under which gdb calls; *run* gets a warning of what was done in the place of a
        killed launcher.
        """
        before: Container[int] = ()
        lock = os.open(calls, os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            before = frozenset(planted(pid, side))
        end, self._pipe = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            _watch(end, lock, pid, before, run, is_stopped=is_stopped)
        os.close(end)
        os.close(lock)

    def watch(self, gdb: int) -> None:
        """Have process *gdb* let the target go should this process be killed."""
        self._tell(f"{gdb}\n")

    def dismiss(self) -> None:
        """Do nothing: gdb has let the process go."""
        self._tell("done\n")
        self._end()

    def let_go(self) -> Optional[int]:
        """See to the process that a killed gdb has left; return how many breakpoints it left, None if unknown."""
        count = self._end()
        return None if count == _UNKNOWN else count

    def _tell(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, line.encode())

    def _end(self) -> int:
        os.close(self._pipe)
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        except ChildProcessError:
            return _UNKNOWN


# -- in the process that outlives us ----------------------------------------------------------------------


def _watch(end: int, lock: int, pid: int, before: Container[int], run: Run, *, is_stopped: bool) -> NoReturn:
    """Wait until the launcher says that it is done, or has gone; never return."""
    status, launcher = _UNKNOWN, os.getppid()
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.chdir("/")
        end, lock = _kept_alone(end, lock)
        began = _began(pid)
        words = _words(end)
        if words[-1:] == ["done"]:
            status = 0
        else:
            hold_calls(lock, _LET_GO_SECONDS)
            _end_gdb(pid, int(words[-1]) if words else None)
            if began is not None and _began(pid) == began:
                status = _clear(pid, before, is_stopped=is_stopped)
            if os.getppid() != launcher:
                _note(run, pid, status)
    finally:
        os._exit(status)


def _note(run: Run, pid: int, count: int) -> None:
    """Have *run* say what was done: nobody else will."""
    text = f"gdbmem was killed while gdb was attached to process {pid}; gdb was made to let it go"
    if 0 < count < _UNKNOWN:
        text += f", and {plural(count, 'breakpoint')} that gdb had left in it taken out"
    with contextlib.suppress(GdbmemError, OSError):
        run.update(warnings=[*run.facts.get("warnings", []), asdict(Notice(KILLED, text))])


def _kept_alone(*descriptors: int) -> list[int]:
    """Close all but *descriptors*; return their new numbers, the null device being the first three."""
    kept = [os.dup2(os.dup(descriptor), 1000 + number) for number, descriptor in enumerate(descriptors)]
    close_all_but(*kept)
    for _ in range(3):  # nothing is said on a terminal, nor to what is opened first
        os.open(os.devnull, os.O_RDWR)
    return kept


def _words(end: int) -> list[str]:
    text = b""
    while True:
        piece = os.read(end, 4096)
        if not piece:
            return text.decode().split()
        text += piece


def _began(pid: int) -> Optional[int]:
    stat = stat_of(pid)
    return None if stat is None or stat.has_ended else stat.start_ticks


def _end_gdb(pid: int, gdb: Optional[int]) -> None:
    """Have *gdb* detach from *pid*; kill it only where it doesn't."""
    began = None if gdb is None else _began(gdb)
    if gdb is not None and began is not None:
        # On SIGTERM a busy gdb leaves its breakpoints in the process. It loses a SIGHUP that it gets at a wrong moment,
        # and all of them where nohup started it.
        gentle = [(signal.SIGHUP, _AGAIN_SECONDS)] * 3 + [(signal.SIGTERM, _AGAIN_SECONDS)] * 7
        for number, seconds in (*gentle, (signal.SIGKILL, _LET_GO_SECONDS)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if number == signal.SIGKILL:
                    os.kill(pid, signal.SIGSTOP)  # its threads go no further than to where they stop
                os.kill(gdb, number)
                os.kill(gdb, signal.SIGCONT)  # one that Ctrl-Z has stopped would not come to its signals
            deadline = time.monotonic() + seconds
            while _began(gdb) == began and time.monotonic() < deadline:
                time.sleep(0.01)
            if _began(gdb) != began:
                break
    deadline = time.monotonic() + _LET_GO_SECONDS
    while _is_traced(pid) and time.monotonic() < deadline:
        time.sleep(0.01)


def _is_traced(pid: int) -> bool:
    try:
        return process_facts(pid).tracer != 0
    except TargetError:
        return False


def _clear(pid: int, before: Container[int], *, is_stopped: bool) -> int:
    try:
        with TargetSide(pid) as side:
            count = take_out(pid, before, side)
        if not is_stopped and process_facts(pid).state == "T":
            os.kill(pid, signal.SIGCONT)
    except (TargetError, OSError):
        return _UNKNOWN
    return _UNKNOWN if count is None else min(count, _MOST)
