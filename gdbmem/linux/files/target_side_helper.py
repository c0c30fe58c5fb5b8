"""The helper of linux/files/target_files.py: opens files with exactly the rights of another process.

Source: Linux, fs/open.c (openat2) and include/uapi/linux/openat2.h; capset(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import signal
import socket
import stat
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, NoReturn, Optional

from gdbmem.files import close_all_but
from gdbmem.text import format_size

FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # folders in which one of these users may write
PIECE = 1 << 16
DATA, END, FAILED = b"+", b".", b"!"  # the first byte of the pieces of an answer
_OPENAT2 = 437  # on every architecture
_NO_MAGIC_LINKS, _NO_LINKS, _IN_ROOT = 0x02, 0x04, 0x10
_SET_DUMPABLE, _SET_NO_NEW_PRIVS = 4, 38
_CAPABILITY_VERSION_3 = 0x20080522
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW
_NAME = re.compile(r"gdbmem-[0-9a-f]{16}")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class Rights(NamedTuple):
    """User, groups and namespaces with which a process opens files."""

    uid: int
    gid: int
    groups: Sequence[int]


class _RefusedError(Exception):
    """A refused request; the message gives the reason."""


def serve(ours: socket.socket, root: int, current: int, rights: Rights) -> NoReturn:
    """Execute requests until the socket closes; never return."""
    status = 1
    try:
        refusal = None
        try:
            _become(rights, keep=(ours.fileno(), root, current))
        except OSError as error:
            refusal = f"can't switch to user {rights.uid}: {error.strerror}"
        helper = _FileHelper(ours, root, current)
        try:
            while True:
                request = ours.recv(PIECE)
                if not request:
                    break
                helper.answer(json.loads(request), refusal)
        finally:
            helper.clean_up()
        status = 0
    finally:
        os._exit(status)


def _become(rights: Rights, *, keep: Sequence[int]) -> None:
    """Give up the terminal, our descriptors and our rights. Raises OSError on failure."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    _checked(_libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0))  # processes of the target's user must not trace it
    os.setsid()
    os.chdir("/")
    close_all_but(0, 1, 2, *keep)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.umask(0o077)
    if os.geteuid() == 0:
        if sorted(os.getgroups()) != list(rights.groups):
            os.setgroups(list(rights.groups))
        os.setresgid(rights.gid, rights.gid, rights.gid)
        os.setresuid(rights.uid, rights.uid, rights.uid)
    elif os.geteuid() != rights.uid:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, bytes(24)))
    _checked(_libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0))  # a change of user may have set it again


def _checked(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class _FileHelper:
    """Files of the target, opened with its rights."""

    def __init__(self, ours: socket.socket, root: int, current: int) -> None:
        self._socket, self._root, self._current = ours, root, current
        self._parent: Optional[int] = None
        self._name = ""
        self._folder = -1

    def answer(self, words: list[Any], refusal: Optional[str]) -> None:
        """Execute the request *words* and send the answer."""
        known: dict[str, Callable[..., None]] = {
            "ready": lambda: None, "make": self._make, "may write": self._may_write,
            "copy": self._copy, "read": self._read, "open": self._hand_over,
            "adopt": self._adopt,
        }  # fmt: skip
        try:
            if refusal is not None:
                raise _RefusedError(refusal)
            known[words[0]](*words[1:])
        except _RefusedError as error:
            self._socket.send(FAILED + str(error).encode(errors="replace"))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self._socket.send(FAILED + str(reason).encode(errors="replace"))
        else:
            self._socket.send(END)

    def _make(self) -> None:
        reason = ""
        for parent in FOLDERS:
            try:
                self._make_in(parent)
            except OSError as error:
                reason = f"{parent}: {error.strerror}"
            else:
                self._socket.send(DATA + f"{parent}/{self._name}".encode())
                return
        raise _RefusedError(f"no folder could be made for it to write to ({reason})")

    def _make_in(self, parent: str) -> None:
        above, name = self._open(parent, os.O_RDONLY | os.O_DIRECTORY), f"gdbmem-{os.urandom(8).hex()}"
        try:
            os.mkdir(name, 0o700, dir_fd=above)
            self._folder = os.open(name, os.O_RDONLY | _FOLDER | os.O_CLOEXEC, dir_fd=above)
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=above)
            os.close(above)
            raise
        self._parent, self._name = above, name

    def _adopt(self, path: str) -> None:
        """Register the folder *path*, which another helper created, for removal at the end."""
        parent, _, name = path.rpartition("/")
        if parent not in FOLDERS or not _NAME.fullmatch(name):
            raise _RefusedError(f"{path} is not a folder of gdbmem's")
        above = self._open(parent, os.O_RDONLY | os.O_DIRECTORY)
        self._folder = os.open(name, os.O_RDONLY | _FOLDER | os.O_CLOEXEC, dir_fd=above)
        self._parent, self._name = above, name

    def _may_write(self, path: str, identity: list[int]) -> None:
        answer = b"no"
        with contextlib.suppress(OSError):
            folder = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                facts = os.fstat(folder)
                if [facts.st_dev, facts.st_ino] == identity and os.access(".", os.W_OK, dir_fd=folder):
                    answer = b"yes"
            finally:
                os.close(folder)
        self._socket.send(DATA + answer)

    def _copy(self, path: str, limit_bytes: int, removes: bool) -> None:
        with self._regular(path) as (folder, name, file):
            if os.fstat(file).st_size > limit_bytes:
                raise _RefusedError(f"{path} is over {format_size(limit_bytes)}")
            self._send(file, limit_bytes)
            if removes:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)

    def _hand_over(self, path: str) -> None:
        with self._regular(path) as (_, _, file):
            socket.send_fds(self._socket, [DATA], [file])

    def _read(self, path: str, offset: int, size: int) -> None:
        with self._regular(path) as (_, _, file):
            for at in range(offset, offset + size, PIECE):
                data = os.pread(file, min(PIECE, offset + size - at), at)
                if data:
                    self._socket.send(DATA + data)

    @contextlib.contextmanager
    def _regular(self, path: str) -> Iterator[tuple[int, str, int]]:
        """Open the regular file *path*; yield its open folder, its name there and the file's descriptor."""
        where, _, name = path.rpartition("/")
        with contextlib.ExitStack() as opened:
            above = where or ("/" if path.startswith("/") else ".")
            folder = self._open(above, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, folder)
            how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            file = os.open(name, how, dir_fd=folder)
            opened.callback(os.close, file)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise _RefusedError(f"{path} is not a regular file")
            yield folder, name, file

    def _send(self, file: int, limit_bytes: int) -> None:
        for _ in range(limit_bytes // PIECE + 1):  # it may grow meanwhile
            piece = os.read(file, PIECE)
            if not piece:
                return
            self._socket.send(DATA + piece)
        raise _RefusedError(f"the file is over {format_size(limit_bytes)}")

    def _open(self, path: str, flags: int) -> int:
        """Open *path* as the target would: below its root, or below its current folder if it is relative."""
        is_whole = path.startswith("/")
        folder, resolve = (self._root, _IN_ROOT | _NO_MAGIC_LINKS) if is_whole else (self._current, _NO_LINKS)
        try:
            return _openat2(folder, path, flags, resolve)
        except OSError as error:
            if error.errno not in (
                errno.ENOSYS,
                errno.EPERM,
            ):  # older than Linux 5.6, or a container's filter
                raise
        if not os.path.samestat(Path("/").stat(), os.fstat(self._root)):
            raise _RefusedError("it has another root folder, and this kernel lacks openat2()")
        return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._current)

    def clean_up(self) -> None:
        """Remove the created folder, and the files in it."""
        if self._folder < 0 or self._parent is None:
            return
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder):  # noqa: PTH208  (a descriptor)
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=self._folder)
            os.rmdir(self._name, dir_fd=self._parent)


def _openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC | os.O_NONBLOCK, 0, resolve)
    ctypes.set_errno(0)
    found: int = _libc.syscall(_OPENAT2, folder, os.fsencode(path), how, len(how))
    if found >= 0:
        return found
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
