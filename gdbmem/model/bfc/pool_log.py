"""Pools of memory as a log describes them: dumps of allocators, and refusals that came without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.model.bfc.pools import Allocator
from gdbmem.records import dataclass


@dataclass(frozen=True)
class Refusal:
    """A device, or a framework, that gave no memory; nothing is known of a pool."""

    line: int  # from 1
    text: str  # of the log, a stranger's
    size_bytes: Optional[int] = None  # that were asked for
    times: int = 1  # this often in a row, as an allocator backs off


@dataclass(frozen=True)
class PoolLog:
    """The findings in a file, in its order."""

    source: str
    allocators: Sequence[Allocator]
    refusals: Sequence[Refusal]
    notices: Sequence[Notice]
