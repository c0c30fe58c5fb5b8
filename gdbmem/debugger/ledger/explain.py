"""memexplain: the ledger of the process that gdb holds."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Optional, TextIO

import gdb

from gdbmem.arguments import add_ledger_options, add_output_options, check_alone, check_views_apart
from gdbmem.debugger.batch.demangle import class_names
from gdbmem.debugger.command import Command, say, warn
from gdbmem.debugger.ledger.here import core_path, read_ledger_here
from gdbmem.debugger.terminal import console_on
from gdbmem.errors import TargetError, UsageError
from gdbmem.inspection.looks import Looks
from gdbmem.records import asdict
from gdbmem.report.ledger.heap_map import render_map
from gdbmem.report.ledger.ledger_json import ledger_json
from gdbmem.report.ledger.ledger_text import LedgerOptions
from gdbmem.report.ledger.ledger_view import beside, print_all, write_growth, write_json, write_remedies
from gdbmem.report.output import open_named, open_output, picture_kind
from gdbmem.runs.saved_results import LEDGER
from gdbmem.text import printable

if TYPE_CHECKING:
    import argparse

    from gdbmem.analysis.ledger.pinners import PinnerPaths
    from gdbmem.arguments import ArgumentParser
    from gdbmem.model.ledger.ledger import Ledger


class ExplainCommand(Command):
    """Read, keep, compare."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--save", metavar="NAME", help="save this ledger as NAME")
        parser.add_argument(
            "--since",
            metavar="NAME",
            help="changes since the ledger saved as NAME, in a file, or in RUN:NAME",
        )
        add_ledger_options(parser)
        parser.add_argument(
            "--swapped",
            action="store_true",
            help="read swapped-out pages too, which brings them back into memory",
        )
        parser.add_argument(
            "--mallinfo", action="store_true", help="call mallinfo2 in the process, and compare"
        )
        parser.add_argument(
            "--malloc-info", action="store_true", help="call malloc_info in the process, and compare"
        )
        add_output_options(parser)

    def saved_names(self) -> list[str]:
        from gdbmem.debugger.ledger.saved import saved_names  # 60 ms

        return saved_names(LEDGER)

    def run(self, args: argparse.Namespace) -> None:
        _check_together(args)
        if args.html is not None:
            from gdbmem.debugger.pages import check_page  # 5 ms

            check_page(args.html, force=args.force)
        earlier = _earlier(args.since) if args.since is not None else None
        kind = picture_kind(args.map, "--map") if args.map is not None else ""
        with (
            open_output(args.output, force=args.force) as stream,
            open_named(args.map, force=args.force) as picture,
        ):
            if args.malloc_info:
                from gdbmem.debugger.ledger.malloc_info import write_malloc_info  # 20 ms

                write_malloc_info(stream, as_json=args.json)
            elif args.mallinfo:
                write_mallinfo(read_ledger_here(), stream, as_json=args.json)
            else:
                _write_ledger(args, earlier, stream, picture, kind)


def _earlier(name: str) -> Ledger:
    from gdbmem.debugger.ledger.saved import kept_ledger  # 60 ms

    return kept_ledger(name)


def _check_together(args: argparse.Namespace) -> None:
    check_views_apart(args)
    others = (
        "save",
        "since",
        "sizes",
        "pinners",
        "paths",
        "types",
        "map",
        "html",
        "arena",
        "remedies",
        "chunk",
        "bins",
    )
    check_alone(args, "mallinfo", (*others, "malloc_info"))
    check_alone(args, "malloc_info", others)


def _write_ledger(
    args: argparse.Namespace,
    earlier: Optional[Ledger],
    stream: TextIO,
    picture: Optional[TextIO],
    kind: str,
) -> None:
    """Read the ledger, save it, draw it, and write it or the change since *earlier*."""
    chunk_at = _address_of(args.chunk) if args.chunk is not None else None
    looks = Looks.asked(
        chunk_at, types=args.types, map=args.map is not None, map_if_any=args.html is not None, bins=args.bins
    )
    ledger = read_ledger_here(looks, swapped=args.swapped)
    if args.save is not None:
        from gdbmem.debugger.ledger.saved import keep_ledger  # 60 ms

        say(f"ledger saved as {keep_ledger(args.save, ledger).label}")
    paths = _paths_of_pinners(args.paths, ledger) if args.paths else None
    besides = beside(looks, paths, class_names)
    if picture is not None and looks is not None and looks.map is not None:
        picture.write(render_map(looks.map, ledger.program, kind))
        say(f"the heap is drawn in {args.map}")
    names = (args.since, args.save or "now")
    if earlier is not None:
        write_growth(earlier, ledger, names, stream, console_on, as_json=args.json)
    elif args.remedies:
        write_remedies(ledger, stream, console_on, as_json=args.json)
    elif args.json:
        write_json(ledger, besides, stream)
    else:
        print_all(ledger, besides, console_on(stream), LedgerOptions(args.sizes, args.pinners, args.arena))
    if args.html is not None:
        from gdbmem.debugger.pages import write_document_page  # 5 ms

        drawn = asdict(looks.map) if looks is not None and looks.map is not None else None
        stem = PurePath(ledger.program).name or "ledger"
        write_document_page(ledger_json(ledger, heap_map=drawn), stem, args.html, force=args.force)


def _address_of(text: str) -> int:
    """Return the value of gdb's expression *text* as an address: a number or a pointer."""
    try:
        value = gdb.parse_and_eval(text)
        return int(value.cast(gdb.lookup_type("unsigned long")))
    except gdb.error as error:
        raise UsageError(
            f"--chunk can't use {printable(text)}: {printable(str(error))}",
            hint="give an address, or an expression of a pointer without blanks",
        ) from error


def _paths_of_pinners(operand: str, ledger: Ledger) -> PinnerPaths:
    from gdbmem.inspection.pinner_paths import paths_of_pinners  # 60 ms: the readers of all formats
    from gdbmem.symbols.address_names import GdbSymbols  # with it

    return paths_of_pinners(operand, ledger, GdbSymbols(progress=warn))


def write_mallinfo(ledger: Ledger, stream: TextIO, *, as_json: bool) -> None:
    """Write the values of mallinfo2, called in the process, beside those of *ledger*."""
    if core_path() is not None:
        raise TargetError(
            "a core can't run mallinfo2",
            slug="trim-refused",
            hint="use 'memexplain' for the contents of the heap",
        )
    from gdbmem.debugger.ledger.malloc_calls import check_callable, mallinfo_of, read_mallinfo  # 20 ms
    from gdbmem.report.ledger.mallinfo import mallinfo_json, print_mallinfo  # with it

    check_callable(ledger, "mallinfo2")
    theirs = read_mallinfo()
    if as_json:
        stream.write(mallinfo_json(theirs, mallinfo_of(ledger), ledger.notices))
    else:
        print_mallinfo(theirs, mallinfo_of(ledger), console_on(stream))
