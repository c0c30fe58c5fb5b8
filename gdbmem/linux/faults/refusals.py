"""Permissions to sample page faults, and remedies if the kernel refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from gdbmem.errors import GdbmemError, TargetError
from gdbmem.linux.process.process import check_analysable
from gdbmem.linux.process.rights import AS_ROOT

_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_ANY_UP_TO = 2  # with a higher one (which Debian's and Ubuntu's kernels support) they see none


class LockedMemoryError(PermissionError):
    """The user's limit of locked memory has no room for the sample buffers."""


def paranoia() -> Optional[int]:
    """Return kernel.perf_event_paranoid; None if the kernel has no perf events."""
    try:
        return int(_PARANOID.read_text())
    except (OSError, ValueError):
        return None


def refusal(pids: Sequence[int], error: OSError) -> GdbmemError:
    """Return the error for the kernel's refusal *error* to watch *pids* (none: a program started by gdbmem)."""
    if error.errno in (errno.ESRCH, errno.EACCES, errno.EPERM):
        for pid in pids:
            try:
                check_analysable(pid, may_be_traced=True)
            except TargetError as why:
                return why
    if isinstance(error, LockedMemoryError):
        return TargetError(
            "other recordings of this user use up the memory that the kernel may lock for sampling"
            " (kernel.perf_event_mlock_kb, and ulimit -l)",
            slug="faults-no-buffers",
            hint=f"wait until they have ended, raise ulimit -l, or {AS_ROOT}",
        )
    level = paranoia()
    if error.errno in (errno.ENOSYS, errno.ENOENT, errno.EOPNOTSUPP) or level is None:
        return TargetError(
            "this kernel can't sample page faults (it was built without CONFIG_PERF_EVENTS, or is an emulation"
            " without perf_event_open)",
            slug="faults-unsupported",
            hint="'memwatch growth' in gdb records who asks the kernel for memory",
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return TargetError(
            "sampling page faults needs two open files for each thread and processor, more than this process"
            " may open",
            slug="faults-files",
            hint="raise the limit in this shell: ulimit -n 1000000 (as root where it may not be raised)",
        )
    if error.errno not in (errno.EACCES, errno.EPERM):
        return TargetError(
            f"the kernel can't sample page faults: {os.strerror(error.errno or 0)}",
            slug="faults-refused",
        )
    if level > _ANY_UP_TO:
        return TargetError(
            f"ordinary users may not sample page faults on this system (kernel.perf_event_paranoid is {level})",
            slug="faults-forbidden",
            hint=f"allow it until the next reboot: sudo sysctl kernel.perf_event_paranoid={_ANY_UP_TO}; or {AS_ROOT}",
        )
    return TargetError(
        "sampling page faults is forbidden here, by a seccomp filter (containers have one) or a security module",
        slug="faults-forbidden",
        hint="start the container with --cap-add=PERFMON --security-opt seccomp=unconfined, or type it outside the"
        " container with the process's number there",
    )
