"""CPU time of whole processes on large and small files: limits of our own, a tool that reads the same beside."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench_formats import peak_mib
from benchmarks.racing import Row

TITLE = "Large and small files, CPU time"
SITES, SNAPSHOTS, TRACES = 300_000, 200_000, 50_000
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
        page = ("report", "--force", "-o", str(here / "page.html"))
        unpacked = here / "small"
        unpacked.write_bytes(subprocess.run(("zcat", SMALL), capture_output=True, check=True).stdout)
        return [
            _row(f"massif, {SITES:,} sites, show", ("show", sites), 3, ("ms_print", "--threshold=0", sites)),
            _row(f"massif, {SITES:,} sites, report", (*page, sites), 3),
            _row(f"folded, {SITES:,} stacks, show", ("show", folded), 3),
            _row(f"massif, {SNAPSHOTS:,} snapshots, show", ("show", many), 3, ("ms_print", many)),
            _row(f"massif, {SNAPSHOTS:,} snapshots, report", (*page, many), 3),
            _row(
                f"heaptrack, {TRACES:,} chained traces, show", ("show", chain), 2, ("heaptrack_print", chain)
            ),
            _row(
                "massif, 65 kB, show", ("show", str(unpacked)), 0.1, ("ms_print", str(unpacked)), start=True
            ),
            _row("massif, 65 kB, report", (*page, str(unpacked)), 0.1, start=True),
        ]


def _row(
    name: str, words: Sequence[str], limit_seconds: float, peer: Sequence[str] = (), *, start: bool = False
) -> Row:
    """Return what `gdbmem WORDS` costs; *start*: beyond the start of Python."""
    ours, ours_mib = _cost((*GDBMEM, *words))
    begin = _cost((sys.executable, "-c", "pass"))[0] if start else 0.0
    theirs = _cost(peer) if peer and shutil.which(peer[0]) else None
    label = f"{name}; {ours_mib:.0f} MiB"
    label += f" / `{peer[0]}`, {theirs[1]:.0f} MiB" if theirs else ""
    beyond = " beyond `python -c pass`" if start else ""
    return Row(
        label, ours, theirs[0] if theirs else 0.0, f"at most {limit_seconds:g} s{beyond}",
        at_most=limit_seconds, value=ours - begin,
    )  # fmt: skip


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
