"""Errors, as one small tree. Every message is one sentence that a user can act on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import signal


class ExitStatus:
    """The statuses that gdbmem itself returns; a program that it runs may end with any other.

    docs/reference/exit-status.md presents them.
    """

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


class GdbmemError(Exception):
    """A failure that is reported to the user in one sentence.

    *message* is what happened and where; *hint* is what to do or type; *slug* names the paragraph
    in docs/messages.md.
    """

    status = ExitStatus.ERROR  # of the command
    # Of a command that ends with the status of its program, as timeout(1).
    status_of_launch = ExitStatus.FAILED

    def __init__(self, message: str, *, slug: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.slug = slug
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    @property
    def parts(self) -> dict[str, str]:
        """The arguments that make it again, for another process."""
        return {"message": self.message, "slug": self.slug, "hint": self.hint}

    @property
    def sentence(self) -> str:
        """The message with its hint and, in brackets, the slug for `gdbmem help`."""
        return f"{self} [{self.slug}]"


class InputError(GdbmemError):
    """A file or a value that cannot be used."""


class UsageError(InputError):
    """The command line is wrong."""

    status = ExitStatus.USAGE

    def __init__(self, message: str, *, slug: str = "usage", hint: str = "") -> None:
        super().__init__(message, slug=slug, hint=hint)


class ToolError(GdbmemError):
    """Another program (gdb, valgrind, vgdb, a compiler) is missing, failed or timed out."""


class MissingToolError(ToolError):
    """Another program is not installed."""

    status = ExitStatus.MISSING_TOOL


class TargetError(GdbmemError):
    """The debugged program cannot be read or controlled as requested."""


@contextlib.contextmanager
def failing(*, unjudged: bool = False, launch: bool = False) -> Iterator[None]:
    """Give the errors of the block the status of a gate that could not judge, or of a launch; not those of usage."""
    try:
        yield
    except UsageError:
        raise
    except GdbmemError as error:
        if unjudged:
            error.message, error.status = f"not judged: {error.message}", ExitStatus.NOT_JUDGED
        elif launch:
            error.status = error.status_of_launch
        raise


class Interrupted(Exception):  # noqa: N818  (not an error: somebody wants this to end)
    """A signal requested the end of what this process does with another one."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


def sentence_of(error: Exception) -> str:
    """Return the sentence of *error*, with its slug in brackets if it is a GdbmemError."""
    return error.sentence if isinstance(error, GdbmemError) else str(error)


def internal_error(error: Exception) -> str:
    """Return the sentence for an internal error, with its location, so that it can be reported."""
    import traceback  # not always needed

    at = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{at.filename.rpartition('/gdbmem/')[2]}:{at.lineno}"
    return f"gdbmem failed at {place} ({type(error).__name__}: {error}); please report this as a bug"


class Notice(NamedTuple):
    """A message beside a result; *slug* names its paragraph in docs/messages.md."""

    slug: str
    message: str

    @property
    def sentence(self) -> str:
        """The message and, in brackets, the slug for `gdbmem help`."""
        return f"{self.message} [{self.slug}]"
