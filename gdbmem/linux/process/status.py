"""Fields of /proc/PID/status, and the limits of a process.

Source: proc(5); Linux, Documentation/filesystems/proc.rst.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Optional, Union

from gdbmem.linux.process.living import text_of


def status_fields(process: Union[int, str], tid: Optional[int] = None) -> dict[str, str]:
    """Return the fields of a *process* ("self": of this one) or of its thread *tid*; none if it has ended."""
    try:
        return parse_status(text_of(f"/proc/{process}{'' if tid is None else f'/task/{tid}'}/status"))
    except OSError:
        return {}


def parse_status(text: str) -> dict[str, str]:
    """Return the fields in the *text* of a status."""
    rows = (line.partition(":") for line in text.split("\n"))
    return {name: value.strip() for name, colon, value in rows if colon}


def signals_in(fields: Mapping[str, str], *names: str) -> int:
    """Return the signals in the masks *names* together, as a mask; 0 if there are none."""
    mask = 0
    for name in names:
        mask |= int(fields.get(name, "0"), 16)
    return mask


def own_tid(pid: int, tid: Optional[int] = None) -> int:
    """Return the number that *pid*, or its thread *tid*, has in its own PID namespace."""
    numbers = status_fields(pid, tid).get("NSpid", "").split()
    return int(numbers[-1]) if numbers else (pid if tid is None else tid)


def soft_limit(pid: int, name: str) -> Optional[int]:
    """Return the soft limit *name*, as in /proc, of *pid*; None if there is none. Raises OSError."""
    found = re.search(rf"^{name}\s+(\d+)\s", Path(f"/proc/{pid}/limits").read_text(), re.M)
    return int(found[1]) if found is not None else None
