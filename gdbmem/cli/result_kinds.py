"""Finds out which kind of saved result a name means: a heap snapshot, a ledger or a scan of containers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Optional, Union

from gdbmem.api.runs import CONTAINERS, LEDGER, Run, kind_of


def add_kind_options(parser: argparse.ArgumentParser) -> None:
    """Add --ledger and --containers, which select the kind of a saved result."""
    group = parser.add_mutually_exclusive_group()
    for kind, what in ((LEDGER, "ledger"), (CONTAINERS, "scan of containers")):
        group.add_argument(
            f"--{kind}", dest="kind", action="store_const", const=kind, default="",
            help=f"the {what} of that name (default if there is no snapshot of that name)",
        )  # fmt: skip


def kept_kind(arguments: argparse.Namespace, place: Union[Path, Run], name: Optional[str]) -> str:
    """Return the kind of *name* in *place*: the requested one, or the only one; "" for a heap snapshot."""
    if arguments.kind or not isinstance(place, Run):
        return str(arguments.kind)
    return kind_of(place, name) if name is not None else ""
