"""What kind of thing gdb is connected to, and how the process's memory is read there."""

from __future__ import annotations

import os
from typing import Optional

import gdb

NATIVE, CORE, REMOTE, VALGRIND, NOTHING = "native", "core", "remote", "valgrind", "nothing"
VGDB_PID = 42000  # what gdb calls the process behind valgrind's gdbserver


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
    text = str(gdb.execute("info target", to_string=True))  # gdb before 12 has no connections
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


class ProcMemory:
    """A process of this machine through /proc/PID/mem."""

    def __init__(self, pid: int) -> None:
        self._descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def read(self, address: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, address)
        if len(data) < size:
            raise OSError(f"memory at {address:#x} can't be read")
        return data

    def close(self) -> None:
        os.close(self._descriptor)


class GdbMemory:
    """The selected inferior through gdb, wherever it runs."""

    def read(self, address: int, size: int) -> bytes:
        try:
            return bytes(gdb.selected_inferior().read_memory(address, size))
        except gdb.MemoryError as error:
            raise OSError(str(error)) from None

    def close(self) -> None:
        pass
