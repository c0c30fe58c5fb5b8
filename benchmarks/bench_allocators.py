"""gdbmem explain of jemalloc's and tcmalloc's heaps, beside reading the same memory once."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path
from typing import Callable, Optional

from benchmarks.bench_explain import HOLD, build, cpu_in, running
from benchmarks.processes import reading
from benchmarks.racing import Ratio, cpu_of, ratios
from gdbmem.allocators import gperftools, jemalloc
from gdbmem.allocators.malloc_heap import MallocHeap, SearchedMemory
from gdbmem.linux.elf.objects import Image, images
from gdbmem.linux.memory.maps import Ranges, parse_smaps, resident_ranges
from gdbmem.linux.memory.process_memory import ProcMemory

TITLE = "explain: heaps of jemalloc and tcmalloc"
Reader = Callable[[SearchedMemory, Image], Optional[MallocHeap]]
_LIBRARIES: tuple[tuple[str, Reader], ...] = (
    ("jemalloc", jemalloc.read_heap),
    ("tcmalloc_minimal", gperftools.read_heap),
)
_HEAPS = (
    ("10^7 blocks of 48 bytes", 10**7, 48, "equal"),
    ("4,000,000 blocks of 8 to 256 bytes, half of them freed", 4_000_000, 128, "mixed"),
)
_ONCE = 1 << 20
_ROUNDS = 7


def race() -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "hold.c").write_text(HOLD)
        build(folder / "hold.c", folder / "hold")
        for library, reader in _LIBRARIES:
            path = find_library(library)
            if path is None:
                print(f"bench: lib{library} is missing", file=sys.stderr)
                continue
            for title, *words in _HEAPS:
                with running("env", f"LD_PRELOAD={path}", folder / "hold", *words) as process:
                    yield from _heap(process.pid, reader, f"{library.partition('_')[0]}, {title}")


def _heap(pid: int, read_heap: Reader, title: str) -> Iterator[Ratio]:
    with ProcMemory(pid) as memory:
        mappings = parse_smaps(Path(f"/proc/{pid}/smaps").read_bytes())
        writable = [m for m in mappings if m.permissions.startswith("rw")]
        touched, _ = resident_ranges(pid, [(m.start, m.end) for m in writable])
        view = SearchedMemory(memory, Ranges((m.start, m.end) for m in writable if m.is_anonymous), touched)
        loaded = images(memory, mappings)

        def structures() -> None:
            found = [read_heap(view, image) for image in loaded]  # in all: which one has it is unknown
            if not any(found):
                raise RuntimeError(f"no heap was found in process {pid}")

        def pages() -> None:
            buffer = memoryview(bytearray(_ONCE))
            for start, end in touched.items:
                for address in range(start, end, _ONCE):
                    memory.read_into(address, buffer[: min(_ONCE, end - address)])

        found = ratios(lambda: cpu_in(structures), lambda: cpu_in(pages), rounds=_ROUNDS)
        yield Ratio(f"{title}: reading its structures / reading its resident pages once", found, 1)
    command = [sys.executable, "-m", "gdbmem.cli.main", "explain", str(pid)]
    found = ratios(lambda: cpu_of(command), lambda: cpu_of(reading(pid)), rounds=_ROUNDS)
    yield Ratio(f"{title}: `gdbmem explain`, whole / a Python that reads the process's memory once", found)
