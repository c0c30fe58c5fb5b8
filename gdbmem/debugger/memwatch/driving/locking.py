"""Locking the other threads during a step, until the stepped one is found to wait for one of them."""

from __future__ import annotations

import _thread
import contextlib
import re
import threading
import time
from pathlib import PurePath
from typing import Callable, NamedTuple, Optional

import gdb

from gdbmem.debugger.location import frames_from
from gdbmem.debugger.memwatch.driving.capture import Capture
from gdbmem.debugger.program import NATIVE, start_soon, start_thread, target_kind
from gdbmem.debugger.stopping.ctrlc import interruptible
from gdbmem.debugger.stopping.interrupting import Interrupter, without_announcement
from gdbmem.debugger.terminal import library_at, symbol_at
from gdbmem.linux.process.process import own_tid
from gdbmem.linux.process.threads import Blocked, ThreadEye, can_see_calls, thread_count
from gdbmem.text import printable

_POLL_SECONDS = 0.02
_ASLEEP_SECONDS = 0.03
_SPUN_SECONDS = 0.1
_INNER = re.compile(r"^_*(?:GI_+)?(?:libc_|new_)?")


class Wait(NamedTuple):
    """The reason for which a step was interrupted."""

    blocked: Optional[Blocked]  # None: it ran for longer than the timeout
    seconds: float


Place = tuple[Optional[str], Optional[str], Optional[int]]  # function, file, line
Task = tuple[int, float, Place]  # a thread's id in the kernel, when its step began, and where

# Lines that ran for the whole timeout in a loop, with the other threads locked: the next time the
# others are released sooner.
_spun: set[Place] = set()


class _Look:
    """Judges whether a step waits, from the system call in which its thread sleeps, and how long."""

    def __init__(self, pid: Optional[int], timeout_seconds: float) -> None:
        self._pid = pid
        self._timeout = timeout_seconds
        self._eye: Optional[ThreadEye] = None
        self._seen: Optional[tuple[Task, Blocked]] = None
        self._since = 0.0

    def at(self, task: Task, now: float) -> Optional[Wait]:
        found = self._blocked(task[0])
        if found is not None and found.ends_by_itself:
            return None
        if self._seen != (task, found):
            self._seen = None if found is None else (task, found)
            self._since = now
        elif found is not None and now - self._since >= _ASLEEP_SECONDS:
            return Wait(found, now - task[1])
        # A thread that spins in a loop never sleeps.
        timeout = min(self._timeout, _SPUN_SECONDS) if task[2] in _spun else self._timeout
        return Wait(None, now - task[1]) if now - task[1] >= timeout else None

    def _blocked(self, tid: int) -> Optional[Blocked]:
        if self._pid is None:
            return None
        if self._eye is None or self._eye.tid != tid:
            self.close()
            self._eye = ThreadEye(self._pid, tid)
        return self._eye.blocked()

    def close(self) -> None:
        if self._eye is not None:
            self._eye.close()
            self._eye = None


class Watcher:
    """A thread of gdb that checks whether the stepped thread sleeps, and then interrupts it.

    It only reads /proc and interrupts; it never calls gdb.
    """

    def __init__(self, pid: Optional[int], interrupter: Interrupter, *, timeout_seconds: float) -> None:
        self._pid = pid if pid is not None and can_see_calls(pid) else None  # of this machine
        self.interrupter = interrupter
        self._timeout = timeout_seconds
        self._mutex = threading.Lock()
        self._task: Optional[Task] = None
        self._fired: Optional[Wait] = None
        self._started = False
        self._end = _thread.allocate_lock()  # held until the watcher may end
        self._end.acquire()

    def begin(self, tid: int, place: Place) -> None:
        """Start watching *tid*, which steps from *place*."""
        self._task = (tid, time.monotonic(), place)
        if not self._started:
            self._start()

    def end(self) -> Optional[Wait]:
        """Stop watching; return why the step was interrupted, or None if it wasn't."""
        with self._mutex:
            self._task = None
            fired, self._fired = self._fired, None
        return fired

    def close(self) -> None:
        """End the thread; no step is left to watch."""
        self._end.release()

    def _start(self) -> None:
        self._started = True
        start_soon(self._watch)

    def _watch(self) -> None:
        look, former = _Look(self._pid, self._timeout), None
        # Waiting for a lock does not hold the interpreter, which gdb's own thread needs for each step.
        while not self._end.acquire(timeout=_POLL_SECONDS):
            task = self._task
            if task is None or task is not former or self._fired is not None:
                former = task  # it has stepped since the last check
                continue
            wait = look.at(task, time.monotonic())
            if wait is not None:
                self._fire(task, wait)
        look.close()

    def _fire(self, task: Task, wait: Wait) -> None:
        with self._mutex:
            if self._task != task:
                return
            if self._pid is not None and thread_count(self._pid) < 2:
                return
            self._fired = wait
            if wait.blocked is None:
                _spun.add(task[2])
            self.interrupter.interrupt()


def describe_wait(wait: Wait) -> str:
    """Describe the wait of the selected thread, just interrupted, and the thread that it waits for."""
    if wait.blocked is None:
        return f"ran for {wait.seconds:.1f} s with the other threads locked"
    if not wait.blocked.is_futex:
        return f"waited in {_function_of_call()}"
    address = wait.blocked.argument
    names = [frame.name() or "" for frame in frames_from(gdb.newest_frame(), 8)]
    if any("cond_" in name or "cnd_" in name for name in names):
        return f"waited for condition variable {_symbol(address)}"
    if any("mutex" in name or "lll_lock" in name for name in names):
        owner = mutex_owner(address)
        held = f", held by thread {owner}" if owner else ""
        return f"waited for mutex {_symbol(address)}{held}"
    if any("sem_" in name for name in names):
        return f"waited for semaphore {_symbol(address)}"
    if any("join" in name for name in names):
        return "waited for another thread's end"
    return f"waited for {_symbol(address)} in {_function_of_call()}"


def mutex_owner(address: int) -> Optional[int]:
    """Return gdb's number of the thread that holds the pthread mutex at *address*; None if unknown."""
    try:
        # struct __pthread_mutex_s: lock, count, owner, each an int.
        data = bytes(gdb.selected_inferior().read_memory(address + 8, 4))
    except gdb.error:
        return None
    tid = int.from_bytes(data, "little")
    if not tid:
        return None
    native = target_kind() == NATIVE
    for thread in gdb.selected_inferior().threads():
        # The program sees a different number for it in a separate PID namespace.
        if tid == (own_tid(thread.ptid[0], thread.ptid[1]) if native else thread.ptid[1]):
            return int(thread.num)
    return None


def _symbol(address: int) -> str:
    return printable(symbol_at(address).replace(" ", "")) or f"{address:#x}"


def _function_of_call() -> str:
    """Return the function of the C library that the thread has called, without prefixes of internal names."""
    name, frame = "", gdb.newest_frame()
    while frame is not None and (not name or _is_inner(frame)):
        name = _INNER.sub("", frame.name() or "") or name
        frame = frame.older()
        if name == "syscall":
            name = ""  # its caller is more informative
    return printable(name) or "a system call"


def _is_inner(frame: gdb.Frame) -> bool:
    name, library = frame.name() or "", PurePath(library_at(frame.pc()) or "").name
    return name.startswith("_") or library.startswith(("libc.", "libc-", "libpthread", "ld-"))


# A thread of gdb that stops the running program when a condition becomes true. It never calls gdb.


class Alarm:
    """Polls *is_due* during the `with`, and interrupts process *pid* when it is true.

    Ctrl-C interrupts it, too.
    """

    def __init__(
        self, pid: int, is_due: Callable[[], bool], *, every_seconds: float, captured: bool = False
    ) -> None:
        """*captured*: a Capture holds back gdb's output about the stop."""
        self.captured = captured
        self._capture = None if captured else Capture()  # of gdb's output about our own stop
        self._interrupter = Interrupter(pid, at_first=self._hold)
        self._is_due = is_due
        self._every = every_seconds
        self._over = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._stack = contextlib.ExitStack()

    def _hold(self) -> None:
        if self._capture is not None and not self.captured:
            self._capture.hold()

    @property
    def stopped(self) -> bool:
        """True if this alarm stopped the program."""
        return self._interrupter.stopped

    @property
    def by_user(self) -> bool:
        """True if it was for Ctrl-C."""
        return self._interrupter.by_user

    def __enter__(self) -> Alarm:
        if self._capture is not None:
            self._capture.prepare()
        self._stack.enter_context(interruptible(self._interrupter))
        self._thread = start_thread(self._wait, "gdbmem-alarm")
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._capture is not None:
            self._capture.finish()
            self._capture.__exit__()
            gdb.write(without_announcement(self._capture.final_text))
        self._stack.close()

    def _wait(self) -> None:
        while not self._over.wait(self._every):
            if self._is_due():
                self._interrupter.interrupt()
                return
