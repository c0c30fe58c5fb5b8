"""Entry point of the shell's `gdbmem`, and the signals that end it.

Ctrl-C ends it without a traceback also during the imports (`gdbmem.__main__`); afterwards it is delayed to the end of
an import, of the start of another program or of what a `with` statement puts back. An interrupted import leaves a
partly initialised module: numpy can't be imported again after that. An interrupted start leaves a process that is never
ended; so does a second Ctrl-C while the first one ends them.
"""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType
from typing import Optional

_AGAIN_SECONDS = 0.01
# What blocks, for example on a dead file server, is still interrupted. On a busy machine a start takes seconds.
_LONGEST_IMPORT_SECONDS, _LONGEST_STEP_SECONDS = 1.0, 10.0
_STEPS = {
    "subprocess.py": ("__init__", "_execute_child"),  # the process is there, its Popen not yet
    "batch_gdb.py": ("_start",),
    "contextlib.py": ("__exit__",),
}

_first_at: list[float] = []  # the time of the signal that is pending until then


def main() -> int:
    """Run the `gdbmem` command with this process's arguments and return its exit status."""
    if "--one-per-node" in sys.argv:
        from gdbmem.cli.monitor_one_per_node import execute_where_recorded  # for it only

        execute_where_recorded(sys.argv[1:])
    from gdbmem.cli.main import main as run_command  # a rank that executes its program needs none of it

    return run_command()


def raise_between_steps() -> None:
    """Make SIGINT raise KeyboardInterrupt as by default, but only after a step that is under way: see the module."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):
        signal.signal(signal.SIGINT, _interrupt)


def forget_interrupts() -> None:
    """Let Ctrl-C end the process at once: the command is done, and in Python's shutdown it would be a traceback."""
    if signal.getsignal(signal.SIGALRM) is _interrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def unwind_when_ended() -> None:
    """Make SIGTERM and SIGHUP raise an exception, so that the copy is collected and does not remain a zombie child."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda received, frame: sys.exit(128 + received))


def _interrupt(_number: int, frame: Optional[FrameType]) -> None:
    now = time.monotonic()
    if now < (_first_at or [now])[0] + _longest_delay(frame):
        if not _first_at:
            _first_at.append(now)
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
        return
    _first_at.clear()
    raise KeyboardInterrupt


def _longest_delay(frame: Optional[FrameType]) -> float:
    """Return for how many seconds what is under way in *frame* may delay a Ctrl-C; 0 if nothing is."""
    longest = 0.0
    while frame is not None:
        code = frame.f_code
        if code.co_name in _STEPS.get(code.co_filename.rpartition("/")[2], ()):
            return _LONGEST_STEP_SECONDS
        if code.co_filename.startswith("<frozen importlib"):
            longest = _LONGEST_IMPORT_SECONDS
        frame = frame.f_back
    return longest
