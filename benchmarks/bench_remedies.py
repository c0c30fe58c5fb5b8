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

from benchmarks.racing import Ratio

TITLE = "compare --remedies: the memory that a remedy gave back (median of 5 runs) / what explain predicts"
ROOT = Path(__file__).parents[1]
RUNS = 5
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


def race() -> Sequence[Ratio]:
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


def measured(what: str, words: Sequence[str]) -> Iterator[Ratio]:
    """Yield a row for each remedy with a prediction that was measured."""
    for row in compare(words)["remedies"]:
        predicted, gained = row["predicted_bytes"], row["measured_bytes"]
        if gained is None or not predicted:
            continue
        low, high = row["low_bytes"], row["high_bytes"]
        name = f"{what}: {row['setting'].removeprefix('glibc.malloc.')}"
        low, high = (min(low / predicted, 0.9), max(high / predicted, 1.1))
        yield Ratio(name, [gained / predicted], round(min(high, 1.25), 2), round(max(low, 0.75), 2))


def compare(words: Sequence[str]) -> dict[str, Any]:
    command = [str(Path(sys.executable).with_name("gdbmem")), "compare", "--remedies", "--runs", str(RUNS)]
    done = subprocess.run(
        [*command, "-q", "--json", "--", *words], capture_output=True, text=True, check=True
    )
    document: dict[str, Any] = json.loads(done.stdout)
    return document
