"""Whether this kernel's statm is exact: found out by touching pages one by one, once per boot.

Before 6.2 each thread keeps back up to 64 events, from 6.2 to about 6.15 each processor a batch; a line
that touches a page then shows 0 and a later one too much. The version says little (distributions
backport), so a child process tries it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.linux.resident import PAGE_BYTES, ProcessMemory

_PAGES = 192
_SECONDS = 20


class Exactness(NamedTuple):
    """The outcome of the probe."""

    statm_error_pages: int  # the most that a delta of statm was off; 0: exact
    smaps_error_pages: int  # the same for smaps_rollup; -1: it can't be read
    zero_pages_counted: bool  # pagemap counts pages that were only read

    @property
    def statm_is_exact(self) -> bool:
        return self.statm_error_pages == 0


def probe() -> Exactness:
    """Touch fresh pages in this process and compare what statm, smaps_rollup and pagemap make of each."""
    import mmap

    area = mmap.mmap(-1, (2 * _PAGES + 8) * PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(area, "madvise") and hasattr(mmap, "MADV_NOHUGEPAGE"):
        area.madvise(mmap.MADV_NOHUGEPAGE)
    memory = ProcessMemory(os.getpid())
    _readings(memory, area, 0)  # the first round allocates what Python itself needs
    statm, smaps = _readings(memory, area, _PAGES)
    before = memory.present_bytes()
    _ = area[2 * _PAGES * PAGE_BYTES]
    after = memory.present_bytes()
    counted = before is not None and after is not None and after > before
    return Exactness(_worst(statm), _worst(smaps), counted)


def _readings(memory: ProcessMemory, area: object, first: int) -> tuple[list[int], list[int]]:
    statm, smaps = [0] * _PAGES, [-1] * _PAGES
    for number in range(_PAGES):
        area[(first + number) * PAGE_BYTES] = 1  # type: ignore[index]
        counters, rollup = memory.statm(), memory.rollup_bytes()
        statm[number] = counters.resident_bytes if counters else -1
        smaps[number] = -1 if rollup is None else rollup
    return statm, smaps


def _worst(readings: list[int]) -> int:
    # Python itself may take a page now and then: the median of the errors of 64 steps would hide a batch,
    # so that a single extra page is forgiven and nothing else.
    if -1 in readings:
        return -1
    errors = sorted(abs((b - a) // PAGE_BYTES - 1) for a, b in zip(readings, readings[1:]))
    return 0 if errors[-1] <= 1 and sum(errors) <= 2 else errors[-1]


def known_exactness() -> Exactness:
    """Return the probe's outcome, from the cache of this boot where there is one.

    Where no child can be started the slower exact source is the safe answer.
    """
    path = _cache_file()
    cached = _read(path)
    if cached is not None:
        return cached
    found = _probe_in_child()
    if found is None:
        return Exactness(statm_error_pages=-1, smaps_error_pages=0, zero_pages_counted=True)
    _write(path, found)
    return found


def _cache_file() -> Optional[Path]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    configured = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(configured) if configured.startswith("/") else Path("~/.cache").expanduser()
    return root / "gdbmem" / f"kernel-{boot}"


def _read(path: Optional[Path]) -> Optional[Exactness]:
    try:
        words = path.read_text().split() if path else []
        return Exactness(int(words[0]), int(words[1]), words[2] == "1") if len(words) == 3 else None
    except (OSError, ValueError):
        return None


def _write(path: Optional[Path], found: Exactness) -> None:
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob("kernel-*"):
            old.unlink()
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(f"{found[0]} {found[1]} {int(found[2])}\n")
        temporary.replace(path)
    except OSError:
        pass  # a home that can't be written to costs a probe a session, no more


def _probe_in_child() -> Optional[Exactness]:
    """Run `probe` in a process of its own: this one may be gdb, with threads that allocate too."""
    import subprocess

    # This Python may be the one inside gdb, whose executable is gdb itself.
    program = str(Path("/proc/self/exe").resolve())
    package = str(Path(__file__).resolve().parents[2])
    code = (
        f"import sys; sys.path.insert(0, {package!r}); "
        "from gdbmem.linux.exactness import probe; print('exactness', *map(int, probe()))"
    )
    inside_gdb = "gdb" in sys.modules
    argv = [program, "-nx", "-batch", "-ex", f"python {code}"] if inside_gdb else [sys.executable, "-c", code]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            start_new_session=True,  # Ctrl-C is for gdb
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    words = done.stdout.split()
    if len(words) != 4 or words[0] != b"exactness":
        return None
    return Exactness(int(words[1]), int(words[2]), words[3] == b"1")
