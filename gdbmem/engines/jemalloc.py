"""jemalloc's heap profiler: it is preloaded, the program runs natively, allocations are sampled or all counted."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from gdbmem.engines.engine import NATIVE, Call, Inferior, Table
from gdbmem.errors import TargetError, UsageError
from gdbmem.text import printable

TABLE = Table(
    name="jemalloc",
    runs=NATIVE,
    summary="native code; counts every allocation, or samples them for programs that run for days",
    cost="as gperftools or more with every allocation counted; next to nothing with a sample each 512 KiB",
    counts="bytes of the size class that a request is rounded up to; estimates when sampled",
    blind=(
        "single small allocations, when sampled: each path carries its standard error",
        "a program that brings its own allocator, or is static or setuid",
    ),
    library="jemalloc",
    package="libjemalloc2",
)

SAMPLE_VARIABLE = "GDBMEM_JEMALLOC_LG_SAMPLE"
_DIGITS = re.compile(r"\d{1,2}")


def environment(prefix: str) -> Mapping[str, str]:
    """Return what turns the profiler on, with the program's own MALLOC_CONF kept in front."""
    lg_sample = os.environ.get(SAMPLE_VARIABLE, "0")
    if not _DIGITS.fullmatch(lg_sample):
        raise UsageError(
            f"{SAMPLE_VARIABLE} is '{printable(lg_sample)}', no power of two", hint="19 is 512 KiB"
        )
    own = os.environ.get("MALLOC_CONF", "")
    ours = f"prof:true,prof_active:true,lg_prof_sample:{lg_sample},prof_final:false,prof_prefix:{prefix}"
    return {"MALLOC_CONF": f"{own},{ours}" if own else ours}


def snapshot(inferior: Inferior, prefix: str, target: str) -> Call:
    """Return the call that has the profiler write to *target*."""
    name = inferior.place(b"prof.dump\0")
    file = inferior.place(os.fsencode(target) + b"\0")
    pointer = inferior.place(file.to_bytes(8, "little"))
    return Call("mallctl", [name, 0, 0, pointer, 8], _check)


def _check(status: int) -> None:
    if status != 0:
        reason = os.strerror(status) if 0 < status < 200 else f"status {status}"
        raise TargetError(
            f"jemalloc wrote no heap profile: {reason}",
            slug="no-snapshot-file",
            hint="is its profiler compiled in and on? 'gdbmem launch --engine jemalloc' turns it on",
        )
