"""What runs inside gdb: the only folder that imports gdb. `install()` registers everything."""

from __future__ import annotations

_installed = False


def install() -> None:
    """Register gdbmem's commands in this gdb; a second call does nothing."""
    global _installed
    if _installed:
        return
    import os

    import gdb

    from gdbmem.debugger.registry import register
    from gdbmem.debugger.snapshots import remember_stop
    from gdbmem.launch.wire import ENVIRONMENT

    register()
    gdb.events.stop.connect(remember_stop)
    if ENVIRONMENT in os.environ:
        from gdbmem.debugger.launched import install_launched

        install_launched()
    _installed = True
