"""The files that appear in folders, as the kernel reports them (inotify(7)); no waiting, no polling."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path

# <sys/inotify.h>; the two flags of inotify_init1 are those of open(2).
_CREATE, _MODIFY = 0x100, 0x2
_EVENT = struct.Struct("=iIII")  # watch, mask, cookie, length of the name that follows
_MOST_BYTES = 1 << 16


class NewFiles:
    """Reports the names of files made in *created*, and made or written in *written*; raises OSError if refused."""

    def __init__(self, created: Path, written: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._checked(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        try:
            for folder, mask in ((created, _CREATE), (written, _CREATE | _MODIFY)):
                path = os.fsencode(folder)
                self._checked(self._libc.inotify_add_watch(self._descriptor, path, ctypes.c_uint32(mask)))
        except OSError:
            self.close()
            raise

    @staticmethod
    def _checked(result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result

    def fileno(self) -> int:
        """Return the descriptor, for select()."""
        return self._descriptor

    def names(self) -> Iterator[str]:
        """Yield the names reported since the last call."""
        try:
            events = os.read(self._descriptor, _MOST_BYTES)
        except BlockingIOError:
            return
        at = 0
        while at < len(events):
            length = _EVENT.unpack_from(events, at)[3]
            at += _EVENT.size
            yield os.fsdecode(events[at : at + length].rstrip(b"\0"))
            at += length

    def close(self) -> None:
        """End the reports."""
        os.close(self._descriptor)
