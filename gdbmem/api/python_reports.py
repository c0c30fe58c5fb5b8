"""The reports on a Python process, as the command and gdb write them."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Optional, TextIO, TypeVar

from gdbmem.analysis.profiles.query import Query
from gdbmem.api.profiles import load_from_profile
from gdbmem.api.python import (
    Target,
    encoded_traces,
    kept_traces,
    python_arenas,
    python_copies,
    python_holders,
    python_objects,
    python_stacks,
    python_traces,
    traces_profile,
)
from gdbmem.model.python import PythonHolders
from gdbmem.records import dataclass
from gdbmem.report.console import Console
from gdbmem.report.notices import print_notices
from gdbmem.report.output import open_named, open_output
from gdbmem.report.profiles.profile_json import profile_json
from gdbmem.report.profiles.profile_text import print_sites
from gdbmem.report.python.arenas_text import print_arenas
from gdbmem.report.python.copies_text import print_copies
from gdbmem.report.python.holders_text import print_holders
from gdbmem.report.python.objects_text import print_growth, print_objects
from gdbmem.report.python.python_json import (
    arenas_json,
    copies_json,
    growth_json,
    holders_json,
    objects_json,
    read_objects,
    stacks_json,
)
from gdbmem.report.python.stacks_text import print_stacks

Found = TypeVar("Found")
KEEP_TRACES = "keep-traces"


@dataclass(frozen=True)
class ReportWords:
    """Options of a report."""

    json: bool = False
    top: int = 20
    since: Optional[str] = None  # a file with earlier objects
    profile: Optional[str] = None  # a file for the traces
    force: bool = False  # overwrite it
    holders: Optional[str] = None  # of a type


Writer = Callable[[Target, ReportWords, TextIO, Console], None]


def write_objects(target: Target, wanted: ReportWords, stream: TextIO, console: Console) -> None:
    """Write the objects of *target* by type, the change since *wanted.since*, or the holders of those of a type."""
    if wanted.holders is not None:
        _write_holders(python_holders(target, wanted.holders), wanted, stream, console)
        return
    if wanted.since is None:
        _OBJECTS(target, wanted, stream, console)
        return
    before = read_objects(Path(wanted.since))
    objects = python_objects(target)
    if wanted.json:
        stream.write(growth_json(before, objects, wanted.since))
    else:
        print_growth(before, objects, console, top=wanted.top, name=wanted.since)


def _write_holders(holders: PythonHolders, wanted: ReportWords, stream: TextIO, console: Console) -> None:
    if wanted.json:
        stream.write(holders_json(holders))
    else:
        print_holders(holders, console, top=wanted.top)


def write_traces(target: Target, wanted: ReportWords, stream: TextIO, console: Console) -> None:
    """Write the traces of tracemalloc in *target*, also to the file *wanted.profile*."""
    with open_named(wanted.profile, force=wanted.force) as file:
        profile = traces_profile(python_traces(target))
        snapshot = load_from_profile(profile, None).snapshot
        if file is not None:
            file.flush()
            file.buffer.write(encoded_traces(snapshot))
    query = Query(top=wanted.top)
    if wanted.json:
        stream.write(profile_json(profile, query, snapshot=snapshot))
        return
    print_sites(snapshot, query, console, moment=profile.source)
    print_notices(profile.notices, console)


def keep_traces(target: Target, wanted: ReportWords, stream: TextIO, console: Console) -> None:
    """Write the traces of tracemalloc in *target* to the file *wanted.profile*, which `diff` and `show` read."""
    with open_output(wanted.profile, force=wanted.force) as file:
        file.flush()
        file.buffer.write(kept_traces(python_traces(target)))


def _writer(
    read: Callable[[Target], Found],
    to_json: Callable[[Found], str],
    show: Callable[[Found, Console, ReportWords], None],
) -> Writer:
    def write(target: Target, wanted: ReportWords, stream: TextIO, console: Console) -> None:
        found = read(target)
        if wanted.json:
            stream.write(to_json(found))
        else:
            show(found, console, wanted)

    return write


_OBJECTS = _writer(
    python_objects,
    objects_json,
    lambda objects, console, wanted: print_objects(objects, console, top=wanted.top),
)
WRITERS: dict[str, Writer] = {
    "objects": write_objects,
    "arenas": _writer(
        python_arenas, arenas_json, lambda use, console, wanted: print_arenas(use, console, top=wanted.top)
    ),
    "traces": write_traces,
    KEEP_TRACES: keep_traces,
    "stack": _writer(
        python_stacks, stacks_json, lambda stacks, console, wanted: print_stacks(stacks, console)
    ),
    "cow": _writer(
        python_copies,
        copies_json,
        lambda copies, console, wanted: print_copies(copies, console, top=wanted.top),
    ),
}
