"""The files that `gdbmem monitor` writes its results to; the report is imported when there is one to write."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Optional, TextIO

from gdbmem.records import dataclass
from gdbmem.report.output import open_output


@dataclass(frozen=True)
class Outputs:
    """Where results go; opened before the long part begins."""

    text: TextIO
    plot: Optional[TextIO]


@contextlib.contextmanager
def prepare_outputs(args: argparse.Namespace) -> Iterator[Outputs]:
    """Open what *args* name; raises InputError where that can't be."""
    with contextlib.ExitStack() as stack:
        text = stack.enter_context(open_output(args.output, force=args.force))
        plot = stack.enter_context(open_output(args.plot, force=args.force)) if args.plot else None
        yield Outputs(text, plot)
