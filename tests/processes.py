"""Finding the processes that a test has started, wherever they have gone since; one without its main thread."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

# A variable that every process a test starts inherits, and theirs: no other valgrind or gdb has it.
MARKER = "GDBMEM_TEST"


def marked_processes(mark: str) -> dict[int, str]:
    """Return pid → command line of the processes with *mark* in their environment, but this one."""
    entry = f"{MARKER}={mark}".encode()
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            # A zombie that its parent has yet to reap has an empty environment: it is gone.
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = words.decode(errors="replace").strip()
        except OSError:
            continue  # gone meanwhile, or another user's
    return found


@contextlib.contextmanager
def without_main_thread(*, at_once: bool = True) -> Iterator[int]:
    """Yield a process whose main thread ends, *at_once* or at a SIGUSR1, while another runs on; end it afterwards."""
    exit_call = 60 if platform.machine() == "x86_64" else 93  # of the calling thread alone
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1,))
        threading.Thread(target=time.sleep, args=(60,)).start()
        if not at_once:
            signal.sigwait((signal.SIGUSR1,))
        ctypes.CDLL(None).syscall(exit_call, 0)
    try:
        if at_once:
            await_no_main_thread(pid)
        yield pid
    finally:
        with contextlib.suppress(ChildProcessError):  # it was collected: its number may be another's by now
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def await_no_main_thread(pid: int) -> None:
    """Wait until the main thread of *pid* has ended."""
    deadline = time.monotonic() + 120
    while "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def threads_of(pid: int) -> dict[str, list[str]]:
    """Return the kernel's data on each thread: its state, its signals, and where it waits."""
    found = {}
    for folder in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            status = (folder / "status").read_text().splitlines()
            told = [line for line in status if line.startswith(("State", "TracerPid", "Sig", "ShdPnd"))]
            found[folder.name] = [
                *told,
                (folder / "wchan").read_text(),
                (folder / "syscall").read_text().strip(),
            ]
    return found
