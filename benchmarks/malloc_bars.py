"""Heaps of busy mallocs beside their own figures, requests that copies answer, and harm that a killed command does.

    python -m benchmarks.malloc_bars figures jemalloc LIBRARY [--stops 50] [--loader LD.SO --path FOLDER]
    python -m benchmarks.malloc_bars requests jemalloc LIBRARY [--stops 300]
    python -m benchmarks.malloc_bars harm jemalloc LIBRARY [--stops 100]

*figures* stops a program whose eight threads allocate without pause, reads its heap from outside, and lets a copy made
in the same moment print the allocator's own figures. *requests* counts the copies that `explain --try` needs.
*harm* compares a process at rest before and after `explain --try`, every second of which is killed in its middle:
its state, masks, descriptors, children, registers, and each byte that it can write to.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gdbmem.allocators import gperftools, jemalloc, mimalloc, musl, tbbmalloc
from gdbmem.allocators.malloc_heap import FREE, LARGE, LAZY, RETURNED, SLAB, MallocHeap, SearchedMemory
from gdbmem.allocators.own_functions import GLIBC, handlers_after_fork
from gdbmem.errors import TargetError
from gdbmem.inspection.live_process import explain_process
from gdbmem.inspection.trying import ALL, Trying
from gdbmem.linux.elf.objects import Image, exported, images
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.holding.copying import make_copy
from gdbmem.linux.holding.ptrace import Freeze
from gdbmem.linux.holding.returning_thread import find_call_sites
from gdbmem.linux.holding.running_copy import CallFailed, RunningCopy
from gdbmem.linux.memory.maps import Ranges, mappings_of, page_kinds, read_maps, read_smaps
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.model.memory import words_at
from tests.live.explaining import Running, running
from tests.live.test_explain_try import state_of

ROOT = Path(__file__).parents[1]
READERS = {
    "jemalloc": jemalloc.read_heap,
    "tcmalloc": gperftools.read_heap,
    "mimalloc": mimalloc.read_heap,
    "tbbmalloc": tbbmalloc.read_heap,
    "musl": musl.read_heap,
}
_KEPT_BYTES, _KEPT = 5000, 600  # of keeps_known_blocks.c
_JEMALLOC = {  # the names of its figures, and what they count in
    "stats.allocated": 1,
    "stats.active": 1,
    "stats.retained": 1,
    "stats.arenas.4096.pdirty": 4096,
    "stats.arenas.4096.pmuzzy": 4096,
    "stats.arenas.4096.tcache_bytes": 1,
}
_TCMALLOC = (
    "generic.current_allocated_bytes",
    "generic.heap_size",
    "tcmalloc.pageheap_free_bytes",
    "tcmalloc.pageheap_unmapped_bytes",
    "tcmalloc.central_cache_free_bytes",
    "tcmalloc.transfer_cache_free_bytes",
    "tcmalloc.thread_cache_free_bytes",
)
_CACHES = "transfer and thread caches"


class Figures(NamedTuple):
    ours: dict[str, int]
    its_own: dict[str, int]
    inside: int  # threads inside the allocator, which no pause let out: its own figures are between two values, too


def build(folder: Path, name: str, *flags: str) -> Path:
    compiler = "musl-gcc" if "musl" in flags else "gcc"
    words = [compiler, "-O1", "-pthread", "-o", folder / name, ROOT / f"tests/programs/{name}.c"]
    subprocess.run([*map(str, words), *(flag for flag in flags if flag != "musl")], check=True)
    return folder / name


def started(program: Path, args: argparse.Namespace) -> tuple[list[object], dict[str, str]]:
    """Return the words and the environment that start *program* with the malloc that was asked for."""
    if args.loader:
        words = [args.loader, "--library-path", args.path]
        return [*words, *(("--preload", args.library) if args.library else ()), program], {}
    environment = {"LD_PRELOAD": args.library} if args.library else {}
    return [program], {**environment, **({"LD_LIBRARY_PATH": args.path} if args.path else {})}


# -- figures ------------------------------------------------------------------------------------------------------


def figures(args: argparse.Namespace, folder: Path) -> bool:
    """Print how often, and by how much, a figure was off."""
    program = build(folder, "keeps_known_blocks", *(("musl",) if args.allocator == "musl" else ()))
    off: Counter[str] = Counter()
    unanswered, layouts, seen = 0, set(), 0
    words, environment = started(program, args)
    with running(words, environment) as target:
        assert target.type("go on\n").readline() == "busy\n"
        while seen < args.stops:
            try:
                found, heap = both(target, args.allocator)
            except (CallFailed, TargetError) as error:
                unanswered += 1
                print(f"  no answer: {error}")
                if unanswered > args.stops:
                    break
                continue
            seen += 1
            layouts.add(heap.layout)
            for name, own in found.its_own.items():
                if found.ours[name] != own:
                    off[name] += 1
                    inside = f"; {found.inside} threads were inside" if found.inside else ""
                    print(f"  {name}: read {found.ours[name]:,}, its own {own:,}{inside}")
            time.sleep(0.02)
    names = ", ".join(found.its_own)
    print(
        f"{args.allocator} ({'; '.join(layouts)}): {seen} stops, {sum(off.values())} figures off; {names}",
        end="",
    )
    print(f"; {unanswered} copies without an answer")
    return not off and seen == args.stops


def both(target: Running, allocator: str) -> tuple[Figures, MallocHeap]:
    """Return the figures of one moment, as read and as the allocator itself counts."""
    pid, trying = target.pid, Trying(ALL)
    with ProcMemory(pid) as memory, TargetFiles(pid) as files:
        mappings = read_maps(pid)
        sites = find_call_sites(pid, memory, mappings)
        loaded = images(memory, mappings)
        trying.prepare(memory, mappings, files, None)
        with Freeze(pid) as freeze:
            avoided = trying.settle(freeze, memory)
            heap = _heap(pid, memory, loaded, allocator)
            ours = _ours(heap, allocator)
            if allocator not in ("jemalloc", "tcmalloc"):
                return Figures(ours, {"blocks kept": _KEPT}, len(avoided)), heap
            copy = make_copy(freeze, mappings, sites, lambda _: None, avoided)
        try:
            assert sites is not None
            calls = RunningCopy(copy, sites, lambda: False)
            (function,) = [one for one in trying.functions if one.allocator == allocator]
            libc = next((m.name for m in mappings if re.search(r"/libc[.-]", m.name)), "")
            if allocator != "jemalloc":  # whose handler leaves the caches of other threads out
                for handler in handlers_after_fork(calls.memory, mappings, function, libc):
                    calls.call(handler)
            own = _own(calls, allocator, loaded, function.file, function.address)
            calls.close()
        finally:
            copy.kill()
    return Figures(ours, own, len(avoided)), heap


def _heap(pid: int, memory: ProcMemory, loaded: Sequence[Image], allocator: str) -> MallocHeap:
    mappings = [m for m in read_smaps(pid) if "w" in m.permissions and m.permissions.endswith("p")]
    anonymous = Ranges(
        (m.start, m.end) for m in mappings if m.is_anonymous and not m.name.startswith("[stack")
    )
    kinds = page_kinds(pid, [(m.start, m.end) for m in mappings])
    view = SearchedMemory(memory, anonymous, Ranges([*kinds.anonymous.items, *kinds.files.items]))
    found = [heap for heap in (READERS[allocator](view, image) for image in loaded) if heap is not None]
    if len(found) != 1:
        raise TargetError(f"{len(found)} heaps were found", slug="no-heap", hint="")
    return found[0]


def _ours(heap: MallocHeap, allocator: str) -> dict[str, int]:
    spans, cached = heap.spans, sum(size * count for size, count in heap.cached.items())

    def size(*kinds: int) -> int:
        return sum(int((spans.ends - spans.starts)[spans.kinds == kind].sum()) for kind in kinds)

    used = int((spans.block_bytes * spans.live_blocks).sum())
    if allocator == "jemalloc":
        of_pages = size(SLAB, LARGE), size(RETURNED), size(FREE), size(LAZY)
        return dict(zip(_JEMALLOC, (used, *of_pages, cached)))
    if allocator == "tcmalloc":
        in_slabs = int((spans.block_bytes * spans.live_blocks)[spans.kinds == SLAB].sum())
        values = (
            used - cached,
            size(SLAB, LARGE, FREE, RETURNED),
            size(FREE),
            size(RETURNED),
            size(SLAB) - in_slabs,
        )
        return {**dict(zip(_TCMALLOC, values)), _CACHES: cached}
    fits = (spans.block_bytes >= _KEPT_BYTES) & (spans.block_bytes <= 1.25 * _KEPT_BYTES)
    least = int(spans.block_bytes[fits].min())
    kept = int(spans.live_blocks[spans.block_bytes == least].sum()) - heap.cached.get(least, 0)
    return {"blocks kept": kept}


def _own(
    calls: RunningCopy, allocator: str, loaded: Sequence[Image], file: str, address: int
) -> dict[str, int]:
    if allocator == "jemalloc":
        calls.call(address, [b"epoch\0", 0, 0, (1).to_bytes(8, "little"), 8])
        return {name: _mallctl(calls, address, name) * unit for name, unit in _JEMALLOC.items()}
    (image,) = [one for one in loaded if one.name == file]
    with ProcMemory(calls.pid) as memory:
        name = "MallocExtension_GetNumericProperty"
        function = exported(memory, image.start, image.bias, (name,))[name]
    found = {name: _property(calls, function, name) for name in _TCMALLOC}
    found[_CACHES] = found.pop(_TCMALLOC[-1]) + found.pop(_TCMALLOC[-2])
    return found


def _mallctl(calls: RunningCopy, address: int, name: str) -> int:
    status = calls.call(address, [name.encode() + b"\0", bytes(8), (8).to_bytes(8, "little"), 0, 0])
    if status & 0xFFFFFFFF:
        raise CallFailed(f"mallctl({name}) returned {status & 0xFFFFFFFF}")
    return _written(calls, name)


def _property(calls: RunningCopy, address: int, name: str) -> int:
    if not calls.call(address, [name.encode() + b"\0", bytes(8)]) & 0xFF:
        raise CallFailed(f"there is no {name}")
    return _written(calls, name)


def _written(calls: RunningCopy, name: str) -> int:
    """Return the word behind the text *name*, which `RunningCopy.call` has placed first."""
    at = calls._room + (len(name) + 1 + 15 & ~15)
    return words_at(calls.memory, at, 1)[0]


# -- requests -----------------------------------------------------------------------------------------------------


def requests(args: argparse.Namespace, folder: Path) -> bool:
    """Print in how many copies `explain --try` of a busy process was answered."""
    words, environment = started(build(folder, "returns_memory"), args)
    copies: Counter[object] = Counter()
    with running(words, environment) as target:
        assert target.type("busy\n").readline() == "busy\n"
        for _ in range(args.stops):
            rows = [
                row for row in explain_process(target.pid, tried=ALL).tried if row.allocator == args.allocator
            ]
            whole = next((row for row in rows if row.returns_all), None)
            if whole is None or whole.returned_bytes is None:
                why = rows[-1].why_not if rows else "it was not tried"
                copies[why] += 1
            else:
                copies[whole.copies] += 1
        assert target.process.poll() is None
    answered = sum(count for key, count in copies.items() if isinstance(key, int) and key <= 3)
    print(f"{args.allocator}: {answered} of {args.stops} answered within 3 copies; {dict(copies)}")
    return 100 * answered >= 99 * int(args.stops)


# -- harm ---------------------------------------------------------------------------------------------------------


def harm(args: argparse.Namespace, folder: Path) -> bool:
    """Print how many processes at rest were not as before after `explain --try`."""
    words, environment = started(build(folder, "returns_memory"), args)
    chance, harmed, killed = random.Random(args.seed), 0, Counter[str]()
    with running(words, environment) as target:
        os.sched_setaffinity(target.pid, {0})  # the kernel writes into it on which processor it runs
        _settled(target.pid)
        before = _whole_state(target)
        for number in range(args.stops):
            killed[_tried(target.pid, chance, is_killed=bool(number % 2))] += 1
            after = _settled_as(target, before)
            if after != before:
                harmed += 1
                print(f"  harm in round {number}: {[one for one in zip(before, after) if one[0] != one[1]]}")
                before = after
        own = int(target.type("purge\n").readline())
    print(
        f"{args.allocator}: {harmed} of {args.stops} harmed; {dict(killed)}; then it returned {own:,} bytes itself"
    )
    return not harmed


def _tried(pid: int, chance: random.Random, *, is_killed: bool) -> str:
    """Run `explain --try`, and kill one of its processes meanwhile; return what ended it."""
    command = [sys.executable, "-m", "gdbmem.cli.main", "explain", str(pid), "--try", "all"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT) as asking:
        if not is_killed:
            return f"status {asking.wait()}"
        # From the moment on at which it has stopped the process, or made a copy.
        while asking.poll() is None and not _is_touched(pid):
            time.sleep(0.0002)
        time.sleep(chance.choice((0, 0.01, 0.05, 0.1, 0.2)) * chance.random())
        family = [asking.pid, *_descendants(asking.pid)]
        victim = chance.choice(family)
        if asking.poll() is not None:
            return "had ended"
        os.kill(victim, signal.SIGKILL)
        asking.wait()
        return f"killed {'it' if victim == asking.pid else 'a process of it'}"


def _is_touched(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return "\nTracerPid:\t0\n" not in status or bool(_children(pid))


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _descendants(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _descendants(child)


def _settled(pid: int) -> None:
    """Wait until it waits for input."""
    while not Path(f"/proc/{pid}/syscall").read_text().startswith("0 "):
        time.sleep(0.01)


def _settled_as(target: Running, before: Sequence[object]) -> Sequence[object]:
    """Return its state; a process of gdbmem's that outlives its killed parent is given time to clear up."""
    deadline = time.monotonic() + 10
    while (after := _whole_state(target)) != before and time.monotonic() < deadline:
        time.sleep(0.02)
    return after


def _whole_state(target: Running) -> Sequence[object]:
    pid = target.pid
    place = Path(f"/proc/{pid}/syscall").read_text()
    areas = [(m.start, m.end, m.permissions) for m in mappings_of(pid)]
    return state_of(target), Path(f"/proc/{pid}/stat").read_text().split()[2], place, areas, _digest(pid)


def _digest(pid: int) -> dict[int, str]:
    """Return a digest of each private mapping that it can write to; below the stack pointer nothing counts."""
    place = Path(f"/proc/{pid}/syscall").read_text().split()
    if len(place) < 2:
        return {}  # it runs
    pointer = int(place[-2], 16)
    kinds = page_kinds(pid, [(m.start, m.end) for m in mappings_of(pid) if m.permissions.startswith("rw")])
    touched = Ranges([*kinds.anonymous.items, *kinds.files.items])
    found = {}
    with ProcMemory(pid) as memory:
        for one in mappings_of(pid):
            if not one.permissions.startswith("rw-p"):
                continue
            digest = hashlib.sha1(usedforsecurity=False)
            for start, end in touched.overlaps(one.start, one.end):
                low = max(start, pointer) if one.start <= pointer < one.end else start
                if low < end:
                    digest.update(memory.read(low, end - low))
            found[one.start] = digest.hexdigest()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.malloc_bars")
    parser.add_argument("bar", choices=["figures", "requests", "harm"])
    parser.add_argument("allocator", choices=[*READERS, GLIBC])
    parser.add_argument("library", nargs="?", default="", help="what is preloaded")
    parser.add_argument("--stops", type=int, default=50)
    parser.add_argument("--loader", default="", help="a dynamic linker")
    parser.add_argument("--path", default="", help="its folder of libraries")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        return 0 if globals()[args.bar](args, Path(name)) else 1


if __name__ == "__main__":
    sys.exit(main())
