"""Running a few lines of Python in a process: by PEP 768 from 3.14 on, else by one pending call.

The code runs in the main thread, at points where the interpreter itself handles such calls: never during an allocation
or another call. It cannot raise, and writes its result to a file that only it and we can write to. A separate process
of gdbmem schedules it, and withdraws it if gdbmem is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import NamedTuple, Optional, Protocol, cast

from gdbmem.allocators.cpython.collector import CallDepth
from gdbmem.allocators.cpython.frames import FrameReader
from gdbmem.allocators.cpython.interpreters import RemoteDebugging
from gdbmem.errors import GdbmemError, TargetError
from gdbmem.inspection.stacks import frame_reader
from gdbmem.linux.elf.objects import images, symbol_values
from gdbmem.linux.files.target_files import TargetFiles, has_our_view
from gdbmem.linux.holding.copying import Awaiting, Keeper, KeeperEndedError, spared_for_want_of_memory
from gdbmem.linux.holding.injected_calls import calling, is_taking_signals, maps_of_thread
from gdbmem.linux.holding.ptrace import Freeze
from gdbmem.linux.holding.returning_thread import CallSites, ReturningThread, find_call_sites
from gdbmem.linux.memory.maps import Mapping, read_maps
from gdbmem.linux.memory.process_memory import WritableMemory
from gdbmem.linux.process.process import check_analysable, ended, has_ended, own_tid
from gdbmem.linux.process.threads import call_name, parse_syscall
from gdbmem.model.memory import MemoryUnreadable, word_at
from gdbmem.model.python import PythonThread

# The few instructions that a Python process calls for us, on x86-64.


HAS_RUN, TOO_DEEP, HAS_BEGUN = 1, 2, 3  # values of the flag
CALLS_NEEDED = 100  # calls: the lines need 12, an import hook of the program some more
_CALL_RAX = b"\xff\xd0"


class InterpreterFunctions(NamedTuple):
    """Addresses of functions of the interpreter."""

    add_pending_call: int
    run: int  # PyRun_SimpleString
    thread_state: int  # PyThreadState_Get
    recursion_limit: int  # Py_GetRecursionLimit


def noting_call(function: int, arguments: tuple[int, int], result: int) -> bytes:
    """Return a function that calls the one at *function*, and stores its return value (32 bits) at *result*.

    The byte after these four is then 1.
    """
    text = b"\xf3\x0f\x1e\xfa\x48\x83\xec\x08"  # endbr64; sub rsp, 8
    text += b"\x48\xbf" + arguments[0].to_bytes(8, "little")  # mov rdi, N
    text += b"\x48\xbe" + arguments[1].to_bytes(8, "little")  # mov rsi, N
    text += _call(function) + b"\x89\xc1"  # call; mov ecx, eax
    text += b"\x48\xb8" + result.to_bytes(8, "little") + b"\x89\x08"  # mov rax, result; mov [rax], ecx
    return text + b"\xc6\x40\x04\x01\x48\x83\xc4\x08\xc3"  # mov byte [rax+4], 1; add rsp, 8; ret


def instructions(functions: InterpreterFunctions, depth: CallDepth, flag: int) -> bytes:
    """Return a function that runs its argument, a Python text, if the thread is not too deep in calls.

    It sets the byte at *flag* to HAS_BEGUN before it reads the text, to HAS_RUN or TOO_DEEP at the end, and returns 0:
    an error would end the program. A thread that has
    overflowed, or would, gets no further call: in CPython 3.8 and 3.9 that leaves a state in which the program's own
    next overflow is fatal.
    """
    begin = b"\xf3\x0f\x1e\xfa\x53\x41\x54\x48\x83\xec\x08"  # endbr64; push rbx; push r12; sub rsp, 8
    begin += _flag(flag) + b"\xc6\x00" + bytes([HAS_BEGUN])  # mov byte [rax], HAS_BEGUN
    # mov rbx, rdi; call; mov r12, rax
    begin += b"\x48\x89\xfb" + _call(functions.thread_state) + b"\x49\x89\xc4"
    run = b"\x48\x89\xdf" + _call(functions.run)  # mov rdi, rbx; call
    run += b"\xb9" + HAS_RUN.to_bytes(4, "little") + b"\xeb\x05"  # mov ecx, HAS_RUN; jmp end
    refuse = b"\xb9" + TOO_DEEP.to_bytes(4, "little")  # mov ecx, TOO_DEEP
    end = _flag(flag) + b"\x88\x08\x31\xc0"  # mov [rax], cl; xor eax, eax
    end += b"\x48\x83\xc4\x08\x41\x5c\x5b\xc3"  # add rsp, 8; pop r12; pop rbx; ret
    return begin + _with_jumps(_checks(functions, depth), len(run)) + run + refuse + end


def _checks(functions: InterpreterFunctions, depth: CallDepth) -> list[tuple[bytes, bytes]]:
    """Return comparisons, each with its conditional jump."""
    # cmp byte [r12+N], 0; jne
    found = [(b"\x41\x80\xbc\x24" + _word(depth.overflowed) + b"\x00", b"\x0f\x85")]
    needed = b"\x3d" + _word(CALLS_NEEDED)  # cmp eax, N
    if depth.made is not None:
        # sub eax, [r12+N]
        counted = _call(functions.recursion_limit) + b"\x41\x2b\x84\x24" + _word(depth.made)
        found.append((counted + needed, b"\x0f\x8c"))  # jl
    for at in depth.remaining:
        found.append((b"\x41\x8b\x84\x24" + _word(at) + needed, b"\x0f\x8c"))  # mov eax, [r12+N]; cmp; jl
    return found


def _with_jumps(checks: list[tuple[bytes, bytes]], over: int) -> bytes:
    """Return the checks; each jumps over the following ones, and *over* bytes more."""
    text = b""
    for comparison, jump in reversed(checks):
        text = comparison + jump + _word(len(text) + over) + text
    return text


def _call(function: int) -> bytes:
    return b"\x48\xb8" + function.to_bytes(8, "little") + _CALL_RAX  # mov rax, N; call rax


def _flag(address: int) -> bytes:
    return b"\x48\xb8" + address.to_bytes(8, "little")  # mov rax, N


def _word(value: int) -> bytes:
    return value.to_bytes(4, "little")


_NEEDED = ("Py_AddPendingCall", "PyRun_SimpleString", "PyThreadState_Get", "Py_GetRecursionLimit")
_STOP_BIT = 1 << 5  # _PY_EVAL_PLEASE_STOP_BIT
_INTERPRETER_AT = 16  # in a thread's state
_PAGE = 4096
# Offsets in the two pages; the second one begins with the flag.
_NOTING, _RESULT, _TEXT = 2048, _PAGE + 8, _PAGE + 16
_READ_WRITE, _READ_EXECUTE, _PRIVATE_ANONYMOUS = 3, 5, 0x22
_TRIES = 5  # of a call that finds the list full, or its pages in use
_QUEUED = b"\0\0\0\0\1"  # at _RESULT: Py_AddPendingCall returned 0
_FAILED = (1 << 64) - 4096  # results from here on are errors


def refused(pid: int, why: str) -> TargetError:
    return TargetError(
        f"no code can be run in process {pid}: {why}",
        slug="python-code-refused",
        hint="start the program with PYTHONTRACEMALLOC=1 instead",
    )


class RemoteScript:
    """A script scheduled in the main thread by PEP 768."""

    seconds_for_result = 2.0  # it counts as run when it begins

    def __init__(self, memory: WritableMemory, pending: int, breaker: int) -> None:
        self._memory, self._pending, self._breaker = memory, pending, breaker

    @classmethod
    def place(
        cls, pid: int, memory: WritableMemory, reader: FrameReader, folder: Path, source: str
    ) -> RemoteScript:
        """Write *source* into *folder*, and its path into the process. Raises TargetError if it refuses that."""
        offsets = reader.debug_offsets
        assert offsets is not None and offsets.remote is not None
        remote = offsets.remote
        interpreter = reader.main_interpreter(memory)
        enabled = struct.unpack("<i", memory.read(interpreter + remote.enabled, 4))[0]
        if enabled != 1:
            raise refused(
                pid, "remote debugging is disabled in it (by PYTHON_DISABLE_REMOTE_DEBUG, or at build time)"
            )
        if offsets.threads_main is None:
            raise refused(pid, "its interpreter doesn't record which thread is the main one")
        thread = word_at(memory, interpreter + offsets.threads_main)
        if word_at(memory, thread + _INTERPRETER_AT) != interpreter:
            raise refused(pid, "its interpreter's record of the main thread does not match that thread")
        script = _script(folder, source)
        path = os.fsencode(script) + b"\0"
        if len(path) > remote.path_bytes:
            raise refused(pid, f"the path {script} is too long")
        return cls._written(pid, memory, thread, remote, path)

    @classmethod
    def _written(
        cls, pid: int, memory: WritableMemory, thread: int, remote: RemoteDebugging, path: bytes
    ) -> RemoteScript:
        support = thread + remote.support
        if memory.read(support + remote.pending_call, 4) != bytes(4):
            raise refused(pid, "another debugger has a script waiting in it")
        memory.write(support + remote.script_path, path)
        memory.write(support + remote.pending_call, struct.pack("<i", 1))
        placed = cls(memory, support + remote.pending_call, thread + remote.eval_breaker)
        placed._ask()
        return placed

    def _ask(self) -> None:
        breaker = word_at(self._memory, self._breaker)
        if not breaker & _STOP_BIT:
            self._memory.write(self._breaker, struct.pack("<Q", breaker | _STOP_BIT))

    def has_run(self) -> bool:
        if self._memory.read(self._pending, 4) == bytes(4):
            return True
        self._ask()  # the bit may have been lost: the interpreter changes other bits of that word
        return False

    def was_too_deep(self) -> bool:
        return False  # the interpreter checks itself, and has no state in which that would be fatal

    def withdraw(self) -> bool:
        if self._memory.read(self._pending, 4) == bytes(4):
            return False
        self._memory.write(self._pending, bytes(4))
        return True

    def clean_up(self) -> None:
        """Do nothing: no resources were taken."""


def _script(folder: Path, source: str) -> Path:
    script = folder / "script.py"
    script.write_text(source, "ascii")
    script.chmod(0o644)
    return script


class NotedCall:
    """A pending call of the main thread, in two pages that we map: instructions, and the source text."""

    seconds_for_result = 0.05  # it counts as run when it has ended

    def __init__(
        self, pid: int, memory: WritableMemory, sites: Optional[CallSites], pages: int, pause_seconds: float
    ) -> None:
        self._pid, self._memory, self._sites, self._pages = pid, memory, sites, pages
        self._is_withdrawn = False
        self.pause_seconds = pause_seconds

    @classmethod
    def place(
        cls, pid: int, memory: WritableMemory, reader: FrameReader, mappings: Sequence[Mapping], source: str
    ) -> NotedCall:
        """Make a thread of the process queue the call, or use one that was withdrawn and is still queued.

        Raises TargetError on failure.
        """
        functions, depth = _functions(pid, memory, mappings), reader.call_depth(memory)
        if depth is None:
            raise refused(pid, "the depth of its threads' calls is unknown")
        text = source.encode("ascii") + b"\0"
        if _TEXT + len(text) > 2 * _PAGE:
            raise ValueError("the text is longer than a page")
        sites = find_call_sites(pid, memory, mappings)
        pause = 0.0
        for number in range(_TRIES):
            if number:
                time.sleep(_BREATH_SECONDS)
            with spared_for_want_of_memory(), Freeze(pid) as freeze:
                pages = _withdrawn(memory, mappings, functions, depth)
                if pages:
                    memory.write(pages + _TEXT, text)
                elif not is_taking_signals(freeze):
                    pages = _placed(freeze, memory, sites, functions, depth, text)
            pause += freeze.pause_seconds
            if pages:
                return cls(pid, memory, sites, pages, pause)
        raise refused(pid, "its list of pending calls is full, or locked by a thread that does not run")

    def has_run(self) -> bool:
        return self._flag() in (HAS_RUN, TOO_DEEP)

    def was_too_deep(self) -> bool:
        return self._flag() == TOO_DEEP

    def _flag(self) -> int:
        return self._memory.read(self._pages + _PAGE, 1)[0]

    def withdraw(self) -> bool:
        """Clear the text: the call is still made, but does nothing, unless place() gives it another text."""
        if not self._is_withdrawn and not self._flag():
            self._memory.write(self._pages + _TEXT, b"\0")
            self._is_withdrawn = not self._flag()  # it may have begun just before
        return self._is_withdrawn

    def clean_up(self) -> None:
        """Unmap the two pages, unless a thread is still in them."""
        for _ in range(_TRIES):
            with spared_for_want_of_memory(), Freeze(self._pid) as freeze:
                inside = any(
                    self._pages <= one.program_counter < self._pages + 2 * _PAGE
                    for one in freeze.threads.values()
                )
                if self.has_run() and not inside and not is_taking_signals(freeze):
                    with _returning_thread(freeze, self._sites) as caller:
                        caller.system_call(caller.calls.munmap, self._pages, 2 * _PAGE)
                    return
            time.sleep(_BREATH_SECONDS)


def _functions(pid: int, memory: WritableMemory, mappings: Sequence[Mapping]) -> InterpreterFunctions:
    """Return the addresses of the functions of the interpreter that are needed."""
    if os.uname().machine != "x86_64":
        raise refused(pid, "before CPython 3.14 this is supported on x86-64 only")
    with TargetFiles(pid) as files:
        for image in sorted(
            images(memory, mappings), key=lambda one: "python" not in PurePath(one.name).name
        ):
            found = symbol_values(partial(files.open, image.name), _NEEDED)
            if len(found) == len(_NEEDED):
                return InterpreterFunctions(*(image.bias + found[name] for name in _NEEDED))
    raise refused(pid, f"its interpreter does not export {', '.join(_NEEDED)}")


@contextlib.contextmanager
def _returning_thread(freeze: Freeze, sites: Optional[CallSites]) -> Iterator[ReturningThread]:
    with calling(freeze, maps_of_thread(freeze.pid), sites, refused) as caller:
        assert isinstance(caller, ReturningThread)  # on other machines this is not begun
        yield caller


def _withdrawn(
    memory: WritableMemory, mappings: Sequence[Mapping], functions: InterpreterFunctions, depth: CallDepth
) -> int:
    """Return the pages of a withdrawn call that is still queued in the stopped process; 0 if there is none.

    Each call takes one of the 32 places that the program's own calls need too, until the main thread continues.
    """
    for one in mappings:
        if one.name or one.inode or not one.permissions.startswith("r-xp"):
            continue
        pages = one.end - _PAGE  # writable memory follows, so that it ends there
        try:
            found = memory.read(pages, 2 * _PAGE)
        except MemoryUnreadable:
            continue
        code, noted = _code(functions, depth, pages)
        is_queued = found[_RESULT : _RESULT + 5] == _QUEUED and found[_PAGE] == found[_TEXT] == 0
        if is_queued and found.startswith(code) and found.startswith(noted, _NOTING):
            return pages
    return 0


def _code(functions: InterpreterFunctions, depth: CallDepth, pages: int) -> tuple[bytes, bytes]:
    """Return the instructions of a call, and those that queue it."""
    noted = noting_call(functions.add_pending_call, (pages, pages + _TEXT), pages + _RESULT)
    return instructions(functions, depth, pages + _PAGE), noted


def _placed(
    freeze: Freeze,
    memory: WritableMemory,
    sites: Optional[CallSites],
    functions: InterpreterFunctions,
    depth: CallDepth,
    text: bytes,
) -> int:
    """Map two pages, fill them, and queue the call; return the pages, 0 if it has to be retried."""
    with _returning_thread(freeze, sites) as caller:
        arguments = (0, 2 * _PAGE, _READ_WRITE, _PRIVATE_ANONYMOUS, (1 << 64) - 1, 0)
        pages = caller.system_call(caller.calls.mmap, *arguments)
        if pages >= _FAILED:
            raise refused(freeze.pid, os.strerror((1 << 64) - pages))
        code, noted = _code(functions, depth, pages)
        memory.write(pages, code)
        memory.write(pages + _NOTING, noted)
        memory.write(pages + _TEXT, text)
        if caller.system_call(caller.calls.mprotect, pages, _PAGE, _READ_EXECUTE):
            caller.system_call(caller.calls.munmap, pages, 2 * _PAGE)
            raise refused(freeze.pid, "it may not map executable memory")
        if not caller.function(pages + _NOTING, lambda: freeze.release_others(caller.tid)):
            return 0  # it may have been queued already
        if memory.read(pages + _RESULT, 5) == _QUEUED:
            return pages
        # The list is full: nothing refers to the pages.
        caller.system_call(caller.calls.munmap, pages, 2 * _PAGE)
        return 0


_POLL_SECONDS = 0.002
_MOST_CALLS = 8  # if the main thread is at its recursion limit, or between two frames
_BREATH_SECONDS = 0.01
_TRY_AGAIN = ("python-code-too-deep", "python-code-no-result", "python-code-failed")
_LONGEST_RESULT = 4096
_LOOK_SECONDS = 1.0  # for a thread that calls and returns meanwhile
_MOST_LOOKS = 10  # at a frozen one, which has the processor in between for the last time after two seconds
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
    for number in range(_MOST_CALLS):
        try:
            return _run_once(pid, code, wait_seconds)
        except TargetError as error:
            # Also if it was too deep in calls; it continues meanwhile.
            if error.slug not in _TRY_AGAIN or number == _MOST_CALLS - 1:
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
        reader = _reader_of_running(pid, memory, mappings)
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


def _reader_of_running(pid: int, memory: WritableMemory, mappings: list[Mapping]) -> FrameReader:
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
    for number in range(_MOST_LOOKS):
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
