"""Cost of `gdbmem grow` for programs that serve requests: Redis, and the longest requests while it starts and ends."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.racing import Ratio, cpu_so_far, pairs

PAIRS = 20
_REQUESTS = 100_000
_Recorded = Callable[[int], AbstractContextManager[None]]

# For each line it serves requests for a second, and prints how many, and the duration that one in 1,000 exceeds.
SERVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + 1e-9 * at.tv_nsec;
}
static double took[2000000];
static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}
int main(void) {
    char line[16];
    memset(took, 0, sizeof took);
    setvbuf(stdout, 0, _IONBF, 0);
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        long count = 0;
        double begun = now(), before = begun;
        while (before < begun + 1 && count < 2000000) {
            char *block = malloc(200000);
            memset(block, 1, 200000);
            __asm__ volatile("" ::"r"(block) : "memory"); /* or the compiler leaves all three out */
            free(block);
            double after = now();
            took[count++] = after - before;
            before = after;
        }
        qsort(took, count, sizeof *took, compare);
        printf("%ld %.9f %.9f\n", count, took[count - 1 - count / 1000], took[count - 1]);
    }
}
"""


# -- Redis ----------------------------------------------------------------------------------------------------


def redis(folder: Path, recorded: _Recorded) -> Iterator[Ratio]:
    """Yield the cost of recording for a Redis server under redis-benchmark: its CPU time and its throughput."""
    if shutil.which("redis-server") is None or shutil.which("redis-benchmark") is None:
        print("bench: Redis is missing (redis-server, redis-tools)", file=sys.stderr)
        return
    place = folder / "redis.socket"
    words = ["redis-server", "--port", "0", "--unixsocket", str(place), "--save", "", "--dir", str(folder)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as server:
        try:
            _await(place)

            def peer() -> tuple[float, float]:
                _serve(server.pid, place)  # recorded, the period finds its rate
                return _serve(server.pid, place)

            def ours() -> tuple[float, float]:
                with recorded(server.pid):
                    return peer()

            found = pairs(ours, peer, rounds=PAIRS)
        finally:
            server.kill()
    yield Ratio(
        "a Redis server's own CPU time under redis-benchmark, attached `grow` / not", _of(found, 0), 1.03
    )
    yield Ratio("wall time of redis-benchmark, attached `grow` / not", _of(found, 1), 1.03)


def _of(found: Sequence[tuple[tuple[float, float], tuple[float, float]]], number: int) -> list[float]:
    return [one[number] / other[number] for one, other in found]


def _await(place: Path) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with socket.socket(socket.AF_UNIX) as one:
            if place.exists() and one.connect_ex(str(place)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("Redis does not answer")


def _serve(pid: int, place: Path) -> tuple[float, float]:
    """Return the server's CPU seconds and the wall seconds of a share of requests that store and drop values."""
    before, begun = cpu_so_far(pid), time.monotonic()
    words = [
        "redis-benchmark",
        "-s",
        str(place),
        "-q",
        "-n",
        str(_REQUESTS),
        "-r",
        "100000",
        "-d",
        "512",
        "-P",
        "4",
    ]
    subprocess.run([*words, "-t", "set,lpush"], stdout=subprocess.DEVNULL, check=True)
    done = cpu_so_far(pid) - before, time.monotonic() - begun
    subprocess.run(["redis-cli", "-s", str(place), "flushall"], stdout=subprocess.DEVNULL, check=True)
    return done


# -- coming and going -----------------------------------------------------------------------------------------


class _Server:
    """A program that serves requests for a second for each line that it gets."""

    def __init__(self, program: Path, recorded: _Recorded) -> None:
        self._recorded = recorded
        self._process = subprocess.Popen(
            [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def second(self) -> tuple[float, float]:
        """Return the duration that one request in 1,000 exceeds, and that of a mean one."""
        self._begin()
        return self._durations()

    def second_with_two_recordings(self) -> tuple[float, float]:
        """Return the same of a second in which it is recorded twice for a while."""
        self._begin()
        for _ in range(2):
            time.sleep(0.1)
            with self._recorded(self._process.pid):
                time.sleep(0.2)
        return self._durations()

    def _begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _durations(self) -> tuple[float, float]:
        count, tail, _ = map(float, self._line().split())
        return tail, 1 / count

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def coming_and_going(server: Path, recorded: _Recorded) -> Iterator[Ratio]:
    """Yield the slowdown of requests, the slowest and the mean one, in a second with two recordings."""
    program = _Server(server, recorded)
    found = pairs(program.second_with_two_recordings, program.second, rounds=PAIRS)
    program.close()
    yield Ratio(
        "wall time that one request in 1,000 exceeds while it attaches and detaches / not", _of(found, 0), 1.5
    )
    yield Ratio("wall time of a mean request while it attaches and detaches / not", _of(found, 1), 1.03)
