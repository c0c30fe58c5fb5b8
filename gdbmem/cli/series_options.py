"""The files that `gdbmem monitor` and `gdbmem compare` write their results to."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import NamedTuple, Optional, TextIO

from gdbmem.terminal.console import open_named, open_output


class Outputs(NamedTuple):
    """The output files, opened before the recording begins."""

    text: TextIO
    plot: Optional[TextIO]


@contextlib.contextmanager
def prepare_outputs(args: argparse.Namespace) -> Iterator[Outputs]:
    """Open the files that *args* name; raises InputError if one can't be opened."""
    with (
        open_output(args.output, force=args.force) as text,
        open_named(args.plot or None, force=args.force) as plot,
    ):
        yield Outputs(text, plot)
