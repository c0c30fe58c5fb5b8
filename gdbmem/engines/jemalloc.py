"""jemalloc's heap profiler: it is preloaded, the program runs natively, allocations are sampled or all counted."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Callable

from gdbmem.engines import engine
from gdbmem.errors import TargetError, UsageError

TABLE = engine.EngineTable(
    name="jemalloc",
    runs=engine.NATIVE,
    summary="native code; counts every allocation, or samples them for programs that run for days",
    cost="none for code that computes; 50 times and more slower for code that allocates;"
    " almost none with a sample per 512 KiB",
    counts="bytes of the size class that a request is rounded up to; estimates when sampled",
    blind=(
        "single small allocations, when sampled: each path has a standard error",
        "a program that has its own allocator, or is static or setuid",
    ),
    library="jemalloc",
    package="libjemalloc2",
    options=("sample-rate", "dump-interval"),
)

FUNCTIONS = ("mallctl", "je_mallctl", "_rjem_mallctl")  # Redis and Rust give it a prefix


def environment(prefix: str, options: engine.NativeOptions) -> Mapping[str, str]:
    """Return what turns the profiler on, with the program's own MALLOC_CONF kept in front."""
    own = os.environ.get("MALLOC_CONF", "")
    rate = _power(options.sample_rate or 1, "sample-rate")
    ours = f"prof:true,prof_active:true,lg_prof_sample:{rate},prof_final:false,prof_prefix:{prefix}"
    if not options.sample_rate:
        # A dump of every allocation leaves a megabyte of freed pages, which would hide what else becomes resident.
        ours += ",dirty_decay_ms:0,muzzy_decay_ms:0"
    if options.dump_interval is not None:
        ours += f",lg_prof_interval:{_power(options.dump_interval, 'dump-interval')}"
    return {"MALLOC_CONF": f"{own},{ours}" if own else ours}


def _power(size_bytes: int, option: str) -> int:
    """Return the exponent of *size_bytes*, which jemalloc takes as a power of two. Raises UsageError."""
    exponent = size_bytes.bit_length() - 1
    if size_bytes < 1 or size_bytes != 1 << exponent:
        raise UsageError(
            f"jemalloc takes a power of two for {option}, not {size_bytes}",
            slug="bad-option",
            hint="write 64KiB, 512KiB, 1MiB …",
        )
    return exponent


def snapshot(inferior: engine.Inferior, prefix: str, target: str) -> engine.Call:
    """Return the call that has the profiler write to *target*."""
    return request(inferior, "mallctl", target)


def request(inferior: engine.Inferior, function: str, target: str) -> engine.Call:
    """Return the call that has the profiler write to *target*; mallctl may be called otherwise (*function*)."""
    engine.refuse_limited(inferior.process)
    name = inferior.place(b"prof.dump\0")
    file = inferior.place(os.fsencode(target) + b"\0")
    pointer = inferior.place(file.to_bytes(8, "little"))
    return engine.Call(
        function, [name, 0, 0, pointer, 8], lambda status: _check(status, inferior.process, target)
    )


def resident(inferior: engine.Inferior, tell: Callable[[int], None]) -> engine.Call:
    """Return the first of the calls that have jemalloc *tell* the bytes of the pages that hold blocks."""
    word = (8).to_bytes(8, "little")
    value, size = inferior.place(bytes(8)), inferior.place(word)
    epoch = inferior.place((1).to_bytes(8, "little"))  # anything written there has the statistics renewed

    def finish(status: int) -> None:
        if status == 0:
            tell(int.from_bytes(inferior.read(value, 8), "little"))

    held = engine.Call("mallctl", [inferior.place(b"stats.active\0"), value, size, 0, 0], finish)
    return engine.Call("mallctl", [inferior.place(b"epoch\0"), 0, 0, epoch, 8], lambda status: held)


def turn_on(inferior: engine.Inferior, function: str, prefix: str) -> str:
    """Start the profiler's sampling, if it was prepared for that when the program was started."""
    if not _flag(inferior, function, b"opt.prof\0"):
        raise TargetError(
            "jemalloc's heap profiler is off in this process, and can't be turned on later",
            slug="no-profiler",
            hint="start the program with MALLOC_CONF=prof:true, or by 'gdbmem launch --engine jemalloc'",
        )
    if _flag(inferior, function, b"prof.active\0"):
        return ""
    _activate(inferior, function, b"\1")
    return "jemalloc's heap profiler was inactive and is active now: it counts allocations from now on"


def turn_off(inferior: engine.Inferior, function: str) -> None:
    """Stop the profiler's sampling."""
    _activate(inferior, function, b"\0")


def _activate(inferior: engine.Inferior, function: str, flag: bytes) -> None:
    inferior.call(function, [inferior.place(b"prof.active\0"), 0, 0, inferior.place(flag), 1])


def _flag(inferior: engine.Inferior, function: str, name: bytes) -> bool:
    out, size = inferior.place(b"\0"), inferior.place((1).to_bytes(8, "little"))
    return (
        inferior.call(function, [inferior.place(name), out, size, 0, 0]) == 0
        and inferior.read(out, 1) == b"\1"
    )


def _check(status: int, process: int, target: str) -> None:
    if status == 0:
        return
    # It returns EFAULT for any error with the file.
    message = "jemalloc wrote no heap profile"
    if status != errno.EFAULT:
        message += f" ({os.strerror(status) if 0 < status < 200 else f'status {status}'})"
    raise engine.nothing_written(
        message,
        process,
        target,
        hint="its profiler may not be compiled in or not be on; 'gdbmem launch --engine jemalloc' turns it on",
    )
