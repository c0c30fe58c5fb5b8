"""Runs inside gdb: times memwatch against what one would type by hand, and prints the times as JSON."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
import time
from typing import Callable

import gdb

STEPS = 1500


def seconds_of(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def quiet(command: str) -> None:
    gdb.execute(command, to_string=True)


def bare_steps() -> None:
    for _ in range(STEPS):
        quiet("step")


def steps_with_shell() -> None:
    pid = gdb.selected_inferior().pid
    for _ in range(STEPS // 10):
        quiet("step")
        quiet(f"shell cat /proc/{pid}/statm >/dev/null")


def stepping() -> dict[str, list[float]]:
    quiet("break work")
    quiet("run")
    quiet("delete")
    times: dict[str, list[float]] = {"memwatch": [], "bare": [], "shell": []}
    bare_steps()
    quiet(f"memwatch step {STEPS}")
    for _ in range(10):
        times["bare"].append(seconds_of(bare_steps))
        times["memwatch"].append(seconds_of(lambda: quiet(f"memwatch step {STEPS}")))
        times["shell"].append(10 * seconds_of(steps_with_shell))
    return times


def loops() -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"memwatch": [], "bare": []}
    quiet("break loop_line")
    for _ in range(5):
        for name, command in (("bare", "next"), ("memwatch", "memwatch next --json -o /dev/null --force")):
            quiet("run loop")
            times[name].append(seconds_of(functools.partial(quiet, command)))
            quiet("kill")
    return times


def hundred_nexts() -> None:
    for _ in range(100):
        quiet("next")


def waits() -> dict[str, list[float]]:
    quiet("break take")
    quiet("run")
    quiet("delete")
    quiet("finish")
    times: dict[str, list[float]] = {"memwatch": [], "bare": []}
    for _ in range(4):
        times["memwatch"].append(seconds_of(lambda: quiet("memwatch next 100")))
        times["bare"].append(seconds_of(hundred_nexts))
    return times


class Passed(gdb.Breakpoint):  # type: ignore[misc]  # gdb's module has no types
    """A breakpoint that does nothing, and stops the program at its last hit."""

    def __init__(self, location: str, hits: int = 0) -> None:
        super().__init__(location, internal=True)
        self.silent = True
        self._left = hits

    def stop(self) -> bool:
        self._left -= 1
        return not self._left


def function(calls: int = 1000) -> dict[str, list[float]]:
    """Time a function's calls beside breakpoints that do nothing where its own lines begin."""
    quiet("break main")
    quiet("run")
    start = gdb.block_for_pc(int(gdb.parse_and_eval("(long) &work")))
    rows = gdb.selected_frame().find_sal().symtab.linetable()
    passed = [Passed(f"*{pc:#x}") for pc in {row.pc for row in rows if start.start < row.pc < start.end}]
    passed.append(Passed(f"*{start.start:#x}", calls))
    bare = seconds_of(lambda: quiet("continue"))
    for point in passed:
        point.delete()
    quiet("run")
    return {
        "memwatch": [seconds_of(lambda: quiet(f"memwatch function --calls {calls} work"))],
        "bare": [bare],
    }


def growth() -> dict[str, list[float]]:
    """Time what the kernel is asked for beside silent breakpoints on the same calls, whose commands continue."""
    times: dict[str, list[float]] = {"memwatch": [], "bare": []}
    quiet("break main")
    for _ in range(4):
        quiet("run often")
        growth = f"memwatch growth --json --force -o {os.environ['GROWTH']}"
        times["memwatch"].append(seconds_of(functools.partial(quiet, growth)))
        quiet("run often")
        points = [gdb.Breakpoint(call) for call in ("brk", "mmap", "munmap", "mremap", "madvise", "shmat")]
        for point in points:
            point.commands = "silent\ncontinue"
        times["bare"].append(seconds_of(functools.partial(quiet, "continue")))
        for point in points:
            point.delete()
    return {name: found[1:] for name, found in times.items()}  # the first time it is imported


def storm(microseconds: str, seconds: float = 4) -> dict[str, list[float]]:
    """Count how far a program of many signals gets in a second: with memwatch, and with a silent breakpoint."""
    progress: dict[str, list[float]] = {"memwatch": [], "bare": []}
    for command in ("handle SIGALRM nostop noprint pass", "break turn"):
        quiet(command)
    for number in range(-1, 12):  # the first time it is imported
        for name in ("memwatch", "bare"):
            quiet(f"run 1000000 {microseconds}")
            before = int(gdb.parse_and_eval("n"))
            quiet("disable 1")
            if name == "bare":
                point = gdb.Breakpoint("brk")
                point.commands = "silent\ncontinue"
                pid = gdb.selected_inferior().pid
                threading.Timer(seconds, os.kill, (pid, signal.SIGINT)).start()
                taken = seconds_of(functools.partial(quiet, "continue"))
                point.delete()
            else:
                command = f"memwatch growth --json --force -o /dev/null --for {seconds}s"
                taken = seconds_of(functools.partial(quiet, command))
            if number >= 0:
                progress[name].append((int(gdb.parse_and_eval("n")) - before) / taken)
            quiet("kill")
            quiet("enable 1")
    return progress


def storm_1000() -> dict[str, list[float]]:
    return storm("1000")


def storm_500() -> dict[str, list[float]]:
    return storm("500")


def reads(argument: str = "read") -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"memwatch": [], "bare": []}
    quiet("break main")
    for _ in range(6):
        for name, command in (
            ("bare", "continue"),
            ("memwatch", "memwatch growth --json -o /dev/null --force"),
        ):
            quiet(f"run {argument}")
            times[name].append(seconds_of(functools.partial(quiet, command)))
    return {name: found[1:] for name, found in times.items()}  # the first time it is imported


def often() -> dict[str, list[float]]:
    return reads("often")


def seldom() -> dict[str, list[float]]:
    return reads("seldom")


gdb.execute("set pagination off")
gdb.execute("set confirm off")
sys.stderr.write("TIMES " + json.dumps(globals()[os.environ["RACE"]]()) + "\n")
