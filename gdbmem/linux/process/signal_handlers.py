"""Whether a process handles signals, read repeatedly."""

from __future__ import annotations

from gdbmem.linux.memory.resident import KeptFile
from gdbmem.patterns import lazy_pattern

_STATUS_BYTES = 4096
_CAUGHT = lazy_pattern(rb"\nSigCgt:\s*([0-9a-f]+)")
_C_LIBRARY = 1 << 31 | 1 << 32  # its own signals, 32 and 33


class SignalHandlers:
    """The signal handlers of one process."""

    def __init__(self, pid: int) -> None:
        self._status = KeptFile(f"/proc/{pid}/status")

    def exist(self) -> bool:
        """Return whether there is a handler that the program has set; True if that can't be read."""
        match = _CAUGHT.search(self._status.read(_STATUS_BYTES) or b"")
        return match is None or bool(int(match[1], 16) & ~_C_LIBRARY)

    def close(self) -> None:
        self._status.close()
