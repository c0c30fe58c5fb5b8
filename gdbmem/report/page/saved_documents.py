"""Detecting the kind of a file that is not a profile: a document that --json wrote, or a core."""

from __future__ import annotations

from pathlib import Path

from gdbmem.files import open_regular
from gdbmem.patterns import lazy_pattern

CORE = "core"
_HEAD_BYTES = 1 << 16
_KIND = lazy_pattern(rb'"kind"\s*:\s*"([a-z-]{1,40})"')


def kind_of_file(path: Path) -> str:
    """Return the ``kind`` of the document in *path*, as --json wrote it, or CORE; "" for anything else."""
    try:
        with open_regular(path) as stream:
            head = stream.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return ""
    if head.startswith(b"\x7fELF"):
        return CORE if head[16:18] in (b"\x04\x00", b"\x00\x04") else ""
    if not head.lstrip().startswith(b"{") or b'"format_version"' not in head:
        return ""
    found = _KIND.search(head)
    return found[1].decode("ascii") if found is not None else ""
