"""The code that the program loads, listed in the run: a plugin may be unloaded before a snapshot is taken."""

from __future__ import annotations

import contextlib
import os

import gdb

from gdbmem.debugger.location import real_pid
from gdbmem.debugger.session import session
from gdbmem.errors import GdbmemError
from gdbmem.linux.memory.maps import maps_text
from gdbmem.runs.run import LOADED

_listed: set[bytes] = set()


def list_loaded_files() -> None:
    """Append the executable mappings of each library to the run when gdb sees that it is loaded."""
    gdb.events.new_objfile.connect(_loaded)


def _loaded(event: gdb.NewObjFileEvent) -> None:
    # Without a list a snapshot has fewer names; the program goes on.
    with contextlib.suppress(OSError, GdbmemError, gdb.error):
        pid, name = real_pid(), os.fsencode(os.path.realpath(event.new_objfile.filename or ""))
        if pid is None:
            return
        lines = [line for line in maps_text(pid).splitlines() if line.endswith(b" " + name)]
        new = [line for line in lines if b"x" in line.split(None, 2)[1] and line not in _listed]
        if new:
            _listed.update(new)
            with (session.run.place / LOADED).open("ab") as stream:
                stream.write(b"\n".join([*new, b""]))
