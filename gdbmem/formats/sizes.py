"""Blocks by their size: a frame for each class of sizes, in front of the allocation site."""

from __future__ import annotations

from gdbmem.errors import InputError
from gdbmem.model.profiles.calltree import SIZE_CLASS, Frame
from gdbmem.text import printable
from gdbmem.units import format_size

AVERAGED = "block-sizes-averaged"
_SMALLEST = 16


def size_class(block_bytes: int) -> Frame:
    """Return the frame for blocks of *block_bytes*: classes end at the powers of two from 16."""
    most = max(_SMALLEST, 1 << max(block_bytes - 1, 0).bit_length())
    over = f"over {format_size(most // 2)}, " if most > _SMALLEST else ""
    return Frame(f"blocks {over}up to {format_size(most)}", line=most, object=SIZE_CLASS)


def no_block_sizes(source: str) -> InputError:
    """Return the error for a file without the sizes of blocks."""
    return InputError(
        f"{printable(source)} has no block sizes",
        slug="no-block-sizes",
        hint="heaptrack, gperftools, jemalloc, DHAT, execution trees and pprof do; leave --by size out",
    )
