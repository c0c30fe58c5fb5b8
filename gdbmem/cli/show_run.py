"""`gdbmem show RUN`: its snapshots, its other saved results, and one snapshot's sites."""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, TextIO, Union

from gdbmem.api.heaps import heap_growth
from gdbmem.api.profiles import (
    ReadOptions,
    Run,
    asked_for,
    end_of,
    histories,
    open_profile,
    read_record,
    unit_of,
)
from gdbmem.api.runs import (
    HEAP,
    LEDGER,
    growth,
    kept_kind,
    load_heap_view,
    load_kept,
    load_kept_pair,
    saved_records,
    unseen_between,
)
from gdbmem.commands.arguments import kind_asked
from gdbmem.containers import containers
from gdbmem.heap.growth import judge_growth
from gdbmem.heap.text import heap_json, print_heap, write_growth
from gdbmem.ledger import document as ledger_document
from gdbmem.ledger import text as ledger_text
from gdbmem.model.heap_graph import SavedHeap
from gdbmem.model.judgement import Judgement
from gdbmem.profiles.documents import profile_json
from gdbmem.profiles.paths import Query
from gdbmem.profiles.text import print_sites
from gdbmem.runs.listing import list_json, print_saved, print_snapshots
from gdbmem.terminal.console import Console, make_console, print_notices, print_sentence
from gdbmem.terminal.document import judgement_object, to_json
from gdbmem.text import format_delta, printable

if TYPE_CHECKING:
    from gdbmem.page.page import Section


def show_run(
    run: Run,
    wanted: Optional[str],
    query: Query,
    options: ReadOptions,
    arguments: argparse.Namespace,
    stream: TextIO,
) -> None:
    """Print *run*: its contents, and its snapshot *wanted* (None: the last)."""
    records = run.snapshots
    kind = kept_kind(run, wanted, kind_asked(arguments))
    if kind:
        show_kept(run, kind, wanted, arguments, make_console(stream, color=arguments.color))
        return
    record = run.record(wanted) if wanted is not None else asked_for(records)[-1] if records else None
    if arguments.json:
        _write_run(run, wanted, query, options, stream)
        return
    console = make_console(stream, color=arguments.color)
    _list_run(run, console)
    if record is not None:
        console.print()
        loaded = read_record(run, record, options)
        print_sites(
            loaded.snapshot, query, console, moment=printable(record.name), known_from=arguments.known or ""
        )


def _list_run(run: Run, console: Console) -> None:
    records, kept = run.snapshots, saved_records(run)
    if records:
        print_snapshots(records, console, unit=unit_of(run, records[-1]))
    elif not kept:
        console.print("The run holds no snapshot.")
    print_saved(kept, console, after_others=bool(records))
    _name_histories(run, console)
    print_notices(run.notices, console)


def _write_run(run: Run, wanted: Optional[str], query: Query, options: ReadOptions, stream: TextIO) -> None:
    if wanted is None:
        stream.write(list_json(run.snapshots, run.notices, saved_records(run)))
        return
    record = run.record(wanted)
    loaded = read_record(run, record, options)
    profile = open_profile(run.path(record), options)
    stream.write(profile_json(profile, query, snapshot=loaded.snapshot))


def _name_histories(run: Run, console: Console) -> None:
    words = end_of(str(run.facts.get("engine") or ""))
    recorded = {run.folder / record.file for record in run.snapshots}
    for history in histories(run):
        if history in recorded:
            continue
        print_sentence(console, f"{words}: gdbmem show {printable(str(history))}")


# The ledgers and container scans saved in a run: for `gdbmem show`, `gdbmem diff` and the page of the run.


_MOST_ROWS = 20
_MOST_ROWS_OF_A_PAGE = 12


def show_kept(
    place: Union[Path, Run], kind: str, name: Optional[str], arguments: argparse.Namespace, console: Console
) -> None:
    """Print the ledger, container scan or heap in the file *place*, or *name* of the run *place* (None: the last)."""
    if kind == HEAP:
        _show_heap(place, name, console, as_json=arguments.json)
        return
    value = load_kept(place, kind, name)
    if arguments.json:
        as_json = ledger_document.ledger_json if kind == LEDGER else containers.containers_json
        console.file.write(as_json(value))
    elif kind == LEDGER:
        ledger_text.print_ledger(value, console)
    else:
        containers.print_containers(value, console, arguments.top or _MOST_ROWS)


def _show_heap(place: Union[Path, Run], name: Optional[str], console: Console, *, as_json: bool) -> None:
    view = load_heap_view(place, name)
    if as_json:
        console.file.write(heap_json(view, {}))
    else:
        print_heap(view, {}, console)


def diff_kept(
    kind: str, operands: Sequence[str], arguments: argparse.Namespace, console: Console
) -> list[Judgement]:
    """Print the changes between two results of *kind*; return the judgements of --fail-on."""
    (before, after), names = load_kept_pair(kind, operands)
    if kind == HEAP:
        return _diff_heaps(before, after, names, arguments, console)
    size = "rss_bytes" if kind == LEDGER else "held_bytes"
    grown = int(getattr(after, size) - getattr(before, size))
    judges = arguments.fail_on is not None or arguments.ci
    judgement = None if not judges else _judge(kind, grown, operands, arguments.fail_on)
    if arguments.json:
        module: Any = ledger_document if kind == LEDGER else containers
        document = module.growth_document(before, after)
        if judgement is not None and arguments.fail_on is not None:
            document["judgement"] = judgement_object(judgement)
        console.file.write(to_json(document))
    elif kind == LEDGER:
        ledger_text.print_growth(before, after, console, names)
    else:
        rows = growth(before, after)
        containers.print_container_growth(rows, console, arguments.top or _MOST_ROWS, names[0])
    return [] if judgement is None else [judgement]


def _diff_heaps(
    before: SavedHeap,
    after: SavedHeap,
    names: tuple[str, str],
    arguments: argparse.Namespace,
    console: Console,
) -> list[Judgement]:
    growth = heap_growth(before, after, names)
    judgements = judge_growth(growth, before, after, arguments.fail_on or ())
    top = arguments.top or _MOST_ROWS
    write_growth(growth, judgements, console.file, console, top=top, as_json=arguments.json)
    return judgements


def _judge(kind: str, grown: int, operands: Sequence[str], limit_bytes: Optional[int]) -> Judgement:
    what = "the resident set" if kind == LEDGER else "what the containers hold"
    size = format_delta(grown)
    text = f"{what} grew by {size.lstrip('+')}" if grown > 0 else f"{what} changed by {size}"
    unseen = tuple(unseen_between(operands, kind=kind))
    return Judgement("growth", text, limit_bytes, grown, grown, grown, unseen)


def saved_sections(run: Run) -> list[Section]:
    """Return the last ledger as on its own page, the last container scan and heap as in a terminal."""
    from gdbmem.page.ledger_page import ledger_sections  # for pages only
    from gdbmem.page.page import Section  # with it

    last = {record.kind: record for record in saved_records(run)}
    sections: list[Section] = []
    for kind, record in last.items():
        if kind == LEDGER:
            kept = load_kept(run, kind, record.name)
            sections += ledger_sections(kept, title=f"Resident memory at {record.name}")
            continue
        stream = io.StringIO()
        console = make_console(stream, width=110, color=False)
        if kind == HEAP:
            print_heap(load_heap_view(run, record.name), {}, console)
        else:
            containers.print_containers(load_kept(run, kind, record.name), console, _MOST_ROWS_OF_A_PAGE)
        title = "The heap at" if kind == HEAP else "Containers at"
        sections.append(Section(f"{title} {printable(record.name)}", text=stream.getvalue()))
    return sections
