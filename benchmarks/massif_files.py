"""Big massif files for the races, made by repeating real ones."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from gdbmem.formats.valgrind.massif import read_massif

CAPTURES = Path(__file__).parents[1] / "tests" / "captures" / "massif"
HEADER = b"desc: --time-unit=i\ncmd: ./repeated\ntime_unit: i\n"
MARK = b"#-----------\n"
NODE = re.compile(rb"^( *n[0-9]+: [0-9]+ 0x)([0-9A-F]+)", re.MULTILINE)


def write_long(path: Path, *, snapshots: int, size_bytes: int) -> None:
    """Write a file of so many snapshots and about so many bytes: the captures' own, again and again."""
    large, small = cycle(bodies("python")), cycle(bodies("shop"))
    written = 0
    with path.open("wb") as stream:
        stream.write(HEADER)
        for number in range(snapshots):
            body = next(large if written * snapshots < size_bytes * number else small)
            # A time that never goes back: ms_print draws a chart of it.
            body = re.sub(rb"^time=[0-9]+", b"time=%d" % (1000 * (number + 1)), body, count=1)
            written += stream.write(MARK + b"snapshot=%d\n" % number + MARK + body)


def bodies(name: str) -> list[bytes]:
    """Return what stands below the number of each of a capture's snapshots."""
    data = gzip.decompress((CAPTURES / f"{name}.massif.gz").read_bytes())
    return [part.split(MARK, 1)[1] for part in data.split(MARK + b"snapshot=")[1:]]


def write_wide(path: Path, *, trees: int, nodes: int) -> int:
    """Write a file of so many trees with at least so many nodes together; return how many there are.

    Each tree holds the subtrees of real ones, several times over, at addresses of their own.
    """
    subtrees = cycle(copies())
    total = 0
    with path.open("wb") as stream:
        stream.write(HEADER)
        for number in range(trees):
            parts: list[tuple[bytes, int]] = []
            count = 1
            while total + count < nodes * (number + 1) // trees:
                part, lines = next(subtrees)
                parts.append((part, int(part.split(b" ", 3)[2])))
                count += lines
            total += count
            heap = sum(size for _, size in parts)
            totals = b"time=%d\nmem_heap_B=%d\nmem_heap_extra_B=0\nmem_stacks_B=0\n" % (number + 1, heap)
            stream.write(MARK + b"snapshot=%d\n" % number + MARK + totals + b"heap_tree=detailed\n")
            stream.write(
                b"n%d: %d (heap allocation functions) malloc/new/new[], --alloc-fns, etc.\n"
                % (len(parts), heap)
            )
            stream.writelines(part for part, _ in parts)
    return total


def copies() -> list[tuple[bytes, int]]:
    """Return subtrees with their numbers of lines: those of the captures, at three places each."""
    names = ("python", "sqlite", "perl", "shop", "live", "cc1")
    subtrees = [subtree for name in names for subtree in largest_tree(name)]
    return [
        (moved(subtree, copy * 0x1000), subtree.count(b"\n")) for copy in range(3) for subtree in subtrees
    ]


def moved(subtree: bytes, distance: int) -> bytes:
    """Return *subtree* with all addresses moved."""
    return NODE.sub(lambda match: match[1] + b"%X" % (int(match[2], 16) + distance), subtree)


def largest_tree(name: str) -> Iterator[bytes]:
    """Yield the subtrees right below the root of the largest tree of a capture."""
    data = gzip.decompress((CAPTURES / f"{name}.massif.gz").read_bytes())
    index = read_massif(data, name).peak_tree_index
    assert index is not None
    tree = bodies(name)[index].split(b"heap_tree=", 1)[1]
    yield from re.findall(rb"^ n.*\n(?:  +n.*\n)*", tree, re.MULTILINE)
