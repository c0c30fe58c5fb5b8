"""heaptrack: its library is preloaded, each allocation of a whole run is written down, and read at the end."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gdbmem.engines.engine import NATIVE, EngineTable, NativeOptions
from gdbmem.errors import MissingToolError

NAME = "heaptrack"

TABLE = EngineTable(
    name=NAME,
    runs=NATIVE,
    summary="native code, one profile of the whole run: allocated in all, at the peak, at the end",
    cost="none for code that computes; 3 to 10 times slower for code that allocates",
    counts="requested bytes, exact",
    blind=(
        "moments in between: it takes no snapshots",
        "child processes",
        "a program that has its own allocator, or is static or setuid",
    ),
    command=NAME,
    package=NAME,
    whole_run=True,
)

RAW = "heaptrack.$$.raw"  # in the run folder, while the program runs; heaptrack puts the process for $$


class Installed(NamedTuple):
    """Paths of heaptrack's parts, which are in the folder of its script."""

    library: Path
    interpreter: Path


def find_heaptrack() -> Installed:
    """Return what is installed; raises MissingToolError if a part is missing."""
    script = shutil.which(NAME)
    folder = Path(script).resolve().parent.parent / "lib" / NAME if script else None
    if folder is None:
        raise MissingToolError(
            "heaptrack is not installed",
            slug="no-heaptrack",
            hint="install the heaptrack package of your distribution ('gdbmem doctor' names the command)",
        )
    found = Installed(folder / "libheaptrack_preload.so", folder / "libexec" / "heaptrack_interpret")
    for part in (found.library, found.interpreter):
        if not part.is_file():
            raise MissingToolError(
                f"heaptrack is installed, but its {part.name} is missing ({part})",
                slug="no-heaptrack",
                hint="install the heaptrack package again",
            )
    return found


def environment(prefix: str, options: NativeOptions) -> Mapping[str, str]:
    """Return what names heaptrack's file, in the folder above that of *prefix*."""
    return {"DUMP_HEAPTRACK_OUTPUT": str(Path(prefix).parent.parent / RAW)}
