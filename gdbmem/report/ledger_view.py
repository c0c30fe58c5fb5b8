"""A ledger with what was asked for beside it: call paths of pinners, types of blocks, a map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Optional, TextIO

from gdbmem.analysis.pinners import PinnerPaths
from gdbmem.model.blocktypes import BlockTypes
from gdbmem.model.ledger import Ledger
from gdbmem.report.blocktypes import print_types, types_document
from gdbmem.report.ledger_json import growth_json, ledger_json
from gdbmem.report.ledger_text import View, print_growth, print_ledger
from gdbmem.report.pinners import pinners_document, print_pinner_paths

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Beside:
    """What was found beside the ledger; None: not asked for."""

    paths: Optional[PinnerPaths] = None
    types: Optional[BlockTypes] = None
    class_names: Mapping[str, str] = field(default_factory=dict)  # mangled → as people write it


def write_json(ledger: Ledger, beside: Beside, stream: TextIO) -> None:
    """Write *ledger* as ``kind=ledger``, with a key for each thing that was asked for beside it."""
    more: dict[str, Any] = {}
    if beside.paths is not None:
        more["pinner_paths"] = pinners_document(beside.paths)
    if beside.types is not None:
        more["types"] = types_document(beside.types, beside.class_names)
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
    """Write what changed between two ledgers, for programs or for people."""
    if as_json:
        stream.write(growth_json(before, after))
    else:
        print_growth(before, after, console_on(stream), names)


def print_all(ledger: Ledger, beside: Beside, console: Console, view: View) -> None:
    """Print *ledger*, then what was found beside it."""
    print_ledger(ledger, console, view, beside.paths)
    if beside.paths is not None:
        print_pinner_paths(beside.paths, console)
    if beside.types is not None:
        print_types(beside.types, beside.class_names, console)
