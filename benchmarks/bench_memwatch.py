"""memwatch against gdb's own commands and against a script that runs `cat /proc/PID/statm`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.racing import Row
from gdbmem.setup.gdb_packages import ensure_private_folder
from gdbmem.setup.gdb_python import loader_file

TITLE = "memwatch: stepping with accounts, functions, growth"
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


def race() -> Sequence[Row]:
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
        return [
            *stepping(folder), looping(folder), waiting(folder), function(folder), *growing(folder)
        ]  # fmt: skip


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


def stepping(folder: Path) -> list[Row]:
    times = in_gdb(folder, "stepping", "walk")
    rate = statistics.median(bare / ours for bare, ours in zip(times["bare"], times["memwatch"]))
    faster = statistics.median(shell / ours for shell, ours in zip(times["shell"], times["memwatch"]))
    ours, bare, shell = (statistics.median(times[name]) for name in ("memwatch", "bare", "shell"))
    return [
        Row("1,500 steps, against bare `step`", ours, bare, "rate at least 0.95", at_least=0.95, value=rate),
        Row(
            "1,500 steps, against `shell cat statm`", ours, shell, "5 times faster", at_least=5, value=faster
        ),
    ]


def looping(folder: Path) -> Row:
    times = in_gdb(folder, "loops", "walk")
    ours, bare = (statistics.median(times[name]) for name in ("memwatch", "bare"))
    return Row("`next` over a line that loops 1,000 times", ours, bare, "10 times faster", at_most=0.1)


def waiting(folder: Path) -> Row:
    ours = in_gdb(folder, "waits", "rendezvous")["memwatch"][0]
    name = "1,000 lines of a consumer, 500 of which wait for the producer"
    return Row(name, ours, 0, "at most 100 s", at_most=100, value=ours)


def function(folder: Path) -> Row:
    times = in_gdb(folder, "function", "function_lines")
    ours, bare = (times[name][0] for name in ("memwatch", "bare"))
    name = "a function of 20 lines, 1,000 calls, against breakpoints on its lines that do nothing"
    return Row(name, ours, bare, "at most 1×", at_most=1)


def growing(folder: Path) -> list[Row]:
    times = in_gdb(folder, "growth", "asks_kernel")
    events = json.loads((folder / "growth.json").read_text())["events"]
    ratio = statistics.median(ours / bare for ours, bare in zip(times["memwatch"], times["bare"]))
    ours, bare = (statistics.median(times[name]) / events for name in ("memwatch", "bare"))
    name = "growth, a recorded event, against a silent breakpoint that continues"
    return [
        Row(name, ours, bare, "at most 1.5×", at_most=1.5, value=ratio),
        *(storming(folder, microseconds) for microseconds in (1000, 500)),
        running_on(folder, "reads", "growth of a program of a million read()s"),
        running_on(folder, "seldom", "growth of a program that asks the kernel some 250 times a second"),
    ]


def storming(folder: Path, microseconds: int) -> Row:
    times = in_gdb(folder, f"storm_{microseconds}", "storm")
    ratio = statistics.median(ours / bare for ours, bare in zip(times["memwatch"], times["bare"]))
    ours, bare = (statistics.median(1 / pace for pace in times[name]) for name in ("memwatch", "bare"))
    name = f"growth with a signal every {microseconds} µs, a block of the program; its progress / silent `break brk`"
    return Row(name, ours, bare, "at least 0.5", at_least=0.5, value=ratio)


def running_on(folder: Path, race_name: str, name: str) -> Row:
    times = in_gdb(folder, race_name, "asks_kernel")
    ratio = statistics.median(ours / bare for ours, bare in zip(times["memwatch"], times["bare"]))
    ours, bare = (statistics.median(times[one]) for one in ("memwatch", "bare"))
    return Row(name, ours, bare, "1.2 times", at_most=1.2, value=ratio)
