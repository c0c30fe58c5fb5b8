"""Trace five commands on their way through gdbmem: the functions, modules and folders that each calls.

`scripts/measure --journeys` prints the table. Counted are the functions of gdbmem/ that are called in the process of
the command itself, the modules with such functions, their top folders, and the calls from a function of one module to
one of another, each pair once. What a module does when it is imported does not count.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pexpect

ROOT = Path(__file__).resolve().parent.parent
MASSIF = ROOT / "tests/captures/massif/live.massif.gz"
GOALS = {"show FILE": 25, "massif-snap": 25, "explain PID": 45, "monitor -- COMMAND": 40, "grow PID": 45}

# Executed in the command's own process, and in gdb.
TRACER = """
import json, sys, threading
ROOT, OUT = {root!r}, {out!r}
called, ways = set(), set()
def place(frame):
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(ROOT) and code.co_name[0] != "<":
            return code.co_filename[len(ROOT):], code.co_firstlineno
        frame = frame.f_back
def is_import(frame):
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(ROOT) and not code.co_flags & 1:  # the body of a module or of a class
            return True
        frame = frame.f_back
    return False
def trace(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(ROOT) and code.co_name[0] != "<" and not is_import(frame):
        here, before = place(frame), place(frame.f_back)
        called.add(here)
        if before and before[0] != here[0]:
            ways.add((before, here))
def done():
    sys.setprofile(None)
    modules = {{file for file, line in called}}
    json.dump([len(called), len(modules), len({{file.split("/")[0] for file in modules}}), len(ways)], open(OUT, "w"))
threading.setprofile(trace)
sys.setprofile(trace)
"""
COMMAND = (
    TRACER
    + """
import os
ends = os._exit  # gdbmem does not tear the interpreter down
def counts_and_ends(status):
    done()
    ends(status)
os._exit = counts_and_ends
sys.argv[0] = "gdbmem"
from gdbmem.cli.start import main
counts_and_ends(main())
"""
)


def values(out: Path) -> tuple[int, int, int, int]:
    functions, modules, folders, changes = json.loads(out.read_text())
    return functions, modules, folders, changes


def tracer(text: str, out: Path) -> str:
    return text.format(root=f"{ROOT / 'gdbmem'}/", out=str(out))


def of_command(words: list[str], folder: Path) -> tuple[int, int, int, int]:
    """Trace `gdbmem WORDS`."""
    out = folder / "counted"
    command = [str(ROOT / ".venv/bin/python"), "-c", tracer(COMMAND, out), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"measure: gdbmem {' '.join(words)}: {done.stderr.strip()}")
    return values(out)


def of_massif_snap(folder: Path) -> tuple[int, int, int, int]:
    """Trace massif-snap, typed into a gdb that `gdbmem launch` has started."""
    out, script = folder / "counted", folder / "tracer.py"
    script.write_text(tracer(TRACER, out))
    words = ["launch", "--massif", "--run", str(folder / "run"), str(program(folder))]
    gdb = pexpect.spawn(str(ROOT / ".venv/bin/gdbmem"), words, timeout=60, encoding="utf-8")
    for line in (
        "set pagination off", "set confirm off", "break read", "continue", "massif-snap first", f"source {script}",
        "massif-snap second", "python done()", "quit",
    ):  # fmt: skip
        gdb.expect_exact("(gdb) ")
        gdb.sendline(line)
    gdb.expect(pexpect.EOF)
    return values(out)


def program(folder: Path) -> Path:
    """Return a program that keeps 64 blocks, reads its standard input, and grows until it gets a line."""
    source, built = folder / "grows.c", folder / "grows"
    source.write_text(
        "#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n"
        "int main(int count, char **words) {\n"
        "  for (int i = 0; i < 64; i++) memset(malloc(4000), 1, 4000);\n"
        "  for (int i = 0; count > 1 && i < 400; i++) { memset(malloc(40000), 1, 40000); usleep(10000); }\n"
        "  char byte;\n  return read(0, &byte, 1) < 0;\n}\n"
    )
    if not built.exists():
        subprocess.run(["gcc", "-g", "-o", built, source], check=True)
    return built


def main() -> int:
    """Print the table of the five journeys."""
    print("| journey | functions | modules | folders | changes of module | modules: goal |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, goal in GOALS.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            if name == "massif-snap":
                counted = of_massif_snap(folder)
            else:
                words = [str(program(folder)), "slowly"]
                with subprocess.Popen(words, stdin=subprocess.PIPE) as target:
                    try:
                        counted = of_command(
                            {
                                "show FILE": ["show", str(MASSIF)],
                                "explain PID": ["explain", str(target.pid)],
                                "monitor -- COMMAND": ["monitor", "--", "sleep", "2"],
                                "grow PID": ["grow", str(target.pid), "--for", "2s"],
                            }[name],
                            folder,
                        )
                    finally:
                        target.kill()
        print(f"| {name} | {' | '.join(map(str, counted))} | {goal} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
