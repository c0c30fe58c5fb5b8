"""The change of memory between two stops of the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

LOCKED, FREE, SHARED = "on", "off", "shared"


class Step(NamedTuple):
    """One step with its account; it belongs to the line that it started at. What is unknown is None.

    (A named tuple: a frozen dataclass takes ten times as long to make, and stepping makes thousands.)
    """

    command: str  # next, step, …, or "run" for what gdb's own commands did
    function: Optional[str]
    file: Optional[str]
    line: Optional[int]
    thread: Optional[int]  # gdb's number
    delta_bytes: Optional[int]  # of what `source` measures, by this thread; None: unknown
    total_bytes: Optional[int]  # since the account began
    source: str  # statm, smaps, pagemap, heap, massif, …
    exact: bool
    heap_delta_bytes: Optional[int] = None  # bytes in use by the allocator
    parts: Optional[Mapping[str, int]] = None  # what changed: heap, mmap, stack, file → bytes
    lock: str = FREE  # LOCKED: no other thread ran; SHARED: those of shared_threads did
    shared_threads: tuple[int, ...] = ()
    others_bytes: Optional[int] = None  # what they changed; None: unknown, and part of delta_bytes
    divided_exactly: bool = True  # False: the two were divided by page faults that don't explain all
    seconds: float = 0.0
    ended: str = ""  # why it ended where it did; "" for the ordinary end of the command
    note: str = ""

    @property
    def is_doubtful(self) -> bool:
        """True if other threads may have done some of it."""
        return self.lock == SHARED and (self.others_bytes is None or not self.divided_exactly)

    @property
    def key(self) -> tuple[Optional[str], Optional[int]]:
        """The line that the step belongs to."""
        return self.file, self.line
