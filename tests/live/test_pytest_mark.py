"""Marked tests that did not run, or whose leak the resident set doesn't show; each with a healthy twin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.libraries import needs_library

TESTS = """
import contextlib, ctypes, functools, gc, os, subprocess, sys
import pytest

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
kept = []

def passed_on(function):
    @functools.wraps(function)
    def call(*arguments):
        return function(*arguments)
    return call

async def check():
    assert False

@pytest.mark.gdbmem(at_most="1KiB")
@passed_on
async def test_coroutine_behind_a_decorator():
    assert False

@pytest.mark.gdbmem(at_most="1KiB")
def test_returned_coroutine():
    return check()

@pytest.mark.gdbmem(at_most="1KiB")
def test_returned_truth():
    return 1 == 2

@pytest.mark.gdbmem(at_most="1MiB")
def test_run_by_another_plugin():
    kept.append(bytearray(5 << 20))

@pytest.mark.gdbmem(at_most="10MiB")
@pytest.mark.gdbmem(at_most="1MiB")
def test_strict_mark_below():
    kept.append(bytearray(5 << 20))

@pytest.mark.gdbmem(at_most="1MiB")
@pytest.mark.gdbmem(at_most="10MiB")
def test_strict_mark_above():
    kept.append(bytearray(5 << 20))

@pytest.mark.gdbmem(at_most="10MiB")
@pytest.mark.gdbmem(at_most="6MiB", repeat=3)
def test_two_marks_that_are_met():
    kept.append(bytearray(5 << 20))

def test_frees_small_blocks_that_malloc_keeps():
    blocks = [libc.malloc(60000) for _ in range(2000)]
    for block in blocks:
        libc.memset(block, 1, 60000)
    kept.append(libc.malloc(60000))
    for block in blocks:
        libc.free(block)

def fill(count):
    blocks = [libc.malloc(50000) for _ in range(count)]
    for block in blocks:
        libc.memset(block, 1, 50000)
    return blocks

@pytest.mark.gdbmem(at_most="100KiB")
def test_leak_into_freed_memory():
    kept.append(fill(20))

@pytest.mark.gdbmem(at_most="100KiB")
def test_uses_freed_memory():
    for block in fill(20):
        libc.free(block)

@pytest.mark.gdbmem(at_most="100KiB")
def test_keeps_less_in_freed_memory():
    kept.append(fill(1))

def chain_of(count, end=None):
    for number in range(count):
        end = (end, number)
    return end

def test_frees_objects_that_python_keeps_memory_of():
    chains = []
    for _ in range(200):
        chains.append(chain_of(1000))
        kept.append(chain_of(1))  # in each of Python's arenas, so that none of them is given back

@pytest.mark.gdbmem(at_most="100KiB")
def test_objects_into_free_pools():
    kept[-1] = chain_of(2000, kept[-1])

@pytest.mark.gdbmem(at_most="100KiB")
def test_uses_free_pools():
    chain_of(2000)

class Worker:
    "A forked process that keeps as many bytes as it is told."
    def __init__(self):
        requests, self.to = os.pipe()
        self.answers, answers = os.pipe()
        if os.fork() == 0:
            os.close(self.to)
            held = []
            while size := os.read(requests, 8):
                held.append(bytearray(int(size)))
                os.write(answers, b"1")
            os._exit(0)
        os.close(requests)
    def keep(self, size):
        os.write(self.to, b"%8d" % size)
        os.read(self.answers, 1)

@pytest.fixture(scope="module")
def worker():
    made = Worker()
    yield made
    os.close(made.to)
    os.wait()

@pytest.mark.gdbmem(at_most="1MiB")
def test_worker_leaks(worker):
    worker.keep(5 << 20)

@pytest.mark.gdbmem(at_most="1MiB")
def test_worker_keeps_nothing(worker):
    worker.keep(1)

lives, end = os.pipe()  # what is left ends with pytest

def leave(size, ends):
    "Fork a process that keeps *size* bytes, and leave it to init, as a daemon."
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            for file in {*range(3, 100)} - {lives, told}:
                with contextlib.suppress(OSError):
                    os.close(file)
            held = bytes([1]) * size
            if not ends:
                os.write(told, b"x")
                os.close(told)
                os.closerange(0, 3)
                os.read(lives, 1)
        os._exit(0)
    os.close(told)
    os.waitpid(child, 0)
    os.read(ready, 1)  # also returns where it has ended
    os.close(ready)

@pytest.mark.gdbmem(at_most="1MiB")
def test_daemon_leaks():
    leave(5 << 20, ends=False)

@pytest.mark.gdbmem(at_most="1MiB")
def test_daemon_ends():
    leave(5 << 20, ends=True)

@pytest.mark.gdbmem(at_most="1MiB")
def test_executed_daemon_leaks():
    code = "held = bytes([1]) * (5 << 20); print(flush=True); input()"
    words = ["sh", "-c", 'exec 3<&0; "$0" -c "$1" <&3 2>/dev/null &', sys.executable, code]
    with subprocess.Popen(words, stdin=lives, stdout=subprocess.PIPE) as shell:
        shell.stdout.readline()

@pytest.mark.gdbmem(at_most="1MiB")
def test_memfd_leaks():
    kept.append(os.memfd_create("frames"))
    os.write(kept[-1], bytes(5 << 20))

@pytest.mark.gdbmem(at_most="1MiB")
def test_memfd_is_closed():
    file = os.memfd_create("frames")
    os.write(file, bytes(5 << 20))
    os.close(file)

class Benchmark:
    "Like pytest-benchmark's fixture: it may be used once in a test."
    def __init__(self):
        self.extra_info, self.used = {}, 0
    def __call__(self, function, *arguments):
        self.used += 1
        return function(*arguments)
    def pedantic(self, target, rounds=1):
        self.used += 1
        return target()

@pytest.fixture
def benchmark():
    made = Benchmark()
    yield made
    judged = made.extra_info["gdbmem"]
    inside = judged["low"] <= judged["measured"] <= judged["high"]
    print("benchmark", made.used, judged["judged"], judged["limit"], inside)

@pytest.mark.gdbmem(at_most="1MiB")
def test_benchmarked(benchmark):
    assert benchmark(len, "ab") == 2

@pytest.mark.gdbmem(at_most="1MiB")
def test_benchmarked_that_leaks(benchmark):
    benchmark.pedantic(lambda: kept.append(bytearray(5 << 20)), rounds=3)
"""

CONFTEST = """
import gc, pytest

def pytest_collection_finish():
    gc.freeze()  # pytest itself: gdbmem collects twice a call

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if "another_plugin" in pyfuncitem.name:
        pyfuncitem.obj()
        return True

class Item(pytest.Item):
    def runtest(self):
        pass

class File(pytest.File):
    def collect(self):
        yield Item.from_parent(self, name="item")

def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".marked":
        file = File.from_parent(parent, path=file_path)
        file.add_marker(pytest.mark.gdbmem(at_most="1MiB"))
        return file
"""

FAILED = {
    "test_coroutine_behind_a_decorator": "returned a coroutine that was never awaited, so its body did not run",
    "test_returned_coroutine": "returned a coroutine that was never awaited, so its body did not run",
    "test_returned_truth": "returned False, not None",
    "test_run_by_another_plugin": "another plugin has run this test",
    "test_strict_mark_below": "more than 1.0 MiB",
    "test_strict_mark_above": "more than 1.0 MiB",
    "test_leak_into_freed_memory": "(malloc's own count, 5 calls), in memory that was free before: more than 100.0 KiB",
    "test_objects_into_free_pools": "(tracemalloc, 5 calls), in memory that was free before: more than 100.0 KiB",
    "test_worker_leaks": "more than 1.0 MiB",
    "test_daemon_leaks": "more than 1.0 MiB",
    "test_executed_daemon_leaks": "more than 1.0 MiB",
    "test_memfd_leaks": "more than 1.0 MiB",
    "test_benchmarked_that_leaks": "more than 1.0 MiB",
    "item": "is not a Python function",
}
PASSED = {
    "test_two_marks_that_are_met",
    "test_uses_freed_memory",
    "test_keeps_less_in_freed_memory",
    "test_uses_free_pools",
    "test_worker_keeps_nothing",
    "test_daemon_ends",
    "test_memfd_is_closed",
    "test_benchmarked",
    "test_frees_small_blocks_that_malloc_keeps",
    "test_frees_objects_that_python_keeps_memory_of",
}


def outcomes_of(folder: Path, *words: str, preload: str = "") -> tuple[dict[str, str], str]:
    """Run TESTS below *folder*; return the outcome of each, and what pytest printed."""
    (folder / "test_memory.py").write_text(TESTS)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "a.marked").touch()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "gdbmem.api.pytest_plugin", "-q", "-rA", *words, "."],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "COLUMNS": "300",
            "LD_PRELOAD": preload,
            # jemalloc returns pages by the clock, and takes no small block from a free extent of over 64 times
            # its size.
            "MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1,lg_extent_max_active_fit:63",
        },
    )
    summary = [line.split(" - ", 1)[0].split(" ", 1) for line in done.stdout.splitlines()]
    known = ("PASSED", "FAILED", "ERROR")
    return {words[1].rpartition("::")[2]: words[0] for words in summary if words[0] in known}, done.stdout


def test_a_marked_test_passes_only_if_its_calls_ran_and_nothing_hides_what_they_keep(tmp_path: Path) -> None:
    outcomes, printed = outcomes_of(tmp_path)
    assert {name for name, outcome in outcomes.items() if outcome == "PASSED"} == PASSED, printed
    assert {name for name, outcome in outcomes.items() if outcome != "PASSED"} == set(FAILED)
    for name, words in FAILED.items():
        part = printed.partition(f" {name} _")[2].partition("\n_____")[0] if name != "item" else printed
        assert words in part, part
    assert "benchmark 1 met 1048576 True" in printed and "benchmark 0 not_met 1048576 True" in printed
    assert "was never awaited\n" not in printed, "Python's own warning, at another place"


@pytest.mark.parametrize(
    ("engine", "library"), [("jemalloc", "libjemalloc.so.2"), ("gperftools", "libtcmalloc.so.4")]
)
def test_another_malloc_counts_what_it_has_handed_out(tmp_path: Path, engine: str, library: str) -> None:
    needs_library(engine)
    outcomes, printed = outcomes_of(tmp_path, "-k", "freed_memory or malloc_keeps", preload=library)
    assert outcomes.pop("test_leak_into_freed_memory") == "FAILED", printed
    assert "malloc's own count" in printed
    assert set(outcomes.values()) == {"PASSED"}, printed
