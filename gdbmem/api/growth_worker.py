"""Recording the page faults of a process that gdb holds, in the `gdbmem` command's own interpreter.

Arguments: the process id, and the number of faults per sample (0: automatic). An empty answer, or
the refusal, comes first; then one answer to each line of the standard input, which names a new file to write a
snapshot to. It ends with that input, or with the process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Sequence

from gdbmem.api.growth import Binaries, named_faults, names_of, rows_of, without_libdw
from gdbmem.errors import GdbmemError, Notice
from gdbmem.faults.account import Evidence, account
from gdbmem.faults.folios import FolioEvidence, with_large_folios
from gdbmem.faults.growth import Span, WeighedFault, grown_bytes, scaled, with_huge_pages, without_zero_pages
from gdbmem.faults.resident_by_path import StandingMemory
from gdbmem.formats.json_profiles import encode_faults
from gdbmem.linux.faults.readings import Reading, folio_sizes
from gdbmem.linux.memory.maps import PAGE
from gdbmem.model.calltree import Frame
from gdbmem.model.faults import FaultAccount, FaultTotals, NamedFaults
from gdbmem.recording.faults import Interval, IntervalRecorder
from gdbmem.symbols.address_names import GdbSymbols
from gdbmem.symbols.call_paths import CallPaths, Samples
from gdbmem.terminal.console import open_output

# Snapshots of a process's resident memory by the lines that made it resident, taken while it is stopped.


__all__ = ["GrowthSnapshots"]


class GrowthSnapshots:
    """The snapshots of one recording: each has the memory that is resident at its moment and was not at the start."""

    def __init__(self, recorder: IntervalRecorder) -> None:
        self._recorder = recorder
        self._binaries = Binaries(recorder.pid, [recorder.uid])
        self._paths = CallPaths(recorder.layout, recorder.periods, self._binaries.table)
        self._paths.start_with(recorder.pid, recorder.maps)
        self._standing = StandingMemory()
        self._first = recorder.first  # resident before, in the current program (since its exec)
        self._names: dict[int, Sequence[Frame]] = {}
        self._notices: list[Notice] = without_libdw()
        self._symbols = GdbSymbols()
        self._weighed = 0  # samples
        self._uncounted = 0  # faults that the kernel counted for the process, and no event did
        self._missed = 0.0  # faults, so far
        self._faults = self._samples = self._lost = 0

    def close(self) -> None:
        """Release the unwind tables and the files."""
        self._paths.close()
        self._binaries.__exit__()

    def take(self) -> NamedFaults:
        """Return a snapshot of the stopped process. Raises TargetError if it has ended."""
        interval = self._recorder.cut()
        for turn in interval.turns:
            self._paths.add(turn)
        samples = self._paths.finish()
        self._add(interval, samples)
        stacks = self._standing.stacks()
        self._name(samples, {number for one in stacks for number in samples.paths[one.path]})
        totals = self._totals(interval.after, samples)
        return named_faults(self._recorder.name, samples, stacks, self._names, totals)._replace(
            notices=[*self._notices, *self._recorder.spool.notices()],
            recording=f"{self._recorder.pid}.{self._recorder.first.time}",
        )

    def _add(self, interval: Interval, samples: Samples) -> None:
        rows = self._rows(interval, samples)
        before, after = interval.before, interval.after
        if interval.executed:  # another program was executed: the memory resident before is gone
            before = self._first = Reading(before.time)
            self._standing.leave_all()
        else:
            self._standing.leave(after)
        spans = {self._recorder.pid: Span(before, after)}
        rows, _ = without_zero_pages(rows, spans)
        counted = interval.counted
        populated = None if counted is None else max(counted - interval.faults, 0)
        rows = with_large_folios(rows, spans, FolioEvidence(folio_sizes(), {self._recorder.pid: populated}))
        grown = grown_bytes(rows, spans, samples.began)
        rows = with_huge_pages(rows, grown, spans)
        missed, self._missed = self._paths.missed_faults - self._missed, self._paths.missed_faults
        lost = interval.faults if interval.lost else max(round(missed), 0)
        self._standing.come(rows, grown, before, after, lost_bytes=lost * PAGE)
        self._faults += interval.faults
        self._samples += interval.samples
        self._lost += interval.lost
        if interval.counted is not None:
            self._uncounted += max(interval.counted - interval.faults, 0)

    def _rows(self, interval: Interval, samples: Samples) -> list[WeighedFault]:
        """Return the new samples of the process, not those of its children."""
        new = slice(self._weighed, len(samples))
        self._weighed = len(samples)
        rows = rows_of(samples, new)
        weight = sum(row.faults for row in rows)
        scale = interval.faults / weight if weight else 1.0
        return [scaled(row, scale) for row in rows if row.pid == self._recorder.pid]

    def _name(self, samples: Samples, used: set[int]) -> None:
        new = sorted(used - self._names.keys())
        if not new:
            return
        names, notices = names_of(samples, new, self._symbols, self._binaries)
        self._names.update(names)
        self._notices += [notice for notice in notices if notice not in self._notices]

    def _totals(self, after: Reading, samples: Samples) -> FaultTotals:
        used = [period for changes in self._recorder.periods.values() for _, period in changes] or [1]
        return FaultTotals(
            (after.time - self._recorder.first.time) / 1e9, self._faults, self._samples, self._lost, min(used),
            max(used), self._recorder.sees_kernel_mode, samples.broken, [self._account(after)],
            samples.assumed,
        )  # fmt: skip

    def _account(self, after: Reading) -> FaultAccount:
        recorder, span = self._recorder, Span(self._first, after)
        rows = self._standing.rows()
        sees_kernel_mode = recorder.sees_kernel_mode
        evidence = Evidence(
            None if sees_kernel_mode else self._uncounted, self._uncounted if sees_kernel_mode else None,
            missed_faults=self._paths.samples.lost_faults, sees_kernel_mode=sees_kernel_mode,
        )  # fmt: skip
        found = account(recorder.name, recorder.pid, rows, span, evidence)
        return found._replace(seen_bytes=self._standing.seen_bytes)


_STDIN = 0


def main() -> int:
    """Record, and answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pid, period = map(int, sys.argv[1:3])
    try:
        with IntervalRecorder(pid, period=period, requests=_STDIN) as recorder:
            snapshots = GrowthSnapshots(recorder)
            try:
                _answer({})
                _serve(recorder, snapshots)
            finally:
                snapshots.close()
    except GdbmemError as error:
        _answer(error.parts)
    return 0


def _serve(recorder: IntervalRecorder, snapshots: GrowthSnapshots) -> None:
    asked = b""
    while not recorder.has_ended:
        recorder.turn()
        if not select.select([_STDIN], [], [], 0)[0]:
            continue
        data = os.read(_STDIN, 1 << 16)
        if not data:
            return
        *requests, asked = (asked + data).split(b"\n")
        for request in requests:
            file = os.fsdecode(request)
            _answer({"file": file, **_write(snapshots, file)})


def _write(snapshots: GrowthSnapshots, file: str) -> dict[str, str]:
    try:
        data = encode_faults(snapshots.take())
        with open_output(file) as stream:
            stream.flush()
            stream.buffer.write(data)
    except GdbmemError as error:
        return error.parts
    return {}


def _answer(answer: dict[str, str]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main())
