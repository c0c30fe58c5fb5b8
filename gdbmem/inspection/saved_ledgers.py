"""An earlier ledger or container scan to compare with, from a file or a run, for the command and for gdb."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional, Union

from gdbmem.analysis.ledger.answer import retained_bytes
from gdbmem.errors import UsageError
from gdbmem.model.containers import Survey
from gdbmem.model.ledger.heap_map import HeapMap
from gdbmem.model.ledger.ledger import Ledger
from gdbmem.report.containers.containers import containers_json
from gdbmem.report.ledger.ledger_json import ledger_json, read_heap_map, read_ledger
from gdbmem.runs.operand import find_operand
from gdbmem.runs.run import Run
from gdbmem.runs.saved_results import (
    CONTAINERS,
    LEDGER,
    Kept,
    file_text,
    find_kept,
    keep,
    kept_records,
    kept_text,
    nothing_kept,
)
from gdbmem.text import printable


def load_ledger(text: str) -> Ledger:
    """Return the ledger that *text* names: a file, RUN:NAME, or RUN for its last; raises InputError."""
    return read_ledger(*_document(text))


def load_heap_map(text: str) -> Optional[HeapMap]:
    """Return the map of the heap beside the ledger that *text* names; None if there is none."""
    return read_heap_map(*_document(text))


def _document(text: str) -> tuple[str, str]:
    place, name = find_operand(text)
    return kept_document(place, LEDGER, name)


def kept_document(place: Union[Path, Run], kind: str, name: Optional[str]) -> tuple[str, str]:
    """Return the JSON in the file *place*, or that the run *place* keeps as *name* (None: its last), and its label.

    Raises InputError if there is none.
    """
    if not isinstance(place, Run):
        return file_text(place), str(place)
    if name is None:
        names = [record.name for record in kept_records(place, kind)]
        if not names:
            raise nothing_kept(place, kind)
        name = names[-1]
    record = find_kept(place, kind, name)
    return kept_text(place, record), record.file


def place_to_save(text: str) -> tuple[Run, str]:
    """Parse *text*, RUN:NAME, into the run and the name in it; raises UsageError for any other form."""
    place, name = find_operand(text)
    if not isinstance(place, Run) or not name:
        raise UsageError(
            f"--save takes RUN:NAME, the folder of a run and a new name, not '{printable(text)}'",
            hint="'gdbmem show RUN' lists what a run holds; --json -o FILE writes a file",
        )
    return place, name


def save_ledger(run: Run, name: str, ledger: Ledger, **where: Any) -> Kept:
    """Save *ledger* in *run* under *name*; *where* are fields of `Kept`."""
    sums = {"total_bytes": ledger.rss_bytes, "unused_bytes": retained_bytes(ledger)}
    return keep(run, LEDGER, name, ledger_json(ledger), **sums, **where)


def save_survey(run: Run, name: str, survey: Survey, **where: Any) -> Kept:
    """Save *survey* in *run* under *name*; *where* are fields of `Kept`."""
    sums = {"total_bytes": survey.held_bytes, "unused_bytes": survey.slack_bytes}
    return keep(run, CONTAINERS, name, containers_json(survey), **sums, **where)
