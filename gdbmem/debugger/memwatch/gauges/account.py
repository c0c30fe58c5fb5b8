"""The accounts: the memory changes by each inferior's steps, and the source of the numbers."""

from __future__ import annotations

from typing import Optional

import gdb

from gdbmem.debugger.memwatch.commands.settings import setting
from gdbmem.debugger.memwatch.gauges.gauge import Gauge, make_gauge
from gdbmem.errors import TargetError
from gdbmem.model.steps import Step


class Account:
    """The steps of one process, oldest first."""

    def __init__(self, pid: int, source: str, gauge: Gauge) -> None:
        self.pid = pid
        self.wanted = source  # as requested, such as auto
        self.gauge = gauge
        self.steps: list[Step] = []
        self._total_bytes = 0

    def add(self, delta_bytes: Optional[int]) -> Optional[int]:
        """Add a step's change and return the running total; None when the change is unknown."""
        if delta_bytes is None:
            return None
        self._total_bytes += delta_bytes
        return self._total_bytes

    def begin_total(self) -> None:
        """Count the total from 0 again."""
        self._total_bytes = 0


class Accounts:
    """One account per inferior; a new process in an inferior begins a new one."""

    def __init__(self) -> None:
        self._by_inferior: dict[int, Account] = {}

    def current(self, source: Optional[str] = None) -> Account:
        """Return the account of the selected inferior, made when first needed.

        Raises TargetError or UsageError if it can't be measured.
        """
        inferior = gdb.selected_inferior()
        found = self._by_inferior.get(inferior.num)
        wanted = source or (found.wanted if found and found.pid == inferior.pid else setting("source"))
        if found is not None and found.pid == inferior.pid and inferior.pid:
            if found.wanted != wanted:
                self._change_source(found, wanted)
            return found
        gauge = make_gauge(wanted)
        if found is not None:
            found.gauge.close()
        account = self._by_inferior[inferior.num] = Account(inferior.pid, wanted, gauge)
        return account

    @staticmethod
    def _change_source(account: Account, wanted: str) -> None:
        gauge = make_gauge(wanted)
        account.gauge.close()
        # Another source measures another quantity: the total starts from 0.
        account.gauge, account.wanted = gauge, wanted
        account.begin_total()

    def recorded(self) -> Account:
        """Return the account of the selected inferior, also after the process has ended.

        Raises TargetError if nothing was recorded.
        """
        found = self._by_inferior.get(gdb.selected_inferior().num)
        if found is None or not found.steps:
            raise TargetError(
                "memwatch has recorded no step yet",
                slug="no-steps",
                hint="type 'memwatch next', or 'memwatch auto on' and then any command",
            )
        return found

    def forget(self) -> None:
        """Discard the selected inferior's steps, and have its source chosen again."""
        found = self._by_inferior.pop(gdb.selected_inferior().num, None)
        if found is not None:
            found.gauge.close()


accounts = Accounts()
