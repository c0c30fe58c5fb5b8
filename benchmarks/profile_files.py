"""A program with very many call paths, and its profiles by tools other than massif."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

LEVELS, FUNCTIONS = 12, 64
_HEAD = """\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef void (*level_t)(const unsigned char *);
void *kept;
int factor = 1;
"""


def build_program(folder: Path, *, stacks: int) -> Path:
    """Compile a program that allocates through *stacks* different paths, each with separate functions.

    Its argument says how often it does: everything that is allocated is kept.
    """
    source, program = folder / "paths.c", folder / "paths"
    source.write_text(_source(stacks))
    subprocess.run(
        ["gcc", "-g", "-O1", "-fno-optimize-sibling-calls", "-o", str(program), str(source)], check=True
    )
    return program


def _source(stacks: int) -> str:
    chance = random.Random(1)
    parts = [_HEAD]
    for level in range(LEVELS, 0, -1):
        for n in range(FUNCTIONS):
            body = "kept = malloc(16 + 8 * p[0]);" if level == LEVELS else f"level{level + 1}[p[0]](p + 1);"
            parts.append(
                f"__attribute__((noinline)) void step_{level}_{n}(const unsigned char *p) {{\n  {body}\n"
                '  __asm__ volatile("" : : : "memory");\n}\n'
            )
        names = ", ".join(f"step_{level}_{n}" for n in range(FUNCTIONS))
        parts.append(f"level_t level{level}[] = {{{names}}};\n")
    rows = {tuple(chance.randrange(FUNCTIONS) for _ in range(LEVELS + 1)) for _ in range(stacks)}
    table = ",\n".join("{" + ", ".join(map(str, row)) + "}" for row in sorted(rows))
    parts.append(f"static const unsigned char paths[][{LEVELS + 1}] = {{\n{table}\n}};\n")
    parts.append(
        "int main(int argc, char **argv) {\n"
        "  int times = argc > 1 ? atoi(argv[1]) : 1;\n"
        "  for (unsigned n = 0; n < sizeof paths / sizeof *paths; ++n)\n"
        "    for (int k = 0; k < times + (int)(n % 3) * (times - 1); ++k) level1[paths[n][0]](paths[n] + 1);\n"
        "  return 0;\n}\n"
    )
    return "".join(parts)


def record(program: Path, times: int, folder: Path, **environment: str) -> None:
    """Run *program* there, each path *times* times or more, in *environment*."""
    subprocess.run([str(program), str(times)], cwd=folder, env={**os.environ, **environment}, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip


def gperftools_pair(folder: Path, *, stacks: int) -> tuple[Path, Path, Path]:
    """Return the program and two profiles of tcmalloc's."""
    program = build_program(folder, stacks=stacks)
    for name, times in (("before", 1), ("after", 3)):
        record(program, times, folder, LD_PRELOAD="libtcmalloc.so.4", HEAPPROFILE=str(folder / name))
    return program, folder / "before.0001.heap", folder / "after.0001.heap"


def jemalloc_file(program: Path, folder: Path, name: str) -> Path:
    """Return a heap_v2 profile of *program* in which nothing is sampled."""
    options = f"prof:true,lg_prof_sample:0,prof_final:true,prof_prefix:{folder / name}"
    record(program, 1, folder, LD_PRELOAD="libjemalloc.so.2", MALLOC_CONF=options)
    return next(iter(folder.glob(f"{name}.*.heap")))


def heaptrack_file(command: Sequence[str], folder: Path, name: str) -> Path:
    """Return what heaptrack records of *command*."""
    # heaptrack would open the file in its viewer, where that is installed; without a screen that ends at once.
    environment = {**os.environ, "PYTHONMALLOC": "malloc", "QT_QPA_PLATFORM": "none"}
    subprocess.run(["heaptrack", "-o", str(folder / name), *command], cwd=folder, env=environment, check=False,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    return next(iter(folder.glob(f"{name}.*zst")), folder / f"{name}.gz")


def xtree_file(program: Path, folder: Path) -> Path:
    """Return the execution tree of *program* that massif writes."""
    file = folder / "xtree.kcg"
    subprocess.run(["valgrind", "-q", "--tool=massif", f"--massif-out-file={folder}/unused.ms", "--xtree-memory=full",
                    f"--xtree-memory-file={file}", str(program)], check=True, cwd=folder)  # fmt: skip
    return file
