"""Opening files for a gdb that is attached to an untrusted process: only regular files.

The process's memory and files name other files to gdb: libraries, the dynamic linker, debug information, scripts.
A FIFO among them would block gdb forever, and a device may have any effect. A separate process opens each file that
gdb reads, checks its type, and passes the descriptor. A second process replaces it if it is killed, because gdb
could not open any file without it.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import select
import socket
import stat
import time
from pathlib import Path
from typing import Callable, NamedTuple, NoReturn, Optional

from gdbmem.files import close_all_but
from gdbmem.launch.child import outlive_parent
from gdbmem.linux.files import open_requests
from gdbmem.linux.files.open_requests import OpenRequest

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
        if not open_requests.is_known():
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
            listener = open_requests.hand_over_opens(self._child)
            socket.send_fds(self._socket, [b"+"], [listener])
            os.close(listener)


def _keep(theirs: socket.socket, files: _Files) -> NoReturn:
    """Answer gdb until it has ended; never return."""
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
    memory, status = open_requests.shared_request(), -1
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
                request = open_requests.latest_request(listener, memory)
                if request is not None:
                    _answer(listener, request, files)


def _serve(listener: int, files: _Files, memory: mmap.mmap) -> None:
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    while True:
        for _, events in waiting.poll():
            if not events & select.POLLIN:
                return  # of gdb and what it started nothing lives
            request = open_requests.next_request(listener, memory)
            if request is not None:
                _answer(listener, request, files)


def _answer(listener: int, request: OpenRequest, files: _Files) -> None:
    path = request.path
    if path in _DEVICES or (_KERNELS.fullmatch(path) and b".." not in path):
        open_requests.let_open(listener, request.number)
        return
    try:
        descriptor = files.open(request)
    except OSError as error:
        open_requests.refuse(listener, request.number, error.errno or errno.EACCES)
        return
    try:
        open_requests.give(listener, request, descriptor)
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
