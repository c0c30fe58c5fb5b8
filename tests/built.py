"""Where programs that tests compile are kept: one folder for all checkouts of a user, so that most are compiled once.

A folder is named by a hash of all that its program is made of, and holds the source too, which gdb shows.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import stat
import time
from pathlib import Path

_UNUSED_SECONDS = 30 * 24 * 3600


def folder_of_programs(instead: Path) -> Path:
    """Return the folder: under /var/tmp, as other users start some programs; *instead* where that is not ours."""
    folder = Path(f"/var/tmp/gdbmem-tests-{os.geteuid()}")
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o755, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022:
            return folder
    return instead


def mark_used(folder: Path) -> None:
    """Note that the program in *folder* is used."""
    with contextlib.suppress(OSError):
        os.utime(folder)


@functools.cache
def remove_unused(folders: Path) -> None:
    """Remove what no test has used for a month, once in each process."""
    for folder in folders.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _UNUSED_SECONDS:
                shutil.rmtree(folder)


@functools.cache
def libc_version() -> str:
    """Return what changes when the system's libc does: static programs hold a copy of it."""
    found = re.search(r"/\S+/libc[-.]\S*so\S*$", Path("/proc/self/maps").read_text(), re.M)
    return "" if found is None else str(Path(found[0]).stat().st_mtime_ns)
