"""The ledger of programs whose malloc is not glibc's, beside that allocator's own figures."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from ctypes.util import find_library
from pathlib import Path

import pytest

from gdbmem.allocators import jemalloc
from gdbmem.inspection.live_process import explain_process
from gdbmem.inspection.read_process import explain_core
from gdbmem.ledger.answer import answer_ledger, retained_bytes
from gdbmem.linux.memory.maps import read_smaps
from gdbmem.model.ledger import IN_SLABS, LIVE, OtherMalloc
from tests.conftest import Program
from tests.libraries import needs_library
from tests.live.explaining import running
from tests.live.test_memexplain import document, gdb
from tests.live.user import GDBMEM

PAGE = 4096


def _malloc(pid: int) -> OtherMalloc:
    ledger = explain_process(pid)
    ledger.check()
    (malloc,) = ledger.mallocs
    return malloc


def _resident(pid: int) -> int:
    return sum(mapping.rss_bytes for mapping in read_smaps(pid) if mapping.is_anonymous)


def _in_slabs(malloc: OtherMalloc) -> int:
    return sum(size.free_resident_bytes for size in malloc.sizes)


def _linked(program: Program, how: str) -> Path:
    if how == "library":
        return program("knows_jemalloc", "-ljemalloc")
    archive = next(iter(Path("/usr/lib").glob("*/libjemalloc.a")), None)
    if archive is None:
        pytest.skip("no libjemalloc.a: apt install libjemalloc-dev")
    whole = f"-Wl,--whole-archive,{archive},--no-whole-archive"
    return program("knows_jemalloc", "-s", whole, "-ldl", "-lm", "-lstdc++")


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(
    ("how", "settings"),
    [
        ("library", "background_thread:true,dirty_decay_ms:-1"),  # it would return pages between two readings
        ("stripped program", "hpa:true"),
    ],
)
def test_what_jemalloc_keeps_is_what_it_counts_itself_and_busy_threads_hide_no_block(
    program: Program, monkeypatch: pytest.MonkeyPatch, how: str, settings: str
) -> None:
    needs_library("jemalloc")
    with running([_linked(program, how)], {"MALLOC_CONF": settings}) as target:
        malloc = _malloc(target.pid)
        with monkeypatch.context() as one_without_statistics:
            one_without_statistics.setattr(jemalloc, "_first_descriptor", lambda *_: 0)
            one_without_statistics.setattr(jemalloc, "_has_statistics", lambda *_: False)
            assert _malloc(target.pid) == malloc
        allocated, cached, returned = target.figure(r"allocated (\d+) cached (\d+) returned (\d+)")
        free, lazy, extents = target.figure(r"free (\d+) lazy (\d+) extents (\d+)")
        assert (malloc.live_bytes, malloc.cached_bytes) == (allocated - cached, cached + extents)
        assert malloc.returned_page_bytes == returned
        assert (malloc.free_page_bytes, malloc.lazy_page_bytes) == (free * PAGE, lazy * PAGE)
        assert malloc.caches == 4  # of the first thread, too

        assert target.type("\n").readline() == "goes on\n"
        for _ in range(3):
            sizes = {size.block_bytes: size for size in _malloc(target.pid).sizes}
            assert sizes[5120].live + sizes[5120].cached == 400


@pytest.mark.needs("gcc")
def test_blocks_that_pin_slabs_of_jemalloc_are_named_with_their_size(program: Program) -> None:
    needs_library("jemalloc")
    with running([_linked(program, "library")]) as target:
        ledger = explain_process(target.pid)
        said = subprocess.run(
            [GDBMEM, "explain", "--sizes", str(target.pid)], capture_output=True, text=True, check=True
        ).stdout
    (malloc,) = ledger.mallocs
    slabs = ledger.total_of(malloc.category, IN_SLABS)
    # 99,000 blocks in the class of 224 bytes were freed, beside a thousand that live.
    holes = next(size for size in malloc.sizes if size.block_bytes == 224)
    assert holes.live + holes.cached >= 1000 and holes.free_resident_bytes > 1 << 20
    assert slabs == sum(size.free_resident_bytes for size in malloc.sizes)
    assert retained_bytes(ledger) == ledger.freed_in(malloc)
    assert "most of them of 224 bytes" in answer_ledger(ledger)
    assert answer_ledger(ledger) in said and "Blocks of jemalloc in slabs, by size" in said


@pytest.mark.needs("gdb", "gcc")
def test_memtrim_makes_jemalloc_return_what_was_predicted_and_the_program_goes_on(
    program: Program, tmp_path: Path
) -> None:
    needs_library("jemalloc")
    path = _linked(program, "library")
    # As Redis sets it: that thread waits in jemalloc all the time, for a condition, and holds no lock.
    settings = "dirty_decay_ms:-1,background_thread:true"
    with running([path], {"MALLOC_CONF": settings}) as target:
        before = _malloc(target.pid)
        commands = f"attach {target.pid}", "gcore core", "memtrim --json -o trim.json", "detach"
        done = gdb(tmp_path, path, *commands)
        assert (tmp_path / "trim.json").exists(), done.stderr
        trimmed = document(tmp_path / "trim.json")
        after = _malloc(target.pid)
        assert target.type("\n").readline() == "goes on\n"
        busy = gdb(tmp_path, path, f"attach {target.pid}", "memtrim", "detach")
        assert "is inside jemalloc" in busy.stderr or "returned" in busy.stdout
        assert target.process.poll() is None
    core = explain_core(tmp_path / "core")
    (in_core,) = core.mallocs
    # A core does not record which pages are resident.
    assert in_core._replace(sizes=(), metadata_resident_bytes=0) == before._replace(
        sizes=(), metadata_resident_bytes=0
    )
    assert "core-has-no-rss" in {notice.slug for notice in core.notices}
    # Its first mallctl allocates some tables for itself.
    assert trimmed["predicted_bytes"] > 8 << 20
    assert abs(trimmed["predicted_bytes"] - trimmed["returned_bytes"]) <= 1 << 20
    assert after.free_page_bytes == 0
    # Free blocks in slabs with live ones are what no purge returns.
    assert 0 <= _in_slabs(before) - _in_slabs(after) <= 64 * 1024 < _in_slabs(after)


# argv: a file of jemalloc, and the number of threads that wait
TWO = """
import ctypes, sys, threading
other = ctypes.CDLL(sys.argv[1])
other.malloc.restype = ctypes.c_void_p
kept = [other.malloc(1000) for _ in range(9000)]
def figure(name):
    value, size = ctypes.c_size_t(1), ctypes.c_size_t(8)
    new = ctypes.byref(value) if name == b"epoch" else None
    other.mallctl(name, ctypes.byref(value), ctypes.byref(size), new, size if new else 0)
    return value.value
figure(b"stats.allocated"), figure(b"epoch")
wait = threading.Barrier(int(sys.argv[2]) + 1)
ends = threading.Event()
def allocate():
    wait.wait()
    ends.wait()
for _ in range(int(sys.argv[2])):
    threading.Thread(target=allocate, daemon=True).start()
wait.wait()
figure(b"epoch")
print("allocated", figure(b"stats.allocated"))
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("threads", [0, pytest.param(500, marks=pytest.mark.thorough)])
def test_two_jemallocs_in_a_process_are_told_apart_each_with_its_own_blocks(
    tmp_path: Path, threads: int
) -> None:
    needs_library("jemalloc")
    library = find_library("jemalloc") or ""
    (first,) = Path("/usr/lib").glob(f"*/{library}")
    other = tmp_path / "libother.so"
    shutil.copy(first, other)
    # Later loaded, it finds no room for its thread-local data.
    environment = {"LD_PRELOAD": f"{library} {other}", "PYTHONMALLOC": "malloc"}
    with running([sys.executable, "-c", TWO, other, threads], environment) as target:
        ledger = explain_process(target.pid)
        ledger.check()
        mallocs = {Path(one.file).name: one for one in ledger.mallocs}
        assert set(mallocs) == {first.resolve().name, other.name}
        mine = mallocs.pop(other.name)
        (preloaded,) = mallocs.values()
        allocated = re.findall(r"^allocated (\d+)", target.output, re.M)
        assert [str(mine.live_bytes + (mine.cached_bytes or 0))] == allocated
        assert next(size.live for size in mine.sizes if size.block_bytes == 1024) == 9000
        assert preloaded.live_blocks > 10_000  # of Python
        assert preloaded.caches >= 1 + threads
        assert ledger.total_of(mine.category, LIVE + mine.suffix) <= mine.live_bytes


@pytest.mark.needs("gdb")
def test_memtrim_calls_the_function_of_each_of_two_jemallocs(tmp_path: Path) -> None:
    needs_library("jemalloc")
    library = find_library("jemalloc") or ""
    (first,) = Path("/usr/lib").glob(f"*/{library}")
    other = tmp_path / "libother.so"
    shutil.copy(first, other)
    environment = {"LD_PRELOAD": f"{library} {other}", "MALLOC_CONF": "dirty_decay_ms:-1"}
    with running([sys.executable, "-c", TWO, other, 0], {**environment, "PYTHONMALLOC": "malloc"}) as target:
        done = gdb(tmp_path, Path(sys.executable), f"attach {target.pid}", "memtrim", "detach")
        for name in (first.resolve().name, other.name):
            assert f'mallctl("arena.4096.purge", …) of {name}' in done.stdout
        assert all(malloc.free_page_bytes == 0 for malloc in explain_process(target.pid).mallocs)


@pytest.mark.needs("gdb")
def test_memtrim_calls_what_it_can_and_names_the_mallocs_that_it_leaves_out(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with running([sys.executable, "-c", ARROW]) as target:
        done = gdb(tmp_path, Path(sys.executable), f"attach {target.pid}", "memtrim", "detach")
    assert "malloc_trim(0) returned" in done.stdout, done.stderr
    left_out = re.findall(r"(\w+) in \S*libarrow\S* is left out: no symbol names", done.stderr)
    assert set(left_out) == {"jemalloc", "mimalloc"}


# argv: jemallocs that are loaded already
ARROW = """
import ctypes, sys
import pyarrow
pools = pyarrow.jemalloc_memory_pool(), pyarrow.mimalloc_memory_pool()
kept = [pyarrow.allocate_buffer(3000, memory_pool=pool) for pool in pools for _ in range(3000)]
kept += [pyarrow.allocate_buffer(5 << 20, memory_pool=pool) for pool in pools]
for one in kept:
    memoryview(one).cast("B")[:] = b"x" * one.size
words = [str(number) for number in range(100_000)]
for pool in pools:
    print(pool.backend_name, pool.bytes_allocated())
value, size = ctypes.c_size_t(1), ctypes.c_size_t(8)
for path in sys.argv[1:]:
    library = ctypes.CDLL(path)
    library.mallctl(b"epoch", ctypes.byref(value), ctypes.byref(size), ctypes.byref(value), size)
    library.mallctl(b"stats.allocated", ctypes.byref(value), ctypes.byref(size), None, 0)
    print(path, value.value)
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("is_preloaded", [False, True], ids=["glibc", "jemalloc"])
def test_a_python_process_with_arrow_has_a_pool_for_each_malloc_which_add_up(is_preloaded: bool) -> None:
    """Arrow carries a jemalloc and a mimalloc, beside Python's pymalloc, and glibc's malloc or another jemalloc."""
    pytest.importorskip("pyarrow")
    preloaded: list[Path] = []
    if is_preloaded:
        needs_library("jemalloc")
        preloaded = [next(iter(Path("/usr/lib").glob(f"*/{find_library('jemalloc')}"))).resolve()]
    environment = {"LD_PRELOAD": " ".join(map(str, preloaded))}
    with running([sys.executable, "-c", ARROW, *preloaded], environment) as target:
        ledger = explain_process(target.pid)
        ledger.check()
        figures = dict(line.split() for line in target.output.splitlines() if line != "ready")
        mallocs = {(one.category, Path(one.file).name.partition(".")[0]): one for one in ledger.mallocs}
        assert len(mallocs) == 2 + len(preloaded)
        for allocator in ("jemalloc", "mimalloc"):
            one = mallocs[f"allocator.{allocator}", "libarrow"]
            # Arrow asks for multiples of 64 bytes, its mallocs round up to their size classes.
            assert int(figures[allocator]) <= one.live_bytes <= 1.1 * int(figures[allocator])
            assert one.live_blocks - 3001 in (0, 1)
            assert sum(size.live for size in one.sizes if 3008 <= size.block_bytes <= 4096) == 3000
        for path in preloaded:
            one = mallocs["allocator.jemalloc", "libjemalloc"]
            assert one.live_bytes + (one.cached_bytes or 0) == int(figures[str(path)])
        assert ledger.total("allocator.pymalloc") > 100_000 * 50
        assert (ledger.total("heap.live") > 1 << 20) == (not is_preloaded)
        assert ledger.total("anonymous.other") < 1 << 19


@pytest.mark.thorough  # a Redis server is no requirement of the tests
@pytest.mark.needs("redis-server", "redis-cli")
def test_a_redis_server_is_divided_as_it_counts_itself_also_while_it_forks_to_save(tmp_path: Path) -> None:
    command = ["redis-server", "--port", "0", "--unixsocket", "socket", "--save", "", "--appendonly", "no"]
    command += ["--enable-debug-command", "local"]

    def ask(*words: str) -> str:
        asked = ["redis-cli", "-s", str(tmp_path / "socket"), *words]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout

    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as server:
        try:
            while not (tmp_path / "socket").exists() and server.poll() is None:
                time.sleep(0.01)
            ask("debug", "populate", "300000", "key", "100")
            figures = r"allocator_allocated:(\d+)\s+allocator_active:(\d+)"
            for saves in (False, True, True):
                if saves:
                    ask("bgsave")
                malloc = _malloc(server.pid)
                time.sleep(0.3)  # it counts ten times a second
                found = re.search(figures, ask("info", "memory"))
                assert found is not None
                # A request that is served meanwhile has buffers.
                used = malloc.live_bytes + (malloc.cached_bytes or 0)
                assert abs(used - int(found[1])) <= 1 << 18
                assert abs(used + malloc.in_slabs_bytes - int(found[2])) <= 1 << 20
                while "rdb_bgsave_in_progress:1" in ask("info", "persistence"):
                    time.sleep(0.01)
            deletes = "for k = 0, 299999 do if k % 10 > 0 then redis.call('del', 'key:' .. k) end end"
            ask("eval", deletes, "0")
            before, resident = _malloc(server.pid), _resident(server.pid)
            ask("memory", "purge")
            after, left = _malloc(server.pid), _resident(server.pid)
            assert _in_slabs(before) > 8 << 20
            assert abs(_in_slabs(before) - _in_slabs(after)) <= 1 << 20
            assert abs(resident - left - (before.free_page_bytes - after.free_page_bytes)) <= 1 << 20
        finally:
            server.kill()
