"""Ledgers and surveys of containers, kept in this gdb's run with where the program stood, and found again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from gdbmem.debugger.place import current_place, current_thread
from gdbmem.debugger.session import session
from gdbmem.debugger.stops import hits_here
from gdbmem.runs.kept import CONTAINERS, LEDGER, Kept, find_kept, keep, kept_text

if TYPE_CHECKING:
    from gdbmem.model.containers import Survey
    from gdbmem.model.ledger import Ledger


def keep_ledger(name: str, ledger: Ledger, *, hit: Optional[int] = None) -> Kept:
    """Keep *ledger* under *name* in this gdb's run, which is made now if need be."""
    from gdbmem.analysis.ledger_answer import retained_bytes
    from gdbmem.report.ledger_json import ledger_json

    sums = {"total_bytes": ledger.rss_bytes, "unused_bytes": retained_bytes(ledger)}
    return keep(session.run_of("none"), LEDGER, name, ledger_json(ledger), **sums, **_where(hit))


def keep_survey(name: str, survey: Survey, *, hit: Optional[int] = None) -> Kept:
    """Keep *survey* under *name* in this gdb's run, which is made now if need be."""
    from gdbmem.report.containers import containers_json

    sums = {"total_bytes": survey.held_bytes, "unused_bytes": survey.slack_bytes}
    return keep(session.run_of("none"), CONTAINERS, name, containers_json(survey), **sums, **_where(hit))


def _where(hit: Optional[int]) -> dict[str, Any]:
    return {
        "place": current_place(),
        "thread": current_thread(),
        "hit": hit if hit is not None else hits_here(),
        "seconds": round(session.seconds, 3),
    }


def kept_ledger(name: str) -> Ledger:
    """Return the ledger saved as *name* in this gdb's run; raises InputError with the names there are."""
    from gdbmem.report.ledger_json import read_ledger

    record = find_kept(session.run if session.has_run else None, LEDGER, name)
    return read_ledger(kept_text(session.run, record), record.file)


def kept_survey(name: str) -> Survey:
    """Return the survey saved as *name* in this gdb's run; raises InputError with the names there are."""
    from gdbmem.report.containers import read_survey

    record = find_kept(session.run if session.has_run else None, CONTAINERS, name)
    return read_survey(kept_text(session.run, record), record.file)
