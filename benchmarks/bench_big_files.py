"""CPU time of whole processes on large and small files: limits, and ratios to other readers of the same file."""

from __future__ import annotations

import gzip
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from benchmarks.bench_formats import peak_mib
from benchmarks.racing import Row

TITLE = "Large and small files, CPU time"
SITES, SNAPSHOTS, TRACES = 300_000, 200_000, 50_000
_MOST_MB = 200
_LARGE_BYTES, _TIMES = (
    5_000_000,
    20,
)  # a file from that size on takes at most so many times its size of memory
ROUNDS = 3
SMALL = Path(__file__).parents[1] / "tests" / "captures" / "massif" / "shop.massif.gz"
GDBMEM = (sys.executable, "-m", "gdbmem.cli.main")
_HEAD = (
    "#-----------\nsnapshot={0}\n#-----------\ntime={0}\nmem_heap_B={1}\nmem_heap_extra_B=0\nmem_stacks_B=0\n"
)
_BEGIN = "desc: x\ncmd: p\ntime_unit: i\n"


def race() -> Sequence[Row]:
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        sites, folded, many, chain = _sites(here), _folded(here), _snapshots(here), _chain(here)
        small = _write(here / "small", [gzip.decompress(SMALL.read_bytes()).decode()])
        page = ("report", "--force", "-o", str(here / "page.html"))
        kinds = [
            (f"massif, {SITES:,} sites", sites, 3, "ms_print --threshold=0", _MOST_MB),
            (f"folded, {SITES:,} stacks", folded, 3, "", _MOST_MB),
            (f"massif, {SNAPSHOTS:,} snapshots", many, 3, "ms_print", None),
            (f"heaptrack, {TRACES:,} chained traces", chain, 2, "heaptrack_print", None),
            ("massif, 65 kB", small, 0.1, "ms_print", None),
        ]
        rows: list[Row] = []
        for what, file, limit_seconds, peer, most_mb in kinds:
            for word, command, other in (
                ("show", ("show", file), (*peer.split(), file) if peer else ()),
                ("report", (*page, file), ()),
            ):
                limit_mib = _memory_limit(file, most_mb)
                rows += _rows(f"{what}, {word}", command, limit_seconds, limit_mib, other)
        return rows


def _memory_limit(file: str, most_mb: Optional[float]) -> Optional[float]:
    """Return the most memory in MiB that reading *file* may take: *most_mb*, and a multiple of a large file."""
    size = Path(file).stat().st_size
    limits = [most_mb * 1e6] if most_mb is not None else []
    limits += [_TIMES * size] if size >= _LARGE_BYTES else []
    return min(limits) / 2**20 if limits else None


def _rows(
    name: str, words: Sequence[str], limit_seconds: float, limit_mib: Optional[float], peer: Sequence[str]
) -> Iterator[Row]:
    """Yield the cost of `gdbmem WORDS`: CPU time (for a small file without the start of Python) and memory."""
    ours, ours_mib = _cost((*GDBMEM, *words))
    is_small = limit_seconds < 1
    begin = _cost((sys.executable, "-c", "pass"))[0] if is_small else 0.0
    theirs, theirs_mib = _cost(peer) if peer and shutil.which(peer[0]) else (0.0, 0.0)
    label = f"{name} / `{peer[0]}`" if theirs else name
    bar = f"at most {limit_seconds:g} s{' beyond `python -c pass`' if is_small else ''}"
    yield Row(label, ours, theirs, bar, at_most=limit_seconds, value=ours - begin)
    bar = "" if limit_mib is None else f"at most {limit_mib:.0f} MiB"
    yield Row(f"{label}: memory", ours_mib, theirs_mib, bar, at_most=limit_mib, value=ours_mib, unit="MiB")


def _cost(command: Sequence[str]) -> tuple[float, float]:
    """Return the median of the CPU seconds of *command*, and the most memory that it held, in MiB."""
    seconds = []
    for _ in range(ROUNDS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        seconds.append(used.ru_utime + used.ru_stime)
    # Not ru_maxrss, which begins with the size of the process that started this one.
    return statistics.median(seconds), peak_mib(command)


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


def _chain(here: Path) -> str:
    lines = ["v 10400 3\nX ./p\nI 1000 10\ns 1 m\n"]
    lines += [
        f"i {n + 0x1000:x} 1 1\nt {n:x} {n - 1:x}\na 10 {n:x}\n+ {n - 1:x}\n" for n in range(1, TRACES + 1)
    ]
    return _write(here / "chain", lines)
