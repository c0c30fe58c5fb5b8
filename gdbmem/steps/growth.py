"""Requests for memory from the kernel: a table by path, and ``kind=growth``."""

from __future__ import annotations

from pathlib import PurePath

from gdbmem.json_values import as_json
from gdbmem.model.steps import KernelRequests, WrittenMemory
from gdbmem.profiles.text import path_text
from gdbmem.steps.steps import delta_text
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_sentence
from gdbmem.terminal.document import head, to_json
from gdbmem.terminal.drawing import SourceLines
from gdbmem.text import format_delta, format_duration, format_size, plural, printable

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
    sums = ("mapped_bytes", "resident_bytes", "events", "unseen_mapped_bytes", "unseen_resident_bytes")
    of_path = ("resident_bytes", "resident_is_exact", "calls", "call", "thread", "frames")
    paths = [
        {"bytes": None if path.is_unknown else path.mapped_bytes, **as_json(path, *of_path)}
        for path in growth.paths
    ]
    found = as_json(growth, *sums, "unsettled", "left_out", "seconds", "cost_seconds")
    return to_json({**head("growth", ()), **found, "paths": paths})


# Pages written in a step: a table of ranges, and ``kind=written``.


def print_written(found: WrittenMemory, console: Console, *, top: int) -> None:
    """Print the *top* ranges of *found*, largest first, and the total."""
    for line in written_summary(found):
        print_sentence(console, line)
    if not found.ranges:
        return
    table = drawing.Table(header_style="dim")
    table.add_numbers("pages", "size")
    table.add_column("addresses", no_wrap=True)
    table.add_column("in")
    ordered = sorted(found.ranges, key=lambda one: (-one.size_bytes, one.start))
    for one in ordered[:top]:
        table.add_row(
            f"{one.size_bytes // found.page_bytes:,}{'' if one.is_certain else '?'}",
            format_size(one.size_bytes), f"{one.start:#x}-{one.end:#x}", printable(one.where),
        )  # fmt: skip
    console.print(table)
    if len(ordered) > top:
        console.print(drawing.Text(f"{plural(len(ordered) - top, 'range')} more; --top N lists more", "dim"))


def written_summary(found: WrittenMemory) -> list[str]:
    """Return the total, and what it leaves out."""
    what = f"'{printable(found.command)}' from {_place(found)}"
    if found.ended:
        return [f"unknown: which pages {what} wrote ({printable(found.ended)})"]
    pages = plural(found.written_bytes // found.page_bytes, "page")
    lines = [f"{pages} ({format_size(found.written_bytes)}) written by {what}"]
    if found.came_bytes:
        lines.append(
            f"? {format_size(found.came_bytes)} of shared memory or files came into memory: read or written"
        )
    if found.huge_bytes:
        lines.append(f"left out: {format_size(found.huge_bytes)} in huge pages, which watching would split")
    if found.unwatched_bytes:
        lines.append(
            f"unknown: {format_size(found.unwatched_bytes)} of mappings that the kernel cannot watch"
        )
    if found.threads > 1:
        lines.append(f"all {found.threads} threads may have run: the pages are those that any of them wrote")
    return lines


def _place(found: WrittenMemory) -> str:
    if found.file and found.line:
        return printable(f"{PurePath(found.file).name}:{found.line} ({found.function})")
    return printable(found.function) or "an unknown place"


def written_json(found: WrittenMemory) -> str:
    """Return *found* as ``kind=written``."""
    known = not found.ended
    document = {
        **head("written", ()),
        **as_json(found, "command", "function", "file", "line", "ended", "page_bytes"),
        "total_bytes": found.written_bytes if known else None,
        "came_bytes": found.came_bytes if known else None,
        **as_json(found, "huge_bytes", "unwatched_bytes", "threads"),
        "ranges": [
            as_json(one, "start", "end", "size_bytes", "mapping", "where", "is_certain")
            for one in found.ranges
        ],
    }
    return to_json(document)
