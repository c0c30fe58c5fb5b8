"""Whether two processes share their memory, as those of clone() with CLONE_VM do that are no threads of one."""

import ctypes
import os

_KCMP = {"x86_64": 312, "aarch64": 272}
_VM = 1  # KCMP_VM

_libc = ctypes.CDLL(None, use_errno=True)


def share_memory(pid: int, other: int) -> bool:
    """Return whether processes *pid* and *other* have the same memory; False where the kernel doesn't tell.

    Source: kcmp(2).
    """
    number = _KCMP.get(os.uname().machine)
    return number is not None and _libc.syscall(number, pid, other, _VM, 0, 0) == 0
