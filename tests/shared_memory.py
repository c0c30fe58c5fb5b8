"""Shared memory of a run's own: what other tests have in /dev/shm, and in System V's tables, is out of its sight.

Source: unshare(2), user_namespaces(7), ipc_namespaces(7), mount(2).
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_NEW_MOUNTS, _NEW_IPC, _NEW_USER = 0x20000, 0x08000000, 0x10000000  # CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER
_RECURSIVE, _PRIVATE = 0x4000, 0x40000  # MS_REC, MS_PRIVATE

_libc = ctypes.CDLL(None, use_errno=True)


def enter_own_shared_memory() -> bool:
    """Give this process, and those that it starts, a new /dev/shm and new objects of System V; return whether it has.

    A user who isn't root gets them with a user namespace, in which programs can't change their user: such a process
    may have one thread only. Where the kernel refuses, nothing changes.
    """
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(_NEW_MOUNTS | _NEW_IPC | (_NEW_USER if user else 0)):
        return False
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _libc.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None)
    done = bool(_libc.mount(b"shm", b"/dev/shm", b"tmpfs", 0, b"mode=1777") == 0)
    if os.path.ismount("/dev/mqueue"):  # what is there shows the queues of the namespace before
        _libc.mount(b"mqueue", b"/dev/mqueue", b"mqueue", 0, None)
    return done
