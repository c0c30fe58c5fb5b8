"""What `gdbmem explain` and memexplain write: a ledger, its change, malloc's settings, or single blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Protocol, TextIO

from gdbmem.arguments import check_alone
from gdbmem.json_values import as_json
from gdbmem.ledger.answer import DAMAGES
from gdbmem.ledger.blocks import print_types, types_document
from gdbmem.ledger.chunks import chunk_document, print_bins, print_chunk
from gdbmem.ledger.document import growth_json, ledger_json
from gdbmem.ledger.heap_map import render_map
from gdbmem.ledger.pinners import PinnerPaths, pinners_document, print_pinner_paths
from gdbmem.ledger.remedies import print_remedies, remedies_json
from gdbmem.ledger.text import LedgerOptions, print_growth, print_ledger
from gdbmem.model.heap_blocks import BlockTypes, ChunkView, FreeLists, HeapMap
from gdbmem.model.ledger import Ledger
from gdbmem.terminal.console import Console, picture_kind, print_notices

if TYPE_CHECKING:
    import argparse

_VIEWS = ("sizes", "pinners", "paths", "types", "arena")
# All options of commands.options.LEDGER, and those that save or compare.
LEDGER_OPTIONS = (*_VIEWS, "chunk", "bins", "map", "html", "remedies", "save", "since")


class BlockAnswers(Protocol):
    """The answers to queries about single blocks; None: not requested."""

    types: Optional[BlockTypes]
    map: Optional[HeapMap]
    chunk: Optional[ChunkView]
    bins: Optional[FreeLists]

    def class_names(self) -> Iterable[str]: ...


class Host(NamedTuple):
    """What a shell and gdb do in their own way."""

    console_on: Callable[[TextIO], Console]
    demangled: Callable[[Iterable[str]], Mapping[str, str]]  # mangled names of classes → demangled
    pinner_paths: Callable[[str, Ledger], PinnerPaths]  # by the operand of --paths


def check_views_apart(args: argparse.Namespace) -> None:
    """Refuse views of a ledger that can't be shown at once, and a name for a picture that is none."""
    check_alone(args, "since", (*_VIEWS, "remedies", "chunk", "bins"))
    check_alone(args, "remedies", (*_VIEWS, "chunk", "bins"))
    check_alone(args, "chunk", (*_VIEWS, "bins"))
    check_alone(args, "bins", _VIEWS)
    if args.map is not None:
        picture_kind(args.map, "--map")


def write_result(
    ledger: Ledger,
    answers: Optional[BlockAnswers],
    args: argparse.Namespace,
    host: Host,
    stream: TextIO,
    *,
    picture: Optional[TextIO],
    earlier: Optional[Ledger],
    name: str = "now",
) -> None:
    """Write what the options *args* ask for to *stream*, and the map of the heap to *picture*.

    *answers* are those to queries about single blocks, if there were any; *earlier* is the ledger of --since, and
    *name* what *ledger* is called beside it.
    """
    paths = host.pinner_paths(args.paths, ledger) if args.paths else None
    if picture is not None and answers is not None and answers.map is not None:
        picture.write(render_map(answers.map, ledger.program, picture_kind(args.map, "--map")))
    if earlier is not None:
        if args.json:
            stream.write(growth_json(earlier, ledger))
        else:
            print_growth(earlier, ledger, host.console_on(stream), (args.since, name))
    elif args.remedies:
        if args.json:
            stream.write(remedies_json(ledger))
        else:
            print_remedies(ledger, host.console_on(stream))
    else:
        class_names = {} if answers is None else host.demangled(answers.class_names())
        if args.json:
            stream.write(_json(ledger, answers, paths, class_names))
        else:
            view = LedgerOptions(args.sizes, args.pinners, args.arena)
            _print(ledger, answers, paths, class_names, host.console_on(stream), view)


def _json(
    ledger: Ledger,
    answers: Optional[BlockAnswers],
    paths: Optional[PinnerPaths],
    class_names: Mapping[str, str],
) -> str:
    """Return *ledger* as ``kind=ledger``, with a key for each further result requested."""
    more: dict[str, object] = {}
    if paths is not None:
        more["pinner_paths"] = pinners_document(paths)
    if answers is not None and answers.types is not None:
        more["types"] = types_document(answers.types, class_names)
    if answers is not None and answers.chunk is not None:
        more["chunk"] = chunk_document(answers.chunk, class_names)
    if answers is not None and answers.bins is not None:
        more["bins"] = as_json(answers.bins)
    return ledger_json(ledger, **more)


def _print(
    ledger: Ledger,
    answers: Optional[BlockAnswers],
    paths: Optional[PinnerPaths],
    class_names: Mapping[str, str],
    console: Console,
    view: LedgerOptions,
) -> None:
    """Print *ledger* and the further results; a chunk, or the lists of free ones, are printed alone."""
    if answers is not None and (answers.chunk is not None or answers.bins is not None):
        if answers.chunk is not None:
            print_chunk(answers.chunk, class_names, console)
        else:
            print_bins(answers.bins or FreeLists([], []), console)
        print_notices([n for n in ledger.notices if n.slug not in DAMAGES], console)
        return
    print_ledger(ledger, console, view, paths)
    if paths is not None:
        print_pinner_paths(paths, console)
    if answers is not None and answers.types is not None:
        print_types(answers.types, class_names, console)
