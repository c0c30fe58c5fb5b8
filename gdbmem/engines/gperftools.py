"""gperftools' heap profiler: tcmalloc is preloaded, the program runs natively, every allocation is counted."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Callable

from gdbmem.engines import engine
from gdbmem.engines.gperftools_table import complete

TABLE = engine.EngineTable(
    name="gperftools",
    runs=engine.NATIVE,
    summary="native code, every allocation counted",
    cost="none for code that computes; 25 times and more slower for code that allocates",
    counts="requested bytes, exact from the start of its profiler",
    blind=(
        "blocks that libraries allocate while they are loaded, before the profiler starts (77 KiB with libstdc++)",
        "stacks beyond the first 1 MiB of dumps that gperftools 2.10 takes by itself (the missing share is reported)",
        "a program that has its own allocator, or is static or setuid",
        "frames where the unwinder fails (build with -fno-omit-frame-pointer, or use a newer gperftools)",
    ),
    library="tcmalloc",
    package="libgoogle-perftools4",
    options=("dump-interval",),
)

FUNCTIONS = ("HeapProfilerDump",)
_REASON = b"gdbmem\0"
_HELD = b"generic.total_physical_bytes\0"  # known since gperftools 2.8
_NUMBER = re.compile(r"\.(\d{4,})\.heap$")
# Dumps that gperftools takes by itself go by allocated bytes; these are out of any program's reach.
_NEVER = str(1 << 60)
_QUIET = "-1"  # word of each dump is level 0; info, warnings and errors are -1 and below


def environment(prefix: str, options: engine.NativeOptions) -> Mapping[str, str]:
    """Return the variables that switch the profiler on; dumps are PREFIX.0001.heap and so on, taken only on request.

    A user's own HEAP_PROFILE_… settings take precedence: such dumps are collected too. The program's output gets errors
    only, not a line for each dump.
    """
    interval = _NEVER if options.dump_interval is None else str(options.dump_interval)
    found = {
        "HEAPPROFILE": prefix,
        "HEAP_PROFILE_ALLOCATION_INTERVAL": interval,
        "HEAP_PROFILE_INUSE_INTERVAL": _NEVER,
        "PERFTOOLS_VERBOSE": _QUIET,
    }
    if _unwinds_without_locks():
        # Twice as fast as libunwind, which checks each stack's memory by system calls. By frame pointers (generic_fp)
        # it would be ten times as fast, but Debian's library is built without them: no stack would be found.
        found["TCMALLOC_STACKTRACE_METHOD"] = "libgcc"
    return found


def _unwinds_without_locks() -> bool:
    # From glibc 2.35 on libgcc finds a function's unwind tables without the loader's lock, which malloc may hold.
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        return name == "glibc" and tuple(int(part) for part in version.split(".")[:2]) >= (2, 35)
    except (ValueError, OSError):
        return False


def snapshot(inferior: engine.Inferior, prefix: str, target: str) -> engine.Call:
    """Return the call after which the profiler has dumped, and its file is *target*."""
    engine.refuse_limited(inferior.process)
    before = _marks(prefix)

    def finish(result: int) -> None:
        # A forked child counts its dumps as its parent does: this one may have gone over one of the child's.
        marks = _marks(prefix)
        new = [path for path in marks if marks[path] != before.get(path)]
        if not new:
            raise engine.nothing_written(
                "gperftools wrote no heap profile",
                inferior.process,
                target,
                hint="was the program started by 'gdbmem launch --engine gperftools'?",
            )
        new[-1].rename(target)
        complete(Path(target), inferior.process)

    return engine.Call("HeapProfilerDump", [inferior.place(_REASON)], finish)


def resident(inferior: engine.Inferior, tell: Callable[[int], None]) -> engine.Call:
    """Return the call that has tcmalloc *tell* the bytes that it holds of the system."""
    value = inferior.place(bytes(8))

    def finish(known: int) -> None:
        if known:
            tell(int.from_bytes(inferior.read(value, 8), "little"))

    return engine.Call("MallocExtension_GetNumericProperty", [inferior.place(_HELD), value], finish)


def turn_on(inferior: engine.Inferior, function: str, prefix: str) -> str:
    """Start the profiler if it is not running; earlier allocations are then missing from snapshots."""
    if inferior.call("IsHeapProfilerRunning", []):
        return ""
    inferior.call("HeapProfilerStart", [inferior.place(os.fsencode(prefix) + b"\0")])
    return "gperftools' heap profiler was off and is on now: it counts allocations from now on"


def request(inferior: engine.Inferior, function: str, target: str) -> engine.Call:
    """Return the call that makes the profiler write the next file of its series."""
    return engine.Call(function, [inferior.place(_REASON)], lambda result: None)


def is_dump(path: str) -> bool:
    """Return whether *path* is what the profiler calls a dump."""
    return _NUMBER.search(path) is not None


def _marks(prefix: str) -> dict[Path, tuple[int, int, int]]:
    """Return what changes in each dump when it is written again, oldest first."""
    facts = ((path, path.stat()) for path in dumps(prefix))
    return {path: (fact.st_ino, fact.st_mtime_ns, fact.st_size) for path, fact in facts}


def dumps(prefix: str) -> list[Path]:
    """Return the dumps that begin with *prefix*, oldest first."""
    stem = Path(prefix)
    found = [path for path in stem.parent.glob(f"{stem.name}*.heap") if _NUMBER.search(path.name)]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))
