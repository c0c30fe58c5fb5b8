"""Cost of each engine: a program's processor time under it / without it. No gdb, no snapshots.

The start of the engine (half a second under valgrind) is measured on a program that does nothing, and subtracted
from the others. Processor time, because wall time would count other work of the machine. Programs that
compute on several processors wait longer under valgrind than shown: it runs one thread at a time.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from benchmarks.racing import Ratio, cpu_of, pairs
from gdbmem.engines.engine import NativeOptions, native_engine, options_of, table, valgrind_engine
from gdbmem.errors import MissingToolError
from gdbmem.launch.native import find_library
from gdbmem.launch.valgrind import history_pattern

TITLE = "Cost of an engine: a program's processor time under it / without it"
ROOT = Path(__file__).parents[1]
ROUNDS = 3
ENGINES = ("massif", "memcheck", "dhat", "gperftools", "jemalloc", "heaptrack")
SAMPLED = "jemalloc, a sample each 512 KiB"

ALLOCATES = """
#include <stdlib.h>
static void *slots[1024];
int main(void) {
  unsigned state = 1;
  for (int i = 0; i < 300000; i++) {
    state = state * 1664525u + 1013904223u;
    void **slot = &slots[state >> 22];
    free(*slot);
    *slot = malloc(16 + (state >> 12 & 255));
  }
  return 0;
}
"""
COMPUTES = """
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  enum { N = 220 };
  double *a = calloc(N * N, sizeof *a), *b = calloc(N * N, sizeof *b), *c = calloc(N * N, sizeof *c);
  for (int i = 0; i < N * N; i++) a[i] = i % 7, b[i] = i % 5;
  for (int round = 0; round < 10; round++)
    for (int i = 0; i < N; i++)
      for (int j = 0; j < N; j++) {
        double sum = 0;
        for (int k = 0; k < N; k++) sum += a[i * N + k] * b[k * N + j];
        c[i * N + j] += sum;
      }
  printf("%f\\n", c[N]);
  return 0;
}
"""


# As a library for matrices does it, where the processor has fused multiply-add.
FUSED = """
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  enum { N = 256 };
  float *restrict a = calloc(N * N, sizeof *a), *restrict b = calloc(N * N, sizeof *b);
  float *restrict c = calloc(N * N, sizeof *c);
  for (int i = 0; i < N * N; i++) a[i] = i % 7, b[i] = i % 5;
  for (int round = 0; round < 7; round++)
    for (int i = 0; i < N; i++)
      for (int k = 0; k < N; k++)
        for (int j = 0; j < N; j++) c[i * N + j] += a[i * N + k] * b[k * N + j];
  printf("%f\\n", c[N]);
  return 0;
}
"""
FUSED_OPTIONS = ("-O3", "-mfma")


@dataclass(frozen=True)
class Way:
    """A way to run a program: words before it, and variables beside ours."""

    words: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def race() -> Sequence[Ratio]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = _programs(folder)
        return [row for engine in (*ENGINES, SAMPLED) for row in _rows(engine, programs, folder)]


def _rows(engine: str, programs: Mapping[str, Sequence[str]], folder: Path) -> Sequence[Ratio]:
    way = _way(engine, folder)
    if way is None:
        print(f"bench: {engine} is not installed: left out", file=sys.stderr)
        return []
    starts = _race(programs["does nothing"], way, folder)
    start, bare = (statistics.median(column) for column in zip(*starts))
    rows = [Ratio(f"{engine}: starts", [a / b for a, b in starts])]
    for what, argv in programs.items():
        if what != "does nothing":
            found = [(a - start) / (b - bare) for a, b in _race(argv, way, folder)]
            rows.append(Ratio(f"{engine}: {what}", found))
    return rows


def _programs(folder: Path) -> dict[str, list[str]]:
    subprocess.run(["make", "-C", str(ROOT / "examples" / "decoder")], check=True, capture_output=True)
    programs = {"the decoder": [str(ROOT / "examples" / "decoder" / "build" / "decoder"), "--batches", "1"]}
    sources = {"does nothing": "int main(void) { return 0; }", "allocates": ALLOCATES, "computes": COMPUTES}
    if " fma " in Path("/proc/cpuinfo").read_text():
        sources["computes with fused multiply-add"] = FUSED
    for what, source in sources.items():
        path = folder / what.replace(" ", "-")
        options = FUSED_OPTIONS if source is FUSED else ("-O1",)
        command = ["gcc", "-g", *options, "-xc", "-", "-o", str(path)]
        subprocess.run(command, input=source, text=True, check=True)
        programs[what] = [str(path)]
    return programs


def _way(engine: str, folder: Path) -> Optional[Way]:
    name, _, sampled = engine.partition(",")
    if table(name).runs == "valgrind":
        pattern = history_pattern(folder, 1, name)
        return Way(
            ["valgrind", "-q", *valgrind_engine(name).valgrind_arguments(options_of(name, {}), pattern)]
        )
    try:
        library = find_library(table(name))
    except MissingToolError:
        return None
    options = NativeOptions(sample_rate=512 << 10) if sampled else NativeOptions()
    variables = native_engine(name).environment(f"{folder}/snapshots/own", options)
    return Way(environment={**variables, "LD_PRELOAD": library})


def _race(argv: Sequence[str], way: Way, folder: Path) -> list[tuple[float, float]]:
    (folder / "snapshots").mkdir(exist_ok=True)

    def under() -> float:
        taken = cpu_of([*way.words, *argv], more=way.environment)
        for raw in folder.glob("heaptrack.*.raw"):
            raw.unlink()
        return taken

    return pairs(under, lambda: cpu_of(argv), rounds=ROUNDS, warmups=0)
