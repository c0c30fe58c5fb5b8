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
from benchmarks.racing import Action, Pair, Row, race_pair
from gdbmem.formats.opening import open_profile

TITLE = "Reading big massif files"
SNAPSHOTS = 12_000
LONG_BYTES = 200_000_000
TREES, NODES = 14, 500_000
MEMORY_MB = 100

ALL_TREES = """
import sys
from gdbmem.formats.opening import open_profile
profile = open_profile(sys.argv[1])
trees = [profile.tree(totals.index) for totals in profile.snapshots]
print(sum(map(len, trees)))
"""


def race() -> Sequence[Row]:
    with tempfile.TemporaryDirectory() as folder:
        long, wide = Path(folder) / "long.massif", Path(folder) / "wide.massif"
        write_long(long, snapshots=SNAPSHOTS, size_bytes=LONG_BYTES)
        nodes = write_wide(wide, trees=TREES, nodes=NODES)
        show, diff = commands(long)
        shown = race_pair(quietly(*show), quietly("ms_print", str(long)), rounds=3, warmups=0)
        compared = race_pair(quietly(*diff), quietly("ms_print", str(long)), rounds=3, warmups=0)
        parse_all = (sys.executable, "-c", ALL_TREES, str(wide))
        full = race_pair(quietly(*parse_all), quietly("ms_print", str(wide)), rounds=7)
        memory = max(anonymous_mib(command) for command in (show, diff))
        long_what = f"{long.stat().st_size / 1e6:.0f} MB, {SNAPSHOTS:,} snapshots"
        wide_what = f"{wide.stat().st_size / 1e6:.0f} MB, {TREES} trees, {nodes:,} nodes"
    return [
        _row(f"`gdbmem show`: timeline and peak of {long_what} / `ms_print`", shown, 10),
        _row("`gdbmem diff` of two of its snapshots / `ms_print`", compared, 10),
        Row(
            f"both with {memory:.0f} MiB of anonymous memory",
            shown.ours_median,
            shown.peer_median,
            f"below {MEMORY_MB} MB",
            at_most=MEMORY_MB * 1e6 / 2**20,
            value=memory,
        ),
        _row(f"all trees of {wide_what}, parsed / `ms_print`", full, 1),
    ]


def commands(path: Path) -> tuple[Sequence[str], Sequence[str]]:
    """Return the words that show the profile in *path* and that diff two of its snapshots."""
    with_tree = [totals.index for totals in open_profile(path).snapshots if totals.has_tree]
    gdbmem = (sys.executable, "-m", "gdbmem.cli.main")
    sides = f"{path}:{with_tree[len(with_tree) // 2]}", f"{path}:{with_tree[-1]}"
    return (*gdbmem, "show", str(path)), (*gdbmem, "diff", *sides)


def _row(name: str, pair: Pair, times_faster: int) -> Row:
    bar = f"at least {times_faster} times faster" if times_faster > 1 else "at least as fast"
    return Row(
        name, pair.ours_median, pair.peer_median, bar, at_most=1 / times_faster, value=pair.median_ratio
    )


def quietly(*command: str) -> Action:
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


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
