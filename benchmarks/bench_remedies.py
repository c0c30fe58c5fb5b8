"""Remedies predicted from a heap, compared with the memory that runs with them give back."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.racing import Row

TITLE = (
    "compare --remedies: what a remedy gave back (median of 5 runs, left) and what explain predicts (right)"
)
ROOT = Path(__file__).parents[1]
RUNS = 5
MIB = 1 << 20
FST = r"""
#include <fst/fstlib.h>
#include <unistd.h>
#include <cstdio>
#include <vector>
static fst::StdVectorFst *build(int states) {
    auto *made = new fst::StdVectorFst;
    made->SetStart(made->AddState());
    for (int state = 0; state < states; state++) {
        int next = made->AddState();
        for (int arc = 1; arc <= 10; arc++) made->AddArc(state, fst::StdArc(arc, arc, 0.5, next));
    }
    made->SetFinal(states, 0);
    return made;
}
int main() {  // ten graphs, every second of which is freed
    std::vector<fst::StdVectorFst *> kept;
    for (int number = 0; number < 10; number++) kept.push_back(build(10000));
    for (int number = 0; number < 10; number += 2) delete kept[number];
    for (;;) pause();
}
"""


def race() -> Sequence[Row]:
    with tempfile.TemporaryDirectory() as name:
        return [row for what, *words in programs(Path(name)) for row in measured(what, words)]


def programs(folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield the name of each program and the words that start it."""
    kept = folder / "freed_kept"
    build("gcc", "-g", "-pthread", "-o", kept, ROOT / "tests/programs/freed_kept.c")
    yield "48 threads' tcaches", str(kept), "tcaches"
    yield "a tcache at the heap's end", str(kept), "end"
    teams, decoder = folder / "teams", folder / "decoder"
    build("gcc", "-g", "-O1", "-fopenmp", "-o", teams, ROOT / "examples/openmp/teams.c")
    yield "OpenMP teams", str(teams), "8", "4", "400"
    make = ["make", "-s", "-C", str(ROOT / "examples/decoder"), f"BUILD={folder}"]
    subprocess.run(make, check=True)
    yield "the decoder", str(decoder)
    source, graphs = folder / "fst.cpp", folder / "graphs"
    if not Path("/usr/include/fst/fstlib.h").exists() or shutil.which("g++") is None:
        print("bench: no OpenFST: apt install libfst-dev", file=sys.stderr)
        return
    source.write_text(FST)
    build("g++", "-w", "-O1", "-std=c++17", "-pthread", "-o", graphs, source, "-lfst", "-ldl")
    yield "OpenFST", str(graphs)


def build(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


def measured(what: str, words: Sequence[str]) -> Iterator[Row]:
    """Yield a row for each remedy with a prediction; one row for the fact if no remedy has an effect."""
    found = compare(words)
    rows = [row for row in found["remedies"] if row["measured_bytes"] is not None]
    for number, row in enumerate(rows):
        gained, predicted = row["measured_bytes"], row["predicted_bytes"]
        name = f"{what}: {row['setting'].removeprefix('glibc.malloc.')}"
        if predicted is None:
            yield Row(name, gained / MIB, 0, "only measuring tells", unit="MiB")
            continue
        low, high = row["low_bytes"], row["high_bytes"]
        bar = f"within 10 % or in {low / MIB:.1f} to {high / MIB:.1f} MiB" + (
            ", the best" if not number else ""
        )
        good = row["is_as_predicted"] and high - low <= predicted / 2
        yield Row(name, gained / MIB, predicted / MIB, bar, at_least=1, value=float(good), unit="MiB")
    if not rows:
        yield Row(f"{what}: {found['answer'].rpartition('; ')[2]}", found["rss_bytes"] / MIB, 0, unit="MiB")


def compare(words: Sequence[str]) -> dict[str, Any]:
    command = [str(Path(sys.executable).with_name("gdbmem")), "compare", "--remedies", "--runs", str(RUNS)]
    done = subprocess.run(
        [*command, "-q", "--json", "--", *words], capture_output=True, text=True, check=True
    )
    document: dict[str, Any] = json.loads(done.stdout)
    return document
