"""Code that runs inside gdb: the only folder that imports gdb. `install()` registers all commands."""

from __future__ import annotations

import os

_installed = False


def install() -> None:
    """Register gdbmem's commands in this gdb; a second call does nothing."""
    global _installed
    if _installed:
        return
    import gdb  # imported here, because a plain Python can import this package, too

    from gdbmem.commands.in_gdb import GDB_COMMANDS  # not always needed
    from gdbmem.debugger.command import register, started_interpreter  # not always needed
    from gdbmem.debugger.memwatch.commands.settings import register_all  # not always needed
    from gdbmem.debugger.stopping.stops import note_stop  # not always needed

    register(GDB_COMMANDS)
    register_all()
    gdb.events.stop.connect(note_stop)
    if "GDBMEM_SESSION" in os.environ:  # launch.messages.ENVIRONMENT, which would import sockets
        from gdbmem.debugger.launched.launched import install_launched  # slow to import

        install_launched()
    interpreter = started_interpreter()
    if interpreter == "dap" or interpreter[:2] == "mi":
        from gdbmem.debugger.adapter import install_adapter  # for programs that drive gdb

        install_adapter(interpreter)
    _installed = True
