"""The accessed bits of a process's pages: cleared, and counted by mapping.

Source: Documentation/filesystems/proc.rst (clear_refs; smaps: Referenced). The processor sets the bit of a page at each
access, also for reading; clearing them has no other effect on the process.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import maps_text
from gdbmem.linux.process.living import memory_folder
from gdbmem.linux.process.process import ended, has_ended
from gdbmem.patterns import lazy_pattern

_REFERENCED = b"1"  # for clear_refs: the accessed bits of all pages
_HEADER = lazy_pattern(rb"^([0-9a-f]+)-([0-9a-f]+) ")


class Accessed(NamedTuple):
    """One mapping; sizes are bytes."""

    start: int
    end: int
    rss_bytes: int
    touched_bytes: int  # of the resident ones, since the bits were cleared


def clear_accessed(pid: int) -> None:
    """Clear the accessed bits of all pages of process *pid*. Raises TargetError if that is refused."""
    try:
        with open(f"{memory_folder(pid)}/clear_refs", "wb", buffering=0) as stream:  # noqa: PTH123  (one write, as it is)
            stream.write(_REFERENCED)
    except FileNotFoundError:
        if not Path(f"/proc/{pid}").exists():
            raise ended(pid) from None
        raise TargetError(
            "this kernel can't clear accessed bits (CONFIG_PROC_PAGE_MONITOR is off)",
            slug="idle-refused",
            hint="the ledger without --idle needs no accessed bits",
        ) from None
    except OSError as error:
        if has_ended(pid):
            raise ended(pid) from error
        raise TargetError(
            f"the accessed bits of process {pid} can't be cleared: {error.strerror}",
            slug="idle-refused",
            hint="type it as the process's user, or as root",
        ) from error


def read_accessed(pid: int) -> list[Accessed]:
    """Return the resident and the accessed bytes of each mapping. Raises TargetError."""
    try:
        text = maps_text(pid, "smaps")
    except OSError as error:
        raise ended(pid) from error
    found = parse_accessed(text)
    if not found:
        raise ended(pid)
    return found


def parse_accessed(smaps: bytes) -> list[Accessed]:
    """Parse the text *smaps*, mapping by mapping."""
    found: list[Accessed] = []
    for line in smaps.splitlines():
        header = _HEADER.match(line)
        if header:
            found.append(Accessed(int(header[1], 16), int(header[2], 16), 0, 0))
        elif found and line.startswith(b"Rss:"):
            found[-1] = found[-1]._replace(rss_bytes=int(line.split()[1]) << 10)
        elif found and line.startswith(b"Referenced:"):
            found[-1] = found[-1]._replace(touched_bytes=int(line.split()[1]) << 10)
    return found
