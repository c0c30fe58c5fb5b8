"""`gdbmem show RUN`: its snapshots, its other saved results, and one snapshot's sites."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Optional, TextIO, Union

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
from gdbmem.api.runs import CONTAINERS, LEDGER, kept_records, kind_of
from gdbmem.profiles.documents import list_json, profile_json
from gdbmem.profiles.query import Query
from gdbmem.profiles.run_text import print_kept, print_snapshots
from gdbmem.profiles.text import print_sites
from gdbmem.terminal.console import Console, make_console, print_notices, print_sentence
from gdbmem.text import printable


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
    kind = kept_kind(arguments, run, wanted)
    if kind:
        from gdbmem.cli.saved_results import show_kept  # 5 ms

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
    records, kept = run.snapshots, kept_records(run)
    if records:
        print_snapshots(records, console, unit=unit_of(run, records[-1]))
    elif not kept:
        console.print("The run holds no snapshot.")
    print_kept(kept, console, after_others=bool(records))
    _name_histories(run, console)
    print_notices(run.notices, console)


def _write_run(run: Run, wanted: Optional[str], query: Query, options: ReadOptions, stream: TextIO) -> None:
    if wanted is None:
        stream.write(list_json(run.snapshots, run.notices, kept_records(run)))
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


def kept_kind(arguments: argparse.Namespace, place: Union[Path, Run], name: Optional[str]) -> str:
    """Return the kind of *name* in *place*: the requested one, or the only one; "" for a heap snapshot."""
    if arguments.ledger or arguments.containers:
        return LEDGER if arguments.ledger else CONTAINERS
    if not isinstance(place, Run):
        return ""
    return kind_of(place, name) if name is not None else ""
