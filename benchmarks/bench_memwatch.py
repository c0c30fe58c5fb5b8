"""memwatch against gdb's own commands and against a script that runs `cat /proc/PID/statm`."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.racing import Ratio
from gdbmem.setup.gdb_packages import ensure_private_folder
from gdbmem.setup.gdb_python import loader_file

TITLE = "memwatch: stepping with accounts, functions, growth; wall time"
PROGRAMS = Path(__file__).parents[1] / "tests" / "programs"
STORM = """
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
static volatile long ticks;
static void on(int number) { ticks += number; }
static char *kept[100000000];
static int n;
static void turn(void) {
    for (int i = 0; i < 100; i++) memset(kept[n++] = malloc(1000), 1, 1000);
}
int main(int count, char **words) {
    struct sigaction action = {.sa_handler = on, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    int every = count > 2 ? atoi(words[2]) : 1000;
    struct itimerval timer = {{0, every}, {0, every}};
    setitimer(ITIMER_REAL, &timer, 0);
    for (int i = 0; i < atoi(words[1]); i++) {
        turn();
        usleep(20000);
    }
    return 0;
}
"""
WALK = """
#include <stdlib.h>
#include <string.h>
static int numbers[20000];
static int work(int x) { int y = x * 2; y += 3; return y; }
static void loop_line(void) {
    int i;
    for (i = 0; i < 1000; i++) numbers[i] = i;
    numbers[0] = 1;
}
int main(int count, char **words) {
    int s = 0; char *p = malloc(64 << 20);
    if (count > 1) loop_line();
    for (int i = 0; i < 10000000; i++) {
        s += work(i);
        p[(i * 4096L) % (64 << 20)] = 1;
        s ^= i;
    }
    return s + words[0][0];
}
"""


def race() -> Iterator[Ratio]:
    ensure_private_folder()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for program, text in (("walk", WALK), ("storm", STORM)):
            (folder / f"{program}.c").write_text(text)
            subprocess.run(["gcc", "-g", "-O0", "-o", program, f"{program}.c"], cwd=folder, check=True)
        for program in ("function_lines", "asks_kernel"):
            source = str(PROGRAMS / f"{program}.cpp")
            subprocess.run(["g++", "-g", "-O0", "-pthread", "-o", program, source], cwd=folder, check=True)
        subprocess.run(
            ["gcc", "-g", "-O0", "-pthread", "-o", "rendezvous", str(PROGRAMS / "rendezvous.c")],
            cwd=folder, check=True,
        )  # fmt: skip
        yield from stepping(folder)
        yield looping(folder)
        yield waiting(folder)
        yield function(folder)
        yield from growing(folder)


def in_gdb(folder: Path, race_name: str, program: str) -> dict[str, list[float]]:
    script = Path(__file__).parent / "memwatch_in_gdb.py"
    done = subprocess.run(
        ["gdb", "-nx", "-batch", "-x", str(loader_file()), "-x", str(script), str(folder / program)],
        env={**os.environ, "RACE": race_name, "GROWTH": str(folder / "growth.json")},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    line = next(line for line in done.stderr.splitlines() if line.startswith("TIMES "))
    times: dict[str, list[float]] = json.loads(line[len("TIMES ") :])
    return times


def divided(times: dict[str, list[float]], peer: str) -> list[float]:
    """Return memwatch's figures ÷ those of *peer*, pair by pair."""
    return [ours / theirs for ours, theirs in zip(times["memwatch"], times[peer])]


def stepping(folder: Path) -> list[Ratio]:
    times = in_gdb(folder, "stepping", "walk")
    return [
        Ratio("1,500 steps / bare `step`", divided(times, "bare"), 1.05),
        Ratio("1,500 steps / `step` and `shell cat statm`", divided(times, "shell"), 0.2),
    ]


def looping(folder: Path) -> Ratio:
    times = in_gdb(folder, "loops", "walk")
    return Ratio("`next` over a line that loops 1,000 times / bare `next`", divided(times, "bare"), 0.1)


def waiting(folder: Path) -> Ratio:
    times = in_gdb(folder, "waits", "rendezvous")
    return Ratio("100 lines of a consumer, half of which wait / bare `next`", divided(times, "bare"))


def function(folder: Path) -> Ratio:
    times = in_gdb(folder, "function", "function_lines")
    name = "a function of 20 lines, 1,000 calls / breakpoints on its lines that do nothing"
    return Ratio(name, divided(times, "bare"), 1)


def growing(folder: Path) -> list[Ratio]:
    times = in_gdb(folder, "growth", "asks_kernel")
    return [
        Ratio("growth, all events / a silent breakpoint that continues", divided(times, "bare"), 1.5),
        *(storming(folder, microseconds) for microseconds in (1000, 500)),
        running_on(folder, "reads", "growth of a program of a million read()s / bare"),
        running_on(
            folder, "seldom", "growth of a program that asks the kernel some 250 times a second / bare"
        ),
    ]


def storming(folder: Path, microseconds: int) -> Ratio:
    times = in_gdb(folder, f"storm_{microseconds}", "storm")
    name = f"growth with a signal every {microseconds} µs: the program's progress / silent `break brk`"
    return Ratio(name, divided(times, "bare"), at_least=0.5)


def running_on(folder: Path, race_name: str, name: str) -> Ratio:
    return Ratio(name, divided(in_gdb(folder, race_name, "asks_kernel"), "bare"), 1.2)
