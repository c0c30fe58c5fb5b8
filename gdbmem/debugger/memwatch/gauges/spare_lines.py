"""The breakpoints of quiet lines, which are enabled only where such a line could change the process's memory."""

from __future__ import annotations

from typing import Optional

import gdb

from gdbmem.debugger.memwatch.gauges.line_tally import LineTally
from gdbmem.linux.memory.pages import SettledPages
from gdbmem.linux.process.threads import SignalHandlers

_MOST_TIMES = 4  # that all lines are watched for a while; then they are until the end


class SpareLines:
    """Enables the breakpoints of the quiet lines before a call accesses a page that is not resident.

    They stay enabled in a process that handles signals: a handler that runs during a quiet line may do anything.
    """

    def __init__(self, tally: LineTally, pid: Optional[int]) -> None:
        self._tally = tally
        self._breakpoints: list[gdb.Breakpoint] = []
        self._pages = SettledPages(pid or 0)
        self._handlers = SignalHandlers(pid or 0)
        self._unsettled: set[int] = set()  # threads
        self._all = self._for_good = False  # watched
        self._times = 0

    def add(self, address: int, breakpoint_: gdb.Breakpoint) -> None:
        """Disable the new breakpoint at *address* if it is one of a quiet line."""
        if address in self._tally.place.quiet.skipped:
            self._breakpoints.append(breakpoint_)
            breakpoint_.enabled = self._all

    def begin_call(self) -> None:
        """A call begins in the selected thread."""
        if self._breakpoints and not self._for_good and self._handlers.exist():
            self.give_up()

    def attend(self) -> None:
        """Watch all lines if the selected thread's next quiet lines could change the process's memory."""
        if self._for_good or not self._breakpoints:
            return
        thread = gdb.selected_thread().num
        if all(self._pages.are_settled(*span) for span in self._tally.quiet_spans()):
            self._unsettled.discard(thread)
        else:
            self._unsettled.add(thread)
        if bool(self._unsettled) != self._all:
            self._watch_all(not self._all)

    def give_up(self) -> None:
        """Watch all lines from now on."""
        self._for_good = True
        self._watch_all(True)

    def _watch_all(self, wanted: bool) -> None:
        self._times += wanted and not self._all
        self._for_good = self._for_good or self._times > _MOST_TIMES
        if self._all != wanted:
            self._all = wanted
            for one in self._breakpoints:
                one.enabled = wanted

    def close(self) -> None:
        self._pages.close()
        self._handlers.close()


def count_unfinished(tally: LineTally) -> None:
    """Count the lines that the calls which have not ended have passed since their last breakpoint."""
    threads = {one.num: one for one in gdb.selected_inferior().threads()}
    selected = gdb.selected_thread() if threads else None
    for number in tally.under_way():
        thread = threads.get(number)
        if thread is None or not thread.is_valid():
            tally.stands(number, None)
            continue
        thread.switch()
        address = _address_inside(tally)
        if address is not None:
            tally.stands(number, address)
    if selected is not None and selected.is_valid():
        selected.switch()


def _address_inside(tally: LineTally) -> Optional[int]:
    """Return the instruction of the function that the selected thread executes in its newest call of it."""
    calls = {behind: call for call, behind in tally.place.calls}
    frame = newest = gdb.newest_frame()
    while frame is not None:
        address = int(frame.pc())
        if frame == newest and address in tally.place.by_address:
            return address
        if frame != newest and address in calls:
            return calls[address]
        frame = frame.older()
    return None
