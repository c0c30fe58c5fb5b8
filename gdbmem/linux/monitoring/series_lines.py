"""Assigns processes to the lines of a series: a respawned worker gets the line of one with its name."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Optional

from gdbmem.linux.monitoring.sampling import Stat
from gdbmem.linux.process.names import program_name
from gdbmem.model.series.series import SeriesLine
from gdbmem.records import replace


class SeriesLines:
    """The lines of a tree."""

    def __init__(self, lines: Iterable[SeriesLine]) -> None:
        """Continue with *lines*."""
        self._lines = {line.number: line for line in lines}
        self._by_process = {(line.pid, line.start_ticks): line.number for line in self._lines.values()}
        self._orphaned: dict[
            tuple[str, int], list[int]
        ] = {}  # (name, parent's line) → lines of ended processes
        for line in reversed(list(self._lines.values())):
            self._orphaned.setdefault((line.name, line.parent), []).append(line.number)
        self._changed: dict[int, SeriesLine] = {}

    @property
    def count(self) -> int:
        """The number of lines."""
        return len(self._lines)

    def take(
        self, pid: int, stat: Stat, command: str, above: int, t: float, alive: Container[int]
    ) -> SeriesLine:
        """Return the line of *pid*, whose parent has the line *above*; the processes *alive* keep theirs."""
        name = program_name(stat.name, command.split(" "))
        number = self._by_process.get((pid, stat.start_ticks))  # after --resume: the same process still
        line = self._heir(name, above, alive) if number is None else self._lines[number]
        if line is None:
            line = SeriesLine(len(self._lines) + 1, pid, stat.start_ticks, name, command, above, t)
        else:
            again = (line.pid, line.start_ticks) != (pid, stat.start_ticks)
            line = replace(
                line, pid=pid, start_ticks=stat.start_ticks, name=name, command=command, gone=None,
                respawns=line.respawns + again,
            )  # fmt: skip
        self._note(line)
        return line

    def _heir(self, name: str, above: int, alive: Container[int]) -> Optional[SeriesLine]:
        numbers = self._orphaned.get((name, above), [])
        while numbers:
            line = self._lines[numbers.pop()]
            if line.pid not in alive:
                return line
        return None

    def rename(self, line: SeriesLine, name: str, command: str, *, was_read: bool) -> SeriesLine:
        """Return *line* for a process that has executed another program, or *was_read* as an earlier one."""
        name = program_name(name, command.split(" "))
        line = replace(line, name=name, command=command, earlier=line.names if was_read else line.earlier)
        self._note(line)
        return line

    def bury(self, line: SeriesLine, t: float) -> None:
        """Release *line*, whose process had ended at time *t*, for reuse."""
        self._by_process.pop((line.pid, line.start_ticks), None)
        self._note(replace(line, gone=t))
        self._orphaned.setdefault((line.name, line.parent), []).append(line.number)

    def take_changed(self) -> list[SeriesLine]:
        """Return the lines that have changed since the last call."""
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def _note(self, line: SeriesLine) -> None:
        self._lines[line.number] = line
        self._by_process[line.pid, line.start_ticks] = line.number
        self._changed[line.number] = line
