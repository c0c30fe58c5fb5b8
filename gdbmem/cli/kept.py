"""`gdbmem show` and `gdbmem diff` for what a run keeps beside heap snapshots: ledgers, surveys of containers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

from gdbmem.errors import InputError, UsageError
from gdbmem.runs.operand import find_operand
from gdbmem.runs.run import ORDINAL, Run
from gdbmem.runs.saved_results import (
    CONTAINERS,
    LEDGER,
    file_text,
    find_kept,
    kept_records,
    kept_text,
    nothing_kept,
)
from gdbmem.text import printable
from gdbmem.units import format_delta, format_size

if TYPE_CHECKING:
    from rich.console import Console

_MOST_ROWS = 20


def add_kind_options(parser: argparse.ArgumentParser) -> None:
    """Add --ledger and --containers, which tell what of a name is meant."""
    group = parser.add_mutually_exclusive_group()
    for kind, what in ((LEDGER, "ledger"), (CONTAINERS, "survey of containers")):
        group.add_argument(
            f"--{kind}", dest="kind", action="store_const", const=kind, default="",
            help=f"the {what} of that name (default where there is no snapshot of it)",
        )  # fmt: skip


def kept_kind(arguments: argparse.Namespace, place: Union[Path, Run], name: Optional[str]) -> str:
    """Return which kind is meant by *name* in *place*: asked for, or the only one; "" for a heap snapshot."""
    if arguments.kind or not isinstance(place, Run):
        return str(arguments.kind)
    snapshots = place.snapshots
    if name is None:
        return ""
    match = ORDINAL.fullmatch(name)
    base = match[1] if match else name
    if any(record.base_name == base for record in snapshots):
        return ""
    return next((record.kind for record in kept_records(place) if record.base_name == base), "")


def show_kept(
    run: Run, kind: str, name: Optional[str], arguments: argparse.Namespace, console: Console
) -> None:
    """Print the ledger or survey *name* of *run* (None: the last)."""
    from gdbmem.report.containers import containers
    from gdbmem.report.ledger import ledger_json, ledger_text

    value = _load(run, kind, name)
    if arguments.json:
        as_json = ledger_json.ledger_json if kind == LEDGER else containers.containers_json
        console.file.write(as_json(value))
    elif kind == LEDGER:
        ledger_text.print_ledger(value, console)
    else:
        containers.print_containers(value, console, arguments.top or _MOST_ROWS)


def diff_kept(kind: str, operands: Sequence[str], arguments: argparse.Namespace, console: Console) -> int:
    """Print what changed between two ledgers or surveys; return by how many bytes the whole did."""
    from gdbmem.analysis.containers.growth import growth
    from gdbmem.report.containers import containers
    from gdbmem.report.document import to_json
    from gdbmem.report.ledger import ledger_json, ledger_text

    (before, after), names = _sides(kind, operands)
    if arguments.json:
        module: Any = ledger_json if kind == LEDGER else containers
        console.file.write(to_json(module.growth_document(before, after)))
    elif kind == LEDGER:
        ledger_text.print_growth(before, after, console, names)
    else:
        rows = growth(before, after)
        containers.print_container_growth(rows, console, arguments.top or _MOST_ROWS, names[0])
    size = "rss_bytes" if kind == LEDGER else "held_bytes"
    return int(getattr(after, size) - getattr(before, size))


def judge_kept(kind: str, grown: int, limit_bytes: int) -> int:
    """Return the exit status of --fail-on, and say where it is not met."""
    if grown <= limit_bytes:
        return 0
    what = "the resident set" if kind == LEDGER else "what the containers hold"
    print(
        f"gdbmem: not met: {what} grew by {format_delta(grown).lstrip('+')};"
        f" --fail-on allows {format_size(limit_bytes)}",
        file=sys.stderr,
    )
    return 4


def _sides(kind: str, operands: Sequence[str]) -> tuple[tuple[Any, Any], tuple[str, str]]:
    if len(operands) == 2:
        found = [find_operand(text) for text in operands]
        values = [_load(place, kind, name) for place, name in found]
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
    return (_load(place, kind, first), _load(place, kind, second)), (first, second)


def _load(place: Union[Path, Run], kind: str, name: Optional[str]) -> Any:
    from gdbmem.report.containers.containers import read_survey
    from gdbmem.report.ledger.ledger_json import read_ledger

    read = read_ledger if kind == LEDGER else read_survey
    if not isinstance(place, Run):
        return read(file_text(place), str(place))
    if name is None:
        names = [record.name for record in kept_records(place, kind)]
        if not names:
            raise nothing_kept(place, kind)
        name = names[-1]
    record = find_kept(place, kind, name)
    return read(kept_text(place, record), record.file)
