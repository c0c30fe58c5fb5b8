"""The state of tracemalloc after it was started or stopped in a process, as text and JSON."""

from __future__ import annotations

from gdbmem.model.python import TracingChange
from gdbmem.records import asdict
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.document import head, to_json
from gdbmem.text import plural
from gdbmem.units import format_duration, format_size

_WAYS = {"remote-exec": "the interpreter's own remote debugging", "pending-call": "a pending call"}


def print_change(change: TracingChange, console: Console) -> None:
    """Print the change, how it was made, and the cost of tracing so far."""
    print_sentence(console, _answer(change), "bold")
    pause = (
        f"was stopped for {format_duration(change.pause_seconds)}"
        if change.pause_seconds
        else "was not stopped"
    )
    waited = format_duration(change.waited_seconds)
    console.print(f"Run by {_WAYS[change.way]}: the process {pause}; the result came after {waited}.")


def _answer(change: TracingChange) -> str:
    tables = f"{format_size(change.overhead_bytes)}, for {format_size(change.traced_bytes)} traced"
    depth = plural(change.frames, "frame")
    if change.was_tracing and change.is_tracing:
        return f"tracemalloc was already on in process {change.pid}, with {depth}; its tables take {tables}"
    if change.is_tracing:
        return (
            f"tracemalloc is on in process {change.pid}, with {depth} of each traceback; earlier allocations"
            f" are not traced, and 'gdbmem python traces {change.pid}' reads later ones"
        )
    if change.was_tracing:
        return f"tracemalloc is off in process {change.pid}; its tables took {tables}"
    return f"tracemalloc was not on in process {change.pid}"


def change_json(change: TracingChange) -> str:
    """Return *change* as ``kind=python-tracing``; sizes are bytes."""
    return to_json({**head("python-tracing", ()), "answer": _answer(change), **asdict(change)})
