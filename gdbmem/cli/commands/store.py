"""Run `gdbmem store`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Optional, TextIO

from gdbmem.api.store import NOT_LISTED, Added, add
from gdbmem.api.store_queries import GrownPath, OddSeries, Since, StoreAnswer, opened
from gdbmem.cli.start import unwind_when_ended
from gdbmem.commands.arguments import ArgumentParser, read_options_from
from gdbmem.errors import ExitStatus, UsageError
from gdbmem.files import spool_operands
from gdbmem.model.calltree import Frame
from gdbmem.profiles.own_code import Places, full_function, full_place, function_name, own_frame
from gdbmem.terminal import drawing
from gdbmem.terminal.console import (
    Console,
    Working,
    columns_that_fit,
    make_console,
    open_output,
    print_notices,
    print_sentence,
)
from gdbmem.terminal.document import Document, to_json, whole
from gdbmem.text import format_delta, format_size, plural, printable

_QUESTIONS = ("grew", "odd", "series")


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Add profiles to a store, or ask it."""
    args = parser.parse_args(argv)
    unwind_when_ended()
    return _add(args) if args.action == "add" else _query(args)


def _add(args: argparse.Namespace) -> int:
    options = read_options_from(args)
    operands = spool_operands(args.operands)
    with open_output(args.output, force=args.force) as stream:
        with Working("adding profiles"):
            added = add(args.store, operands, names=args.names, options=options, progress=_say_waiting)
        if args.json:
            stream.write(to_json(whole("stored", added, _sum_of(added))))
        else:
            console = make_console(stream, color=args.color)
            print_sentence(console, _sum_of(added), "bold")
            print_notices(added.notices, console)
    for sentence in added.unreadable:
        print(f"gdbmem: left out: {printable(sentence)}", file=sys.stderr)
    return ExitStatus.ERROR if added.unreadable else ExitStatus.DONE


def _say_waiting(text: str) -> None:
    if text.startswith("waiting"):
        print(f"gdbmem: {text}", file=sys.stderr, flush=True)


def _sum_of(added: Added) -> str:
    known = f", {plural(added.known, 'profile')} it has already" if added.known else ""
    left_out = f", {plural(len(added.unreadable), 'file')} left out" if added.unreadable else ""
    return (
        f"{plural(added.added, 'profile')} added to {printable(added.store)}: {plural(added.rows, 'row')},"
        f" {plural(added.paths, 'new call path')}{known}{left_out}"
    )


def _query(args: argparse.Namespace) -> int:
    question = args.question or "grew"
    if question not in _QUESTIONS:
        raise UsageError(
            f"gdbmem store query has no question '{printable(question)}'",
            hint=f"it is one of: {', '.join(_QUESTIONS)}",
        )
    if args.sql is not None and args.question:
        raise UsageError("--sql is a question of its own", hint=f"leave '{question}' out")
    with open_output(args.output, force=args.force) as stream:
        with Working("reading the store"), opened(args.store) as store:
            if args.sql is not None:
                found = store.sql(args.sql)
            elif question == "series":
                found = store.list_series()
            elif question == "odd":
                found = store.odd(top=args.top, unit=args.unit, focus=args.focus)
            else:
                ranks = _ranks(args.on_ranks)
                found = store.grew(top=args.top, unit=args.unit, ranks=ranks, focus=args.focus)
        if args.json:
            stream.write(_document(found))
        else:
            _print(found, make_console(stream, color=args.color), stream)
    return ExitStatus.DONE


def _ranks(text: Optional[str]) -> Optional[list[int]]:
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise UsageError(f"'{printable(text)}' names no ranks", hint="--on-ranks 0,4-7")
        found += range(first, last + 1)
    return found


def _document(found: StoreAnswer) -> str:
    document: Document = whole("store", found, answer(found))
    if found.question == "sql":
        document["rows"] = json.loads(json.dumps(found.rows, default=str))
    return to_json(document)


def answer(found: StoreAnswer) -> str:
    """Return the answer in one sentence without its full stop."""
    if found.question == "series":
        return f"{plural(found.series, 'series', 'series')} of {plural(found.profiles, 'profile')}"
    if found.question == "sql":
        return plural(len(found.rows), "row")
    if found.question == "odd":
        if not found.can_differ:
            return "fewer than five series of a program are not compared with each other"
        if not found.odd:
            return "no series differs from the others"
        odd = found.odd[0]
        usual = format_delta(odd.others_bytes)
        return (
            f"{_name(odd.frames)} grew by {format_delta(odd.grew_bytes)} {_whose(odd)}, by {usual} in most"
            f" others{_since(odd.since)}"
        )
    if not found.grown:
        return "no call path grew"
    most = found.grown[0]
    return (
        f"{_name(most.frames)} grew most: {format_delta(most.grew_bytes)} {_whose(most)}{_since(most.since)}"
    )


def _whose(one: GrownPath | OddSeries) -> str:
    return f"in {printable(one.series)}" if one.rank is None else f"on rank {one.rank}"


def _since(since: Optional[Since]) -> str:
    return "" if since is None else f", since {_when(since)}"


def _when(since: Since) -> str:
    if since.t is None:
        return f"profile {since.profile} ({printable(since.name)})"
    when = datetime.fromtimestamp(since.t).isoformat(" ", "seconds")
    return f"{when} (profile {since.profile})"


def _own(frames: Sequence[Frame]) -> Optional[Frame]:
    at = own_frame(frames)
    return frames[at] if at >= 0 else None


def _name(frames: Sequence[Frame]) -> str:
    return _place(frames, Places([_own(frames)]))


def _print(found: StoreAnswer, console: Console, stream: TextIO) -> None:
    if found.question == "sql":
        _print_rows(found, console)
    else:
        print_sentence(console, answer(found), "bold")
    rows = {"grew": _grown_rows, "odd": _odd_rows, "series": _series_rows}.get(found.question)
    if rows is not None:
        headings, cells = rows(found)
        if cells:
            console.print()
            console.print(_table(headings, cells, console))
    frames = next((one.frames for one in found.grown), next((one.frames for one in found.odd), ()))
    if len(frames) > 1:
        console.print()
        print_sentence(console, "the first, from where it allocates outward:", "dim")
        for frame in frames:
            print_sentence(console, f"  {full_function(frame)}  {full_place(frame)}")
    print_notices(found.notices, console)


def _grown_rows(found: StoreAnswer) -> tuple[list[str], list[list[str]]]:
    places = Places(_own(one.frames) for one in found.grown)
    cells = [
        [
            format_delta(one.grew_bytes),
            _doubt(one.uncertain_bytes, one.standard_error_bytes),
            "" if one.rank is None else str(one.rank),
            "comes and goes" if one.since is None else _when(one.since),
            format_delta(one.all_bytes),
            str(one.series_grown),
            _place(one.frames, places),
        ]
        for one in found.grown
    ]
    return ["grew", "±", "rank", "since", "all series", "grew in", "where"], cells


def _doubt(uncertain: int, error: Optional[float]) -> str:
    whole = uncertain + (error or 0.0)
    return f"±{format_size(whole)}" if whole else ""


def _odd_rows(found: StoreAnswer) -> tuple[list[str], list[list[str]]]:
    places = Places(_own(one.frames) for one in found.odd)
    cells = [
        [
            format_delta(one.grew_bytes),
            format_delta(one.others_bytes),
            "" if one.rank is None else str(one.rank),
            "comes and goes" if one.since is None else _when(one.since),
            printable(one.series) if one.rank is None else "",
            _place(one.frames, places),
        ]
        for one in found.odd
    ]
    return ["grew", "others", "rank", "since", "series", "where"], cells


def _series_rows(found: StoreAnswer) -> tuple[list[str], list[list[str]]]:
    cells = [
        [
            "" if one.rank is None else str(one.rank),
            str(one.profiles),
            format_size(one.first_bytes),
            format_size(one.last_bytes),
            format_delta(one.last_bytes - one.first_bytes),
            printable(one.program or ""),
            printable(one.series),
        ]
        for one in found.all_series
    ]
    return ["rank", "profiles", "first", "last", "change", "program", "series"], cells


def _place(frames: Sequence[Frame], places: Places) -> str:
    frame = _own(frames)
    if frame is None:
        return "memory without a call path"
    if frames[0].function == NOT_LISTED:
        return "call sites that the tool did not list"
    return f"{places.place(frame)}  {function_name(frame)}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> drawing.Table:
    empty = [at for at in range(len(headings)) if not any(row[at] for row in rows)]
    kept = [at for at in range(len(headings)) if at not in empty]
    cells = [[row[at] for at in kept] for row in [headings, *rows]]
    table = drawing.Table(header_style="dim")
    shown = columns_that_fit(
        [[c[:30] for c in row] for row in cells], console.width, give_up=range(4, len(kept) - 1)
    )
    for column in shown:
        is_text = column == len(kept) - 1
        table.add_column(cells[0][column], justify="left" if is_text else "right", no_wrap=not is_text)
    for row in cells[1:]:
        table.add_row(*(row[column] for column in shown))
    return table


def _print_rows(found: StoreAnswer, console: Console) -> None:
    table = drawing.Table(header_style="dim")
    for number, name in enumerate(found.columns):
        is_number = any(isinstance(row[number], (int, float)) for row in found.rows)
        table.add_column(printable(name), justify="right" if is_number else "left", no_wrap=is_number)
    for row in found.rows:
        table.add_row(*("" if value is None else printable(str(value)) for value in row))
    console.print(table)
