"""Cleaning up after a launcher that was killed."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Optional

from gdbmem.launch import vgdb
from gdbmem.launch.child import Child

# A valgrind to which no gdb has connected yet blocks SIGTERM and waits forever; a program may ignore it.
# Each line read is "GROUP SIGNAL", the process group to end and the first signal, or "folder" and the path to remove.
_SCRIPT = """
while read -r group signal; do
  if [ "$group" = folder ]; then folder=$signal; else target=$group; first=$signal; fi
done
[ "$target" = done ] && exit 0
if [ -n "$target" ]; then
  tries=0
  while kill -s "$first" -- "-$target" && [ $tries -lt 30 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -s KILL -- "-$target"
fi
if [ -n "$folder" ]; then
  "$1" -I "$2" "$folder"
  rm -rf -- "$folder"
fi
"""


class Sentinel:
    """A shell that detects any end of this process by the closing of a pipe."""

    def __init__(self) -> None:
        """Start watching."""
        self._folder: Optional[Path] = None
        end, self._pipe = os.pipe()
        try:
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            try:
                self._child = Child(
                    ["/bin/sh", "-c", _SCRIPT, "gdbmem-sentinel", sys.executable, vgdb.__file__],
                    folder="/",
                    stdin=end,
                    stdout=null,
                    stderr=null,
                    dies_with_us=None,
                )
            finally:
                os.close(null)
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(end)

    def __enter__(self) -> Sentinel:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()

    def remove(self, folder: Path) -> None:
        """Remove *folder*, whose path has no spaces and which need not exist yet, if this process is killed."""
        self._folder = folder
        self._tell(f"folder {folder}")

    def guard(self, group: int, *, reached: bool) -> None:
        """End process group *group* if this process is killed, with SIGTERM first if gdb has *reached* it."""
        self._tell(f"{group} {'TERM' if reached else 'KILL'}")

    def dismiss(self) -> None:
        """There is nothing left to clean up."""
        if self._folder is not None:
            vgdb.end_left(str(self._folder))
        self._tell("done")
        os.close(self._pipe)
        self._child.wait(5.0)

    def _tell(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, f"{line}\n".encode())
