"""The memory of a process beside the heap that a heap profiler counts, as the kernel has it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.process.living import memory_folder

# valgrind maps its own memory above, a program's below, from low addresses on.
# Source: valgrind 3.16 to 3.24, coregrind/m_aspacemgr/aspacemgr-linux.c, VG_(am_startup).
_VALGRINDS_OWN = 1 << 36


def own_bytes(mappings: Sequence[Mapping]) -> int:
    """Return the resident and swapped bytes of *mappings* that can hold what a program allocates.

    Its code, its constants and the main thread's stack are left out.
    """
    with_code = {(m.device, m.inode) for m in mappings if "x" in m.permissions and m.inode}
    return sum(_held(mapping, with_code) for mapping in mappings)


def unmapped_bytes(pid: int, mappings: Sequence[Mapping]) -> int:
    """Return the bytes that process *pid* holds without a mapping: in files in memory, and in detached segments.

    Source: memfd_create(2); proc(5), sysvipc/shm.
    """
    mapped = {m.inode for m in mappings if m.inode}
    files: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"{memory_folder(pid)}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(entry.path).startswith(("/memfd:", "/dev/shm/")):  # noqa: PTH115  (hot path)
                    facts = entry.stat()
                    files[facts.st_ino] = facts.st_blocks * 512
    return sum(size for inode, size in files.items() if inode not in mapped) + _detached_bytes(pid)


def _detached_bytes(pid: int) -> int:
    """Return the resident bytes of the segments of System V that process *pid* created and nobody has attached."""
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        head, *rows = Path("/proc/sysvipc/shm").read_text().splitlines()
        creator, attached, resident = (head.split().index(word) for word in ("cpid", "nattch", "rss"))
        for row in map(str.split, rows):
            if int(row[creator]) == pid and int(row[attached]) == 0:
                total += int(row[resident])
    return total


def under_valgrind(mappings: Sequence[Mapping]) -> tuple[int, int]:
    """Return the bytes of a program under valgrind that it allocated itself: resident ones, and mapped ones.

    The second number is of executable mappings, where valgrind has the program's malloc blocks, so they are in it.
    """
    own = [m for m in mappings if m.start < _VALGRINDS_OWN]
    blocks = [m for m in own if m.is_anonymous and "x" in m.permissions]
    breaks = list(_breaks(own))
    tool = list(_after_tool(own))
    apart = [m for m in own if m not in blocks and m not in tool]
    return own_bytes(apart) + sum(m.anonymous_bytes + m.swap_bytes for m in breaks), sum(
        m.size_bytes for m in blocks if m not in breaks
    )


def _held(mapping: Mapping, with_code: set[tuple[str, int]]) -> int:
    if mapping.name.startswith("[stack"):
        return 0
    if mapping.is_anonymous:
        return mapping.anonymous_bytes + mapping.swap_bytes + mapping.hugetlb_bytes
    if mapping.is_shared_memory:
        return mapping.rss_bytes + mapping.swap_bytes + mapping.hugetlb_bytes
    is_data = mapping.is_file and (mapping.device, mapping.inode) not in with_code
    return mapping.anonymous_bytes + mapping.swap_bytes if is_data else 0


def _breaks(mappings: Sequence[Mapping]) -> Iterator[Mapping]:
    """Yield the break segment, which valgrind maps executable, directly above the program or the dynamic loader."""
    lowest = next((m.name for m in mappings if m.is_file), "")
    above = ""
    for before, mapping in zip(mappings, mappings[1:]):
        if before.is_file:
            above = before.name
        if mapping.start != before.end:
            above = ""
        if (
            above
            and (above == lowest or "/ld-" in above)
            and mapping.is_anonymous
            and "x" in mapping.permissions
        ):
            yield mapping


def _after_tool(mappings: Sequence[Mapping]) -> Iterator[Mapping]:
    """Yield the variables of valgrind's tool, directly above its file."""
    for before, mapping in zip(mappings, mappings[1:]):
        if mapping.start == before.end and "valgrind/" in before.name and mapping.is_anonymous:
            yield mapping
