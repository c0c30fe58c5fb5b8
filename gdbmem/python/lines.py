"""Memory by line, as tables and JSON, read from the recorder's files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Optional, TextIO, TypedDict

from gdbmem.errors import InputError
from gdbmem.files import read_small
from gdbmem.json_values import MISFITS, from_json
from gdbmem.line_recorder import plain_tables
from gdbmem.terminal.document import head, to_json
from gdbmem.text import plural, printable

_LARGEST = 1 << 26


class RecordedLine(TypedDict):
    """A line of a function: how often it ran, the memory after it and the sum of its changes, in bytes."""

    line: int
    count: int
    memory_bytes: Optional[int]
    change_bytes: Optional[int]
    text: str


class RecordedFunction(TypedDict):
    """A recorded function. Sizes are bytes."""

    file: str
    function: str
    first_line: int
    calls: int
    change_bytes: int
    start_bytes: Optional[int]
    lines: list[RecordedLine]


class RecordedProcess(TypedDict):
    """The file that the recorder wrote at the end of a process."""

    pid: int
    parent: int
    backend: str  # the source of the numbers
    threads: int
    functions: list[RecordedFunction]


def read_lines(paths: Sequence[Path]) -> list[RecordedProcess]:
    """Return the recording of each process. Raises InputError for a file that the recorder did not write."""
    return [_read(path) for path in paths]


def _read(path: Path) -> RecordedProcess:
    def refuse(why: str) -> InputError:
        return InputError(
            f"the recording of process {path.stem} can't be read: {printable(why)}",
            slug="python-lines-unreadable",
            hint="did the program itself change files in its temporary folder?",
        )

    try:
        return from_json(RecordedProcess, json.loads(read_small(path, limit_bytes=_LARGEST, refuse=refuse)))
    except MISFITS:
        raise refuse("it is not such a file") from None


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
