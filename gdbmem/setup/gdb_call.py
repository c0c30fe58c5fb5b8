"""The gdb command by which gdbmem calls its own code inside gdb."""

from __future__ import annotations


def gdb_call(module: str, call: str) -> str:
    """Return the command for *call* in the module gdbmem.debugger.*module*.

    It binds no name in gdb's Python, where the user's own live and where such commands run inside each other.
    """
    return f"python __import__('importlib').import_module('gdbmem.debugger.{module}').{call}"
