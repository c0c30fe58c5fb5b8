"""Memory by line, as tables and JSON, read from the recorder's files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from gdbmem.line_recorder import plain_tables
from gdbmem.model.python import RecordedFunction, RecordedProcess
from gdbmem.terminal.document import head, to_json
from gdbmem.text import plural, printable

_LARGEST = 1 << 26


def print_lines(processes: Sequence[RecordedProcess], stream: TextIO, *, named: bool) -> None:
    """Print the tables of each process that ran a recorded function; *named*: functions were given by name."""
    shown = [one for one in processes if one["functions"]]
    if not shown:
        how = "no function of that name" if named else "no function with @profile"
        stream.write(f"{how} was called\n")
    for process in shown:
        if len(shown) > 1:
            stream.write(f"Process {process['pid']}, started by {process['parent']}\n\n")
        stream.write(plain_tables(_made_safe(process)))
        if process["threads"] > 1:
            stream.write(
                f"{plural(process['threads'], 'thread')} ran at once: memory taken by another one while a line ran"
                " is charged to that line, too.\n\n"
            )


def _made_safe(process: RecordedProcess) -> RecordedProcess:
    functions: list[RecordedFunction] = [
        {
            **one,
            "file": printable(one["file"]),
            "function": printable(one["function"]),
            "lines": [{**row, "text": printable(row["text"].expandtabs())} for row in one["lines"]],
        }
        for one in process["functions"]
    ]
    return {**process, "functions": functions}


def lines_json(processes: Sequence[RecordedProcess]) -> str:
    """Return the tables as ``kind=python-lines``; sizes are bytes."""
    return to_json({**head("python-lines", ()), "processes": list(processes)})
