"""Opening files on behalf of another process: the kernel passes its open() calls to us and takes a descriptor.

Source: seccomp_unotify(2); Linux, include/uapi/linux/seccomp.h and include/uapi/linux/bpf_common.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import platform
import struct
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.linux.process.process import memory_folder, soft_limit, status_fields
from gdbmem.text import format_size, printable

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_OPEN, _OPENAT = {"x86_64": 2}, {"x86_64": 257, "aarch64": 56}
_MACHINE = platform.machine()
_SET_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5  # the last one since Linux 5.19
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_LOAD, _IF_EQUAL, _IF_ANY, _RETURN = 0x20, 0x15, 0x45, 0x06
_RECEIVE, _SEND, _ADD = 0xC0502100, 0xC0182101, 0x40182103
_REQUEST = struct.Struct("=QIIiIQ6Q")  # struct seccomp_notif
_CONTINUE = 1
_NO_NEW_PRIVILEGES, _SET_PTRACER = 38, 0x59616D61
_HERE = -100  # AT_FDCWD
_LONGEST = 4096
# These can't block, or are used only on behalf of the user.
UNASKED = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_DIRECTORY | os.O_PATH

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class OpenRequest(NamedTuple):
    """An open() for reading in which the process of *tid* waits."""

    number: int  # the kernel's number of this request
    tid: int
    folder: Optional[int]  # the process's descriptor that *path* is relative to; None: its current folder
    path: bytes
    flags: int


def _filter() -> bytes:
    """Return the filter that reports every open() except those with UNASKED flags."""
    calls = [
        (number[_MACHINE], argument) for number, argument in ((_OPEN, 1), (_OPENAT, 2)) if _MACHINE in number
    ]
    rows = [
        (_LOAD, 0, 0, 4),
        (_IF_EQUAL, 1, 0, _ARCHITECTURE[_MACHINE]),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, 0),
    ]
    for number, argument in calls:
        rows += [
            (_IF_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, 16 + 8 * argument),
            (_IF_ANY, 0, 1, UNASKED),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _NOTIFY),
        ]
    rows.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *row) for row in rows)


def is_known() -> bool:
    """Return whether this architecture is supported."""
    return _MACHINE in _SECCOMP


def hand_over_opens(reader: int) -> int:
    """Make every open() of this process and its children wait for an answer; return the descriptor of the requests.

    Process *reader* answers. Raises OSError if the kernel doesn't support it.
    """
    code = _filter()
    buffer = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer)), 16)
    _libc.prctl(_SET_PTRACER, reader, 0, 0, 0)
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        found: int = _libc.syscall(_SECCOMP[_MACHINE], _SET_FILTER, flags, program)
        if found < 0 and ctypes.get_errno() == errno.EACCES:  # not root
            _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
            found = _libc.syscall(_SECCOMP[_MACHINE], _SET_FILTER, flags, program)
        if found >= 0:
            return found
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def shared_request() -> mmap.mmap:
    """Return memory for `next_request`, shared with processes forked later."""
    return mmap.mmap(-1, 4096)  # over 1 KiB fcntl.ioctl() makes no copy


def next_request(listener: int, memory: mmap.mmap) -> Optional[OpenRequest]:
    """Return the next request; None for one that has ended meanwhile. Raises OSError if no more can come."""
    memory[: _REQUEST.size] = bytes(_REQUEST.size)  # required by the kernel
    try:
        fcntl.ioctl(listener, _RECEIVE, memory)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):
            return None
        raise
    return latest_request(listener, memory)


def latest_request(listener: int, memory: mmap.mmap) -> Optional[OpenRequest]:
    """Return the request in *memory*; None if there is none. It may have been answered."""
    number, tid, _, call, _, _, *words = _REQUEST.unpack(memory[: _REQUEST.size])
    if not tid:
        return None
    folder = _HERE
    if call == _OPENAT[_MACHINE]:
        folder, *words = words
        folder = (folder & 0xFFFFFFFF) - (1 << 32 if folder & 0x80000000 else 0)
    try:
        path = _text(tid, words[0])
    except OSError as error:
        refuse(listener, number, error.errno or errno.EFAULT)
        return None
    return OpenRequest(number, tid, None if folder == _HERE else folder, path, words[1] & 0xFFFFFFFF)


def _text(tid: int, address: int) -> bytes:
    text = b""
    memory = os.open(f"/proc/{tid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        while b"\0" not in text and len(text) < _LONGEST:
            text += os.pread(memory, 256 - (address + len(text)) % 256, address + len(text))
    finally:
        os.close(memory)
    return text.split(b"\0", 1)[0]


def refuse(listener: int, number: int, reason: int) -> None:
    """Make the open() of request *number* fail with the error *reason*."""
    _answer(listener, struct.pack("=QqiI", number, 0, -reason, 0))


def let_open(listener: int, number: int) -> None:
    """Let the process execute request *number* itself."""
    _answer(listener, struct.pack("=QqiI", number, 0, 0, _CONTINUE))


def give(listener: int, request: OpenRequest, descriptor: int) -> None:
    """Answer *request* with our open *descriptor*."""
    for_exec = request.flags & os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
        # Not atomically (SECCOMP_ADDFD_FLAG_SEND): if we were killed meanwhile, its open() would return 0.
        words = bytearray(struct.pack("=QIIII", request.number, 0, descriptor, 0, for_exec))
        added = fcntl.ioctl(listener, _ADD, words)
        _answer(listener, struct.pack("=QqiI", request.number, added, 0, 0))


def _answer(listener: int, words: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        fcntl.ioctl(listener, _SEND, words)


# Reasons why a process can't write files into one of our folders, as far as the kernel shows them.


_LEAST_BYTES = (
    1 << 20
)  # of a file: a process with a lower limit would be killed for writing a heap profile (SIGXFSZ)


class WriteObstacle(NamedTuple):
    """The reason why a process can't write, in words, and what to do."""

    reason: str
    hint: str


def file_limit(pid: int) -> Optional[WriteObstacle]:
    """Return why process *pid* can't write a file of some size; it would be killed for trying."""
    most = soft_limit(pid, "Max file size")
    if most is None or most >= _LEAST_BYTES:
        return None
    return WriteObstacle(
        f"the program may write files of {format_size(most)} at most, and would be killed for a larger one",
        "raise that limit (ulimit -f)",
    )


def why_unwritable(pid: int, folder: Path) -> Optional[WriteObstacle]:
    """Return why process *pid* can't write into *folder*; None if no reason is known.

    Source: proc(5), limits and status.
    """
    with contextlib.suppress(OSError, ValueError):
        return (
            file_limit(pid) or _root(pid, folder) or _user(pid, folder) or _descriptors(pid) or _disk(folder)
        )
    return None


def _root(pid: int, folder: Path) -> Optional[WriteObstacle]:
    if Path(f"{memory_folder(pid)}/root/").samefile("/"):
        return None
    root = printable(str(Path(f"{memory_folder(pid)}/root").readlink()))
    return WriteObstacle(
        f"the program's root is {root} (chroot), which does not contain {printable(str(folder))}",
        "take the snapshot before that, or --engine faults, which writes from outside",
    )


def _user(pid: int, folder: Path) -> Optional[WriteObstacle]:
    user = int(status_fields(pid).get("Uid", "0").split()[-1])  # for files
    if user in (0, folder.stat().st_uid):
        return None
    return WriteObstacle(
        f"the program now runs as user {user}, who may not write to {printable(str(folder))}",
        "take the snapshot before it changes its user, or launch it as that user",
    )


def _descriptors(pid: int) -> Optional[WriteObstacle]:
    most = soft_limit(pid, "Max open files")
    if most is None or len(os.listdir(f"{memory_folder(pid)}/fd")) < most:  # noqa: PTH208  (names only)
        return None
    return WriteObstacle(
        f"the program has reached its limit of {most} open files", "raise that limit (ulimit -n)"
    )


def _disk(folder: Path) -> Optional[WriteObstacle]:
    if os.statvfs(folder).f_bavail:
        return None
    return WriteObstacle(
        f"the disk of {printable(str(folder))} is full",
        "free some space there, or launch with --run DIR on another disk",
    )
