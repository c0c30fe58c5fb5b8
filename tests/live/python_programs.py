"""Pythons of this machine, and programs for them that print what they hold by the interpreter's own counts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cover import cover

# What a command says before its own message: a pause that may be long on a busy machine.
PAUSE = r"(gdbmem: process \d+ \([^\n]*\) (is stopped|waits) [^\n]*\n)?"

COUNTS = """
import gc, json, os, sys
class Node:
    def __init__(self, i): self.i = i; self.me = self
class Slot:
    __slots__ = ("a",)
tuples = [(i, str(i) * 3, float(i)) for i in range(24000)][::2]
lists = {i: [i] for i in range(5000)}
nodes = [Node(i) for i in range(7000)] + [Slot() for i in range(900)]
large = [bytes(5000) for i in range(300)]
wide = [tuple(range(1000, 1000 + 200)) for i in range(40)]
gc.collect(); gc.disable()
objects = gc.get_objects()
counts = {}
def count():  # since 3.15 a global variable that is assigned a lazy import performs it when it is read
    for one in objects:
        name = type(one).__name__
        counts[name] = counts.get(name, 0) + 1
count()
del objects
text = json.dumps(counts)
sys._debugmallocstats()
sys.stderr.flush()
os.write(1, b"pid %d\\nblocks %d\\n%s\\nready\\n" % (os.getpid(), sys.getallocatedblocks(), text.encode()))
os.read(0, 1)
"""

INTERPRETERS = """
import os
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
class Mine: pass
mine = [Mine() for _ in range(2000)]
code = "class Theirs: pass\\ntheirs = [Theirs() for _ in range(3000)]"
made = [interpreters.create() for _ in range(3)]
for one in made: (getattr(interpreters, "exec", None) or interpreters.run_string)(one, code)
os.write(1, b"pid %d\\nready\\n" % os.getpid())
os.read(0, 1)
"""

SPARSE = """
import os
class Common:
    __slots__ = ("a", "b", "c", "d")
class Keeper:
    __slots__ = ("a", "b", "c", "d")
many = [Keeper() if i % 4000 == 0 else Common() for i in range(400000)]
kept = many[::4000]
del many
os.write(1, b"pid %d\\nready\\n" % os.getpid())
os.read(0, 1)
"""

TRACED = """
import os, sys, tracemalloc
def culprit(n):
    return [(i, str(i) * 3) for i in range(n)]
exec(compile("def other(n): return [bytes(600) for i in range(n)]", "/tmp/s\\u00f6urce-\\u4e16.py", "exec"))
tracemalloc.start(int(sys.argv[1]))
a, b = culprit(20000), other(1000)
traced = tracemalloc.get_traced_memory()[0]
os.write(1, b"pid %d\\ntraced %d\\nready\\n" % (os.getpid(), traced))
os.read(0, 1)
"""


def every_third(first: int) -> pytest.MarkDecorator:
    """Give a test its *python*: each of `pythons()`, of which all but every third one from *first* on are thorough.

    Tests with another *first* are run by the others: each release is read by some test of each run.
    """
    found = pythons()
    always = found[first::3] or found
    return pytest.mark.parametrize("python", cover(found, lambda path: path in always), ids=short_name)


def short_name(value: object) -> str:
    return str(value).strip("/").replace("/", "-")


def pythons() -> list[str]:
    """Return CPythons from 3.8 on: one of each minor version here, the system's, $GDBMEM_PYTHON_3_14 and …_3_15."""
    found = {sys.executable: sys.version_info[:2]}
    roots = [Path(os.environ.get("PYENV_ROOT", Path("~/.pyenv").expanduser())) / "versions"]
    for folder in (one for root in roots if root.is_dir() for one in sorted(root.iterdir())):
        version = re.fullmatch(r"3\.(\d+)\.\d+", folder.name)
        minor = (3, int(version[1])) if version else (0, 0)
        if minor >= (3, 8) and minor not in found.values() and (folder / "bin/python3").is_file():
            found[str(folder / "bin/python3")] = minor
    system = shutil.which("python3", path="/usr/bin")
    named = [os.environ.get(f"GDBMEM_PYTHON_3_{minor}") for minor in (14, 15)]
    return list(dict.fromkeys([*found, *(one for one in (*named, system) if one)]))


def version(python: str) -> tuple[int, int]:
    """Return the major and minor version of an interpreter."""
    text = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", text)
    assert found is not None
    return int(found[1]), int(found[2])


FORKED = """
import os, sys, time
rows = [(str(i), i) for i in range(60000)]
untouched = [float(i) for i in range(60000)]
read, write = os.pipe()
children = []
for number in range(2):
    pid = os.fork()
    if pid == 0:
        for row in rows[: len(rows) // (number + 1)]:
            len(row[0])
        os.write(write, b"x")
        time.sleep(600)
        os._exit(0)
    children.append(pid)
for _ in children:
    os.read(read, 1)
os.write(1, b"pid %d\\nready\\n" % os.getpid())
os.read(0, 1)
for pid in children:
    os.kill(pid, 9)
"""
