"""Small massif.out texts, for tests that want files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional
from zlib import crc32

Line = tuple[int, int, str]  # depth, bytes, what stands after the bytes
ROOT_TEXT = "(heap allocation functions) malloc/new/new[], --alloc-fns, etc."
PAGES_TEXT = "(page allocation syscalls) mmap/mremap/brk, --alloc-fns, etc."


def path(size_bytes: int, *places: str) -> list[Line]:
    """Return one call path from the allocation site outward; *places* are ``f (a.cpp:1)``."""
    return [
        (depth, size_bytes, f"0x{crc32(place.encode()):X}: {place}") for depth, place in enumerate(places, 1)
    ]


def massif(*snapshots: Optional[Sequence[Line]], sizes: Sequence[int] = (), root: str = ROOT_TEXT) -> str:
    """Return a massif.out; a snapshot that is None has no tree, its heap is taken from *sizes*.

    The largest tree is that of the peak if memory is freed, as massif has it.
    """
    heaps = [
        sizes[index] if sizes else sum(size for depth, size, _ in lines or () if depth == 1)
        for index, lines in enumerate(snapshots)
    ]
    shrinks = any(after < before for before, after in zip(heaps, heaps[1:]))
    trees = [index for index, lines in enumerate(snapshots) if lines is not None]
    peak = max(trees, key=heaps.__getitem__) if shrinks and trees else None
    parts = ["desc: --threshold=0\ncmd: ./decoder words.txt\ntime_unit: i\n"]
    for index, lines in enumerate(snapshots):
        size, kind = heaps[index], "empty" if lines is None else "peak" if index == peak else "detailed"
        parts.append(
            f"#-----------\nsnapshot={index}\n#-----------\ntime={index * 1000}\nmem_heap_B={size}\n"
            f"mem_heap_extra_B=0\nmem_stacks_B=0\nheap_tree={kind}\n"
        )
        if lines is not None:
            parts.append(_tree([(0, size, root), *lines]))
    return "".join(parts)


def _tree(lines: Sequence[Line]) -> str:
    text = []
    for number, (depth, size_bytes, what) in enumerate(lines):
        children = 0
        for below, _, _ in lines[number + 1 :]:
            if below <= depth:
                break
            children += below == depth + 1
        text.append(f"{' ' * depth}n{children}: {size_bytes} {what}\n")
    return "".join(text)
