"""Values of options that `monitor` and `compare` share."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Optional, TextIO

from gdbmem.errors import InputError
from gdbmem.model.series import KINDS
from gdbmem.records import dataclass
from gdbmem.terminal.console import open_named, open_output
from gdbmem.text import parse_size, printable


def parse_fail_on(text: str) -> tuple[str, float]:
    """Return the verdict and the least slope, bytes per second, of ``growing``, ``growing:1MiB/h`` and the like."""
    kind, colon, slope = text.partition(":")
    if kind not in KINDS:
        raise InputError(
            f"'{printable(kind)}' is not a verdict", slug="bad-fail-on", hint=f"one of {', '.join(KINDS)}"
        )
    if not colon:
        return kind, 0.0
    return kind, parse_slope(slope)


def parse_slope(text: str) -> float:
    """Return the bytes per second of ``1MiB/h`` and the like."""
    size, slash, per = text.partition("/")
    units = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    if not slash or per not in units or parse_size(size) <= 0:
        raise InputError(
            f"'{printable(text)}' is not a slope", slug="bad-fail-on", hint="write it as in 1MiB/h"
        )
    return parse_size(size) / units[per]


# The files that `gdbmem monitor` and `compare` write their results to; the report code is imported only if needed.


@dataclass(frozen=True)
class Outputs:
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
