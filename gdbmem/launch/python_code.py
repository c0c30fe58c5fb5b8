"""Running a few lines of Python in a process: by PEP 768 from 3.14 on, else by one pending call.

The code runs in the main thread, at points where the interpreter itself handles such calls: never during an allocation
or another call. It cannot raise, and writes its result to a file that only it and we can write to. A separate process
of gdbmem schedules it, and withdraws it if gdbmem is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Optional, Protocol, cast

from gdbmem.allocators.cpython.frames import FrameReader
from gdbmem.errors import GdbmemError, TargetError
from gdbmem.inspection.stacks import frame_reader
from gdbmem.launch.python_calls import NotedCall, RemoteScript
from gdbmem.linux.files.target_files import has_our_view
from gdbmem.linux.holding.copying import Awaiting, Keeper, KeeperEndedError
from gdbmem.linux.holding.ptrace import Freeze
from gdbmem.linux.memory.maps import Mapping, read_maps
from gdbmem.linux.memory.process_memory import WritableMemory
from gdbmem.linux.process.process import check_analysable, ended, has_ended, own_tid
from gdbmem.linux.process.threads import call_name, parse_syscall
from gdbmem.model.python import PythonThread

_POLL_SECONDS = 0.002
_TRIES = 8  # if the main thread is at its recursion limit, or between two frames
_BREATH_SECONDS = 0.01
_TRY_AGAIN = ("python-code-too-deep", "python-code-no-result", "python-code-failed")
_LONGEST_RESULT = 4096
_LOOK_SECONDS = 1.0  # for a thread that calls and returns meanwhile
_WRAPPED = """\
try:
    exec({body!r}, {{"result_file": {file!r}}})
except BaseException:
    pass
"""
_BODY = """\
import os
try:
{code}
    text = "ok " + " ".join("%s=%d" % pair for pair in answer)
except BaseException as error:
    text = "failed " + type(error).__name__
descriptor = os.open(result_file, os.O_WRONLY | os.O_NOFOLLOW)
os.write(descriptor, (text + "\\n").encode("ascii", "replace"))
os.close(descriptor)
"""


class Placed(Protocol):
    """Code scheduled in a process."""

    @property
    def seconds_for_result(self) -> float:
        """The time limit for the result after has_run()."""

    def has_run(self) -> bool:
        """Return whether it has run, or started to."""

    def was_too_deep(self) -> bool:
        """Return whether it was not run because the thread was too close to its recursion limit."""

    def withdraw(self) -> bool:
        """Withdraw it; False if it has run or started meanwhile."""

    def clean_up(self) -> None:
        """Release its resources in the process, if it has run."""


class CodeResult(NamedTuple):
    """The answer of code that has run in a process."""

    numbers: dict[str, int]
    way: str  # "remote-exec" or "pending-call"
    waited_seconds: float
    pause_seconds: float  # 0: the process was never stopped


def run_in_python(pid: int, code: str, *, wait_seconds: float) -> CodeResult:
    """Run *code*, which sets ``answer`` to a list of names and integers, in the main thread of process *pid*.

    Waits for *wait_seconds* at most; then the code is withdrawn. Raises TargetError if it can't be run.
    """
    check_analysable(pid)
    _check_view(pid)
    for number in range(_TRIES):
        try:
            return _run_once(pid, code, wait_seconds)
        except TargetError as error:
            # Also if it was too deep in calls; it continues meanwhile.
            if error.slug not in _TRY_AGAIN or number == _TRIES - 1:
                raise
            time.sleep(_BREATH_SECONDS)
    raise AssertionError


class _AskerGoneError(Exception):
    """The process that waited for the result has ended."""


def _run_once(pid: int, code: str, wait_seconds: float) -> CodeResult:
    keeper = Keeper(_Work(pid, code, wait_seconds).done_for)
    try:
        result, _ = keeper.receive()
    except KeeperEndedError:
        raise TargetError(
            f"no code was run in process {pid}: the process of gdbmem that injects it was killed",
            slug="python-code-no-result",
            hint="type it again",
        ) from None
    finally:
        keeper.close()
    return cast("CodeResult", result)


class _Work(NamedTuple):
    """The work of the helper process that schedules the code."""

    pid: int
    code: str
    wait_seconds: float

    def done_for(self, asker: Awaiting) -> None:
        """Schedule the code, clean up, and answer with its result; withdraw it when *asker* ends."""
        try:
            with WritableMemory(self.pid) as memory, _result_file(self.pid) as (folder, file, descriptor):
                result = self._result(memory, folder, wrapped(self.code, file), descriptor, asker)
            asker.answer(result)
        except _AskerGoneError:
            return
        except Exception as error:  # noqa: BLE001  (it is raised by whoever waits for this)
            asker.fail(error)

    def _result(
        self, memory: WritableMemory, folder: Path, source: str, descriptor: int, asker: Awaiting
    ) -> CodeResult:
        pid = self.pid
        mappings = read_maps(pid)
        reader = _running_reader(pid, memory, mappings)
        placed, way, pause = _place(pid, memory, mappings, reader, folder, source)
        started = time.monotonic()
        try:
            text = _awaited(pid, placed, descriptor, self.wait_seconds, asker)
        except BaseException:
            with contextlib.suppress(GdbmemError):
                if not placed.withdraw():
                    placed.clean_up()
            raise
        waited = time.monotonic() - started
        with contextlib.suppress(GdbmemError):
            placed.clean_up()
        return CodeResult(_numbers(text), way, waited, pause)


def wrapped(code: str, file: Path) -> str:
    """Return *code* wrapped so that it can't raise, or leave a name in the program's own module."""
    body = _BODY.format(code="".join(f"    {line}\n" for line in code.splitlines()).rstrip("\n"))
    return _WRAPPED.format(body=body, file=str(file))


def _check_view(pid: int) -> None:
    try:
        same = has_our_view(pid)
    except OSError:
        raise ended(pid) from None
    if not same:
        raise TargetError(
            f"process {pid} is in another mount namespace, where its result cannot be read",
            slug="python-code-refused",
            hint="type it inside the container, or start the program with PYTHONTRACEMALLOC=1",
        )


def _running_reader(pid: int, memory: WritableMemory, mappings: list[Mapping]) -> FrameReader:
    """Return a reader of the frames. Refuse if the main thread runs no Python: while the interpreter starts or ends."""
    reader, main, unread = frame_reader(memory, mappings, pid), None, ""
    deadline = time.monotonic() + _LOOK_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(TargetError):  # it runs meanwhile
            main = _main_thread(pid, reader, memory)
            if main is not None and main.frames:
                return reader
        time.sleep(_POLL_SECONDS)
    # It changed in each sample, or is just making a call.
    for number in range(_TRIES):
        try:
            with Freeze(pid):
                main, unread = _main_thread(pid, reader, memory), ""
        except TargetError as error:
            main, unread = None, error.message
        if main is not None and main.frames:
            return reader
        time.sleep(_POLL_SECONDS * 2**number)  # on a busy machine it may be long before it runs again
    if unread:
        raise TargetError(
            f"the frames of the main thread of process {pid} can't be read: {unread}",
            slug="python-code-refused",
            hint="type it again",
        )
    if main is None and own_tid(pid) != pid:
        return reader  # its pid there is a different one
    raise TargetError(
        f"the main thread of process {pid} is not running Python code, so nothing can be run in it",
        slug="python-code-refused",
        hint="the interpreter may be ending, or another thread may be running it",
    )


def _main_thread(pid: int, reader: FrameReader, memory: WritableMemory) -> Optional[PythonThread]:
    threads = reader.threads(memory)
    return next((one for one in threads if one.interpreter == 0 and one.tid == pid), None)


@contextlib.contextmanager
def _result_file(pid: int) -> Iterator[tuple[Path, Path, int]]:
    """Yield a folder, and an empty file in it that the process may write to, with a descriptor of it."""
    owner = Path(f"/proc/{pid}").stat()
    folder = Path(tempfile.mkdtemp(prefix="gdbmem-python-"))
    try:
        file = folder / "result"
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if owner.st_uid != os.geteuid():
                folder.chmod(0o711)  # if the names are known to others
                os.chown(descriptor, owner.st_uid, owner.st_gid)
            yield folder, file, descriptor
        finally:
            os.close(descriptor)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _place(
    pid: int, memory: WritableMemory, mappings: list[Mapping], reader: FrameReader, folder: Path, source: str
) -> tuple[Placed, str, float]:
    """Schedule *source* in the main thread; return it, the method, and the duration of the stop."""
    offsets = reader.debug_offsets
    if offsets is not None and offsets.remote is not None:
        return RemoteScript.place(pid, memory, reader, folder, source), "remote-exec", 0.0
    call = NotedCall.place(pid, memory, reader, mappings, source)
    return call, "pending-call", call.pause_seconds


def _awaited(pid: int, placed: Placed, descriptor: int, wait_seconds: float, asker: Awaiting) -> bytes:
    """Return the result as soon as it is complete. Raises TargetError if there is none in time, and _AskerGoneError."""
    deadline = time.monotonic() + wait_seconds
    run_at: Optional[float] = None
    while True:
        text = os.pread(descriptor, _LONGEST_RESULT, 0)
        if text.endswith(b"\n"):
            return text
        if has_ended(pid):
            raise ended(pid)
        now = time.monotonic()
        if run_at is None and placed.has_run():
            if placed.was_too_deep():
                raise _too_deep(pid)
            run_at = now
        if run_at is not None and now > run_at + placed.seconds_for_result:
            raise TargetError(
                f"the code ran in process {pid}, but could not write its result",
                slug="python-code-no-result",
                hint="is /tmp full or closed to it?",
            )
        if run_at is None and now > deadline:
            raise _not_run(pid, placed, wait_seconds)
        if asker.has_gone(_POLL_SECONDS):
            raise _AskerGoneError


def _too_deep(pid: int) -> TargetError:
    return TargetError(
        f"the main thread of process {pid} has reached Python's recursion limit: nothing was run in it",
        slug="python-code-too-deep",
        hint="type it again: the code needs room for a hundred calls below the recursion limit",
    )


def _not_run(pid: int, placed: Placed, wait_seconds: float) -> TargetError:
    waits = _waits_in(pid)
    why = (
        f"its main thread waits in {waits}"
        if waits
        else "its main thread runs C code without returning to Python"
    )
    taken_back = "it was withdrawn" if placed.withdraw() else "it has begun to run meanwhile"
    return TargetError(
        f"the code was not run in process {pid} within {wait_seconds:g} s: {why}; {taken_back}",
        slug="python-code-not-run",
        hint="wait longer with --wait SECONDS, or make the process do something",
    )


def _waits_in(pid: int) -> str:
    try:
        found = parse_syscall(Path(f"/proc/{pid}/syscall").read_text())
    except OSError:
        return ""
    return "" if found is None else call_name(found.number)


def _numbers(text: bytes) -> dict[str, int]:
    """Return the numbers that the code has written; they are untrusted."""
    words = text.decode("ascii", "replace").split()
    numbers = {}
    for word in words[1:] if words[:1] == ["ok"] else ():
        name, _, value = word.partition("=")
        if value.isdecimal() and len(value) < 20:
            numbers[name] = int(value)
    if words[:1] != ["ok"] or len(numbers) != len(words) - 1:
        what = words[1] if words[:1] == ["failed"] and len(words) == 2 and words[1].isidentifier() else ""
        raise TargetError(
            f"the code failed in the process{f' with {what}' if what else ''}",
            slug="python-code-failed",
            hint="no change was reported",
        )
    return numbers
