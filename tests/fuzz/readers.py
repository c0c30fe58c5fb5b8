"""All that reads what others wrote, each with real examples of it."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
import os
import signal
import sqlite3
import struct
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from gdbmem.allocators.cpython.arenas import find_arenas
from gdbmem.allocators.cpython.blocks import Unsure, live_blocks
from gdbmem.allocators.cpython.frames import FrameReader, find_frames
from gdbmem.allocators.cpython.objects import ObjectCounter
from gdbmem.allocators.glibc import heap as glibc_heap
from gdbmem.allocators.glibc import lockstep
from gdbmem.allocators.glibc.tallies import HeapTally
from gdbmem.api.pools import answer_failed, read_pool_file
from gdbmem.cli.commands.python import print_lines
from gdbmem.errors import InputError
from gdbmem.formats.addresses import parse_maps
from gdbmem.formats.documents import (
    read_comparison,
    read_heap,
    read_ledger,
    read_lines,
    read_objects,
    read_step_sums,
    read_steps,
    read_survey,
)
from gdbmem.formats.opening import OpenOptions, open_profile
from gdbmem.formats.reports.glibc_malloc import parse_malloc_info
from gdbmem.formats.series import read_series
from gdbmem.formats.valgrind.memcheck import read_blocks, read_place, read_pointers
from gdbmem.heap.growth import compared
from gdbmem.heap.text import print_growth
from gdbmem.inspection.read_process import explain_core
from gdbmem.linux.elf.objects import needed_libraries, read_elf, read_image
from gdbmem.linux.memory.maps import Mapping, parse_rss, parse_smaps, read_maps
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.linux.memory.resident import parse_parts, parse_statm
from gdbmem.linux.process.process import parse_stat
from gdbmem.linux.process.threads import parse_syscall
from gdbmem.model.memory import BytesMemory, MemoryUnreadable
from gdbmem.model.series import TREE, ProcessSample, SeriesFacts, SeriesLine
from gdbmem.pools.output import pools_json, render_pools
from gdbmem.recipes.reader import parse_recipe
from gdbmem.runs.run import DATABASE, Run
from gdbmem.runs.saved_results import saved_records
from gdbmem.series.store import Recording, SeriesWriter, read_journal
from gdbmem.series.summary import summarize
from gdbmem.terminal.console import make_console
from tests.fuzz import memory_readers
from tests.fuzz.mutate import LARGEST_BYTES
from tests.fuzz.printing import print_profile
from tests.unit.formats.test_glibc_malloc import WRITTEN
from tests.unit.formats.test_v8 import NODES, snapshot
from tests.unit.heaps import make_heap
from tests.unit.inspection.test_cut_core import make_core

CAPTURES = Path(__file__).parents[1] / "captures"
EXAMPLES = Path(__file__).parents[2]
_TREES = 3  # of a profile


@dataclass(frozen=True)
class Reader:
    """A reader, and its input before it is changed."""

    name: str
    read: Callable[[bytes], object]  # raises GdbmemError where it can't
    examples: Callable[[], Sequence[bytes]]


@functools.cache
def _scratch() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="gdbmem-fuzz-")
    _FOLDERS.append(folder)
    return Path(folder.name)


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def remove_scratch() -> None:
    """Remove what the readers have written: a process of a pool ends without doing so."""
    while _FOLDERS:
        _FOLDERS.pop().cleanup()
    _scratch.cache_clear()


def _file(name: str, data: bytes) -> Path:
    path = _scratch() / name
    path.write_bytes(data)
    return path


def _profile(data: bytes) -> None:
    profile = open_profile(_file("profile", data))
    for index, totals in enumerate(profile.snapshots[:_TREES]):
        if totals.has_tree:
            profile.tree(index)
    list(profile.notices)


def _peak(data: bytes) -> None:
    profile = open_profile(_file("profile", data), OpenOptions(metric="peak"))
    for index, _ in enumerate(profile.snapshots[:1]):
        profile.tree(index)


def _captured(*names: str) -> Callable[[], Sequence[bytes]]:
    def read() -> Sequence[bytes]:
        found = []
        for name in names:
            data = (CAPTURES / name).read_bytes()
            found.append(
                gzip.decompress(data)
                if name.endswith(".gz")
                else _zstd(data)
                if name.endswith("zst")
                else data
            )
        return found

    return read


def _zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def _packed() -> Sequence[bytes]:
    return [
        (CAPTURES / name).read_bytes()
        for name in ("massif/huge.massif.gz", "stacks/ht.zst", "stacks/go1.pb.gz")
    ]


# -- run folders -----------------------------------------------------------------------------------------------


def _run(data: bytes) -> None:
    """Read a run whose three files are the pieces of *data* between its first two zero bytes."""
    facts, log, kept = [*data.split(b"\0", 2), b"", b""][:3]
    folder = _scratch() / "run"
    for name, text in (("run.json", facts), ("snapshots.jsonl", log), ("kept.jsonl", kept)):
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(text)
    run = Run(folder)
    for record in run.snapshots:
        with contextlib.suppress(InputError):
            run.path(record)
    list(run.notices)
    saved_records(run)


def _runs() -> Sequence[bytes]:
    facts = {
        "format_version": 1, "kind": "run", "program": "/bin/a", "arguments": ["x"], "command": ["gdbmem"],
        "engine": "massif", "launcher": "gdbmem", "began": "2025-01-01T00:00:00.000+00:00",
        "versions": {"gdbmem": "1"}, "warnings": [{"slug": "a", "message": "b"}], "starts": [{"pid": 1}],
        "process": {"pid": 1}, "recipe": {"diffs": [["a", "b"]]},
    }  # fmt: skip
    record = {
        "base_name": "a", "ordinal": 1, "file": "snapshots/0001.massif", "engine": "massif", "place": "f at x.c:1",
        "thread": 1, "hit": 1, "seconds": 0.5, "heap_bytes": 5, "process": None,
    }  # fmt: skip
    kept = {"kind": "ledger", "base_name": "a", "ordinal": 1, "file": "ledgers/0001.json"}
    lines = "".join(json.dumps({**record, "ordinal": number}) + "\n" for number in range(1, 4))
    return [b"\0".join((json.dumps(facts).encode(), lines.encode(), (json.dumps(kept) + "\n").encode()))]


def _series(data: bytes) -> None:
    folder = _scratch() / "series"
    folder.mkdir(exist_ok=True)
    for left in folder.iterdir():
        left.unlink()
    (folder / DATABASE).write_bytes(data)
    with contextlib.closing(Recording(folder)) as recording:
        list(recording.lines)
        for _ in zip(range(1000), recording.samples()):
            pass
        summarize(recording)


def _series_examples() -> Sequence[bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        facts = SeriesFacts("a", 1.0, 1.7e9, "boot", 1000.0, 8 << 30, "the machine", exact_threads=True)
        writer = SeriesWriter(folder, facts)
        for number in range(60):
            reading = ProcessSample(rss_bytes=50 << 20, threads=3)
            lines = [SeriesLine(1, 4001, 77, "a", "./a", 0, 0.0)] if number == 0 else []
            writer.append(float(number), [(1, reading), (TREE, reading)], lines)
        writer.close()
        with sqlite3.connect(folder / DATABASE) as connection:
            connection.execute("VACUUM")
        connection.close()
        return [(folder / DATABASE).read_bytes()]


def _journal(data: bytes) -> None:
    folder = _scratch() / "journal"
    folder.mkdir(exist_ok=True)
    (folder / "series.glances").write_bytes(data)
    read_journal(folder)


def _recipes() -> Sequence[bytes]:
    return [
        path.read_bytes()
        for path in sorted([*EXAMPLES.glob("examples/*/*.yaml"), *EXAMPLES.glob("gdbinit/recipes/*.yaml")])
    ]


def _imported(data: bytes) -> None:
    read_series(_file("imported", data))


def _imported_examples() -> Sequence[bytes]:
    points = [(n / 2, (50 + n) << 20) for n in range(40)]
    values = [[1.7e9 + t, str(size)] for t, size in points]
    answer = {"resultType": "matrix", "result": [{"metric": {"job": "x"}, "values": values}]}
    return [
        "".join(["CMDLINE a b\n", *(f"MEM {size / 2**20} {1.7e9 + t}\n" for t, size in points)]).encode(),
        "".join(["# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n",
                 *(f"{t} 7.5 {size / 2**20} 900\n" for t, size in points)]).encode(),
        "".join(["time,host,rss_mb,cpu\n", *(f"{1.7e9 + t},a,{size / 2**20},1\n" for t, size in points)]).encode(),
        json.dumps({"status": "success", "data": answer}).encode(),
    ]  # fmt: skip


# -- data of the kernel, with names that a process chooses ------------------------------------------------------


def _stat(data: bytes) -> None:
    name = data.replace(b"\0", b"")[:15]
    stat = parse_stat(b"17 (" + name + b") S 5 17 17 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 9 0 4242 1000 10")
    assert (stat.parent, stat.threads, stat.start_ticks) == (5, 9, 4242), "a name changed the numbers"


def _maps(data: bytes) -> None:
    # The kernel writes a newline in a path as \012.
    path = b"/" + data.replace(b"\0", b"").replace(b"\n", b"\\012")[:4000]
    line = b"55d000-55e000 r-xp 00001000 08:01 123                        " + path
    figures = b"\nSize: 4 kB\nRss: 4 kB\nPss: 4 kB\nAnonymous: 0 kB\nVmFlags: rd ex\n"
    first, last = parse_smaps(line + figures + b"7ff000-800000 rw-p 00000000 00:00 0 [stack]" + figures)
    assert (first.rss_bytes, last.rss_bytes, last.name) == (4096, 4096, "[stack]"), (
        "a name changed the numbers"
    )
    parse_maps([line, b"7ff000-800000 rw-p 00000000 00:00 0 [stack]"])


def _proc(data: bytes) -> None:
    """Read *data* as each of the files in /proc that no name of a process comes into, or is escaped in."""
    text = data.decode(errors="surrogateescape")
    parse_statm(data)
    parse_rss(data)
    parse_parts(data)
    with contextlib.suppress(ValueError):  # the kernel writes numbers there
        parse_syscall(text)


def _proc_examples() -> Sequence[bytes]:
    return [
        b"1234 567 89 1 0 100 0\n",
        b"Rss:     1234 kB\nPss:     567 kB\nPrivate_Clean:  0 kB\nPrivate_Dirty:  4 kB\nShared_Dirty:  0 kB\n",
        b"Name:\ta\nVmHWM:\t  100 kB\nRssAnon:\t  60 kB\nRssFile:\t  40 kB\nRssShmem:\t  0 kB\n",
        b"230 0x0 0x0 0x7ffd0000 0x0 0x0 0x0 0x7ffd0000 0x7f0000001234\n",
    ]


# -- memory ----------------------------------------------------------------------------------------------------


@functools.cache
def _heap_made() -> Any:
    return make_heap(120, 1)


def _heap(data: bytes) -> None:
    made = _heap_made()
    base = made.start & -4096
    memory = BytesMemory([(base, data[: made.end - base].ljust(made.end - base, b"\0"))])
    plain, quick = HeapTally(made.start, made.end), HeapTally(made.start, made.end)
    glibc_heap.walk(memory, plain, made.top, made.cached)
    lockstep.walk(memory, quick, made.top, made.cached)
    assert (plain.bytes, plain.stopped_at) == (quick.bytes, quick.stopped_at), "the two walkers differ"


def _heaps() -> Sequence[bytes]:
    made = _heap_made()
    base = made.start & -4096
    return [made.memory.read(base, made.end - base)]


# The malloc heap of a Python process, and an arena: the first pages of an input, and the rest of it.
_PYTHON_HEAP, _PYTHON_ARENA = 0x10000, 0x7F0000000000


def _python_objects(data: bytes) -> int:
    heap, arena = data[:8192].ljust(8192, b"\0"), data[8192:].ljust(1 << 20, b"\0")
    memory = BytesMemory([(_PYTHON_HEAP, heap), (_PYTHON_ARENA, arena)])
    mappings = [
        Mapping(start, start + size, "rw-p", 0, "00:00", 0, name, rss_bytes=size)
        for start, size, name in ((_PYTHON_HEAP, 8192, "[heap]"), (_PYTHON_ARENA, 1 << 20, ""))
    ]
    arenas = find_arenas(memory, mappings)
    counts = ObjectCounter(memory, mappings, arenas.arenas).count(
        live_blocks(memory, arenas.arenas, Unsure())
    )
    return sum(counts.blocks.values())


def _python_heaps() -> Sequence[bytes]:
    """Return pages with a table of arenas, a type, and an arena of four pools of objects of it."""
    blocks, size, pool_bytes = 255, 64, 1 << 14
    arena = bytearray(4 * pool_bytes)
    for pool in range(0, len(arena), pool_bytes):
        end = 48 + blocks * size
        struct.pack_into(
            "<IxxxxQQQIIII", arena, pool, blocks, 0, 0, 0, 0, size // 16 - 1, end, pool_bytes - size
        )
        for at in range(pool + 48, pool + end, size):
            struct.pack_into("<QQQQ", arena, at, 1, _PYTHON_HEAP + 1024, 3, _PYTHON_ARENA + at - size)
    heap = bytearray(8192)
    struct.pack_into("<QQIIQQQ", heap, 64, _PYTHON_ARENA, _PYTHON_ARENA + len(arena), 60, 64, 0, 0, 0)
    kind = _PYTHON_HEAP + 1024
    struct.pack_into("<QQQQQQ", heap, 1024, 1, kind, 0, _PYTHON_HEAP + 2048, size, 0)
    struct.pack_into("<Q", heap, 1024 + 168, 1 << 12 | 1 << 31)
    heap[2048:2052] = b"type"
    return [bytes(heap + arena)]


@functools.cache
def _frames() -> tuple[FrameReader, Sequence[tuple[int, int]], bytes]:
    """Return a reader of a Python's frames, the places that it reads, and what is there."""
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        with ProcMemory(child) as memory:
            reader = find_frames(memory, read_maps(child))
            assert reader is not None
            recorded = memory_readers.Recorded(memory)
            reader.threads(recorded)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return reader, list(recorded.pieces), b"".join(recorded.pieces.values())


def _python_frames(data: bytes) -> None:
    reader, places, original = _frames()
    data, at, pieces = data.ljust(len(original), b"\0"), 0, []
    for address, size in places:
        pieces.append((address, data[at : at + size]))
        at += size
    with contextlib.suppress(MemoryUnreadable):  # where the list of threads can't be read
        reader.threads(memory_readers.Pieces(pieces))


def _image(data: bytes) -> None:
    start = 0x400000
    image = read_image(BytesMemory([(start, data)]), start, "a")
    assert image is None or len(image.build_id) <= 1 << 13


def _core(data: bytes) -> None:
    explain_core(_file("core", data)).check()


def _cores() -> Sequence[bytes]:
    return [make_core(_file("library", b"f" * 3 * 4096))]


def _elf(data: bytes) -> None:
    path = _file("elf", data)
    read_elf(path)
    needed_libraries(path)


def _elves() -> Sequence[bytes]:
    return [Path("/bin/true").resolve().read_bytes()[: 1 << 17]]


# -- JSON of our own, and answers of tools -----------------------------------------------------------------------


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("utf-8", "replace"))


def _answers(text: str) -> None:
    for read in (read_blocks, read_pointers, read_place):
        read(text)


def _ledgers() -> Sequence[bytes]:
    from gdbmem.ledger.document import ledger_json

    return [ledger_json(explain_core(_file("core", _cores()[0]))).encode()]


def _saved_heap(data: bytes) -> None:
    saved = read_heap(data.decode("utf-8", "replace"), "a")
    print_growth(compared(saved, saved, ("a", "b")), make_console(io.StringIO()), 10)


def _comparison(text: str) -> None:
    read_comparison(text, "a")


def _steps(text: str) -> None:
    for read in (read_steps, read_step_sums):
        with contextlib.suppress(InputError):  # the other one may read it
            read(text, "a")


def _lines(data: bytes) -> None:
    file = _file("7.1.json", data)
    try:
        print_lines(read_lines(file.parent), io.StringIO(), named=False)
    finally:
        file.unlink()


_LINES = b"""{"pid": 1, "parent": 2, "backend": "rss", "threads": 1, "functions": [{"function": "f", "file": "a.py",
"first_line": 1, "calls": 2, "start_bytes": 4096, "change_bytes": 8192, "lines": [{"line": 2, "count": 2,
"memory_bytes": 4096, "change_bytes": 8192, "text": "x = [1]"}]}]}"""
_SURVEY = b"""{"format_version": 1, "kind": "containers", "warnings": [], "live_heap_bytes": 9,
"containers": [{"path": "a", "type": "std::vector<int>", "containers": 1, "size": 3, "capacity": 4, "held_bytes": 16,
"slack_bytes": 4}]}"""


def _profiles() -> Iterable[Reader]:
    stacks, massif, reports = "stacks/", "massif/", "reports/"
    for name, files in {
        "massif": (f"{massif}odd.massif.gz", f"{massif}heaptrack.massif.gz", f"{massif}huge.massif.gz"),
        "callgrind": (f"{stacks}lost.kcg", f"{stacks}xtleak.kcg"),
        "memcheck log": (f"{stacks}lost.log", "memcheck/no-leaks.log", "memcheck/summary.log"),
        "memcheck XML": ("memcheck/lost.xml", "memcheck/no-leaks.xml"),
        "dhat": (f"{stacks}dhat-1.json", f"{stacks}dhat.json"),
        "faults": ("faults/touch.faults",),
        "tracemalloc": ("tracemalloc/batch-2.tracemalloc",),
        "speedscope": (f"{stacks}austin.speedscope.json",),
        "gperftools": (f"{stacks}tc.0001.heap", f"{stacks}growth.heap", f"{stacks}tc.raw"),
        "gperftools samples": (f"{stacks}samples.heap.gz",),
        "jemalloc": (f"{stacks}exact-first.jeheap", f"{stacks}sampled-first.jeheap"),
        "pprof": (f"{stacks}go1.pb.gz", f"{stacks}go2.pb.gz"),
        "pprof callgrind": (f"{stacks}go1.callgrind",),
        "pprof text": (f"{stacks}go1.txt",),
        "memray": (f"{stacks}memray.bin",),
        "ms_print": (f"{massif}shop.ms_print.gz",),
        "sanitizers": (f"{reports}leaks-g++-address.log", f"{reports}forks-clang++-leak.log", f"{reports}nameless.log"),
        "tables": tuple(
            f"{reports}{name}"
            for name in (
                "kept.mtrace", "arenas.xml", "arenas.txt", "sleep.smaps", "sleep.rollup", "sleep.pmap-x",
                "sleep.pmap-XX", "java.histogram", "java.nmt", "alloc.tcmalloc", "alloc.jemalloc",
                "alloc.jemalloc.json", "alloc.mimalloc", "summary.torch",
            )
        ),
        "samples of V8": (f"{reports}kept.heapprofile.gz",),
    }.items():  # fmt: skip
        yield Reader(name, _profile, _captured(*files))
    yield Reader("heaptrack", _peak, _captured(f"{stacks}ht.zst"))
    yield Reader("folded", _profile, lambda: [b"main;f (a.c:3);g 100\nmain;h 7\nmain 0\n", b"a;b;c 12\n"])
    yield Reader("packed", _profile, _packed)
    yield Reader("snapshot of V8", _profile, lambda: [snapshot(NODES)])


def _printed(data: bytes) -> None:
    print_profile(_file("profile", data), _scratch())


def _printed_examples() -> Sequence[bytes]:
    found = (example for reader in _profiles() for example in reader.examples())
    return [example for example in found if len(example) <= LARGEST_BYTES]


def _pools(data: bytes) -> None:
    for allocator in read_pool_file(str(_file("pools", data))).allocators:
        allocator.check()
        decision = answer_failed(allocator)
        pools_json([allocator], [decision])
        render_pools([allocator], [decision], "svg")


def _saved_pools() -> Sequence[bytes]:
    names = ("bfc/tensorflow-2.21.log", "bfc/tensorflow-2.21-first.pb", "bfc/torch-2.13-cpp.pickle")
    found = [read_pool_file(str(CAPTURES / name)).allocators for name in names]
    return [pools_json(allocators).encode() for allocators in found]


READERS: Sequence[Reader] = (
    *_profiles(),
    Reader("profiles, printed", _printed, _printed_examples),
    Reader("torch", _profile, _captured("bfc/torch-2.13-cpp.pickle")),
    Reader("torch pools", _pools, _captured("bfc/torch-2.13-cpp.pickle")),
    Reader("memory dump", _pools, _captured("bfc/tensorflow-2.21-first.pb", "bfc/tensorflow-2.21-second.pb")),
    Reader("saved pools", _pools, _saved_pools),
    Reader("pool log", _pools, _captured("bfc/tensorflow-2.21.log", "bfc/onnxruntime-1.32.log")),
    Reader(
        "memcheck answers",
        _text(_answers),
        _captured("memcheck/blocks.txt", "memcheck/pointers.txt", "memcheck/place.txt"),
    ),
    Reader("malloc_info", _text(parse_malloc_info), lambda: [WRITTEN.encode()]),
    Reader("run folder", _run, _runs),
    Reader("series", _series, _series_examples),
    Reader("series journal", _journal, lambda: [struct.pack("<d", 1.0) + bytes(range(1, 200))]),
    Reader("recipe", _text(lambda text: parse_recipe(text, "recipe.yaml")), _recipes),
    Reader("ledger", _text(lambda text: read_ledger(text, "a")), _ledgers),
    Reader("saved heap", _saved_heap, _captured("documents/heap-first.json", "documents/heap-second.json")),
    Reader("containers", _text(lambda text: read_survey(text, "a")), lambda: [_SURVEY]),
    Reader("series of other tools", _imported, _imported_examples),
    Reader("comparison", _text(_comparison), _captured("documents/comparison.json")),
    Reader("steps", _text(_steps), _captured("documents/steps.json", "documents/churn-thin.json")),
    Reader(
        "Python objects",
        lambda data: read_objects(_file("objects", data)),
        _captured("documents/objects-first.json"),
    ),
    Reader("Python lines", _lines, lambda: [_LINES]),
    Reader("Python objects in memory", _python_objects, _python_heaps),
    Reader("Python frames in memory", _python_frames, lambda: [_frames()[2]]),
    Reader("pools in memory", memory_readers.read_pools, memory_readers.pools),
    Reader("tracemalloc's tables in memory", memory_readers.read_tables, memory_readers.tables),
    Reader("unwind tables", memory_readers.read_unwind_table, memory_readers.unwind_tables),
    Reader("records of page faults", memory_readers.read_records, memory_readers.records),
    Reader("/proc stat", _stat, lambda: [b"name) R 1 (", b"a b"]),
    Reader("/proc maps", _maps, lambda: [b"lib/a b.so (deleted)", b"memfd:x"]),
    Reader("/proc, other files", _proc, _proc_examples),
    Reader("heap", _heap, _heaps),
    Reader("ELF in memory", _image, _elves),
    Reader("core", _core, _cores),
    Reader("ELF", _elf, _elves),
)
