"""Heap profiles of other tools, against those tools' own readers; each as a whole process, from start to end."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from benchmarks.massif_files import write_wide
from benchmarks.profile_files import build_program, gperftools_pair, heaptrack_file, jemalloc_file, xtree_file
from benchmarks.racing import Action, Row, race_pair
from gdbmem.linux.process.processes import descendants, parents

TITLE = "Reading profiles of other tools"
STACKS, STACKS_OF_JEMALLOC, STACKS_OF_XTREE = 2_400, 12_000, 600
# The allocations of a stack in the larger file of heaptrack: in one the start dominates, in the other the lines.
TIMES = (1_000, 5_000)
ROUNDS = 5

# All run with compiled modules, as for users.
GDBMEM = (sys.executable, "-m", "gdbmem.cli.main")
MSPARSER = "import msparser, sys; data = msparser.parse_file(sys.argv[1]); print(len(data['snapshots']))"


def race() -> Sequence[Row]:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        os.environ["XDG_CACHE_HOME"] = folder
        rows = [*_gperftools(here), *_jemalloc(here), *_heaptrack(here), *_callgrind(here), *_massif(here)]
    return [row for row in rows if row is not None]


def _gperftools(here: Path) -> Sequence[Optional[Row]]:
    program, before, after = gperftools_pair(here, stacks=STACKS)
    ours = (*GDBMEM, "diff", str(before), str(after))
    pprof = ("google-pprof", "--text", f"--base={before}", str(program), str(after))
    what = f"`.heap` pair of {STACKS:,} stacks"
    cold = _race(f"{what}, no name in the cache / `google-pprof --base`", ours, pprof, forget=here / "gdbmem")
    warm = _race(f"{what} / `google-pprof --base`", ours, pprof, times_faster=3)
    go = ("go", "tool", "pprof", "-top", f"-base={before}", str(program), str(after))
    return [cold, warm, _race(f"{what} / `go tool pprof -base`", ours, go)]


def _jemalloc(here: Path) -> Sequence[Optional[Row]]:
    program = build_program(here, stacks=STACKS_OF_JEMALLOC)
    file = jemalloc_file(program, here, "je")
    ours, peer = (*GDBMEM, "show", str(file)), ("jeprof", "--text", str(program), str(file))
    return [_race(f"`heap_v2` of {_megabytes(file)} / `jeprof`", ours, peer, times_faster=5)]


def _heaptrack(here: Path) -> Sequence[Optional[Row]]:
    if shutil.which("heaptrack") is None:
        _missing("heaptrack")
        return []
    program = build_program(here, stacks=STACKS)
    loops = [_heaptrack_pair(here, [(program, times // 2), (program, times)], "a loop") for times in TIMES]
    script = here / "parsing.py"
    script.write_text(_PARSING)
    parsing = [(sys.executable, script, files) for files in (60, 120)]
    return [*loops, _heaptrack_pair(here, parsing, "Python parsing modules")]


# A program that nobody wrote for a race: very many call paths.
_PARSING = """\
import ast, glob, os, sys
files = sorted(glob.glob(os.path.dirname(os.__file__) + "/*.py"))[:int(sys.argv[1])]
trees = [ast.parse(open(file, "rb").read()) for file in files]
"""


def _heaptrack_pair(here: Path, commands: Sequence[Sequence[object]], what: str) -> Optional[Row]:
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


def _callgrind(here: Path) -> Sequence[Optional[Row]]:
    program = build_program(here, stacks=STACKS_OF_XTREE)
    file = xtree_file(program, here)
    ours, peer = (*GDBMEM, "show", str(file)), ("callgrind_annotate", "--threshold=100", str(file))
    return [_race(f"execution tree of {_megabytes(file)} / `callgrind_annotate`", ours, peer)]


def _massif(here: Path) -> Sequence[Optional[Row]]:
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
    forget: Optional[Path] = None,
) -> Optional[Row]:
    if shutil.which(peer[0]) is None:
        _missing(peer[0])
        return None

    def run_ours() -> None:
        if forget is not None:
            shutil.rmtree(forget, ignore_errors=True)
        _quietly(*ours)()

    pair = race_pair(run_ours, _quietly(*peer), rounds=ROUNDS)
    memory = f"{name}; {peak_mib(ours):.0f} MiB, peer {peak_mib(peer):.0f} MiB"
    bar = (
        ""
        if not times_faster
        else f"at least {times_faster} times faster"
        if times_faster > 1
        else "no slower"
    )
    at_most = 1 / times_faster if times_faster else None
    return Row(memory, pair.ours_median, pair.peer_median, bar, at_most=at_most, value=pair.median_ratio)


def _missing(tool: str) -> None:
    print(f"bench: {tool} is not here, so nothing races against it", file=sys.stderr)


def _quietly(*command: str) -> Action:
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def peak_mib(command: Sequence[str]) -> float:
    """Run *command* and return the most memory that it and its children held at a time, each counted at its peak."""
    most = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            most = max(most, sum(map(_peak_kib, (process.pid, *descendants({process.pid}, parents())))))
            time.sleep(0.002)
    return most / 1024


def _peak_kib(pid: int) -> int:
    found = re.search(r"^VmHWM:\s*(\d+) kB", _status(pid), re.MULTILINE)
    return int(found[1]) if found else 0


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""


def _megabytes(file: Path) -> str:
    return f"{file.stat().st_size / 1e6:.1f} MB"


def _events(files: Sequence[Path]) -> int:
    lines = 0
    for file in files:
        text = subprocess.run(("zstdcat", str(file)), capture_output=True, check=True).stdout
        lines += text.count(b"\n")
    return lines
