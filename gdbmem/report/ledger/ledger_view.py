"""A ledger with the requested further results: call paths of pinners, types of blocks, a map."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Callable, Optional, Protocol, TextIO

from gdbmem.analysis.ledger.answer import DAMAGES
from gdbmem.analysis.ledger.pinners import PinnerPaths
from gdbmem.model.ledger.block_types import BlockTypes
from gdbmem.model.ledger.chunks import ChunkView, FreeLists
from gdbmem.model.ledger.ledger import Ledger
from gdbmem.records import dataclass, field
from gdbmem.report.console import Console
from gdbmem.report.ledger.block_types import print_types, types_document
from gdbmem.report.ledger.chunks import bins_document, chunk_document, print_bins, print_chunk
from gdbmem.report.ledger.ledger_json import growth_json, ledger_json
from gdbmem.report.ledger.ledger_text import LedgerOptions, print_growth, print_ledger
from gdbmem.report.ledger.pinners import pinners_document, print_pinner_paths
from gdbmem.report.ledger.remedies import print_remedies, remedies_json
from gdbmem.report.notices import print_notices


@dataclass(frozen=True)
class Beside:
    """The results beside the ledger; None: not requested."""

    paths: Optional[PinnerPaths] = None
    types: Optional[BlockTypes] = None
    chunk: Optional[ChunkView] = None
    bins: Optional[FreeLists] = None
    class_names: Mapping[str, str] = field(default_factory=dict)  # mangled → demangled


class BlockAnswers(Protocol):
    """The answers to queries about single blocks; None: not requested."""

    types: Optional[BlockTypes]
    chunk: Optional[ChunkView]
    bins: Optional[FreeLists]

    def class_names(self) -> Iterable[str]: ...


def beside(
    answers: Optional[BlockAnswers],
    paths: Optional[PinnerPaths],
    demangled: Callable[[Iterable[str]], Mapping[str, str]],
) -> Beside:
    """Return *answers* and *paths* as results beside a ledger, with class names as *demangled* returns them."""
    if answers is None:
        return Beside(paths)
    return Beside(paths, answers.types, answers.chunk, answers.bins, demangled(answers.class_names()))


def write_json(ledger: Ledger, beside: Beside, stream: TextIO) -> None:
    """Write *ledger* as ``kind=ledger``, with a key for each further result requested."""
    more: dict[str, object] = {}
    if beside.paths is not None:
        more["pinner_paths"] = pinners_document(beside.paths)
    if beside.types is not None:
        more["types"] = types_document(beside.types, beside.class_names)
    if beside.chunk is not None:
        more["chunk"] = chunk_document(beside.chunk, beside.class_names)
    if beside.bins is not None:
        more["bins"] = bins_document(beside.bins)
    stream.write(ledger_json(ledger, **more))


def write_growth(
    before: Ledger,
    after: Ledger,
    names: tuple[str, str],
    stream: TextIO,
    console_on: Callable[[TextIO], Console],
    *,
    as_json: bool,
) -> None:
    """Write the change between two ledgers, as JSON or as text."""
    if as_json:
        stream.write(growth_json(before, after))
    else:
        print_growth(before, after, console_on(stream), names)


def write_remedies(
    ledger: Ledger, stream: TextIO, console_on: Callable[[TextIO], Console], *, as_json: bool
) -> None:
    """Write the predicted effect of malloc's settings, as JSON or as text."""
    if as_json:
        stream.write(remedies_json(ledger))
    else:
        print_remedies(ledger, console_on(stream))


def print_all(ledger: Ledger, beside: Beside, console: Console, view: LedgerOptions) -> None:
    """Print *ledger* and the further results; a chunk, or the lists of free ones, are printed alone."""
    if beside.chunk is not None or beside.bins is not None:
        if beside.chunk is not None:
            print_chunk(beside.chunk, beside.class_names, console)
        else:
            print_bins(beside.bins or FreeLists([], []), console)
        print_notices([n for n in ledger.notices if n.slug not in DAMAGES], console)
        return
    print_ledger(ledger, console, view, beside.paths)
    if beside.paths is not None:
        print_pinner_paths(beside.paths, console)
    if beside.types is not None:
        print_types(beside.types, beside.class_names, console)
