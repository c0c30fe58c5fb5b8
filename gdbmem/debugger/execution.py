"""The program that a process executes: exec() replaces it and keeps the process id.

gdb has no event for it, but reads the new program's symbols before the program runs: caches of the old program
are dropped then, and other code queries the state.
"""

from __future__ import annotations

from typing import Callable

import gdb

from gdbmem.linux.process.auxv import random_bytes

Listener = Callable[[], None]


class _Executions:
    def __init__(self) -> None:
        self._programs: dict[int, bytes] = {}  # the kernel's values for the program of each process
        self._replaced: set[int] = set()
        self._listeners: list[Listener] = []
        self._watches = False

    def here(self) -> tuple[int, bytes]:
        """Return what names the program that the selected inferior executes now, and no other."""
        pid = int(gdb.selected_inferior().pid)
        if not pid:
            return 0, b""
        now = random_bytes(pid)
        before = self._programs.get(pid)
        self._programs[pid] = now
        if before is not None and before != now:
            self._replaced.add(pid)
            for listener in self._listeners:
                listener()
        return pid, now

    def watch(self) -> None:
        """Look from here on, whenever gdb reads symbols, whether a program has taken another's place."""
        self.here()
        if not self._watches:
            self._watches = True
            gdb.events.clear_objfiles.connect(self._symbols_change)
            gdb.events.new_objfile.connect(self._symbols_change)

    def tell(self, listener: Listener) -> None:
        """Call *listener* when a program has taken another's place."""
        self._listeners.append(listener)

    @property
    def replaced(self) -> bool:
        """True if the selected inferior executes another program than at first."""
        return self.here()[0] in self._replaced

    def _symbols_change(self, event: gdb.Event) -> None:
        self.here()


executions = _Executions()
