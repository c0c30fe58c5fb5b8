"""Names of system calls in which threads wait."""

from __future__ import annotations

import platform

_X86_64 = {
    0: "read", 1: "write", 7: "poll", 9: "mmap", 11: "munmap", 12: "brk", 16: "ioctl", 17: "pread64", 18: "pwrite64",
    19: "readv", 20: "writev", 23: "select", 25: "mremap", 28: "madvise", 34: "pause", 35: "nanosleep", 42: "connect",
    43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 65: "semop", 73: "flock",
    74: "fsync", 75: "fdatasync", 128: "rt_sigtimedwait", 130: "rt_sigsuspend", 202: "futex", 219: "restart_syscall",
    230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat", 270: "pselect6", 271: "ppoll",
    281: "epoll_pwait", 288: "accept4", 426: "io_uring_enter",
}  # fmt: skip
_AARCH64 = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 63: "read", 64: "write", 72: "pselect6", 73: "ppoll", 82: "fsync",
    95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 202: "accept", 203: "connect",
    206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 242: "accept4", 260: "wait4",
}  # fmt: skip
_NAMES = {"x86_64": _X86_64, "aarch64": _AARCH64}


def call_name(number: int) -> str:
    """Return the name of system call *number* on this machine, or its number in words."""
    return _NAMES.get(platform.machine(), {}).get(number) or f"system call {number}"
