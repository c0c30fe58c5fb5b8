"""A snapshot under memcheck: the heap by path, and a leak search for its unreachable part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from gdbmem.analysis.profiles.sites import stack_sites
from gdbmem.debugger.command import warn
from gdbmem.debugger.launched.valgrind_monitor import monitor, monitor_text
from gdbmem.debugger.session import session
from gdbmem.engines import memcheck
from gdbmem.errors import InputError, TargetError, sentence_of
from gdbmem.formats.opening import open_profile
from gdbmem.formats.valgrind.memcheck_log import read_leak_search
from gdbmem.model.leak_kinds import DEFINITELY, INDIRECTLY
from gdbmem.model.profiles.snapshot import HEAP_BYTES
from gdbmem.records import dataclass, field
from gdbmem.runs.operand import leaks_file
from gdbmem.units import format_delta, format_size


@dataclass(frozen=True)
class Captured:
    """A raw file in the run folder, and its totals."""

    file: str  # relative to the run folder
    heap_bytes: Optional[int]  # None: it can't be read
    sites: Mapping[Any, int] = field(default_factory=dict)  # bytes by allocation site
    remark: str = ""  # for the snapshot's line
    unit: str = HEAP_BYTES


def capture_leaks() -> Captured:
    """Make memcheck write the heap by path and search for leaks; return the new files in the run folder."""
    run = session.run
    file = run.next_file(memcheck.NAME)
    path, written = run.folder / file, run.folder / "xtmemory.ms"
    said = monitor(memcheck.heap_command(f"{session.link}/{written.name}"))
    try:
        written.replace(path)
    except FileNotFoundError:
        raise TargetError(
            f"memcheck wrote no snapshot: {said.splitlines()[-1] if said else 'it reported no reason'}",
            slug="no-snapshot-file",
            hint="is the disk full?",
        ) from None
    remark = _search(run.folder / leaks_file(file))
    try:
        return _read(file, path, remark)
    except InputError as error:
        warn(f"{error}; the incomplete file is kept [{error.slug}]")
        return Captured(file, None)


def _search(path: Path) -> str:
    """Make memcheck search for leaks, save its output in *path*, and return the lost bytes for the snapshot's line."""
    answer = monitor_text(memcheck.leaks_command(changed=False)) + "\n"
    session.last_leak_search = "the last snapshot"
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(answer.encode("utf-8", "surrogateescape"))
        sums = read_leak_search(path.read_bytes()).sums
        lost = sums[DEFINITELY].bytes + sums[INDIRECTLY].bytes
    except (OSError, InputError, KeyError) as error:
        warn(f"the leaked bytes are unknown: {sentence_of(error)}")
        return ""
    before, session.last_leaked_bytes = session.last_leaked_bytes, lost
    changed = f" ({format_delta(lost - before)})" if before is not None and before != lost else ""
    return f"; leaked {format_size(lost)}{changed}" if lost or changed else "; nothing leaked"


def _read(file: str, path: Path, remark: str) -> Captured:
    profile: Any = open_profile(path)
    for notice in profile.notices:
        warn(notice.sentence)
    content = profile.load(profile)
    return Captured(file, profile.total_bytes, stack_sites(content.stacks, content.chains), remark)
