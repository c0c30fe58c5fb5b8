"""A program that is not under valgrind, and the profiler in it."""

from __future__ import annotations

from typing import Optional

from gdbmem.launch.conversation.messages import AttachedPlan
from gdbmem.records import dataclass, field


@dataclass
class AttachedProcess:
    """The state of an attached process.

    *function*: the profiler's function by which it was recognised, or "". *notes*: the notices for its snapshots.
    """

    plan: AttachedPlan
    function: str
    is_on: bool = False
    notes: list[str] = field(default_factory=list)
    other_way: str = "'memexplain'"  # to read its memory if it has no profiler


@dataclass
class NativeProgram:
    """A native program and its profiler.

    *library*: what holds the profiler, or "". *prefix*: how the names of the profiler's own dumps begin. *began*:
    seconds since 1970, where this gdb's launcher knows it. *attached*: set where the process ran already.
    """

    engine: str
    library: str
    prefix: str
    began: Optional[float] = None
    attached: Optional[AttachedProcess] = None
