"""The exit status of a monitor, from its verdicts and the program's own status."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from gdbmem.api.series import Recording, open_run
from gdbmem.exit_status import ExitStatus
from gdbmem.model.series.series_summary import SeriesSummary
from gdbmem.model.series.verdict import Verdict
from gdbmem.text import printable
from gdbmem.units import format_rate

_OUR_ENDINGS = ("time", "quit", None)  # after which gdbmem ends the program; older runs do not record it
_OUR_STATUSES = (128 + signal.SIGTERM, 128 + signal.SIGKILL)


def judged_status(
    recordings: Sequence[Recording],
    summaries: Sequence[SeriesSummary],
    fail_on: Optional[tuple[str, float]],
    status: int,
) -> int:
    """Return the exit status of a recording; report on the standard error why it is not 0."""
    known = {"status": status}  # if the run could not be written to
    failures = [failure_of({**known, **open_run(recording.folder).facts}) for recording in recordings]
    failure = next((failure for failure in failures if failure), 0)
    result = exit_status([summary.verdict for summary in summaries], fail_on, status, failure=failure)
    if fail_on is not None and failure:
        name = printable(recordings[failures.index(failure)].facts.target)
        print(f"gdbmem: {name} failed: it ended with status {failure}", file=sys.stderr)
    if fail_on is not None and result not in (0, failure):
        print(f"gdbmem: {_reason(summaries, fail_on, result)}", file=sys.stderr)
    return result


def _reason(summaries: Sequence[SeriesSummary], fail_on: tuple[str, float], status: int) -> str:
    """Return the reason if a verdict made *status* not 0: often only the output of a gate is kept."""
    is_judged = status == ExitStatus.NOT_MET
    one = next(
        one
        for one in summaries
        if (is_met(one.verdict, *fail_on) if is_judged else _leaves_open(one.verdict, *fail_on))
    )
    text = f"{printable(one.facts.target)}: {one.verdict.kind}: {one.verdict.evidence}"
    if not is_judged and one.verdict.is_conclusive:
        text += f"; {format_rate(fail_on[1])} is not excluded: --resolve prints how long to watch"
    return f"{'not met' if is_judged else 'not judged'}: {text}"


def failure_of(facts: Mapping[str, Any]) -> int:
    """Return the status of a run's program, from the run's *facts*, if it failed by itself, else 0."""
    status = facts.get("status")
    if not isinstance(status, int) or (facts.get("ending") in _OUR_ENDINGS and status in _OUR_STATUSES):
        return 0
    return status


def exit_status(
    verdicts: Sequence[Verdict], fail_on: Optional[tuple[str, float]], status: int, *, failure: int = 0
) -> int:
    """Return 4 if *fail_on* is met, else *failure*, else 125 if no verdict could be reached, else 0.

    Without *fail_on* it is *status*.
    """
    if fail_on is None:
        return status
    if any(is_met(verdict, *fail_on) for verdict in verdicts):
        return ExitStatus.NOT_MET
    if failure:
        return failure
    if fail_on[0] != "inconclusive" and any(_leaves_open(verdict, *fail_on) for verdict in verdicts):
        return ExitStatus.FAILED
    return 0


def _leaves_open(verdict: Verdict, kind: str, least: float) -> bool:
    if verdict.kind == "inconclusive" or kind != "growing":
        return verdict.kind == "inconclusive"
    return verdict.floor == "unclear" or _may_hide(verdict, least)


def _may_hide(verdict: Verdict, least: float) -> bool:
    """Return whether the series may grow by *least* bytes per second although *verdict* is not met."""
    if not least or verdict.kind == "shrinking":
        return False
    if verdict.grows:
        return verdict.slope is None or verdict.slope.high >= least
    return verdict.resolution is None or verdict.resolution >= least


def is_met(verdict: Verdict, kind: str, least: float) -> bool:
    """Return whether *verdict* is of *kind* and at least *least* bytes per second steep."""
    hit = verdict.grows if kind == "growing" else verdict.kind == kind
    steep = abs(verdict.slope.value) >= least if verdict.slope is not None else least == 0
    return hit and steep
