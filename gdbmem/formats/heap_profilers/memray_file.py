"""memray's files, through memray itself: its format is private, and changes with its version."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any, Optional

from gdbmem.errors import InputError
from gdbmem.files import Data
from gdbmem.formats.stacks import (
    IN_USE,
    Content,
    Stack,
    StackProfile,
    check_count,
    check_depth,
    choose_metric,
    total_of,
)
from gdbmem.model.calltree import PEAK, Frame
from gdbmem.text import printable

_RECORDS = {IN_USE: "get_leaked_allocation_records", PEAK: "get_high_watermark_allocation_records"}


def read_memray(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read the file *source* with memray; raises InputError if that is not installed, or can't."""
    chosen = choose_metric(metric, list(_RECORDS), source)
    frames: dict[Frame, int] = {}
    reader = _reader(source)
    try:
        with reader:
            metadata = reader.metadata
            records = getattr(reader, _RECORDS[chosen])(merge_threads=True)
            stacks = _stacks(records, frames, source, native=metadata.has_native_traces)
            command = str(metadata.command_line)
    except (OSError, RuntimeError, ValueError) as error:
        raise _unreadable(source, error) from None
    return StackProfile(
        source=source,
        source_format="memray",
        metric=chosen,
        metrics=list(_RECORDS),
        total_bytes=total_of(stacks),
        notices=[],
        load=lambda profile: Content(stacks, [(frame,) for frame in frames]),
        command=command,
    )


def _reader(source: str) -> Any:
    try:
        read: Any = importlib.import_module("memray").FileReader
    except ImportError:
        raise InputError(
            f"{printable(source)} is a file of memray, which is not installed here",
            slug="memray-missing",
            hint="type 'pip install memray' in gdbmem's environment; only memray can read its files",
        ) from None
    try:
        return read(source)
    except (OSError, RuntimeError, ValueError) as error:
        raise _unreadable(source, error) from None


def _unreadable(source: str, error: Exception) -> InputError:
    return InputError(
        f"memray can't read {printable(source)}: {printable(str(error))}",
        slug="memray-unreadable",
        hint="unpack it if it is compressed; a file of another memray may need that version",
    )


def _stacks(records: Iterable[Any], frames: dict[Frame, int], source: str, *, native: bool) -> list[Stack]:
    stacks = []
    for record in records:
        places = record.hybrid_stack_trace() if native else record.stack_trace()
        check_depth(len(places), source)
        path = [
            frames.setdefault(Frame(function, file or None, line if file and line > 0 else None), len(frames))
            for function, file, line in places
        ]
        stacks.append(
            Stack(path, check_count(record.size, source), check_count(record.n_allocations, source))
        )
    return stacks
