"""Ledgers and scans of containers in a run, and the containers that hold the growth of a diff."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

from gdbmem.errors import InputError, UsageError
from gdbmem.runs.named_records import split_name
from gdbmem.runs.operand import find_operand
from gdbmem.runs.run import Run, asked_for
from gdbmem.runs.saved_results import (
    CONTAINERS,
    LEDGER,
    kept_records,
)
from gdbmem.text import printable

# Ledgers and containers are imported where they are read, for every `show` and `diff` of a profile imports this:
# a sixth of its start.
if TYPE_CHECKING:
    from gdbmem.analysis.containers.growth import ContainerGrowth
    from gdbmem.analysis.profiles.query import Query
    from gdbmem.model.containers import Survey
    from gdbmem.model.holding import Holding
    from gdbmem.model.profiles.diff import Diff

__all__ = [
    "CONTAINERS",
    "LEDGER",
    "Run",
    "containers_holding",
    "growth",
    "is_of_one_run",
    "kept_records",
    "kind_of",
    "load_kept",
    "load_kept_pair",
]


def kind_of(run: Run, name: str) -> str:
    """Return the kind of *name* in *run*: LEDGER or CONTAINERS; "" for a heap snapshot or an unknown name."""
    base = split_name(name)[0]
    if any(record.base_name == base for record in run.snapshots):
        return ""
    return next((record.kind for record in kept_records(run) if record.base_name == base), "")


def load_kept(place: Union[Path, Run], kind: str, name: Optional[str]) -> Any:
    """Return the Ledger or Survey in the file *place*, or that the run *place* keeps as *name* (None: its last).

    Raises InputError if there is none.
    """
    from gdbmem.inspection.saved_ledgers import kept_document  # 7 ms, with the next two
    from gdbmem.report.containers.containers import read_survey  # 3 ms
    from gdbmem.report.ledger.ledger_json import read_ledger  # 3 ms

    read = read_ledger if kind == LEDGER else read_survey
    return read(*kept_document(place, kind, name))


def load_kept_pair(kind: str, operands: Sequence[str]) -> tuple[tuple[Any, Any], tuple[str, str]]:
    """Return two Ledgers or Surveys and their names: those of two operands, or the last two of one run."""
    if len(operands) == 2:
        found = [find_operand(text) for text in operands]
        values = [load_kept(place, kind, name) for place, name in found]
        return (values[0], values[1]), (found[0][1] or operands[0], found[1][1] or operands[1])
    place, name = find_operand(operands[0])
    if not isinstance(place, Run) or name is not None:
        raise UsageError("gdbmem diff needs a second one to compare", hint="gdbmem diff A B, or a run alone")
    records = kept_records(place, kind)
    if len(records) < 2:
        raise InputError(
            f"{printable(place.folder.name)} holds fewer than two of this kind: nothing to compare",
            slug="too-few-snapshots",
            hint="name another: gdbmem diff A B",
        )
    first, second = records[-2].name, records[-1].name
    return (load_kept(place, kind, first), load_kept(place, kind, second)), (first, second)


def growth(before: Survey, after: Survey) -> Sequence[ContainerGrowth]:
    """Return the containers whose size or bytes changed, the largest change first."""
    from gdbmem.analysis.containers import growth as containers  # 3 ms

    return containers.growth(before, after)


def is_of_one_run(operands: Sequence[str]) -> bool:
    """Return whether all *operands* name snapshots of the same run."""
    places = [find_operand(text)[0] for text in operands]
    return isinstance(places[0], Run) and all(
        isinstance(place, Run) and place.folder == places[0].folder for place in places
    )


def containers_holding(operands: Sequence[str], diff: Diff, query: Query) -> Sequence[Holding]:
    """Return the containers that hold the growth in *diff* of *operands*, if these are snapshots of one run."""
    places = [find_operand(text) for text in operands]
    run = places[0][0]
    if not isinstance(run, Run) or not is_of_one_run(operands):
        return []
    from gdbmem.inspection.holdings import holdings  # 3 ms

    if len(places) == 1:
        return holdings(run, asked_for(run.snapshots)[-2:], diff, query)
    chosen = [run.record(name) if name is not None else asked_for(run.snapshots)[-1] for _, name in places]
    return holdings(run, chosen, diff, query)
