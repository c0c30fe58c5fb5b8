"""The same leak in C and in Python, by `gdbmem grow` and by heap profilers: the time until each names the line."""

from __future__ import annotations

import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.racing import Row

_GROW = [sys.executable, "-m", "gdbmem.cli.main", "grow"]
_LINE = "keep"  # the function whose line makes the program bigger
_RUNS = 3
LEAK_C = r"""
#include <stdlib.h>
#include <string.h>
static char *kept[1000000];
__attribute__((noinline)) void keep(int n) { memset(kept[n] = malloc(300), 1, 300); }
__attribute__((noinline)) void come_and_go(void) {
    char *block = malloc(5000);
    memset(block, 1, 5000);
    __asm__ volatile("" ::"r"(block) : "memory"); /* or the compiler leaves all three out */
    free(block);
}
int main(void) {
    for (int n = 0; n < 400000; n++) { keep(n); for (int k = 0; k < 8; k++) come_and_go(); }
    return kept[9][0] - 1;
}
"""
_LEAK_PYTHON = """
import sys, time
kept = []
def keep(n):
    kept.append(str(n) * 50)
def come_and_go(n):
    return [str(n) * 9 for n in range(20)]
end = time.monotonic() + float(sys.argv[1])
for n in range(int(sys.argv[2])):
    keep(n)
    come_and_go(n)
while time.monotonic() < end:
    keep(n)
    come_and_go(n)
    time.sleep(0.0001)
"""


@dataclass(frozen=True)
class _Tool:
    """A way to the line that leaks: commands one after the other, the last one's output has the answer."""

    name: str
    commands: Sequence[Sequence[str]]
    answer: str  # a pattern that the output of one that names the line matches
    needs: str = ""  # a command, if not the first word


@dataclass(frozen=True)
class _Answer:
    cpu_seconds: float  # of all processes
    first_seconds: float  # CPU, of the command in which the program runs
    wall_seconds: float
    text: str


def answers(leak: Path, folder: Path) -> Iterator[Row]:
    """Yield, for each tool, the CPU time from the start of a program that leaks until its line is named."""
    yield from _race("a leak of 400,000 blocks", [str(leak)], _tools(leak), folder)
    script = folder / "leak.py"
    script.write_text(_LEAK_PYTHON)
    words = [sys.executable, str(script), "0", "100000"]
    yield from _race("a leak of 100,000 str in Python", words, _python_tools(words), folder)
    yield from _attached(script, folder)


def _race(what: str, alone: Sequence[str], tools: Iterator[_Tool], folder: Path) -> Iterator[Row]:
    bare = statistics.median(_run([alone], folder).cpu_seconds for _ in range(_RUNS))
    for tool in tools:
        if shutil.which(tool.needs or tool.commands[0][0]) is None:
            print(f"bench: {tool.name} is missing", file=sys.stderr)
            continue
        try:
            runs = [_run(tool.commands, folder) for _ in range(_RUNS)]
        except subprocess.CalledProcessError as error:
            last = (error.stderr or "").strip().rpartition("\n")[2]
            print(f"bench: {tool.name} does not run here: {last}", file=sys.stderr)
            continue
        named = all(re.search(tool.answer, one.text, re.S) for one in runs)
        wall, first = (
            statistics.median(values)
            for values in zip(*((one.wall_seconds, one.first_seconds) for one in runs))
        )
        yield Row(
            f"{what} with {tool.name}, which {'names' if named else 'does not name'} the line / the program alone",
            statistics.median(one.cpu_seconds for one in runs),
            bare,
            f"{wall:.2f} s to the answer; the run itself {first / bare:.1f} times the program's CPU time",
        )


def _tools(leak: Path) -> Iterator[_Tool]:
    yield _Tool("`gdbmem grow`", [[*_GROW, "--", str(leak)]], rf"\({_LINE}\)")
    heaptrack = ["heaptrack", "--output", "leak", str(leak)]
    yield _Tool(
        "heaptrack",
        [heaptrack, ["sh", "-c", "heaptrack_print -l -f leak.* && rm leak.*"]],
        rf"MEMORY LEAKS.{{0,600}}{_LINE}",
    )
    massif = ["valgrind", "-q", "--tool=massif", "--massif-out-file=leak.massif", str(leak)]
    yield _Tool("massif", [massif, ["ms_print", "leak.massif"]], rf"->9\d\.\d+% [^\n]*{_LINE}")
    memleak = ["memleak-bpfcc", "--combined-only", "-c", str(leak), "1", "2"]
    yield _Tool("bcc's memleak", [memleak], _LINE)


def _python_tools(words: Sequence[str]) -> Iterator[_Tool]:
    answer = rf"leak\.py:\d+ (?:in )?\(?{_LINE}|{_LINE}[^\n]*leak\.py"
    yield _Tool("`gdbmem grow`", [[*_GROW, "--", *words]], answer)
    run = ["memray", "run", "-q", "-f", "-o", "leak.bin", *words[1:]]
    stats = ["memray", "stats", "leak.bin"]
    yield _Tool("memray", [run, stats], answer)


def _attached(script: Path, folder: Path) -> Iterator[Row]:
    """Yield the time to the answer of tools that are attached for two seconds to a Python process that leaks."""
    answer = rf"leak\.py:\d+ (?:in )?\(?{_LINE}|{_LINE}[^\n]*leak\.py"
    grow = _Tool("`gdbmem grow`", [[*_GROW, "--for", "2s", "{pid}"]], answer)
    attach = ["memray", "attach", "-f", "-o", "attached.bin", "--duration", "2", "{pid}"]
    wait = ["sh", "-c", "sleep 2.5; memray stats attached.bin"]
    for tool in (grow, _Tool("memray attach", [attach, wait], answer)):
        if shutil.which(tool.commands[0][0]) is None:
            print(f"bench: {tool.name} is missing", file=sys.stderr)
            continue
        words = [_python_of(tool), str(script), "60", "1000"]
        with subprocess.Popen(words) as program:
            time.sleep(1)
            commands = [[word.format(pid=program.pid) for word in one] for one in tool.commands]
            try:
                found = _run(commands, folder)
            except subprocess.CalledProcessError as error:
                print(f"bench: {tool.name}: {(error.stderr or error.stdout).strip()[-300:]}", file=sys.stderr)
                continue
            finally:
                program.kill()
        named = "names" if re.search(answer, found.text, re.S) else "does not name"
        name = f"CPU time of two seconds attached to a Python process that leaks, {tool.name}, which {named} the line"
        yield Row(name, found.cpu_seconds, 0.0, f"{found.wall_seconds:.2f} s to the answer")


def _python_of(tool: _Tool) -> str:
    """Return the interpreter that the program runs in: memray attaches only where it is installed, too."""
    memray = Path(shutil.which(tool.commands[0][0]) or "").resolve()
    beside = memray.with_name("python3")
    return str(beside) if memray.name == "memray" and beside.exists() else sys.executable


def _run(commands: Sequence[Sequence[str]], folder: Path) -> _Answer:
    """Run *commands*; return the CPU seconds of all their processes together, and the last one's output."""
    began, begun = _cpu_of_children(), time.monotonic()
    text, first = "", 0.0
    for number, words in enumerate(commands):
        text = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, cwd=folder
        ).stdout
        if not number:
            first = _cpu_of_children() - began
    return _Answer(_cpu_of_children() - began, first, time.monotonic() - begun, text)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
