"""Opening files for a gdb that is attached to an untrusted process: only regular files.

The process's memory and files name other files to gdb: libraries, the dynamic linker, debug information, scripts.
A FIFO among them would block gdb forever, and a device may have any effect. A separate process opens each file that
gdb reads, checks its type, and passes the descriptor. A second process replaces it if it is killed, because gdb
could not open any file without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import re
import select
import socket
import stat
import struct
import time
from pathlib import Path
from typing import Callable, NamedTuple, NoReturn, Optional

from gdbmem.files import close_all_but
from gdbmem.launch.child import outlive_parent

# Opening files on behalf of another process: the kernel passes its open() calls to us and takes a descriptor.
#
# Source: seccomp_unotify(2); Linux, include/uapi/linux/seccomp.h and include/uapi/linux/bpf_common.h.


_SECCOMP = {"x86_64": 317, "aarch64": 277}
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_OPEN, _OPENAT = {"x86_64": 2}, {"x86_64": 257, "aarch64": 56}
_MACHINE = os.uname().machine
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
    _send(listener, struct.pack("=QqiI", number, 0, -reason, 0))


def let_open(listener: int, number: int) -> None:
    """Let the process execute request *number* itself."""
    _send(listener, struct.pack("=QqiI", number, 0, 0, _CONTINUE))


def give(listener: int, request: OpenRequest, descriptor: int) -> None:
    """Answer *request* with our open *descriptor*."""
    for_exec = request.flags & os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
        # Not atomically (SECCOMP_ADDFD_FLAG_SEND): if we were killed meanwhile, its open() would return 0.
        words = bytearray(struct.pack("=QIIII", request.number, 0, descriptor, 0, for_exec))
        added = fcntl.ioctl(listener, _ADD, words)
        _send(listener, struct.pack("=QqiI", request.number, added, 0, 0))


def _send(listener: int, words: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        fcntl.ioctl(listener, _SEND, words)


# What gdb may open, and the processes that answer it.

_DEVICES = (b"/dev/null", b"/dev/zero", b"/dev/random", b"/dev/urandom")
# The allowed files of the kernel, whose files may block or act: those with data about processes or the machine.
_KERNELS = re.compile(
    rb"/proc/(?:(?:self|thread-self|\d+)(?:/task/\d+)?/(?!root|cwd|exe|fd|map_files)\w+|[a-z]+info|stat|version|mounts"
    rb"|filesystems|uptime|loadavg|sys/[\w/.-]+)|/sys/(?:devices/system|kernel/mm|fs/cgroup)/[\w/.:-]+"
)
_SECONDS = 1.0  # to end after gdb


class Doorkeeper:
    """Over one gdb. Use as a context manager around its whole life; it ends by itself after gdb."""

    def __init__(self, folder: Path, missing: Callable[[str], Optional[int]]) -> None:
        """Begin to wait for gdb; on a machine whose numbers aren't known do nothing.

        *missing* returns a descriptor of a file that gdb does not find below *folder*, by its name there.
        """
        self._child = 0
        if not is_known():
            return
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._child = os.fork()
        if self._child == 0:
            _keep(theirs, _Files(os.fsencode(folder), missing))
        theirs.close()

    def __enter__(self) -> Doorkeeper:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child:
            self._socket.close()
            deadline = time.monotonic() + _SECONDS
            with contextlib.suppress(ChildProcessError):
                # Programs that the user has started from gdb may continue, and need it.
                while not os.waitpid(self._child, os.WNOHANG)[0] and time.monotonic() < deadline:
                    time.sleep(0.002)

    @property
    def before_exec(self) -> Optional[Callable[[], None]]:
        """Steps that gdb's process takes before it becomes gdb."""
        return self._hand_over if self._child else None

    def _hand_over(self) -> None:
        # An older kernel, or a container's filter, has no such thing: gdb then opens files itself.
        with contextlib.suppress(OSError):
            listener = hand_over_opens(self._child)
            socket.send_fds(self._socket, [b"+"], [listener])
            os.close(listener)


def _keep(theirs: socket.socket, files: _Files) -> NoReturn:
    """Serve gdb's open requests until gdb exits, then exit."""
    try:
        outlive_parent()
        close_all_but(0, 1, 2, theirs.fileno())
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        _, found, _, _ = socket.recv_fds(theirs, 1, 1)
        theirs.close()
        if found:
            _serve_always(found[0], files)
    finally:
        os._exit(0)


def _serve_always(listener: int, files: _Files) -> None:
    """Make a process answer gdb, and another one if that is killed."""
    memory, status = shared_request(), -1
    while status != 0:
        child = os.fork()
        if child == 0:
            try:
                _serve(listener, files, memory)
            finally:
                os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status != 0:
            with contextlib.suppress(OSError):  # that one was answered
                request = latest_request(listener, memory)
                if request is not None:
                    _answer(listener, request, files)


def _serve(listener: int, files: _Files, memory: mmap.mmap) -> None:
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    while True:
        for _, events in waiting.poll():
            if not events & select.POLLIN:
                return  # of gdb and what it started nothing lives
            request = next_request(listener, memory)
            if request is not None:
                _answer(listener, request, files)


def _answer(listener: int, request: OpenRequest, files: _Files) -> None:
    path = request.path
    if path in _DEVICES or (_KERNELS.fullmatch(path) and b".." not in path):
        let_open(listener, request.number)
        return
    try:
        descriptor = files.open(request)
    except OSError as error:
        refuse(listener, request.number, error.errno or errno.EACCES)
        return
    try:
        give(listener, request, descriptor)
    finally:
        os.close(descriptor)


class _Files(NamedTuple):
    folder: bytes
    missing: Callable[[str], Optional[int]]

    def open(self, request: OpenRequest) -> int:
        """Return a descriptor of what gdb asks for. Raises OSError."""
        try:
            return _opened(request)
        except FileNotFoundError:
            name = request.path[len(self.folder) :]
            found = None
            if request.path.startswith(self.folder + b"/") and b".." not in name:
                found = self.missing(os.fsdecode(name))
            if found is None:
                raise
            os.lseek(found, 0, os.SEEK_SET)  # another reader has moved its position
            return found


def _opened(request: OpenRequest) -> int:
    """Return a descriptor of the regular file, or folder, that gdb asks for. Raises OSError for anything else."""
    path = request.path
    for name in (b"/proc/self/", b"/proc/thread-self/"):
        if path.startswith(name):
            path = b"/proc/%d/%s" % (request.tid, path[len(name) :])
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    with contextlib.ExitStack() as opened:
        above = None
        if not path.startswith(b"/"):
            place = "cwd" if request.folder is None else f"fd/{request.folder}"
            above = os.open(f"/proc/{request.tid}/{place}", os.O_PATH | os.O_CLOEXEC)
            opened.callback(os.close, above)
        found = os.open(path, os.O_PATH | os.O_CLOEXEC | request.flags & os.O_NOFOLLOW, dir_fd=above)
        opened.callback(os.close, found)
        facts = os.fstat(found)
        if not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)) or _is_kernels(found):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)


def _is_kernels(descriptor: int) -> bool:
    """Return whether it is a file of the kernel, generated when it is read."""
    facts = os.fstatvfs(descriptor)
    return facts.f_blocks == 0 and facts.f_files == 0
