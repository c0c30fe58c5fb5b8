"""The summary line of a snapshot: its size, and the largest growth since the last one."""

from __future__ import annotations

from typing import Any, Optional

import gdb

from gdbmem.allocators.others import linked_in
from gdbmem.analysis.profiles.sites import describe_site, growing_site
from gdbmem.debugger.location import loaded_files
from gdbmem.debugger.session import (
    session,
)
from gdbmem.files import open_regular
from gdbmem.model.profiles.snapshot import memory_noun
from gdbmem.runs.run import SnapshotRecord
from gdbmem.units import format_delta, format_size


def summary_line(
    record: SnapshotRecord,
    sites: dict[Any, int],
    *,
    unit: str,
    remark: str = "",
    beside: Optional[int] = None,
) -> str:
    """Return the line for *record*, whose *unit* by site are *sites*; the next one is compared with them.

    *beside*: resident bytes that the engine doesn't trace, if known.
    """
    size_bytes = record.heap_bytes or 0
    text = f"snapshot {record.label}: {memory_noun(unit)} {format_size(size_bytes)}"
    if session.last_heap_bytes is not None:
        text += f", {format_delta(size_bytes - session.last_heap_bytes)} since {session.last_label}"
    unseen = "" if size_bytes else unseen_malloc()
    text += f": {session.engine} does not see {unseen}" if unseen else remark
    grown = growing_site(session.last_sites, sites)
    if grown is not None:
        site, delta = grown
        verb = "most at" if session.last_heap_bytes is None else "grew most at"
        text += f"; {verb} {describe_site(site)} ({format_delta(delta)})"
    if beside is not None and session.last_beside is not None:
        text += f"; untraced resident memory {format_delta(beside - session.last_beside)}"
    session.last_beside = beside
    session.last_sites, session.last_heap_bytes, session.last_label = sites, record.heap_bytes, record.label
    return text


def unseen_malloc() -> str:
    """Describe the malloc of the program that the engine can't replace; "" if there is none."""
    if any(entry.get("slug") == "static-binary" for entry in session.run.facts.get("warnings", [])):
        return "the malloc that is linked into the program"
    # valgrind looks for malloc in libc.so*; musl's is in its dynamic linker.
    is_musl = any("/ld-musl-" in name for name in loaded_files())
    if session.native is None:
        return "musl's malloc" if is_musl else ""
    allocator = _linked_allocator() if session.native.attached is None else None
    return f"the {allocator} that is linked into the program" if allocator else ""


def _linked_allocator() -> Optional[str]:
    """Return the known allocator in the program's own file, which a preloaded one can't replace."""
    name = gdb.current_progspace().filename
    try:
        with open_regular(name) as program:
            return linked_in(program)
    except (OSError, TypeError, UnicodeDecodeError):  # no file, or it has gone, or its name can't be read
        return None
