"""Python frames of each thread, read from outside and compared with the interpreter's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gdbmem.allocators.cpython.code_objects import LineTable, line_of
from tests.live.explaining import Running, gdbmem, running
from tests.live.python_programs import every_third
from tests.live.user import SECONDS

# Whether all threads but the main one are in os.read(), by the number of its system call.
ALL_READ = """
def all_read():
    number = {"x86_64": "0"}.get(os.uname().machine, "63")
    others = [one.native_id for one in threading.enumerate() if one is not threading.main_thread()]
    return all(open(f"/proc/self/task/{tid}/syscall").read().split()[0] == number for tid in others)
"""
STACKS = (
    ALL_READ
    + """
import asyncio, json, os, sys, threading, time
ready = threading.Barrier(4)
ends = os.pipe()
class Worker:
    def run(self, depth):
        if depth:
            return self.run(
                depth - 1
            )
        def inner():
            ready.wait()
            os.read(ends[0], 1)
        return [inner() for _ in range(1)][0]
def produce():
    yield from (leaf(i) for i in range(2))
def leaf(i):
    try:
        if i == 1:
            report()
    finally:
        i = 3
    return i
def report():
    frames = {}
    for ident, frame in sys._current_frames().items():
        rows = frames[ident] = []
        while frame is not None:
            code = frame.f_code
            rows.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
            frame = frame.f_back
    tids = {one.ident: one.native_id for one in threading.enumerate()}
    text = json.dumps({tids[ident]: rows for ident, rows in frames.items()})
    os.write(1, b"pid %d\\n%s\\nready\\n" % (os.getpid(), text.encode())); os.read(0, 1)
async def main():
    await deeper()
async def deeper():
    sorted([3, 1, 2], key=lambda x: (list(produce()), x)[1])
if __name__ == "__main__":
    for n in range(3):
        threading.Thread(target=Worker().run, args=(n,), daemon=True).start()
    ready.wait()
    while not all_read(): time.sleep(0.01)
    asyncio.run(main())
"""
)


def answer(*words: object) -> Any:
    done = gdbmem("python", "stack", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def said(target: Running) -> dict[int, list[list[Any]]]:
    lines = next(line for line in target.output.splitlines() if line.startswith("{"))
    return {int(tid): rows for tid, rows in json.loads(lines).items()}


def frames(stacks: Any) -> dict[int, list[list[Any]]]:
    return {
        one["tid"]: [[frame["function"], frame["file"], frame["line"]] for frame in one["frames"]]
        for one in stacks["threads"]
    }


def without_first_line(rows: dict[int, list[list[Any]]]) -> dict[int, list[list[Any]]]:
    """Leave out the line in the frame that reports: it has gone on since."""
    return {
        tid: [[row[0], row[1], None] if row[0] == "report" else row for row in stack]
        for tid, stack in rows.items()
    }


@every_third(0)
def test_the_frames_of_each_thread_are_those_that_the_interpreter_lists(python: str, tmp_path: Path) -> None:
    script = tmp_path / "stäcks.py"
    script.write_text(STACKS)
    with running([python, script]) as target:
        stacks = answer(target.pid)
        copied = answer("--fork", target.pid)
        main = said(target)
    assert len(main) == 4
    assert without_first_line(frames(stacks)) == without_first_line(main)
    assert frames(copied) == frames(stacks)
    assert {one["system_call"] for one in stacks["threads"]} == {0}
    assert stacks["pause_seconds"] < 0.05 or os.getloadavg()[0] > 2
    assert not stacks["warnings"]


def test_a_core_has_the_frames_of_its_threads(tmp_path: Path) -> None:
    script, core = tmp_path / "stacks.py", tmp_path / "core"
    script.write_text(STACKS)
    with running([sys.executable, script]) as target:
        stacks = answer(target.pid)
        subprocess.run(["gcore", "-o", core, str(target.pid)], capture_output=True, check=True)
        in_core = answer("--core", f"{core}.{target.pid}")
    assert frames(in_core) == frames(stacks)


def test_the_process_runs_on_as_before(tmp_path: Path) -> None:
    code = (
        "import os, select\nos.write(1, b'ready\\n')\nn = 0\n"
        "while not select.select([0], [], [], 0)[0]: n += 1\nprint('done')"
    )
    with running([sys.executable, "-c", code]) as target:
        for _ in range(2):
            stacks = answer(target.pid)
            assert stacks["threads"][0]["frames"][-1]["function"] == "<module>"
        assert target.type("\n").readline() == "done\n"
        assert target.process.wait(10) == 0


def test_deep_recursion_is_read_whole() -> None:
    code = (
        "import os, sys\nsys.setrecursionlimit(9000)\n"
        "def deep(n):\n    if n: return deep(n - 1)\n    os.write(1, b'ready\\n'); os.read(0, 1)\ndeep(5000)"
    )
    with running([sys.executable, "-c", code]) as target:
        (thread,) = answer(target.pid)["threads"]
    assert [one["function"] for one in thread["frames"]] == ["deep"] * 5001 + ["<module>"]


def test_threads_that_python_does_not_know_are_counted() -> None:
    code = (
        "import ctypes, os\nlibc = ctypes.CDLL(None)\nthread = ctypes.c_ulong()\n"
        "libc.pthread_create(ctypes.byref(thread), None, ctypes.cast(libc.pause, ctypes.c_void_p), None)\n"
        "os.write(1, b'ready\\n'); os.read(0, 1)"
    )
    with running([sys.executable, "-c", code]) as target:
        stacks = answer(target.pid)
    assert stacks["native_threads"] == 1
    assert len(stacks["threads"]) == 1


def test_a_process_that_ends_while_it_is_read_is_one_sentence() -> None:
    for delay in (0.0, 0.05, 0.2):
        with running([sys.executable, "-c", "import os; os.write(1, b'ready\\n'); os.read(0, 1)"]) as target:
            killer = subprocess.Popen(["/bin/sh", "-c", f"sleep {delay}; kill -9 {target.pid}"])
            done = gdbmem("python", "stack", target.pid)
            killer.wait()
        assert done.returncode in (0, 1)
        assert "Traceback" not in done.stderr
        assert done.stderr.count("\n") <= 1


def test_a_hostile_name_of_a_file_does_not_reach_the_terminal() -> None:
    code = (
        "import os\nexec(compile('def f():\\n os.write(1, b\"ready\\\\n\"); os.read(0, 1)\\nf()',"
        " '/x\\x1b[2J[red]y', 'exec'))"
    )
    with running([sys.executable, "-c", code]) as target:
        done = gdbmem("python", "stack", target.pid)
    assert "\x1b[2J" not in done.stdout
    assert "\\x1b[2J[red]y:2" in done.stdout
    assert done.returncode == 0


def test_a_stopped_process_stays_stopped() -> None:
    with running([sys.executable, "-c", "import os; os.write(1, b'ready\\n'); os.read(0, 1)"]) as target:
        os.kill(target.pid, signal.SIGSTOP)
        end = time.monotonic() + SECONDS
        while "T (stopped)" not in Path(f"/proc/{target.pid}/status").read_text():
            assert time.monotonic() < end
        assert answer(target.pid)["threads"][0]["frames"]
        assert "T (stopped)" in Path(f"/proc/{target.pid}/status").read_text()


# Each code object of some modules: its table, and the line of each instruction by Python's own reckoning.
LISTED = """
import dis, json, sys, argparse, ast, asyncio.base_events, decimal, inspect, tarfile, typing
def codes(code):
    yield code
    for one in code.co_consts:
        if hasattr(one, "co_code"):
            yield from codes(one)
rows = []
for module in (argparse, ast, asyncio.base_events, inspect, tarfile, typing):
    for code in codes(compile(open(module.__file__).read(), module.__file__, "exec")):
        if hasattr(code, "co_lines"):
            lines = [(start, end, line) for start, end, line in code.co_lines()]
            table = code.co_linetable
        else:
            starts = list(dis.findlinestarts(code)) + [(len(code.co_code), None)]
            lines = [(a[0], b[0], a[1]) for a, b in zip(starts, starts[1:])]
            table = code.co_lnotab
        rows.append([code.co_firstlineno, table.hex(), lines])
print(json.dumps([list(sys.version_info[:2]), rows]))
"""


def kind_of(version: list[int]) -> LineTable:
    if version >= [3, 11]:
        return LineTable.LOCATIONS
    return LineTable.RANGES if version == [3, 10] else LineTable.LNOTAB


@every_third(2)
def test_each_instruction_has_the_line_that_python_reports(python: str) -> None:
    done = subprocess.run([python, "-c", LISTED], capture_output=True, text=True, check=True)
    version, rows = json.loads(done.stdout)
    checked = 0
    for first, table, lines in rows[::16]:  # each line is found by reading the table from its beginning
        for start, end, line in lines:
            for offset in {start, max(start, end - 2)} if end > start else ():
                assert line_of(bytes.fromhex(table), kind_of(version), first, offset) == line
                checked += 1
    assert checked > 300


SUBINTERPRETERS = (
    ALL_READ
    + """
import os, threading, time
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
ends = os.pipe()
def run(number):
    code = "def inside():\\n import os\\n os.read(%d, 1)\\ninside()" % ends[0]
    getattr(interpreters, "exec", getattr(interpreters, "run_string", None))(number, code)
for number in [interpreters.create(), interpreters.create()]:
    threading.Thread(target=run, args=(number,), daemon=True).start()
while not all_read(): time.sleep(0.01)
os.write(1, b"ready\\n"); os.read(0, 1); os._exit(0)
"""
)


@every_third(1)
def test_each_interpreter_of_a_process_has_its_frames_and_no_thread_is_named_twice(python: str) -> None:
    with running([python, "-c", SUBINTERPRETERS]) as target:
        threads = answer(target.pid)["threads"]
        text = gdbmem("python", "stack", target.pid).stdout
    tids = [one["tid"] for one in threads if one["tid"] is not None]
    assert len(tids) == len(set(tids))
    for number in (1, 2):
        (inner,) = [one for one in threads if one["interpreter"] == number]
        assert [frame["function"] for frame in inner["frames"]] == ["inside", "<module>"]
        assert inner["tid"] != target.pid  # the main thread runs neither
    assert "interpreter 2" in text
