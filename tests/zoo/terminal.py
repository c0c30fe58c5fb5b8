"""Typing at gdb on a terminal, Ctrl-C included, with a limit for each answer."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import pexpect

from tests.live.user import PROMPT, User, at_terminal, environment
from tests.zoo.keeping import Report

BEFORE_CTRL_C = 0.25  # seconds for what is to be interrupted to begin


class TooSlowError(Exception):
    """No prompt, or too late; the text names the command."""


class FellError(Exception):
    """gdb ended instead of prompting; the text is the end of its output."""


@dataclass(frozen=True)
class Line:
    """A line to be typed, or an order to the animal."""

    text: str
    is_interrupted: bool = False  # by Ctrl-C
    order: Optional[int] = None
    awaits_ready: bool = False  # the animal has first to be ready


def order(number: int) -> Line:
    return Line("", order=number)


def interrupted(text: str) -> Line:
    return Line(text, is_interrupted=True)


@dataclass
class Session:
    user: User
    report: Report
    limit: float  # seconds for an answer
    after_ctrl_c: float
    second_ctrl_c: float  # seconds for the prompt after a second Ctrl-C; 0: the first one has to do

    def type(self, line: Line) -> str:
        """Type *line*, return the answer. Raises TooSlowError, FellError."""
        if line.order is not None:
            self.report.give_order(line.order)
            return ""
        self.user.send(line.text)
        if line.is_interrupted:
            return self._interrupt(line)
        if not self._prompt(self.limit):
            raise TooSlowError(f"no answer to '{line.text}' within {self.limit:g} s")
        return self._answer()

    def _interrupt(self, line: Line) -> str:
        if self._prompt_before_ready(line) or self._prompt(
            BEFORE_CTRL_C
        ):  # it has ended by itself, or was refused
            return self._answer()
        self.user.press("c")
        if self._prompt(self.after_ctrl_c):
            return self._answer()
        if self.second_ctrl_c:
            self.user.press("c")
            if self._prompt(self.second_ctrl_c):
                return self._answer()
        raise TooSlowError(self._how_late(line))

    def _prompt_before_ready(self, line: Line) -> bool:
        ends = time.monotonic() + (self.limit if line.awaits_ready else 0)
        while time.monotonic() < ends and self.report.ready != 1:
            if self._prompt(0.05):
                return True
        return False

    def _how_late(self, line: Line) -> str:
        begun = time.monotonic()
        for _ in range(2):
            if self._prompt(3):
                late = time.monotonic() - begun + self.after_ctrl_c
                return f"the prompt came {late:.1f} s after Ctrl-C in '{line.text}'"
            self.user.press("c")
        return f"no prompt after three Ctrl-C in '{line.text}'"

    def _prompt(self, seconds: float) -> bool:
        try:
            self.user.child.expect(PROMPT, timeout=seconds)
        except pexpect.TIMEOUT:
            return False
        except pexpect.EOF:
            raise FellError(self.user.text[-400:]) from None
        return True

    def _answer(self) -> str:
        before = self.user.child.before
        text = before.decode("utf-8", "replace").replace("\r\n", "\n") if isinstance(before, bytes) else ""
        return text.partition("\n")[2]

    def quit(self) -> None:
        """Leave gdb. Raises TooSlowError."""
        self.user.send("quit")
        try:
            while self.user.child.expect_exact([b"(y or n) ", pexpect.EOF], timeout=10) == 0:
                self.user.send("y")
        except pexpect.TIMEOUT:
            raise TooSlowError("gdb didn't end within 10 s after 'quit'") from None


@contextlib.contextmanager
def session(
    words: Sequence[str],
    folder: Path,
    report: Report,
    env: Mapping[str, str],
    limits: tuple[float, float, float],
) -> Iterator[Session]:
    """Yield a user who sees gdb's first prompt. Raises TooSlowError, FellError."""
    with contextlib.redirect_stdout(_Nowhere()), at_terminal(words, folder, {**environment(), **env}) as user:
        opened = Session(user, report, *limits)
        if not opened._prompt(max(limits[0], 30)):
            raise TooSlowError("no prompt at the beginning")
        yield opened


class _Nowhere(io.StringIO):
    """Receives the output of a failing terminal, which the cell reports."""

    def write(self, text: str) -> int:
        return len(text)
