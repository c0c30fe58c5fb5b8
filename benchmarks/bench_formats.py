"""Heap profiles of other tools, against those tools' own readers; each as a whole process, from start to end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from benchmarks.massif_files import write_wide
from benchmarks.profile_files import build_program, gperftools_pair, heaptrack_file, jemalloc_file, xtree_file
from benchmarks.racing import Ratio, cpu_of, peak_mib, ratios

TITLE = "Reading profiles of other tools"
STACKS, STACKS_OF_JEMALLOC, STACKS_OF_XTREE = 2_400, 12_000, 600
TIMES = 1_000  # the allocations of a stack in the larger file of heaptrack
ROUNDS = 4

# All run with compiled modules, as for users.
GDBMEM = (sys.executable, "-m", "gdbmem.cli.main")
MSPARSER = "import msparser, sys; data = msparser.parse_file(sys.argv[1]); print(len(data['snapshots']))"


def race() -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        os.environ["XDG_CACHE_HOME"] = folder
        for rows in (_gperftools, _jemalloc, _callgrind, _massif, _heaptrack):
            yield from (row for row in rows(here) if row is not None)


def _gperftools(here: Path) -> Sequence[Optional[Ratio]]:
    program, before, after = gperftools_pair(here, stacks=STACKS)
    ours = (*GDBMEM, "diff", str(before), str(after))
    pprof = ("google-pprof", "--text", f"--base={before}", str(program), str(after))
    what = f"`.heap` pair of {STACKS:,} stacks"
    warm = _race(f"{what} / `google-pprof --base`", ours, pprof, times_faster=3)
    return [warm]


def _jemalloc(here: Path) -> Sequence[Optional[Ratio]]:
    program = build_program(here, stacks=STACKS_OF_JEMALLOC)
    file = jemalloc_file(program, here, "je")
    ours, peer = (*GDBMEM, "show", str(file)), ("jeprof", "--text", str(program), str(file))
    return [_race(f"`heap_v2` of {_megabytes(file)} / `jeprof`", ours, peer, times_faster=5)]


def _heaptrack(here: Path) -> Sequence[Optional[Ratio]]:
    if shutil.which("heaptrack") is None:
        _missing("heaptrack")
        return []
    program = build_program(here, stacks=STACKS)
    loop = _heaptrack_pair(here, [(program, TIMES // 2), (program, TIMES)], "a loop")
    script = here / "parsing.py"
    script.write_text(PARSING)
    parsing = [(sys.executable, script, files) for files in (60, 120)]
    return [loop, _heaptrack_pair(here, parsing, "Python parsing modules")]


# A program that nobody wrote for a race: very many call paths.
PARSING = """\
import ast, glob, os, sys
files = sorted(glob.glob(os.path.dirname(os.__file__) + "/*.py"))[:int(sys.argv[1])]
trees = [ast.parse(open(file, "rb").read()) for file in files]
"""


def _heaptrack_pair(here: Path, commands: Sequence[Sequence[object]], what: str) -> Optional[Ratio]:
    folder = Path(tempfile.mkdtemp(dir=here))
    files = [heaptrack_file(list(map(str, words)), folder, f"of{n}") for n, words in enumerate(commands)]
    ours = (*GDBMEM, "diff", *map(str, files))
    peer = ("heaptrack_print", "-d", str(files[0]), "-f", str(files[1]))
    return _race(
        f"heaptrack pair of {what}, {_events(files):,} lines / `heaptrack_print -d`",
        ours,
        peer,
        times_faster=1,
    )


def _callgrind(here: Path) -> Sequence[Optional[Ratio]]:
    program = build_program(here, stacks=STACKS_OF_XTREE)
    file = xtree_file(program, here)
    ours, peer = (*GDBMEM, "show", str(file)), ("callgrind_annotate", "--threshold=100", str(file))
    return [_race(f"execution tree of {_megabytes(file)} / `callgrind_annotate`", ours, peer)]


def _massif(here: Path) -> Sequence[Optional[Ratio]]:
    file = here / "wide.massif"
    nodes = write_wide(file, trees=4, nodes=100_000)
    name = f"massif file of {_megabytes(file)}, {nodes:,} nodes / `msparser`"
    if subprocess.run((sys.executable, "-c", "import msparser"), capture_output=True, check=False).returncode:
        _missing("msparser")
        return []
    return [_race(name, (*GDBMEM, "show", str(file)), (sys.executable, "-c", MSPARSER, str(file)))]


def _race(
    name: str,
    ours: Sequence[str],
    peer: Sequence[str],
    *,
    times_faster: int = 0,
) -> Optional[Ratio]:
    if shutil.which(peer[0]) is None:
        _missing(peer[0])
        return None

    found = ratios(lambda: cpu_of(ours), lambda: cpu_of(peer), rounds=ROUNDS)
    memory = f"memory {peak_mib(ours) / peak_mib(peer):.2f} of its peer's"
    return Ratio(name, found, 1 / times_faster if times_faster else None, note=memory)


def _missing(tool: str) -> None:
    print(f"bench: {tool} is not here, so nothing races against it", file=sys.stderr)


def _megabytes(file: Path) -> str:
    return f"{file.stat().st_size / 1e6:.1f} MB"


def _events(files: Sequence[Path]) -> int:
    lines = 0
    for file in files:
        text = subprocess.run(("zstdcat", str(file)), capture_output=True, check=True).stdout
        lines += text.count(b"\n")
    return lines
