"""The cost of `gdbmem grow` for a program that it is attached to, and for us."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.grow_under_load import PAIRS, SERVER, coming_and_going, redis
from benchmarks.racing import Ratio, cpu_of, ratios
from gdbmem.recording.faults import FaultRecorder

TITLE = "grow: attached to a program that runs"
_RECORDINGS, _SECONDS = 7, 3.0

# Repeats the work named by its first word for each line of input, and prints the CPU seconds of each.
STORM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#define SIZE (8ul << 20)
static double cpu(void) {
    struct rusage now;
    getrusage(RUSAGE_SELF, &now);
    return now.ru_utime.tv_sec + now.ru_stime.tv_sec + 1e-6 * (now.ru_utime.tv_usec + now.ru_stime.tv_usec);
}
static void touch(char *pool, long pause) {
    for (size_t at = 0; at < SIZE; at += 4096) {
        pool[at] = 1;
        for (volatile long n = 0; n < pause; n++) {}
    }
    madvise(pool, SIZE, MADV_DONTNEED);
}
static void allocate(void) {
    char *blocks[64];
    for (int n = 0; n < 64; n++) memset(blocks[n] = malloc(200000), 1, 200000);
    for (int n = 0; n < 64; n++) free(blocks[n]);
}
int main(int count, char **words) {
    char line[16];
    char *pool = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(pool, SIZE, MADV_NOHUGEPAGE);
    setvbuf(stdout, 0, _IONBF, 0);
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        double before = cpu();
        for (int round = atoi(words[2]); round > 0; round--)
            strcmp(words[1], "allocate") ? touch(pool, count > 3 ? atol(words[3]) : 0) : allocate();
        printf("%f\n", cpu() - before);
    }
}
"""


def race() -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        storm = compiled(STORM, Path(folder) / "storm")
        yield from _our_cost(storm, Path(folder))
        yield _overhead(storm, "an allocation storm", "allocate", "60")
        yield _overhead(storm, "nothing but page faults", "touch", "25")
        yield from redis(Path(folder), _recorded)
        yield from coming_and_going(compiled(SERVER, Path(folder) / "server"), _recorded)


def compiled(source: str, target: Path) -> Path:
    subprocess.run(
        ["gcc", "-g", "-O2", "-x", "c", "-", "-o", str(target)], input=source, text=True, check=True
    )
    return target


class _Storm:
    """A program that does its share of work for each line that it gets."""

    def __init__(self, *words: object) -> None:
        self.program = subprocess.Popen(
            list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def _answer(self) -> str:
        assert self.program.stdout is not None
        return self.program.stdout.readline()

    def begin(self, shares: int = 1) -> None:
        assert self.program.stdin is not None
        self.program.stdin.write("\n" * shares)
        self.program.stdin.flush()

    def share(self) -> float:
        """Return the CPU seconds of one share of work."""
        self.begin()
        return float(self._answer())

    def close(self) -> None:
        self.program.kill()
        self.program.communicate()


@contextlib.contextmanager
def _recorded(pid: int) -> Iterator[None]:
    """Make a child record process *pid*, as `gdbmem grow` does until it is interrupted."""
    ready, begun = os.pipe()
    child = os.fork()
    if not child:
        FaultRecorder(say=lambda _: os.close(begun)).record([pid], seconds=math.inf).close()
        os._exit(0)
    os.close(begun)
    os.read(ready, 1)
    os.close(ready)
    yield
    os.kill(child, signal.SIGINT)
    os.waitpid(child, 0)


def _overhead(storm: Path, what: str, *words: str) -> Ratio:
    """Return the ratios of the CPU time of *words*, pair by pair."""
    program = _Storm(storm, *words)

    def recorded() -> float:
        with _recorded(program.program.pid):
            return _second_share(program)

    found = ratios(recorded, lambda: _second_share(program), rounds=PAIRS, warmups=0)
    program.close()
    return Ratio(f"the program's own: {what}, attached `grow` / not", found, at_most=1.03)


def _second_share(program: _Storm) -> float:
    """Return the CPU seconds of a share of work behind another one, in which the period has found its rate."""
    program.share()
    return program.share()


def _our_cost(storm: Path, folder: Path) -> Iterator[Ratio]:
    """Yield our CPU time while a program has about 10,000 faults in each second of its own, beside perf's."""
    if shutil.which("perf") is None:
        print("bench: perf is missing", file=sys.stderr)
        return
    pause = 1000
    while True:  # as many turns of an empty loop between two faults as it takes here
        program = _Storm(storm, "touch", "10", pause)
        rate = 10 * 2048 / program.share()
        program.close()
        if rate < 12_000:
            break
        pause = round(pause * rate / 10_000)
    program = _Storm(storm, "touch", "100000", pause)
    program.begin()
    pid = program.program.pid

    def ours() -> float:
        began = time.process_time()
        FaultRecorder().record([pid], seconds=_SECONDS).close()
        return time.process_time() - began

    perf = ["perf", "record", "-q", "-e", "page-faults", "-c", "1", "-g", "-o", folder / "perf.data"]
    found = ratios(ours, lambda: cpu_of([*perf, "-p", pid, "sleep", _SECONDS]), rounds=_RECORDINGS)
    program.close()
    yield Ratio(
        f"recording a program with {rate:,.0f} faults a second / `perf record -c 1 -g -p`", found, 0.5
    )
