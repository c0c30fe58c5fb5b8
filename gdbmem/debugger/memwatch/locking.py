"""Other threads stand still during a step, until the stepped one turns out to wait for one of them."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple, Optional

import gdb

from gdbmem.debugger.target import NATIVE, target_kind
from gdbmem.linux.threads import Blocked, ThreadEye, can_see_calls, own_tid, thread_count
from gdbmem.text import printable

_POLL_SECONDS = 0.02
_ASLEEP_SECONDS = 0.03


@contextlib.contextmanager
def scheduler_locking(mode: Optional[str]) -> Iterator[None]:
    """Set gdb's scheduler-locking to *mode* (None: leave it), and put back what it was, whatever happens."""
    if mode is None:
        yield
        return
    before = locking()
    _later.cancel()
    set_locking(mode)
    try:
        yield
    finally:
        try:
            set_locking(before)
        except gdb.error:
            # Without a process gdb takes no other value than off: put it back as soon as there is one.
            _later.remember(before)


def locking() -> str:
    """Return gdb's scheduler-locking, or what it will be once there is a process again."""
    return _later.value or str(gdb.parameter("scheduler-locking"))


def set_locking(mode: str) -> None:
    """Set gdb's scheduler-locking."""
    if str(gdb.parameter("scheduler-locking")) != mode:
        gdb.execute(f"set scheduler-locking {mode}", to_string=True)


class _Later:
    """Puts scheduler-locking back when the next process starts."""

    def __init__(self) -> None:
        self.value = ""

    def remember(self, value: str) -> None:
        if not self.value:
            gdb.events.new_thread.connect(self._restore)
        self.value = value

    def cancel(self) -> None:
        if self.value:
            gdb.events.new_thread.disconnect(self._restore)
            self.value = ""

    def _restore(self, event: gdb.Event) -> None:
        with contextlib.suppress(gdb.error):
            set_locking(self.value)
            self.cancel()


_later = _Later()


class Wait(NamedTuple):
    """Why a step was interrupted."""

    blocked: Optional[Blocked]  # None: it ran for longer than the timeout
    seconds: float


Task = tuple[int, float]  # a thread's id in the kernel, and when its step began


class _Look:
    """Judges whether a step waits, from what its thread sleeps in and for how long."""

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
        # A thread that waits in a loop of its own never sleeps.
        return Wait(None, now - task[1]) if now - task[1] >= self._timeout else None

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
    """A thread of gdb's that looks whether the thread being stepped sleeps, and then interrupts it.

    It only reads /proc and sends a signal: gdb itself is never touched from here.
    """

    def __init__(self, pid: Optional[int], *, timeout_seconds: float) -> None:
        self._pid = pid if pid is not None and can_see_calls(pid) else None  # of this machine
        self._timeout = timeout_seconds
        self._mutex = threading.Lock()
        self._task: Optional[Task] = None
        self._fired: Optional[Wait] = None
        self._started = False
        self._end = _thread.allocate_lock()  # held until the watcher may end
        self._end.acquire()

    def begin(self, tid: int) -> None:
        """Watch *tid* from now on."""
        self._task = (tid, time.monotonic())
        if not self._started:
            self._start()

    def end(self) -> Optional[Wait]:
        """Stop watching; return why the step was interrupted, or None if it wasn't."""
        with self._mutex:
            self._task = None
            fired, self._fired = self._fired, None
        return fired

    def close(self) -> None:
        """Let the thread end; with no step to watch it can do nothing more."""
        self._end.release()

    def _start(self) -> None:
        self._started = True
        # gdb's signals (SIGINT, SIGCHLD) must go on reaching gdb's own thread.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            # threading.Thread would wait until it runs, which may take as long as ten steps.
            _thread.start_new_thread(self._watch, ())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _watch(self) -> None:
        look, former = _Look(self._pid, self._timeout), None
        # Waiting for a lock takes no Python: gdb's own thread needs the interpreter for each of its steps.
        while not self._end.acquire(timeout=_POLL_SECONDS):
            task = self._task
            if task is None or task is not former or self._fired is not None:
                former = task  # it has stepped on since the last look
                continue
            wait = look.at(task, time.monotonic())
            if wait is not None:
                self._fire(task, wait)
        look.close()

    def _fire(self, task: Task, wait: Wait) -> None:
        with self._mutex:
            if self._task != task or (self._pid is not None and thread_count(self._pid) < 2):
                return
            self._fired = wait
            if hasattr(gdb, "interrupt") and self._pid is None:
                gdb.interrupt()
            else:
                # SIGINT stops the program and is not passed on to it. Only the stepped thread can take it.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid if self._pid is not None else os.getpid(), signal.SIGINT)


def describe_wait(wait: Wait) -> str:
    """Return in words what the selected thread, just interrupted, waits for, and who holds it."""
    if wait.blocked is None:
        return f"ran for {wait.seconds:.1f} s with the other threads locked"
    if not wait.blocked.is_futex:
        return f"waited in {_function_of_call()}"
    address = wait.blocked.argument
    names = _frame_names()
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
    """Return gdb's number of the thread that holds the pthread mutex at *address*; None when it can't be told."""
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
        # The program's own number for it is another one where it has a PID namespace of its own.
        if tid == (own_tid(thread.ptid[0], thread.ptid[1]) if native else thread.ptid[1]):
            return int(thread.num)
    return None


def _symbol(address: int) -> str:
    try:
        said = str(gdb.execute(f"info symbol {address:#x}", to_string=True))
    except gdb.error:
        said = ""
    name = said.partition(" in section")[0]
    return printable(name.replace(" ", "")) if " in section" in said else f"{address:#x}"


def _frame_names() -> list[str]:
    names: list[str] = []
    frame = gdb.newest_frame()
    while frame is not None and len(names) < 8:
        names.append(frame.name() or "")
        frame = frame.older()
    return names


def _function_of_call() -> str:
    """Return the outermost function of the C library that the thread stands in."""
    name = "a system call"
    for candidate in _frame_names():
        if candidate.startswith("_") or "syscall" in candidate:
            continue
        return printable(candidate)
    return name
