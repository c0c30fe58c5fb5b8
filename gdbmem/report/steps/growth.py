"""Requests for memory from the kernel: a table by path, and ``kind=growth``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbmem.model.steps.growth import KernelRequests
from gdbmem.report import drawing
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.document import head, to_json
from gdbmem.report.profiles.path_text import path_text
from gdbmem.report.steps.steps import delta_text
from gdbmem.text import plural
from gdbmem.units import format_delta, format_duration

if TYPE_CHECKING:
    from gdbmem.report.source import SourceLines

_TELLING = 50  # requests; with fewer, start and end dominate the cost


def print_growth(growth: KernelRequests, console: Console, sources: SourceLines, *, top: int) -> None:
    """Print the *top* paths of *growth*, each at the user's own line, and the cost of the recording."""
    table = drawing.Table(header_style="dim")
    table.add_numbers("mapped", "resident", "calls")
    table.add_column("by", no_wrap=True)
    table.add_column("where")
    for path in growth.paths[:top]:
        by = path.call if path.thread == 1 else f"{path.call}, thread {path.thread}"
        resident = delta_text(path.resident_bytes, "" if path.resident_is_exact else "~")
        mapped = drawing.Text("?", "dim") if path.is_unknown else delta_text(path.mapped_bytes)
        table.add_row(mapped, resident, f"{path.calls:,}", by, path_text(path.frames, sources))
    if growth.paths:
        console.print(table)
    rest = len(growth.paths) - top
    if rest > 0:
        console.print(drawing.Text(f"{plural(rest, 'path')} more; --top N lists more", "dim"))
    for line in summary(growth):
        print_sentence(console, line)


def summary(growth: KernelRequests) -> list[str]:
    """Return the total of the recording, and its cost."""
    mapped, resident = format_delta(growth.mapped_bytes), format_delta(growth.resident_bytes)
    lines = [f"{mapped} mapped, {resident} resident since the first of {plural(growth.events, 'request')}"]
    if not growth.events:
        lines = ["no request was recorded; growth without a request is unknown"]
    if growth.unseen_mapped_bytes:
        lines.append(
            f"{format_delta(growth.unseen_mapped_bytes)} of it mapped without a recorded request: "
            "a system call that bypasses the C library (--raw), the dynamic loader, or a stack that grew"
        )
    if growth.unseen_resident_bytes:
        lines.append(f"{format_delta(growth.unseen_resident_bytes)} resident belongs to no listed request")
    if not growth.is_exact:
        lines.append("~ several threads took memory, or some without a request: divided by their page faults")
    if growth.unsettled:
        lines.append(
            f"unknown: the effect of {plural(growth.unsettled, 'request')}, "
            "as the program ended or executed another right after"
        )
    if growth.left_out:
        lines.append(f"{plural(growth.left_out, 'request')} smaller than --above left out")
    each = ""
    if growth.events >= _TELLING:
        each = f", {growth.cost_seconds / growth.events * 1000:.2f} ms each"
    lines.append(f"recording took {format_duration(growth.cost_seconds)} of gdb's time{each}")
    return lines


def growth_json(growth: KernelRequests) -> str:
    """Return *growth* as ``kind=growth``."""
    document = {
        **head("growth", ()),
        "total_bytes": growth.mapped_bytes,
        "resident_bytes": growth.resident_bytes,
        "events": growth.events,
        "unseen_bytes": growth.unseen_mapped_bytes,
        "unseen_resident_bytes": growth.unseen_resident_bytes,
        "unsettled": growth.unsettled,
        "left_out": growth.left_out,
        "seconds": round(growth.seconds, 6),
        "cost_seconds": round(growth.cost_seconds, 6),
        "paths": [
            {
                "bytes": None if path.is_unknown else path.mapped_bytes,
                "resident_bytes": path.resident_bytes,
                "resident_is_exact": path.resident_is_exact,
                "calls": path.calls,
                "call": path.call,
                "thread": path.thread,
                "frames": [frame._asdict() for frame in path.frames],
            }
            for path in growth.paths
        ],
    }
    return to_json(document)
