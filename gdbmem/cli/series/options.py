"""Values of options that `monitor` and `compare` share."""

from __future__ import annotations

from gdbmem.errors import InputError
from gdbmem.model.series.verdict import KINDS
from gdbmem.text import printable
from gdbmem.units import parse_size


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
