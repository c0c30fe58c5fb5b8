"""massif files for the tests: the captures, and small ones written line by line."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

from gdbmem.formats.valgrind.massif import MassifProfile, read_massif

CAPTURES = Path(__file__).parents[1] / "captures" / "massif"
NAMES = sorted(path.name[: -len(".massif.gz")] for path in CAPTURES.glob("*.massif.gz"))

HEADER = "desc: --threshold=0\ncmd: ./shop\ntime_unit: B\n"
TREE = """\
n2: 100 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.
 n1: 60 0x1: allocate (new_allocator.h:137)
  n0: 60 0x2: main (shop.cpp:36)
 n0: 40 0x3: fill(int) (shop.cpp:7)
"""


def capture(name: str) -> bytes:
    """Return the unpacked text of a capture."""
    return gzip.decompress((CAPTURES / f"{name}.massif.gz").read_bytes())


def snapshot(number: int = 0, heap: int = 100, tree: str = TREE, *, extra: int = 0, kind: str = "") -> str:
    """Return one snapshot's lines; without *tree* it is an empty one."""
    return (
        f"#-----------\nsnapshot={number}\n#-----------\ntime={number * 10}\nmem_heap_B={heap}\n"
        f"mem_heap_extra_B={extra}\nmem_stacks_B=0\nheap_tree={kind or ('detailed' if tree else 'empty')}\n{tree}"
    )


def read(text: str, encoding: str = "utf-8") -> MassifProfile:
    return read_massif(text.encode(encoding, "surrogateescape"), "a.massif")


def read_tree_of(*lines: str, heap: int = 100) -> MassifProfile:
    """Return a profile whose only tree has *lines* under a root with as many children as stand there first."""
    count = sum(line.startswith(" n") for line in lines)
    root = f"n{count}: {heap} (heap allocation functions) malloc/new/new[], --alloc-fns, etc."
    return read(HEADER + snapshot(heap=heap, tree="\n".join((root, *lines)) + "\n"))


def line_starts(data: bytes) -> Iterator[int]:
    """Yield where each line but the first starts, and where the last ends."""
    at = data.find(b"\n") + 1
    while at:
        yield at
        at = data.find(b"\n", at) + 1
