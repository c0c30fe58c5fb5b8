"""gdbmem explain: walking heaps, relative to reading them and to gef; the pause of --fork."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import numpy as np

from benchmarks.processes import bare_gdb, cpu_and_stop, reading
from benchmarks.racing import Ratio, cpu_of, pairs, ratios
from gdbmem.allocators.glibc import heap as glibc_heap
from gdbmem.allocators.glibc import lockstep
from gdbmem.allocators.glibc.heap import Walker
from gdbmem.allocators.glibc.tallies import ENDED, Cached, HeapTally
from gdbmem.inspection.live_process import explain_process
from gdbmem.linux.memory.process_memory import ProcMemory

TITLE = "explain: walking heaps, and the pause of --fork"
ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "tests" / "programs"
# hold COUNT SIZE KIND: KIND is equal (all of SIZE), mixed (up to twice SIZE, two of four freed again), scattered
# (all of SIZE, every second one freed, in random order), or threads (so many wait, each with a block of SIZE)
HOLD = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static long size;
static pthread_barrier_t all_wait;
static void *hold_one(void *unused) {
    memset(malloc(size), 0x21, size);
    pthread_barrier_wait(&all_wait);
    for (;;) pause();
    return unused;
}
static void hold_threads(long count) {
    pthread_t thread;
    pthread_barrier_init(&all_wait, NULL, count + 1);
    for (long i = 0; i < count; i++) pthread_create(&thread, NULL, hold_one, NULL);
    pthread_barrier_wait(&all_wait);
}
static void free_scattered(char **kept, long blocks) {
    unsigned long long seed = 88172645463325252ull;
    for (long i = blocks / 2 - 1; i > 0; i--) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        long other = seed % (i + 1);
        char *block = kept[2 * i];
        kept[2 * i] = kept[2 * other];
        kept[2 * other] = block;
    }
    for (long i = 0; i < blocks / 2; i++) free(kept[2 * i]);
}
int main(int count, char **words) {
    long blocks = atol(words[1]);
    int mixed = strcmp(words[3], "mixed") == 0, scattered = strcmp(words[3], "scattered") == 0;
    char **kept = mixed || scattered ? malloc(blocks * sizeof *kept) : NULL;
    size = atol(words[2]);
    if (strcmp(words[3], "threads") == 0) hold_threads(blocks), blocks = 0;
    unsigned seed = 1;
    for (long i = 0; i < blocks; i++) {
        seed = seed * 1103515245u + 12345u;
        size_t bytes = mixed ? 8 + (seed >> 16) % (2 * size) : size;
        char *block = memset(malloc(bytes), 0x21, bytes);
        if (kept) kept[i] = block;
    }
    for (long i = 0; mixed && i < blocks; i++)
        if (i % 4 < 2) free(kept[i]);
    if (scattered) free_scattered(kept, blocks);
    if (write(1, "ready\n", 6) == 6) pause(); /* stdio would allocate, and empty the fastbins by that */
    return count;
}
"""
HEAPS = (
    ("6,000,000 blocks of 24 bytes (chunks of 32)", 6_000_000, 24, "equal"),
    ("1,500,000 blocks of 133 bytes (chunks of 144)", 1_500_000, 133, "equal"),
    ("6,000,000 blocks of 8 to 64 bytes, half of them freed", 6_000_000, 28, "mixed"),
    ("1,000 blocks of 120 KB", 1_000, 120_000, "equal"),
)
READ_AT_ONCE = 1 << 20
GEF = "https://raw.githubusercontent.com/hugsy/gef/90cced847b57a627aa4b38568f001e88259ba44b/gef.py"
GEF_CHUNKS = 20_000
LARGE_BYTES = 14 << 30  # of memory that must be available for 10^8 blocks
FREED = 10**7
ROUNDS, PAUSES, GEF_ROUNDS = 4, 7, 3
SERVER_MB = 1024


@dataclass(frozen=True)
class Region:
    """The largest piece of a process's heap, as the walkers take it."""

    memory: ProcMemory
    start: int
    end: int
    limit: int
    cached: Cached

    def walk(self, walker: Walker = lockstep.walk) -> int:
        """Walk it; return the number of chunks."""
        tally = HeapTally(self.start, self.end)
        walker(self.memory, tally, self.limit, self.cached)
        if tally.stopped_why != ENDED:
            raise RuntimeError(f"the walk did not come to the end of the heap: {tally.stopped_why}")
        return sum(tally.chunks)

    def read(self) -> None:
        """Read its bytes, and do nothing with them."""
        buffer = np.empty(READ_AT_ONCE, dtype=np.uint8).data
        for address in range(self.start & -4096, self.limit, READ_AT_ONCE):
            self.memory.read_into(address, buffer[: min(READ_AT_ONCE, self.limit - address)])


def race() -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "hold.c").write_text(HOLD)
        build(folder / "hold.c", folder / "hold")
        build(PROGRAMS / "steady_server.c", folder / "server")
        for heap in HEAPS:
            yield against_reading(folder, *heap)
        yield from whole_commands(folder)
        yield from fastbins(folder)
        yield many_threads(folder)
        yield pause(folder)
        yield from against_gef(folder)


def build(source: Path, program: Path) -> None:
    subprocess.run(["gcc", "-O1", "-pthread", "-o", program, source], check=True)


@contextlib.contextmanager
def running(*command: object) -> Iterator[subprocess.Popen[str]]:
    words = [str(word) for word in command]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            while process.stdout.readline() not in ("ready\n", ""):
                pass
            yield process
        finally:
            process.kill()


def region_of(pid: int) -> Region:
    found: list[tuple[int, int, int, Cached]] = []

    def note(memory: object, tally: HeapTally, limit: int, cached: Cached) -> None:
        found.append((tally.start, tally.end, limit, cached))
        tally.stopped_at, tally.stopped_why = limit, ENDED

    explain_process(pid, walker=note)
    return Region(ProcMemory(pid), *max(found, key=lambda piece: piece[2] - piece[0]))


def against_reading(folder: Path, name: str, count: int, size: int, kind: str) -> Ratio:
    with running(folder / "hold", count, size, kind) as process:
        region = region_of(process.pid)
        found = ratios(lambda: cpu_in(region.walk), lambda: cpu_in(region.read), rounds=7)
    return Ratio(f"walking {name} / reading their bytes", found, 4)


def cpu_in(action: Callable[[], object]) -> float:
    """Return the CPU seconds of one call of *action* here."""
    start = time.process_time()
    action()
    return time.process_time() - start


# -- the whole command ------------------------------------------------------------------------------------


def whole_commands(folder: Path) -> Iterator[Ratio]:
    """Yield the cost of whole commands on 10^6, 10^7 and 10^8 blocks, beside a bare gdb and one another."""
    with (
        running(folder / "hold", 10**6, 88, "equal") as small,
        running(folder / "hold", 10**7, 88, "equal") as large,
    ):

        def of_small() -> float:
            return explain(small.pid, 10**6, folder).cpu_seconds

        def of_large() -> float:
            return explain(large.pid, 10**7, folder).cpu_seconds

        name = "`gdbmem explain`, whole, 10^6 blocks of 88 bytes / `gdb -batch -p`"
        yield Ratio(name, ratios(of_small, lambda: cpu_of(bare_gdb(small.pid)), rounds=ROUNDS), 3)
        yield Ratio("the same, 10^7 blocks / 10^6 blocks", ratios(of_large, of_small, rounds=ROUNDS), 10)
        if available_bytes() < LARGE_BYTES:
            print("bench: no race over 10^8 blocks: 14 GiB of free memory are needed", file=sys.stderr)
            return
        with running(folder / "hold", 10**8, 88, "equal") as huge:
            mib: list[float] = []

            def of_huge() -> float:
                run = explain(huge.pid, 10**8, folder)
                mib.append(run.mib)
                return run.cpu_seconds

            found = ratios(of_huge, of_large, rounds=2, warmups=0)
            heap = resident_bytes(huge.pid) / 2**20
        yield Ratio("the same, 10^8 blocks / 10^7 blocks", found, 12)
        yield Ratio("its memory / the heap of 10^8 blocks", [max(mib) / heap], 0.14)


def fastbins(folder: Path) -> Iterator[Ratio]:
    """Yield the cost of 10^7 free blocks in fastbins, freed in random order: the worst order to follow them in."""
    with running(folder / "hold", 2 * FREED, 40, "scattered") as process:  # every second one is freed
        pid, heap = process.pid, resident_bytes(process.pid) / 2**20
        runs: list[Whole] = []

        def run() -> tuple[float, float]:
            runs.append(explain(pid, FREED, folder))
            return runs[-1].cpu_seconds, runs[-1].pause_seconds

        found = pairs(run, lambda: cpu_and_stop(pid, bare_gdb(pid)), rounds=ROUNDS, warmups=0)
        reads = [one.cpu_seconds / cpu_of(reading(pid)) for one in runs]
    what = "10^7 free blocks in fastbins, in random order"
    yield Ratio(f"{what} / a Python that reads the process's memory once", reads, 10)
    stops = [a[1] / b[1] for a, b in found]
    yield Ratio(f"{what}: wall time for which the process stands still / `gdb -batch -p`", stops, 1)
    yield Ratio(f"{what}: memory / the heap", [max(one.mib for one in runs) / heap], 0.27)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Whole:
    """One run of `gdbmem explain`."""

    cpu_seconds: float
    mib: float  # its peak of memory
    pause_seconds: float  # of the process


def explain(pid: int, count: int, folder: Path) -> Whole:
    """Return the cost of one `gdbmem explain`, whose count of live blocks must be right."""
    output = folder / "ledger.json"
    command = [str(Path(sys.executable).with_name("gdbmem")), "explain", str(pid), "--json", "--force"]
    child = subprocess.Popen([*command, "-o", str(output)])
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    ledger = json.loads(output.read_text())
    live = sum(arena["live_chunks"] for arena in ledger["heap"]["arenas"])
    if not ledger["heap"]["is_exact"] or not count <= live <= count + 10:
        raise RuntimeError(f"{live:,} live blocks were found, of {count:,}")
    return Whole(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, ledger["pause_seconds"])


def many_threads(folder: Path) -> Ratio:
    """500 threads, each of which has to be stopped."""
    with running(folder / "hold", 500, 100, "threads") as process:
        found = ratios(
            lambda: explain_process(process.pid).pause_seconds or 0.0,
            lambda: cpu_and_stop(process.pid, bare_gdb(process.pid))[1],
            rounds=PAUSES,
        )
    return Ratio("`gdbmem explain`: wall time for which 500 threads stand still / `gdb -batch -p`", found, 1)


def available_bytes() -> int:
    found = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    return int(found[1]) << 10 if found else 0


# -- gef --------------------------------------------------------------------------------------------------


def against_gef(folder: Path) -> Iterator[Ratio]:
    script = gef()
    if script is None:
        print("bench: no race against gef: it is not in .cache/gef, and can't be fetched", file=sys.stderr)
        return
    with running(folder / "hold", GEF_CHUNKS, 88, "equal") as process:
        region = region_of(process.pid)
        for name, walker, times in (("numpy", lockstep.walk, 500), ("plain Python", glibc_heap.walk, 50)):
            walking = functools.partial(region.walk, walker)
            found = ratios(
                functools.partial(cpu_in, walking),
                lambda: gef_seconds(script, process.pid, folder),
                rounds=GEF_ROUNDS, warmups=0,
            )  # fmt: skip
            what = f"walking {GEF_CHUNKS:,} chunks with {name} / gef's `heap chunks --summary`"
            yield Ratio(what, found, 1 / times)


def gef() -> Path | None:
    """Return gef's file, fetched once; None if it is not available."""
    path = ROOT / ".cache" / "gef" / "gef.py"
    if not path.exists():
        try:
            with urllib.request.urlopen(GEF, timeout=30) as answer:
                text = answer.read()
        except OSError:
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    return path


def gef_seconds(script: Path, pid: int, folder: Path) -> float:
    timed = folder / "timed.py"
    timed.write_text(
        "import gdb, time\n"
        "start = time.process_time()\n"
        "text = gdb.execute('heap chunks --summary', to_string=True)\n"
        "print('SECONDS', time.process_time() - start, len(text))\n"
    )
    done = subprocess.run(
        ["gdb", "-nx", "-q", "-batch", "-p", str(pid), "-x", str(script), "-x", str(timed)],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    found = re.search(r"SECONDS (\S+) (\d+)", done.stdout)
    if found is None or int(found[2]) < 50:
        raise RuntimeError(f"gef did not list the heap: {done.stdout[-500:]} {done.stderr[-500:]}")
    return float(found[1])


# -- the pause --------------------------------------------------------------------------------------------


def pause(folder: Path) -> Ratio:
    """The longest time that a thread of a server did not run, as it noticed itself."""
    with running(folder / "server", SERVER_MB) as process:

        def forked() -> float:
            longest_wait(process)
            explain_process(process.pid, fork=True)
            return longest_wait(process)

        def attached() -> float:
            longest_wait(process)
            cpu_of(bare_gdb(process.pid))
            return longest_wait(process)

        found = ratios(forked, attached, rounds=PAUSES)
        resident = resident_bytes(process.pid) / 1e9
    name = f"the longest wait of a server of {resident:.1f} GB, `gdbmem explain --fork` / `gdb -batch -p`"
    return Ratio(name, found, 1)


def longest_wait(process: subprocess.Popen[str]) -> float:
    """Return the longest wait in seconds since the last question."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("x\n")
    process.stdin.flush()
    found = re.search(r"longest_us (\d+)", process.stdout.readline())
    assert found is not None
    return int(found[1]) / 1e6
