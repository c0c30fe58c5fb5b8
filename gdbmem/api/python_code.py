"""Switching tracemalloc on and off in a running Python process: the only functions that run code in it."""

from __future__ import annotations

from gdbmem.launch.python.python_code import CodeResult, run_in_python
from gdbmem.model.python import TracingChange

__all__ = ["LONGEST_TRACEBACK", "TracingChange", "start_tracing", "stop_tracing"]

LONGEST_TRACEBACK = 65535  # frames, by tracemalloc's own limit
_WAIT_SECONDS = 10.0
_LOOK = """\
import _tracemalloc
was = _tracemalloc.is_tracing()
traced, overhead = _tracemalloc.get_traced_memory()[0], _tracemalloc.get_tracemalloc_memory()
"""
_ANSWER = """\
answer = (
    ("was_tracing", was), ("tracing", _tracemalloc.is_tracing()), ("frames", _tracemalloc.get_traceback_limit()),
    ("traced", traced), ("overhead", overhead),
)
"""


def start_tracing(pid: int, *, frames: int = 1, wait_seconds: float = _WAIT_SECONDS) -> TracingChange:
    """Start tracemalloc in process *pid* with *frames* of each traceback; if it is on already, nothing changes.

    Raises TargetError if no code can be run there, or if it has not run within *wait_seconds*.
    """
    start = f"if not was:\n    _tracemalloc.start({frames:d})\n"
    return _change(pid, run_in_python(pid, _LOOK + start + _ANSWER, wait_seconds=wait_seconds))


def stop_tracing(pid: int, *, wait_seconds: float = _WAIT_SECONDS) -> TracingChange:
    """Stop tracemalloc in process *pid* and discard its traces. Raises TargetError as `start_tracing` does."""
    return _change(
        pid, run_in_python(pid, _LOOK + "_tracemalloc.stop()\n" + _ANSWER, wait_seconds=wait_seconds)
    )


def _change(pid: int, result: CodeResult) -> TracingChange:
    said = result.numbers
    return TracingChange(
        pid, bool(said.get("was_tracing")), bool(said.get("tracing")), said.get("frames", 0),
        said.get("traced", 0), said.get("overhead", 0), result.way, result.waited_seconds, result.pause_seconds,
    )  # fmt: skip
