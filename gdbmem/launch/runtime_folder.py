"""A short-lived folder, 0700, for files that need a short path without spaces: FIFOs, a socket, a link."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Callable, Optional

from gdbmem.errors import ToolError
from gdbmem.patterns import lazy_pattern
from gdbmem.text import printable

# vgdb splits its arguments at spaces, gdb passes a command to a shell: a plain path needs no quoting.
_PLAIN = lazy_pattern(r"/[A-Za-z0-9_./-]{1,60}")


@contextlib.contextmanager
def runtime_folder(run: Path, *, tell: Callable[[Path], None] = lambda _: None) -> Iterator[Path]:
    """Yield a new folder with the link ``run`` to *run* in it; it is removed at the end.

    It is under $XDG_RUNTIME_DIR if FIFOs can be created there, else under /tmp. *tell* is called before it is created,
    to notify the process that removes it if this one is killed. Raises ToolError if neither is usable.
    """
    folder = _make([os.environ.get("XDG_RUNTIME_DIR"), "/tmp", "/var/tmp"], tell)
    try:
        (folder / "run").symlink_to(run)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make(parents: Sequence[Optional[str]], tell: Callable[[Path], None]) -> Path:
    reason = "no folder was tried"
    for parent in parents:
        if not parent or not _PLAIN.fullmatch(parent):
            continue
        folder = Path(parent, f"gdbmem-{os.urandom(4).hex()}")
        tell(folder)
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            reason = f"{printable(parent)}: {error.strerror}"
            continue
        try:
            os.mkfifo(folder / "probe", 0o600)
            (folder / "probe").unlink()
        except OSError as error:
            # FAT, some network and container mounts have no FIFOs.
            reason = f"{printable(parent)}: {error.strerror}"
            shutil.rmtree(folder, ignore_errors=True)
            continue
        return folder
    raise ToolError(
        f"no folder for valgrind's FIFOs could be made ({reason})",
        slug="no-runtime-folder",
        hint="free some space in /tmp, or set XDG_RUNTIME_DIR to a folder on a local disk",
    )
