"""Seccomp filters: whether an injected system call could end the process.

A filter treats such a call like one of the thread, and may kill the process for it. It is harmless if the thread has
no filter, if it has exactly ours (this process makes such calls all the time), or if filters can be suspended.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

from gdbmem.linux.process.status import status_fields

SUSPEND = 0x00200000  # PTRACE_O_SUSPEND_SECCOMP; wants CAP_SYS_ADMIN, and a tracer without filters
_GENERATIONS = 1000


def may_end_for_a_call(thread: int) -> bool:
    """Return whether a filter of *thread* could end its process for an injected call."""
    fields = status_fields(thread)
    return fields.get("Seccomp", "0") != "0" and not _has_our_filters(thread, fields)


def filter_count(thread: int) -> int:
    """Return the number of filters of *thread*; 0 also if the kernel doesn't report it (before Linux 5.9)."""
    return int(status_fields(thread).get("Seccomp_filters", 0))


def has_shadow_stack(thread: int) -> bool:
    """Return whether *thread* has a shadow stack, a second copy of its return addresses (x86-64)."""
    return "shstk" in status_fields(thread).get("x86_Thread_features", "").split()


def _has_our_filters(thread: int, fields: dict[str, str]) -> bool:
    """Return whether the filters of *thread* are identical to those of this process.

    Filters are inherited and only ever added, so they are if a common ancestor has as many as each of the two.
    A process that entered a container from outside has no ancestor there: it was given the filters of the
    container's first process.
    """
    count = fields.get("Seccomp_filters", "")  # Linux 5.9 and later
    if count != status_fields("self").get("Seccomp_filters") or fields["Seccomp"] != "2" or not count:
        return False
    ancestor = _common_ancestor(int(fields["Tgid"]))
    if ancestor is None:
        ancestor = 1
        if not _same_pid_namespace(thread):
            return False
    return status_fields(ancestor).get("Seccomp_filters") == count


def _common_ancestor(pid: int) -> Optional[int]:
    theirs, ours = _lineage(pid), set(_lineage(os.getpid()))
    return next((one for one in theirs if one in ours), None)


def _lineage(pid: int) -> list[int]:
    """Return *pid* and its ancestors, as far as this process namespace shows them."""
    found: list[int] = []
    while pid and pid not in found and len(found) < _GENERATIONS:
        found.append(pid)
        pid = int(status_fields(pid).get("PPid", "0"))
    return found


def _same_pid_namespace(thread: int) -> bool:
    try:
        return Path(f"/proc/{thread}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
    except OSError:
        return False
