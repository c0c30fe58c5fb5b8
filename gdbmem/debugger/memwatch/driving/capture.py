"""gdb's own output about a stop, held back while steps are driven."""

from __future__ import annotations

import os
import sys

import gdb

from gdbmem.debugger.command import started_interpreter

_MOST_HELD = 1 << 20  # bytes


class Capture:
    """Sends gdb's standard output to a file, and back.

    `gdb.execute(to_string=True)` doesn't capture gdb's report of a stop. The program's output is not affected: the
    program has its own descriptors. Under a front end (TUI, MI) nothing is held back.
    """

    def __init__(self) -> None:
        self.holds_back = False  # otherwise gdb has printed everything itself
        self._saved: dict[int, int] = {}  # descriptor → its original file
        self._file = -1
        self._start = 0  # offset of the latest stop in the file
        self._news: list[str] = []
        self.news: list[str] = []  # gdb's news from before the last stop
        self.final_text = ""  # about the last stop

    def __enter__(self) -> Capture:
        if self.prepare():
            _flush()
            self.hold()
        return self

    def prepare(self) -> bool:
        """Prepare to hold output back; return False if that is not allowed."""
        if not _has_front_end():
            self._file = os.memfd_create("gdbmem", os.MFD_CLOEXEC)
            self.holds_back = True
        return self.holds_back

    def hold(self) -> None:
        """Suppress output from now on; any thread of gdb may call it after prepare()."""
        if not self.holds_back:
            return
        # gdb reports a missing source file on its standard error when a wait is interrupted.
        for descriptor in (1, 2):
            self._saved[descriptor] = os.dup(descriptor)
            os.dup2(self._file, descriptor)

    def __exit__(self, *exception: object) -> None:
        self.release()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def release(self) -> None:
        """Make gdb print again."""
        if self._saved:
            _flush()
        for descriptor, saved in self._saved.items():
            os.dup2(saved, descriptor)
            os.close(saved)
        self._saved = {}

    def forget(self) -> None:
        """Make `text` begin here."""
        if self._saved:
            gdb.flush()
            self._start = os.lseek(self._file, 0, os.SEEK_CUR)
            if self._start > _MOST_HELD:
                self._news += _news(self._read(0))
                self._start = os.lseek(self._file, 0, os.SEEK_SET)
                os.ftruncate(self._file, 0)

    def text(self) -> str:
        """Return gdb's output since `forget`."""
        return self._read(self._start).decode("utf-8", "replace")

    def finish(self) -> None:
        """Save the output about the last stop for later, and news such as ``[New Thread …]`` before it."""
        held = self._read(0)
        self.final_text = held[self._start :].decode("utf-8", "replace")
        self.news = self._news + _news(held[: self._start])

    def _read(self, start: int) -> bytes:
        if self._file < 0:
            return b""
        _flush()
        return os.pread(self._file, 2 * _MOST_HELD, start)


# The last two: gdb refuses to step over a vfork whose child it debugs; further steps make no progress.
_NEWS = ("[", "warning:", "Can not resume the parent process over vfork", "holding the child stopped")


def _news(held: bytes) -> list[str]:
    lines = held.decode("utf-8", "replace").splitlines()
    return [line for line in lines if line.startswith(_NEWS)]


def _flush() -> None:
    gdb.flush()
    gdb.flush(gdb.STDERR)
    sys.stdout.flush()


def _has_front_end() -> bool:
    if started_interpreter():
        return True
    try:
        return "not active" not in str(gdb.execute("info win", to_string=True))
    except gdb.error:
        return False
