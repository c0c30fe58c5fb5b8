"""Call paths of the sizes that pin free pages, as text and JSON."""

from __future__ import annotations

from gdbmem.analysis.ledger.pinners import PinnerPaths, SizedPath
from gdbmem.analysis.profiles.sites import describe_site
from gdbmem.report import drawing
from gdbmem.report.console import Console
from gdbmem.report.document import Document
from gdbmem.text import plural, printable
from gdbmem.units import format_size

_PATHS = 3  # of each size


def pinners_document(joined: PinnerPaths) -> Document:
    """Return *joined* in the form of ``kind=ledger``, ``pinner_paths``."""
    return {
        "source": joined.source,
        "mixed_paths": joined.mixed_paths,
        "mixed_blocks": joined.mixed_blocks,
        "sizes": [
            {
                "size_bytes": one.size.size_bytes,
                "live": one.size.live,
                "pinned_bytes": one.size.pinned_bytes,
                "paths": [
                    {
                        "block_bytes": path.block_bytes,
                        "blocks": path.blocks,
                        "frames": [frame._asdict() for frame in path.row.frames],
                    }
                    for path in one.paths
                ],
            }
            for one in joined.sizes
        ],
    }


def print_pinner_paths(joined: PinnerPaths, console: Console) -> None:
    """Print, for each size that pins free pages, the call paths that allocate blocks of that size."""
    source = printable(joined.source)
    if not joined.sizes:
        console.print("\nNo live block pins free pages.")
        return
    numbers = ("pinned", "live here", "of bytes", "allocated there")
    table = drawing.new_table(*numbers, last="bytes each, allocated by")
    for one in joined.sizes:
        first = [format_size(one.size.pinned_bytes), f"{one.size.live:,}", f"≤ {one.size.size_bytes - 8:,}"]
        for path in one.paths[:_PATHS]:
            table.add_row(*first, f"{path.blocks:,}", f"{path.block_bytes:,}  {_site(path)}")
            first = ["", "", ""]
        if not one.paths:
            table.add_row(*first, "", "no path allocates only this size")
        elif len(one.paths) > _PATHS:
            table.add_row("", "", "", "", f"and {plural(len(one.paths) - _PATHS, 'more path')}")
    console.print(
        f"\nCall paths that allocate blocks of the sizes that pin free pages, by {source}", soft_wrap=True
    )
    console.print(table)
    said = (
        "The two are joined by size, so it is likely but not certain that a block comes from the given path."
    )
    if joined.mixed_paths:
        said += (
            f" {plural(joined.mixed_paths, 'path')} with {plural(joined.mixed_blocks, 'block')} there"
            " allocate several sizes, and may have any of these."
        )
    console.print(said, soft_wrap=True)


def _site(path: SizedPath) -> str:
    row = path.row
    return describe_site(row.site) if row.site is not None else "call sites that are not listed"
