"""The kind of target that gdb is connected to, and reading the process's memory there."""

from __future__ import annotations

from typing import Optional

import gdb

from gdbmem.debugger.gdb_text import gdb_text
from gdbmem.model.memory import Buffer, MemoryUnreadable

NATIVE, CORE, REMOTE, VALGRIND, NOTHING = "native", "core", "remote", "valgrind", "nothing"
VGDB_PID = 42000  # gdb's name for the process behind valgrind's gdbserver


def target_kind() -> str:
    """Return NATIVE, REMOTE, VALGRIND, CORE or NOTHING, for the selected inferior."""
    inferior = gdb.selected_inferior()
    if not inferior.pid and not inferior.threads():
        return NOTHING
    connection = getattr(inferior, "connection", None)
    kind = connection.type if connection is not None else _kind_in_words()
    if kind == "core":
        return CORE
    if "remote" in kind:
        return VALGRIND if inferior.pid == VGDB_PID and valgrind_tool() else REMOTE
    return NATIVE


def _kind_in_words() -> str:
    text = gdb_text("info target")  # gdb before 12 has no connections
    if "Local core dump file" in text and "process" not in text.partition("Local core")[0]:
        return "core"
    return "remote" if "over a serial line" in text else "native"


def valgrind_tool() -> Optional[str]:
    """Return which valgrind tool runs the program (``massif``, …, ``""`` if none is named); None: not valgrind."""
    try:
        said = str(gdb.execute("monitor help", to_string=True))
    except gdb.error:
        return None
    if "valgrind" not in said:
        return None
    tools = [line.split()[0] for line in said.splitlines() if line.endswith("monitor commands:")]
    return next((tool for tool in tools if tool not in ("general", "valgrind")), "")


class GdbMemory:
    """A `Memory` of gdb's current target: a process, a core, a remote target."""

    def __init__(self) -> None:
        self._inferior = gdb.selected_inferior()

    def read(self, address: int, size: int) -> bytes:
        try:
            return bytes(self._inferior.read_memory(address, size))
        except (gdb.error, OverflowError) as error:
            raise MemoryUnreadable(address, str(error)) from None

    def read_into(self, address: int, buffer: Buffer) -> None:
        memoryview(buffer).cast("B")[:] = self.read(address, memoryview(buffer).nbytes)
