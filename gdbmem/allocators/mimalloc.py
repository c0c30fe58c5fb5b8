"""The heap of mimalloc, read without symbols: by its page map (3.x), or by its segments (2.x)."""

from __future__ import annotations

from typing import Optional

from gdbmem.allocators.malloc_heap import HeapView, MallocHeap
from gdbmem.allocators.mimalloc_map import read_page_map
from gdbmem.allocators.mimalloc_segments import read_segments
from gdbmem.linux.elf.objects import Image


def read_heap(view: HeapView, image: Image) -> Optional[MallocHeap]:
    """Return the heap of the mimalloc that is linked into *image*; None if none is proved."""
    return read_page_map(view, image) or read_segments(view, image)
