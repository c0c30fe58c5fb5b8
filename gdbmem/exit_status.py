"""The exit statuses of the `gdbmem` command: docs/reference/exit-status.md."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """A status that gdbmem itself returns; a program that it runs may end with any other."""

    DONE = 0
    ERROR = 1  # of a report
    USAGE = 2
    MISSING_TOOL = 3  # of a report
    NOT_MET = 4  # an expectation, or --fail-on
    TIMED_OUT = 124
    NOT_JUDGED = 125  # an expectation, or --fail-on
    FAILED = 125  # gdbmem or a tool failed; other statuses are the program's
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    INTERRUPTED = 130
