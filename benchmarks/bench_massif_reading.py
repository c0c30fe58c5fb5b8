"""Reading big massif files, against ms_print, each as a whole process from its start to its end."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.massif_files import write_long, write_wide
from benchmarks.racing import Ratio, cpu_of, ratios
from gdbmem.formats.opening import open_profile

TITLE = "Reading big massif files"
SNAPSHOTS = 12_000
LONG_BYTES = 200_000_000
TREES, NODES = 14, 500_000
ROUNDS = 3

ALL_TREES = """
import sys
from gdbmem.formats.opening import open_profile
profile = open_profile(sys.argv[1])
trees = [profile.tree(totals.index) for totals in profile.snapshots]
print(sum(map(len, trees)))
"""


def race() -> Sequence[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        long, wide = Path(folder) / "long.massif", Path(folder) / "wide.massif"
        write_long(long, snapshots=SNAPSHOTS, size_bytes=LONG_BYTES)
        nodes = write_wide(wide, trees=TREES, nodes=NODES)
        show, diff = commands(long)
        long_what = f"{long.stat().st_size / 1e6:.0f} MB, {SNAPSHOTS:,} snapshots"
        wide_what = f"{wide.stat().st_size / 1e6:.0f} MB, {TREES} trees, {nodes:,} nodes"
        parse_all = (sys.executable, "-c", ALL_TREES, str(wide))
        memory = max(anonymous_mib(command) for command in (show, diff)) * 2**20 / long.stat().st_size
        return [
            against_ms_print(f"`gdbmem show`: timeline and peak of {long_what}", show, long, 0.1),
            against_ms_print("`gdbmem diff` of two of its snapshots", diff, long, 0.1),
            Ratio("anonymous memory of both / the file's size", [memory], 0.5),
            against_ms_print(f"all trees of {wide_what}, parsed", parse_all, wide, 1),
        ]


def against_ms_print(name: str, words: Sequence[str], file: Path, at_most: float) -> Ratio:
    found = ratios(lambda: cpu_of(words), lambda: cpu_of(("ms_print", file)), rounds=ROUNDS, warmups=0)
    return Ratio(f"{name} / `ms_print`", found, at_most)


def commands(path: Path) -> tuple[Sequence[str], Sequence[str]]:
    """Return the words that show the profile in *path* and that diff two of its snapshots."""
    with_tree = [totals.index for totals in open_profile(path).snapshots if totals.has_tree]
    gdbmem = (sys.executable, "-m", "gdbmem.cli.main")
    sides = f"{path}:{with_tree[len(with_tree) // 2]}", f"{path}:{with_tree[-1]}"
    return (*gdbmem, "show", str(path)), (*gdbmem, "diff", *sides)


def anonymous_mib(command: Sequence[str]) -> float:
    """Run *command* and return the most anonymous memory that it was seen to hold."""
    most = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            anonymous = re.search(r"^RssAnon:\s*(\d+) kB", status, re.MULTILINE)
            most = max(most, int(anonymous[1]) if anonymous else 0)  # absent once the process has ended
            time.sleep(0.002)
    return most / 1024
