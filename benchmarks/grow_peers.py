"""The same leak in C and in Python, by `gdbmem grow` and by heap profilers: the CPU time until each has its answer."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import peer_python
from benchmarks.racing import Ratio, pairs

_GROW = [sys.executable, "-m", "gdbmem.cli.main", "grow"]
_LINE = "keep"  # the function whose line makes the program bigger
_RUNS = 6
_PYTHON_LINE = rf"leak\.py:\d+ (?:in )?\(?{_LINE}|{_LINE}[^\n]*leak\.py"
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


@dataclass(frozen=True)
class _Run:
    cpu_seconds: float
    text: str


def answers(leak: Path, folder: Path) -> Iterator[Ratio]:
    """Yield what `grow` takes from the start of a program that leaks until the answer, beside each heap profiler."""
    yield from _race("a leak of 400,000 blocks", _tools(leak), folder)
    python = peer_python()
    if python is not None:
        script = folder / "leak.py"
        script.write_text(_LEAK_PYTHON)
        yield from _race("a leak of 100,000 str in Python", _python_tools(python, script), folder)
        yield from _attached(python, script, folder)


def _race(what: str, tools: Iterator[_Tool], folder: Path) -> Iterator[Ratio]:
    grow = next(tools)
    for tool in tools:
        if shutil.which(tool.commands[0][0]) is None:
            print(f"bench: {tool.name} is missing", file=sys.stderr)
            continue
        try:
            found = pairs(lambda: _run(grow, folder), lambda: _run(tool, folder), rounds=_RUNS, warmups=0)  # noqa: B023
        except subprocess.CalledProcessError as error:
            last = (error.stderr or "").strip().rpartition("\n")[2]
            print(f"bench: {tool.name} does not run here: {last}", file=sys.stderr)
            continue
        yield _row(what, grow, tool, found)


def _row(what: str, grow: _Tool, tool: _Tool, found: Sequence[tuple[_Run, _Run]]) -> Ratio:
    said = []
    for one, runs in zip((grow, tool), zip(*found)):
        named = all(re.search(one.answer, run.text, re.S) for run in runs)
        said.append(f"{one.name}, which {'names' if named else 'does not name'} the line")
    name = f"{what}, until the answer: {' / '.join(said)}"
    return Ratio(name, [a.cpu_seconds / b.cpu_seconds for a, b in found])


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


def _python_tools(python: Path, script: Path) -> Iterator[_Tool]:
    words = [str(script), "0", "100000"]
    yield _Tool("`gdbmem grow`", [[*_GROW, "--", str(python), *words]], _PYTHON_LINE)
    memray = str(python.with_name("memray"))
    run = [memray, "run", "-q", "-f", "-o", "leak.bin", *words]
    yield _Tool("memray", [run, [memray, "stats", "leak.bin"]], _PYTHON_LINE)


def _attached(python: Path, script: Path, folder: Path) -> Iterator[Ratio]:
    """Yield what `grow` takes of a Python process that leaks, attached for two seconds, beside memray."""
    grow = _Tool("`gdbmem grow`", [[*_GROW, "--for", "2s", "{pid}"]], _PYTHON_LINE)
    memray = str(python.with_name("memray"))
    attach = [memray, "attach", "-f", "-o", "attached.bin", "--duration", "2", "{pid}"]
    stats = ["sh", "-c", f"sleep 2.5; {memray} stats attached.bin"]
    peer = _Tool("memray attach", [attach, stats], _PYTHON_LINE)

    def attached(tool: _Tool) -> _Run:
        with subprocess.Popen([python, script, "60", "1000"]) as program:
            time.sleep(1)
            try:
                return _run(tool, folder, pid=program.pid)
            finally:
                program.kill()

    try:
        found = pairs(lambda: attached(grow), lambda: attached(peer), rounds=_RUNS, warmups=0)
    except subprocess.CalledProcessError as error:
        print(f"bench: attaching: {(error.stderr or error.stdout).strip()[-300:]}", file=sys.stderr)
        return
    yield _row("two seconds attached to a Python process that leaks", grow, peer, found)


def _run(tool: _Tool, folder: Path, pid: int = 0) -> _Run:
    """Run the commands of *tool*; return the CPU seconds of all their processes together, and the last one's output."""
    began, text = _cpu_of_children(), ""
    for words in tool.commands:
        text = subprocess.run(
            [word.format(pid=pid) for word in words],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, cwd=folder,
        ).stdout  # fmt: skip
    return _Run(_cpu_of_children() - began, text)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
