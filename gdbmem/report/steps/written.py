"""Pages written in a step: a table of ranges, and ``kind=written``."""

from __future__ import annotations

from pathlib import PurePath

from gdbmem.model.steps.written import WrittenMemory, WrittenRange
from gdbmem.report import drawing
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.document import head, to_json
from gdbmem.text import plural, printable
from gdbmem.units import format_size


def print_written(found: WrittenMemory, console: Console, *, top: int) -> None:
    """Print the *top* ranges of *found*, largest first, and the total."""
    for line in summary(found):
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


def summary(found: WrittenMemory) -> list[str]:
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
        "command": found.command,
        "function": found.function,
        "file": found.file,
        "line": found.line,
        "ended": found.ended or None,
        "page_bytes": found.page_bytes,
        "total_bytes": found.written_bytes if known else None,
        "came_bytes": found.came_bytes if known else None,
        "huge_bytes": found.huge_bytes,
        "unwatched_bytes": found.unwatched_bytes,
        "threads": found.threads,
        "ranges": [_range(one) for one in found.ranges],
    }
    return to_json(document)


def _range(one: WrittenRange) -> dict[str, object]:
    return {
        "start": one.start,
        "end": one.end,
        "bytes": one.size_bytes,
        "mapping": one.mapping,
        "in": one.where,
        "written": True if one.is_certain else None,
    }
