"""`gdbmem grow`: its cost for the program and for us, and the time until it names the line, beside heap profilers."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.grow_beside_perf import beside_perf
from benchmarks.grow_peers import LEAK_C, answers
from benchmarks.grow_under_load import PAIRS, SERVER, coming_and_going, interval_text, redis
from benchmarks.racing import Row
from gdbmem.api.growth import _binaries, _call_paths
from gdbmem.monitoring.fault_recording import FaultRecorder, FaultRecording

TITLE = "grow: page faults while a program runs"

# Repeats the work named by its first word for each line of input, and prints the CPU seconds of each.
_STORM = r"""
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


def race() -> Sequence[Row]:
    with tempfile.TemporaryDirectory() as folder:
        storm = _compiled(_STORM, Path(folder) / "storm")
        rows = [_overhead(storm, "an allocation storm", "allocate", "60")]
        rows.append(_overhead(storm, "nothing but page faults", "touch", "25"))
        rows += _our_cost(storm)
        rows += beside_perf(storm, Path(folder))
        rows += redis(Path(folder), _recorded, _interval)
        rows += coming_and_going(_compiled(SERVER, Path(folder) / "server"), _recorded, _interval)
        rows += answers(_compiled(LEAK_C, Path(folder) / "leak"), Path(folder))
    return rows


def _compiled(source: str, target: Path) -> Path:
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


def _overhead(storm: Path, what: str, *words: str) -> Row:
    """Return the ratios of the CPU time of *words*, pair by pair."""
    program = _Storm(storm, *words)
    ours, peer = [], []
    for number in range(PAIRS):
        if number % 2:
            peer.append(_second_share(program))
        with _recorded(program.program.pid):
            ours.append(_second_share(program))
        if not number % 2:
            peer.append(_second_share(program))
    program.close()
    ratios = [a / b for a, b in zip(ours, peer)]
    value = statistics.median(ratios)
    bar = f"at most 3 % more ({interval_text(ratios, _interval)})"
    name = f"CPU time of {what}, recorded / not"
    return Row(name, statistics.median(ours), statistics.median(peer), bar, 1.03, value=value)


def _second_share(program: _Storm) -> float:
    """Return the CPU seconds of a share of work behind another one, in which the period has found its rate."""
    program.share()
    return program.share()


def _interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median by ranks."""
    half = 0.98 * math.sqrt(len(ordered))
    middle = (len(ordered) - 1) / 2
    return ordered[max(math.floor(middle - half), 0)], ordered[
        min(math.ceil(middle + half), len(ordered) - 1)
    ]


def _our_cost(storm: Path) -> list[Row]:
    """Return our CPU time while about 10,000 faults a second are recorded, and that of finding the call paths."""
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
    before, began = time.process_time(), time.monotonic()
    recording = FaultRecorder().record([program.program.pid], seconds=10.0)
    share = (time.process_time() - before) / (time.monotonic() - began)
    program.close()
    rate, samples = recording.faults / recording.seconds, recording.samples
    unwinding = _unwinding(recording)
    recording.close()
    ours = f"our CPU time while {rate:,.0f} faults a second are recorded, each second"
    paths = f"CPU time of finding the call paths of {samples:,} samples, for each 10,000"
    return [
        Row(ours, share, 1.0, f"at most 2 % ({share:.1%})", 0.02, value=share),
        Row(paths, unwinding, 0.0, "at most 1 s", 1.0, value=unwinding),
    ]


def _unwinding(recording: FaultRecording) -> float:
    before = time.process_time()
    with _binaries(recording) as binaries:
        found = _call_paths(recording, binaries)
    return (time.process_time() - before) / max(len(found), 1) * 10_000
