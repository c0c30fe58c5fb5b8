"""A test of whether this kernel's statm is exact, made once per boot by touching pages one by one.

Before 6.2 each thread buffers up to 64 events, from 6.2 to about 6.15 each processor a batch; a line
that touches a page then shows 0 and a later one too much. The version is not reliable (distributions
backport), so a child process tests it.
"""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from gdbmem.files import NEUTRAL_FOLDER, cache_folder, replace_file
from gdbmem.linux.memory.resident import PAGE_BYTES, ProcessMemory
from gdbmem.linux.process.process import boot_id

_PAGES = 192
_SECONDS = 20


class Exactness(NamedTuple):
    """The outcome of the probe."""

    statm_error_pages: int  # the largest error of a delta of statm; 0: exact
    zero_pages_counted: bool  # pagemap counts pages that were only read

    @property
    def statm_is_exact(self) -> bool:
        return self.statm_error_pages == 0


def probe() -> Exactness:
    """Touch fresh pages in this process and compare the counts of statm and pagemap for each."""
    memory = ProcessMemory(os.getpid())
    area = fresh_pages(_PAGES + 1)
    error_pages(
        memory.resident_bytes, fresh_pages(_PAGES)
    )  # the first round allocates what Python itself needs
    statm = error_pages(memory.resident_bytes, area)
    before = memory.present_bytes()
    _ = area[_PAGES * PAGE_BYTES]
    after = memory.present_bytes()
    counted = before is not None and after is not None and after > before
    return Exactness(statm, counted)


def fresh_pages(count: int) -> mmap.mmap:
    """Return memory of untouched pages."""
    import mmap  # not always needed

    area = mmap.mmap(-1, count * PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(area, "madvise") and hasattr(mmap, "MADV_NOHUGEPAGE"):
        area.madvise(mmap.MADV_NOHUGEPAGE)
    return area


def error_pages(read: Callable[[], Optional[int]], area: mmap.mmap) -> int:
    """Return the largest error of *read*, in pages, while *area* was touched; -1: it could not read."""
    readings = [-1] * _PAGES
    for number in range(_PAGES):
        area[number * PAGE_BYTES] = 1
        found = read()
        readings[number] = -1 if found is None else found
    # Python itself may take a page now and then: the median of the errors of 64 steps would hide a batch,
    # so that no more than a single extra page is tolerated.
    if -1 in readings:
        return -1
    errors = sorted(abs((b - a) // PAGE_BYTES - 1) for a, b in zip(readings, readings[1:]))
    return 0 if errors[-1] <= 1 and sum(errors) <= 2 else errors[-1]


def known_exactness() -> Exactness:
    """Return the probe's outcome, from the cache of this boot if there is one.

    If no child can be started, the slower exact source is the safe choice.
    """
    path = _cache_file()
    cached = _read(path)
    if cached is not None:
        return cached
    found = _probe_in_child()
    if found is None:
        return Exactness(statm_error_pages=-1, zero_pages_counted=True)
    _write(path, found)
    return found


def _cache_file() -> Optional[Path]:
    try:
        boot = boot_id()
    except OSError:
        return None
    return cache_folder() / f"kernel-{boot}"


def _read(path: Optional[Path]) -> Optional[Exactness]:
    try:
        words = path.read_text().split() if path else []
        return Exactness(int(words[0]), words[1] == "1") if len(words) == 2 else None
    except (OSError, ValueError):
        return None


def _write(path: Optional[Path], found: Exactness) -> None:
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob("kernel-*"):
            old.unlink()
        replace_file(path, f"{found[0]} {int(found[1])}\n")
    except OSError:
        pass  # with an unwritable home there is one probe per session


def _probe_in_child() -> Optional[Exactness]:
    """Run `probe` in a separate process: this one may be gdb, with threads that allocate too."""
    import subprocess  # not always needed

    # This Python may be the one inside gdb, whose executable is gdb itself.
    program = str(Path("/proc/self/exe").resolve())
    package = str(Path(__file__).resolve().parents[3])
    code = (
        f"import sys; sys.path.insert(0, {package!r}); "
        "from gdbmem.linux.memory.statm_accuracy import probe; print('exactness', *map(int, probe()))"
    )
    inside_gdb = "gdb" in sys.modules
    argv = [program, "-nx", "-batch", "-ex", f"python {code}"] if inside_gdb else [sys.executable, "-c", code]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            cwd=NEUTRAL_FOLDER,
            start_new_session=True,  # Ctrl-C is for gdb
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    words = done.stdout.split()
    if len(words) != 3 or words[0] != b"exactness":
        return None
    return Exactness(int(words[1]), words[2] == b"1")
