"""A program run up to the moment of measurement: at rest, after a time, or at its end.

For the last of these its first thread is traced: the kernel stops it when it exits, before its memory is freed.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from gdbmem.errors import InputError, TargetError
from gdbmem.inspection.read_process import find_malloc, named_threads, read_process
from gdbmem.ledger.ledger import build_ledger
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.holding.ptrace import SEIZE, Freeze, held_threads, ptrace
from gdbmem.linux.memory.maps import parse_rss, read_maps
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.linux.process import process
from gdbmem.model.ledger import AFTER_TIME, AT_END, AT_REST, TUNABLES, Ledger
from gdbmem.setup.gdb_python import find_gdb, loader_file, quiet_environment, quiet_gdb
from gdbmem.text import printable

_CONTINUE, _LISTEN = 7, 0x4208
_TRACE_EXIT, _EXIT_EVENT, _STOP_EVENT = 0x40, 6, 128
_WALL = 0x40000000
_LOOK_SECONDS = 0.02
_REST_SECONDS = 1.0  # time for which a program must have been idle to be at rest
_REST_BUSY = 0.25  # fraction of the samples in that time that may find a running thread
_REST_GROWTH = 64 << 10
_GDB_SECONDS = 300.0
# It stops before the exec, so that we can trace it.
_GATE = 'kill -STOP $$; exec "$0" "$@"'


class MeasuredRun:
    """One run of a program; leaving it kills the program."""

    def __init__(self, words: Sequence[str], variable: str = "") -> None:
        """Start *words* with *variable*, NAME=VALUE, added to the environment."""
        self.words = list(words)
        with _standard_input() as stdin:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GATE, *self.words],
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                env=environment_with(variable),
                start_new_session=True,
                close_fds=False,
            )
        self.pid = self._process.pid
        self._status: Optional[int] = None
        self._trace()
        self.began = time.monotonic()
        self._looks: collections.deque[tuple[float, bool, int]] = collections.deque()

    def __enter__(self) -> MeasuredRun:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            ptrace(_CONTINUE, self.pid)  # a process stopped at its exit handles no signal
        while self._status is None:
            self.take_stops(wait=True)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.returncode = self._status  # it was collected here

    def _trace(self) -> None:
        os.waitpid(self.pid, os.WUNTRACED)
        try:
            ptrace(SEIZE, self.pid, 0, _TRACE_EXIT)
            os.kill(self.pid, signal.SIGCONT)
        except OSError as error:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            raise TargetError(
                f"the kernel does not allow tracing here ({error.strerror})",
                slug="ptrace-refused",
                hint="ptrace may be forbidden in this container, or by kernel.yama.ptrace_scope",
            ) from None

    def reach(self, seconds: Optional[float]) -> str:
        """Wait until the program is at rest, or for *seconds*, or until it ends; return which of these occurred."""
        while True:
            if self.take_stops():
                return AT_END
            if self._status is not None:
                raise self._ended_unseen()
            if seconds is not None:
                if time.monotonic() - self.began >= seconds:
                    return AFTER_TIME
            elif self._rests():
                return AT_REST
            time.sleep(_LOOK_SECONDS)

    def _ended_unseen(self) -> InputError:
        return InputError(
            f"{printable(self.words[0])} was killed before its memory could be measured",
            slug="no-series",
            hint="measure it earlier (--for TIME)",
        )

    def take_stops(self, *, wait: bool = False) -> bool:
        """Resume the first thread after each stop, with its signals; return True when it is stopped at its exit."""
        while self._status is None:
            try:
                pid, status = os.waitpid(self.pid, _WALL | (0 if wait else os.WNOHANG))
            except ChildProcessError:
                self._status = 0
                return False
            if not pid:
                return False
            if not os.WIFSTOPPED(status):
                self._status = status
                return False
            event, number = status >> 16, os.WSTOPSIG(status)
            if event == _EXIT_EVENT and not wait:
                return True
            stopped = event == _STOP_EVENT and number != signal.SIGTRAP
            with contextlib.suppress(OSError):
                ptrace(_LISTEN if stopped else _CONTINUE, self.pid, 0, 0 if event else number)
        return False

    def _rests(self) -> bool:
        now = time.monotonic()
        states = [process.stat_of(tid) for tid in process.thread_ids(self.pid)]
        busy = any(found is not None and found.state == "R" for found in states)
        self._looks.append((now, busy, _resident(self.pid) or 0))
        while now - self._looks[0][0] > _REST_SECONDS:
            self._looks.popleft()
        if now - self.began < _REST_SECONDS or now - self._looks[0][0] < 0.9 * _REST_SECONDS:
            return False
        sizes = [size for _, _, size in self._looks]
        running = sum(was_busy for _, was_busy, _ in self._looks)
        return running <= _REST_BUSY * len(sizes) and max(sizes) - min(sizes) <= _REST_GROWTH

    def rss_bytes(self) -> int:
        """Return the program's resident set."""
        size = _resident(self.pid)
        if size is None:
            raise self._ended_unseen()
        return size

    def children(self) -> int:
        """Return the number of living descendants of the program."""
        found = (process.stat_of(pid) for pid in process.descendants({self.pid}, process.parents()))
        return sum(stat is not None and not stat.has_ended for stat in found)

    def ledger(self, moment: str) -> Ledger:
        """Return the program's ledger; it is not traced afterwards."""
        with self._held(moment) as freeze, ProcMemory(self.pid) as memory, TargetFiles(self.pid) as files:
            malloc = find_malloc(memory, read_maps(self.pid), files)
            name = process.process_facts(self.pid).name
            threads = named_threads(self.pid, held_threads(freeze))
            return build_ledger(read_process(self.pid, name, memory, threads, malloc))

    @contextlib.contextmanager
    def _held(self, moment: str) -> Iterator[Freeze]:
        """Keep the program as it is: one at rest may end at any time, unless it is stopped."""
        if moment != AT_END:
            with Freeze(self.pid, seized={self.pid}) as freeze:
                yield freeze
            return
        freeze = Freeze(self.pid)
        freeze.adopt(self.pid)
        yield freeze

    def let_go(self) -> None:
        """Stop tracing it."""
        with Freeze(self.pid, only=self.pid, seized={self.pid}):
            pass


def trim_by_gdb(words: Sequence[str], seconds: Optional[float]) -> int:
    """Return the bytes that malloc_trim(0) returns, called by gdb at the moment of a MeasuredRun.

    Raises TargetError with the reason if it could not be called.
    """
    with MeasuredRun(words) as run:
        moment = run.reach(seconds)
        if moment != AT_END:
            run.let_go()
            try:
                return _returned(["-p", str(run.pid), "-ex", _MEMTRIM])
            except TargetError:
                if not process.has_ended(run.pid):
                    raise
    # No function can be called in an exiting process: gdb stops another run slightly earlier.
    before = ("set breakpoint pending on", "set disable-randomization off", "handle all nostop noprint pass")
    commands = [*before, "break _exit", "run", _MEMTRIM, "kill"]
    return _returned([*(word for line in commands for word in ("-ex", line)), "--args", *words])


_OF_ANY_ERROR = "Error while executing Python code."  # what gdb says after the reason
_MEMTRIM = 'python gdb.execute("memtrim --json -o " + __import__("os").environ["GDBMEM_TRIMMED"])'


def _returned(words: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="gdbmem-") as folder:
        answer = Path(folder) / "trim.json"
        with (
            _standard_input() as stdin,
            subprocess.Popen(
                [*quiet_gdb(find_gdb()), "-x", str(loader_file()), *words],
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=quiet_environment(GDBMEM_TRIMMED=str(answer)),
                start_new_session=True,
            ) as gdb,
        ):
            said = _what_it_says(gdb)
        try:
            returned: int = json.loads(answer.read_text())["returned_bytes"]
        except (OSError, ValueError, KeyError):
            lines = [line for line in os.fsdecode(said).strip().splitlines() if line != _OF_ANY_ERROR]
            raise TargetError(
                f"gdb could not call malloc_trim: {printable(lines[-1]) if lines else 'it reported no reason'}",
                slug="call-failed",
                hint="type 'memtrim' in a gdb on the program",
            ) from None
        return returned


def _what_it_says(gdb: subprocess.Popen[bytes]) -> bytes:
    try:
        return gdb.communicate(timeout=_GDB_SECONDS)[1]
    except subprocess.TimeoutExpired:
        os.killpg(gdb.pid, signal.SIGKILL)
        return b"it took too long"


def environment_with(variable: str) -> dict[str, str]:
    """Return this environment with *variable*, NAME=VALUE; a list of settings is added to those that it has."""
    name, _, value = variable.partition("=")
    if not name:
        return dict(os.environ)
    separator = ":" if name == TUNABLES else "," if name.endswith("MALLOC_CONF") else ""
    given = [os.environ[name]] if separator and os.environ.get(name) else []
    return {**os.environ, name: separator.join([*given, value])}


@contextlib.contextmanager
def _standard_input() -> Iterator[int]:
    """Yield the input of each run: our standard input from its beginning if it is a file, else an open, empty pipe."""
    number = -1
    with contextlib.suppress(OSError, ValueError):
        if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
            number = os.open(f"/proc/self/fd/{sys.stdin.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield subprocess.PIPE if number < 0 else number
    finally:
        if number >= 0:
            os.close(number)


def _resident(pid: int) -> Optional[int]:
    try:
        return parse_rss(Path(f"{process.memory_folder(pid)}/smaps_rollup").read_bytes())
    except OSError:
        return None
