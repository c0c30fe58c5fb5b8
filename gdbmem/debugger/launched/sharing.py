"""Processes that share the program's memory: clone() with CLONE_VM, but without the flags of a thread or of vfork().

gdb takes such a process for a forked one, with memory of its own: it removes its breakpoints there, and so from the
program. One that it inserts again would end the process, of which it lets go, as soon as that passes it. Breakpoints
in the processor's registers are in no memory; gdb uses them by itself where the user says that memory is read-only.
Source: gdb 13, infrun.c (detach_breakpoints), breakpoint.c (insert_bp_location), memattr.c.
"""

from __future__ import annotations

import contextlib
import re
import struct
from pathlib import Path

import gdb

from gdbmem.debugger.location import real_pid
from gdbmem.debugger.terminal import gdb_text
from gdbmem.linux.memory.maps import mapping_at, mappings_of
from gdbmem.linux.process.sharing import share_memory

# The child of the last stop, and how many stops there have been.
_FORKED = re.compile(r"fork, process (\d+).*already hit (\d+) time", re.DOTALL)
# A program that has forked so often goes on to do so, and each stop costs some milliseconds. Later ones that share
# its memory count as forked.
_MOST_FORKS = 200
_BASE = 7  # AT_BASE, where the dynamic linker is
_NOT_INSERTED = ("hardware breakpoint", "Command aborted.")
TOO_MANY = (
    "the program has started processes that share its memory (clone() with CLONE_VM). Breakpoints in memory would end"
    " them, and the processor can watch only a few places without, and none where one of these processes sends no"
    " signal at its end: use fewer points"
)


class SharingProcesses:
    """Watches for them in the program that gdb runs."""

    def __init__(self) -> None:
        self.pids: set[int] = set()
        self._threads: set[int] = set()  # those that gdb takes for threads
        self._stops = 0
        self._known: set[tuple[int, int]] = set()  # code that gdb takes for read-only
        said = gdb_text("catch fork")
        self._number = next((word for word in said.split() if word.isdigit()), "")
        gdb.execute("set mem inaccessible-by-default off", to_string=True)
        gdb.events.new_thread.connect(self._look_at_thread)

    def took_stop(self) -> bool:
        """Return whether the program has stopped as it started a process."""
        found = _FORKED.search(gdb_text(f"info breakpoints {self._number}")) if self._number else None
        if found is None or int(found[2]) == self._stops:
            return False
        self._stops = int(found[2])
        self._look(int(found[1]))
        if self._stops >= _MOST_FORKS and not self.pids:
            gdb.execute(f"delete {self._number}")
            self._number = ""
        return True

    def is_why(self, error: gdb.error) -> bool:
        """Return whether *error* is that there are too many breakpoints for the processor."""
        return bool(self._known) and any(text in str(error) for text in _NOT_INSERTED)

    def _look(self, child: int) -> None:
        pid = real_pid()
        if pid is not None and share_memory(pid, child):
            self.pids.add(child)
            if not self.is_mixed:
                self._leave_code(pid)

    def _look_at_thread(self, event: gdb.ThreadEvent) -> None:
        """gdb takes a child that sends no signal at its end for a thread, and keeps hold of it."""
        pid, tid, _ = event.inferior_thread.ptid
        if tid != pid and not Path(f"/proc/{pid}/task/{tid}").exists() and share_memory(pid, tid):
            self.pids.add(tid)
            self._threads.add(tid)

    @property
    def is_mixed(self) -> bool:
        """Whether there are both kinds: gdb can't step those that it takes for threads over the registers' places."""
        return bool(self._threads) and self._threads != self.pids

    def _leave_code(self, pid: int) -> None:
        """Have gdb insert no more breakpoints into the memory of the program's code.

        Not that of the dynamic linker: gdb itself has more breakpoints there than a processor has registers.
        """
        mappings = mappings_of(pid)
        linker = ""
        with contextlib.suppress(OSError):
            words = dict(struct.iter_unpack("=QQ", Path(f"/proc/{pid}/auxv").read_bytes()))
            at = mapping_at(mappings, words.get(_BASE, 0))
            linker = at.name if at is not None else ""
        for one in mappings:
            place = (one.start, one.end)
            if "x" in one.permissions and one.is_file and one.name != linker and place not in self._known:
                with contextlib.suppress(gdb.error):  # it overlaps one that is gone
                    gdb.execute(f"mem {one.start:#x} {one.end:#x} ro", to_string=True)
                self._known.add(place)
