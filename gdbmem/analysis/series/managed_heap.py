"""Growth of a JVM below the size of its heap, which it touches for the first time until it is full, leak or not."""

from __future__ import annotations

import re
from typing import Optional

from gdbmem.model.series.verdict import Verdict
from gdbmem.patterns import lazy_pattern
from gdbmem.records import replace
from gdbmem.text import printable
from gdbmem.units import format_duration, format_rate, format_size

_JVM = lazy_pattern(r"(?:\S*/)?java(?: .*)?", re.DOTALL)
# Source: the manual of java: a size in bytes, or with k, m, g, t; the last one counts; without one a quarter of memory.
_HEAP_SIZE = lazy_pattern(r"(?:^| )(?:-Xmx|-XX:MaxHeapSize=)(\d{1,15})([kmgtKMGT]?)(?= |$)")
_HEAP_SHARE = lazy_pattern(r"(?:^| )-XX:MaxRAMPercentage=(\d{1,3}(?:\.\d+)?)(?= |$)")
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_BESIDE_BYTES = 64 << 20  # resident memory of a JVM besides its heap: itself, classes, compiled code, stacks
_LEAST_SHARE = 0.5  # of the growth that is the JVM's


def heap_bytes(command: str, memory_bytes: Optional[int]) -> Optional[int]:
    """Return the largest heap of the JVM with *command* in *memory_bytes*; None: unknown, or not a JVM."""
    if not _JVM.fullmatch(command):
        return None
    sizes = _HEAP_SIZE.findall(command)
    if sizes:
        number, unit = sizes[-1]
        return int(number) << _UNITS[unit.lower()]
    if not memory_bytes:
        return None
    shares = _HEAP_SHARE.findall(command)
    return int(memory_bytes * min(float(shares[-1]) if shares else 25.0, 100.0) / 100)


def beside_heap(
    verdict: Verdict, *, name: str, heap: Optional[int], change_bytes: float, last_bytes: float
) -> Verdict:
    """Return *verdict*, made inconclusive if the growth may be that of a JVM that fills its *heap*.

    *change_bytes* and *last_bytes* are of the process *name*, which *heap* is the largest heap of; None for no JVM.
    """
    grown = (verdict.last_bytes or 0.0) - (verdict.first_bytes or 0.0)
    room = 0.0 if heap is None else heap + _BESIDE_BYTES - last_bytes
    slope = verdict.slope
    if (
        not verdict.grows
        or slope is None
        or slope.value <= 0
        or room <= 0
        or change_bytes < _LEAST_SHARE * grown
    ):
        return verdict
    needs = room / slope.value
    evidence = (
        f"{format_rate(slope.value)}, but a JVM fills its heap, of {format_size(heap or 0)} at most, leak or not, and"
        f" {printable(name)} holds {format_size(last_bytes)}: in another {format_duration(needs)} it would be full"
    )
    regimes = [*verdict.regimes[:-1], *(replace(last, kind="inconclusive") for last in verdict.regimes[-1:])]
    floor = "unclear" if verdict.floor else ""
    return replace(
        verdict, kind="inconclusive", floor=floor, evidence=evidence, regimes=regimes, needs_seconds=needs
    )
