"""Saving ledgers, container scans and heaps in this gdb's run, with the program's location, and finding them again."""

from __future__ import annotations

from typing import Optional

from gdbmem.debugger.location import current_thread
from gdbmem.debugger.python.call_paths import place_and_python
from gdbmem.debugger.session import session
from gdbmem.debugger.snapshots.snapshots import beside_resident_facts
from gdbmem.debugger.stopping.stops import hits_here
from gdbmem.errors import InputError
from gdbmem.formats.documents import read_heap, read_heap_view, read_ledger, read_survey
from gdbmem.model.containers import Survey
from gdbmem.model.ledger import Ledger
from gdbmem.runs import saved_results
from gdbmem.runs.operand import find_operand
from gdbmem.runs.saved_documents import save_heap, save_ledger, save_survey, saved_document


def keep_ledger(name: str, ledger: Ledger, *, hit: Optional[int] = None) -> saved_results.SavedResult:
    """Save *ledger* under *name* in this gdb's run, which is created if necessary."""
    return save_ledger(session.run_of("none"), name, ledger, **_where(hit))


def keep_survey(name: str, survey: Survey, *, hit: Optional[int] = None) -> saved_results.SavedResult:
    """Save *survey* under *name* in this gdb's run, which is created if necessary."""
    return save_survey(session.run_of("none"), name, survey, **_where(hit))


def keep_heap(name: str, text: str, *, hit: Optional[int] = None) -> saved_results.SavedResult:
    """Save the heap in the document *text* under *name* in this gdb's run, which is created if necessary."""
    view = read_heap_view(text, name)
    return save_heap(session.run_of("none"), name, text, view, **_where(hit))


def _where(hit: Optional[int]) -> dict[str, object]:
    return {
        "place": place_and_python(),
        "thread": current_thread(),
        "hit": hit if hit is not None else hits_here(),
        "seconds": round(session.seconds, 3),
        **beside_resident_facts(),
    }


def saved_names(kind: str) -> list[str]:
    """Return the names of the results of *kind*, LEDGER, CONTAINERS or HEAP, in this gdb's run."""
    return (
        [record.name for record in saved_results.saved_records(session.run, kind)] if session.has_run else []
    )


def kept_ledger(text: str) -> Ledger:
    """Return the ledger that *text* names: saved in this gdb's run, a file, or RUN:NAME; raises InputError."""
    return read_ledger(*_document(text, saved_results.LEDGER))


def kept_survey(text: str) -> Survey:
    """Return the container scan that *text* names as for `kept_ledger`."""
    return read_survey(*_document(text, saved_results.CONTAINERS))


def kept_heap(text: str) -> str:
    """Return the document of the heap that *text* names as for `kept_ledger`; raises InputError if it is damaged."""
    document, label = _document(text, saved_results.HEAP)
    read_heap(document, label)
    return document


def _document(text: str, kind: str) -> tuple[str, str]:
    """Return the JSON that *text* names, and its label."""
    own = session.run if session.has_run else None
    try:
        record = saved_results.find_saved(own, kind, text)
        return saved_results.saved_text(own, record), record.file  # type: ignore[arg-type]
    except InputError as error:
        if error.slug not in saved_results.MISSING:
            raise
        unknown = error
    try:
        place, name = find_operand(text)
    except InputError:
        raise unknown from None
    return saved_document(place, kind, name)
