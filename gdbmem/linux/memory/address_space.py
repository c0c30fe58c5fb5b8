"""A process's limit of address space (RLIMIT_AS), which a profiler also has to fit in."""

from __future__ import annotations

from typing import Optional

from gdbmem.linux.memory.resident import ProcessMemory
from gdbmem.linux.process.status import soft_limit
from gdbmem.units import format_size

_LEAST_ROOM_BYTES = 1 << 20


def no_room(pid: int, engine: str) -> Optional[str]:
    """Return the warning that *pid*, under *engine*, can map almost nothing more; None if it can."""
    memory = ProcessMemory(pid)
    try:
        limit, statm = soft_limit(pid, "Max address space"), memory.statm()
    except OSError:
        return None
    finally:
        memory.close()
    if limit is None or statm is None or statm.size_bytes + _LEAST_ROOM_BYTES <= limit:
        return None
    return (
        f"process {pid} may map no more than {format_size(limit)} (RLIMIT_AS), and has {format_size(statm.size_bytes)}"
        f" mapped, with what {engine} needs: its own calls for memory fail now, as they might not without {engine};"
        f" 'shell prlimit --as=unlimited --pid {pid}', as root, lifts the limit"
    )
