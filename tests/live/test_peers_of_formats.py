"""Numbers of pairs and of rarer kinds of files, against what the peers' own readers make of the same."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, Optional

import pytest

from tests.live.user import GDBMEM, shell

STACKS = Path(__file__).parents[1] / "captures" / "stacks"
GO = [STACKS / "go1.pb.gz", STACKS / "go2.pb.gz"]
needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="go (a large package) is not here")

pytestmark = pytest.mark.usefixtures("no_process_left")


def document(*words: object) -> Any:
    ended = shell(GDBMEM, *map(str, words), "--json", check=True)
    return json.loads(ended.stdout)


def pprof(*words: object) -> tuple[int, dict[str, int]]:
    """Return the total and the bytes of each function's own that Go's pprof shows."""
    text = subprocess.run(
        ["go", "tool", "pprof", "-top", "-unit=B", "-nodefraction=0", "-nodecount=100000", *map(str, words)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    rows = re.findall(r"^ *(-?\d+)B? +-?[\d.]+% +-?[\d.]+% .*?%  (\S.*?)(?: \(inline\))?$", text, re.M)
    return sum(int(size) for size, _ in rows), {name: int(size) for size, name in rows if int(size)}


def inner(found: Any) -> dict[str, int]:
    """Return the same of what gdbmem shows."""
    sizes: dict[str, int] = {}
    for row in found["paths"]:
        name = row["frames"][0]["function"]
        sizes[name] = sizes.get(name, 0) + row["delta_bytes"]
    return {name: size for name, size in sizes.items() if size}


@needs_go
@pytest.mark.parametrize(("metric", "index"), [("in-use", "inuse_space"), ("allocated", "alloc_space")])
def test_what_each_function_grew_by_is_what_go_tool_pprof_reports(metric: str, index: str) -> None:
    total, theirs = pprof(f"-sample_index={index}", f"-base={GO[0]}", GO[1])
    found = document("diff", *GO, "--metric", metric, "--all-frames")
    assert theirs and inner(found) == theirs and found["delta_bytes"] == total


@needs_go
def test_profiles_are_scaled_as_go_tool_pprof_scales_them() -> None:
    # Which scales the last to the total of the first, where gdbmem scales the first to that of the last.
    _, theirs = pprof("-sample_index=inuse_space", "-normalize", f"-base={GO[0]}", GO[1])
    found = document("diff", *GO, "--metric", "in-use", "--all-frames", "--normalize")
    true = document("diff", *GO, "--metric", "in-use")
    scale = true["before"]["total_bytes"] / true["after"]["total_bytes"]
    ours = inner(found)
    assert found["delta_bytes"] == 0 and len(theirs) > 3
    for name in {*ours, *theirs}:  # each rounds, pprof for each sample
        assert abs(scale * ours.get(name, 0) - theirs.get(name, 0)) <= 1 + len(found["paths"]), name


ROWS = (
    (3, 3_000, 5, 5_000, 0x401000),
    (2, 2_000_000, 2, 2_000_000, 0x402000),
    (100, 1_600, 100, 1_600, 0x403000),
)


@needs_go
@pytest.mark.parametrize(
    "kind",
    ["heapprofile", "heap_v2/524288", "heapz_v2/1048576", "heap/1048576", "heap_v2/1", "growth", "growthz"],
)
def test_each_kind_of_the_text_format_holds_what_go_tool_pprof_reads_in_it(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "by-hand.heap"
    sums = [sum(row[at] for row in ROWS) for at in range(4)]
    head = "heap profile: {}: {} [{}: {}] @ {}\n".format(*sums, kind)
    rows = "".join(f"{a}: {b} [{c}: {d}] @ 0x{pc:x} 0x404000\n" for a, b, c, d, pc in ROWS)
    file.write_text(
        f"{head}{rows}\nMAPPED_LIBRARIES:\n00400000-00500000 r-xp 00000000 00:00 0 /gone/program\n"
    )
    index: Optional[str] = "inuse_space" if "growth" not in kind else None
    total, _ = pprof(*([f"-sample_index={index}"] if index else []), file)
    found = document("show", file, "--by", "path")["sites"]
    # Go's pprof cuts fractions of a byte off each stack.
    assert total and abs(found["total_bytes"] - total) <= len(ROWS)


@pytest.mark.needs("heaptrack", "heaptrack_print", "perl")
def test_two_runs_of_perl_differ_by_what_heaptrack_print_reports(tmp_path: Path) -> None:
    files = []
    for words in (2_000, 6_000):
        script = f'my %seen; $seen{{$_}} = "x" x 50 for 1..{words}; my @order = sort keys %seen;'
        out = tmp_path / f"words.{words}"
        # heaptrack would open the file in its viewer, where that is installed; without a screen that ends at once.
        blind = {**os.environ, "QT_QPA_PLATFORM": "none"}
        command = ["heaptrack", "-o", str(out), "perl", "-e", script]
        subprocess.run(command, capture_output=True, check=False, env=blind)
        files += [next(tmp_path.glob(f"{out.name}.*"))]
    text = subprocess.run(["heaptrack_print", "-d", str(files[0]), "-f", str(files[1])],
                          capture_output=True, text=True, check=True).stdout  # fmt: skip
    for metric, what in (("in-use", "total memory leaked"), ("peak", "peak heap memory consumption")):
        said = re.search(rf"^{what}: (\S+)$", text, re.M)
        assert said
        assert re.sub("([KM])B$", r"\1", said[1]) == thousands(
            document("diff", *files, "--metric", metric)["delta_bytes"]
        )


# Debian's Python, in which no inlined calls are named: heaptrack_print lists those of an address in reverse order, and
# `inlined` is of a place, not of a path: which call is the function itself can't be told of a place that is both.
RECORDED = [
    ["perl", "-e", 'my %s; $s{$_} = "x" x 50 for 1..3000; print join "", sort keys %s'],
    ["perl", "-e", 'for (1..2000) { my @a = map {"$_$_"} 1..5 }'],
    ["sort", "/etc/services"],
    ["ls", "-lR", "/usr/share/doc/bash"],
    ["bash", "-c", "for i in 1 2 3 4 5; do x=$(echo $i); done"],
    ["awk", "{a[$1]++} END {for (k in a) print k, a[k]}", "/etc/services"],
    ["git", "--version"],
    ["sed", "s/a/b/g", "/etc/services"],
    ["grep", "-E", "(a|b)+c", "/etc/services"],
    ["/usr/bin/python3", "-c", "print(sum(map(len, map(str, range(20000)))))"],
]


@pytest.mark.thorough
@pytest.mark.needs("heaptrack", "heaptrack_print", "perl")
@pytest.mark.parametrize("command", RECORDED, ids=lambda command: command[0])
def test_temporaries_and_sizes_are_those_of_heaptrack_print(command: list[str], tmp_path: Path) -> None:
    blind = {**os.environ, "QT_QPA_PLATFORM": "none"}
    subprocess.run(
        ["heaptrack", "-o", str(tmp_path / "h"), *command], capture_output=True, check=False, env=blind
    )
    (file,) = tmp_path.glob("h.*")
    flames, sizes = tmp_path / "flames", tmp_path / "sizes"
    words = ["-f", str(file), "-H", str(sizes), "-F", str(flames), "--flamegraph-cost-type", "temporary"]
    printed = subprocess.run(["heaptrack_print", *words], capture_output=True, text=True, check=True).stdout
    ours = Counter[str]()
    inside = set()  # frames of inlined calls, which heaptrack_print's stacks lack
    for row in document("show", file, "--metric", "temporary-blocks", "--by", "path", "--all-frames")[
        "sites"
    ]["paths"]:
        inside |= {frame["function"] for frame in row["frames"] if frame["inlined"]}
        frame = next((one for one in row["frames"] if not one["inlined"]), row["frames"][-1])
        ours[frame["function"] or ""] += row["delta_blocks"]
    theirs = Counter[str]()
    for line in flames.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        name = re.sub(r" \([^()]*\)$", "", stack.rstrip(";").split(";")[-1])
        theirs["" if name.startswith("0x") else name] += int(count)
    # It takes a free of its first allocation, by libstdc++'s start, for one directly after that: one too many.
    more = {name: count - ours[name] for name, count in theirs.items() if count != ours[name]}
    assert not more or (list(more.values()) == [1] and sum(theirs.values()) == sum(ours.values()) + 1), (
        more,
        inside,
    )
    total = re.search(r"temporary memory allocations: (\d+)", printed)
    assert total and int(total[1]) == sum(theirs.values())
    classes = Counter[int]()
    for line in sizes.read_text().splitlines():
        size, times = map(int, line.split()[:2])
        classes[max(16, 1 << max(size - 1, 0).bit_length())] += times
    rows = document("show", file, "--metric", "allocated-blocks", "--by", "size")["sites"]["paths"]
    assert {row["block_bytes_at_most"]: row["delta_blocks"] for row in rows} == dict(classes)


def thousands(size_bytes: int) -> str:
    for unit, factor in (("M", 1_000_000), ("K", 1_000)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.2f}{unit}"
    return f"{size_bytes}B"
