"""CPU time of whole processes on large and small files, beside other readers of the same file."""

from __future__ import annotations

import gzip
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from benchmarks.racing import Ratio, cpu_of, peak_mib, ratios

TITLE = "Large and small files, CPU time"
SITES, SNAPSHOTS = 300_000, 50_000
_TIMES = 20  # a large file takes at most so many times its size of memory
ROUNDS = 3
SMALL = Path(__file__).parents[1] / "tests" / "captures" / "massif" / "shop.massif.gz"
GDBMEM = (sys.executable, "-m", "gdbmem.cli.main")
_LINES = (
    sys.executable,
    "-c",
    "import sys; print(sum(int(line.split()[1]) for line in open(sys.argv[1])))",
)
_PASS = (sys.executable, "-c", "pass")
_HEAD = (
    "#-----------\nsnapshot={0}\n#-----------\ntime={0}\nmem_heap_B={1}\nmem_heap_extra_B=0\nmem_stacks_B=0\n"
)
_BEGIN = "desc: x\ncmd: p\ntime_unit: i\n"


def race() -> Sequence[Ratio]:
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        small = _write(here / "small", [gzip.decompress(SMALL.read_bytes()).decode()])
        kinds = [  # the most of the CPU time for which a peer reads the same file; the most memory of its size
            (f"massif, {SITES:,} sites", _sites(here), ("ms_print", "--threshold=0"), 3.1, _TIMES),
            (f"folded, {SITES:,} stacks", _folded(here), _LINES, 45, _TIMES),
            (f"massif, {SNAPSHOTS:,} snapshots", _snapshots(here), ("ms_print",), 0.37, _TIMES),
            ("massif, 65 kB", small, _PASS, 10, None),
        ]
        page = ("report", "--force", "-o", here / "page.html")
        return [
            row
            for what, file, peer, at_most, most_memory in kinds
            for word, command in (("show", ("show", file)), ("report", (*page, file)))
            for row in _rows(f"{what}, {word}", command, (*peer, file), at_most, most_memory)
        ]


def _rows(
    name: str, words: Sequence[object], peer: Sequence[object], at_most: float, most_memory: Optional[float]
) -> Iterator[Ratio]:
    """Yield the cost of `gdbmem WORDS`: CPU time beside *peer*, and memory beside the size of its file."""
    ours = (*GDBMEM, *words)
    known: dict[tuple[object, ...], str] = {
        _LINES: "a Python that adds its lines up",
        _PASS: "`python -c pass`",
    }
    said = known.get(tuple(peer[:-1]), f"`{peer[0]}`")
    if shutil.which(str(peer[0])) is None:
        print(f"bench: {peer[0]} is missing", file=sys.stderr)
        return
    yield Ratio(
        f"{name} / {said}",
        ratios(lambda: cpu_of(ours), lambda: cpu_of(peer), rounds=ROUNDS, warmups=0),
        at_most,
    )
    if most_memory is not None:
        size = Path(str(peer[-1])).stat().st_size
        yield Ratio(f"{name}: its memory / the file's size", [peak_mib(ours) * 2**20 / size], most_memory)


def _write(path: Path, parts: Sequence[str]) -> str:
    path.write_text("".join(parts))
    return str(path)


def _sites(here: Path) -> str:
    root = (
        f"heap_tree=peak\nn{SITES}: {SITES} (heap allocation functions) malloc/new/new[], --alloc-fns, etc.\n"
    )
    lines = [f" n0: 1 0x{n:X}: f{n} (a.c:{n})\n" for n in range(SITES)]
    return _write(here / "sites", [_BEGIN, _HEAD.format(0, SITES), root, *lines])


def _folded(here: Path) -> str:
    return _write(here / "folded", [f"main;a{n};b{n} 10\n" for n in range(SITES)])


def _snapshots(here: Path) -> str:
    heads = [f"{_HEAD.format(n, n)}heap_tree=empty\n" for n in range(SNAPSHOTS)]
    return _write(here / "snapshots", [_BEGIN, *heads])
