"""A judgement by a gate: what was seen, compared with a limit, and what could not be seen."""

import contextlib
import math
import signal
from collections.abc import Iterable
from typing import NamedTuple, Optional

from gdbmem.errors import ExitStatus

MET, NOT_MET, NOT_JUDGED = "met", "not_met", "not_judged"
AT_MOST, AT_LEAST = "at_most", "at_least"
BYTES = "bytes"


class Unseen(NamedTuple):
    """A reason why memory may be missing from what was measured."""

    slug: str  # its paragraph in docs/messages.md
    # One sentence without its full stop: what is not seen, then the engine, metric or command that does see it.
    message: str
    # The most growth that it can hide; None: unknown, so any amount. Bounds of several reasons are added up.
    could_hide_bytes: Optional[int] = None


class Judgement(NamedTuple):
    """One thing that a gate judged.

    Numbers are in *unit*; None where nothing could be measured, or where the gate judges no number.
    """

    name: str  # of what is judged, unique in its gate: "heap from a to b"
    text: str  # what was seen, one sentence without its full stop, safe to print
    limit: Optional[float] = None
    measured: Optional[float] = None
    low: Optional[float] = None  # what was seen, less its error
    high: Optional[float] = None  # what was seen, with its error
    unseen: tuple[Unseen, ...] = ()
    relation: str = AT_MOST  # or AT_LEAST: the limit is a lower one
    unit: str = BYTES
    # The outcome on what was seen, of a gate that judges no number (a verdict of a series): MET, NOT_MET, NOT_JUDGED.
    outcome: str = ""
    # The length of the recording, if the unit is a slope: hidden bytes would have come in this time.
    seconds: Optional[float] = None

    @property
    def judged(self) -> str:
        """MET, NOT_MET or NOT_JUDGED.

        NOT_MET if what was seen breaks the limit for certain; MET only if all that is unseen together can't change it.
        """
        if self.outcome:
            hidden = self._hidden()
            return NOT_JUDGED if self.outcome == MET and hidden else self.outcome
        if self.limit is None or self.low is None or self.high is None:
            return NOT_JUDGED
        highest = self.high + self._hidden()
        if self.relation == AT_LEAST:
            if highest < self.limit:
                return NOT_MET
            # What is known to have grown only adds to it; an unknown amount may also have shrunk.
            unknown = any(one.could_hide_bytes is None for one in self.unseen)
            return MET if self.low >= self.limit and not unknown else NOT_JUDGED
        if self.low > self.limit:
            return NOT_MET
        return MET if highest <= self.limit else NOT_JUDGED

    @property
    def sentence(self) -> str:
        """The text, with the reasons why it could not be judged if there are any."""
        reasons = "; ".join(one.message for one in self.unseen) if self.judged == NOT_JUDGED else ""
        if reasons in self.text:  # none, or a text that was read from a document, which has them
            return self.text
        if self.measured is None and not self.outcome:
            return f"{self.text}: could not be judged, {reasons}"
        return f"{self.text}; could not be judged: {reasons}"

    def _hidden(self) -> float:
        """Return the most that all the unseen can hide, in *unit*."""
        total = 0.0
        for one in self.unseen:
            total += math.inf if one.could_hide_bytes is None else one.could_hide_bytes
        if self.seconds is not None:
            return total / self.seconds if self.seconds > 0 else (math.inf if total else 0.0)
        return total if self.unit == BYTES or not total else math.inf


def exit_status(judgements: Iterable[Judgement]) -> int:
    """Return 4 if one is not met, else 125 if one is not judged or if there is none, else 0."""
    judged = {one.judged for one in judgements}
    if NOT_MET in judged:
        return ExitStatus.NOT_MET
    return ExitStatus.DONE if judged == {MET} else ExitStatus.NOT_JUDGED


# How a program ended, and whether it was meant to end so.


_SIGNALLED = 128  # and the number of the signal: a status as in a shell


def describe_end(status: int) -> str:
    """Return how a program with *status*, as in a shell, ended: ``was ended by SIGKILL (status 137)``."""
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(status - _SIGNALLED).name} (status {status})"
    return f"ended with status {status}"


def name_status(status: int) -> str:
    """Return the word that a recipe's `ends:` has for *status*: a number, or the name of a signal."""
    with contextlib.suppress(ValueError):
        return signal.Signals(status - _SIGNALLED).name
    return str(status)


def unseen_end(
    status: Optional[int], meant: Optional[int] = 0, *, what: str = "", remedy: str = ""
) -> Optional[Unseen]:
    """Return why a program that ended with *status* hides what it would have done; None if it was *meant* to end so.

    Both are as in a shell: 128+N for signal N. *meant* None: any end; *status* None: unknown. *what* is known beside
    the status, a clause with the program as its subject; *remedy* is what to do if the program is meant to end so.
    """
    if meant is None or status == meant:
        return None
    if status is None:
        text = what or "how the program ended is unknown"
    else:
        text = f"{what} and {describe_end(status)}" if what else f"the program {describe_end(status)}"
    if meant:
        text += f", not {name_status(meant)} as expected"
    elif status is not None and remedy:
        text += f"; {remedy}"
    return Unseen("program-failed", text)
