"""Reading the files that a process has loaded, without trusting the process or its user.

A file is opened directly if it has the same name here and the process's user can't have changed the meaning of that
name. Every other file is read through linux/files/target_files.py, with the process's own rights.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import stat
import time
from pathlib import Path
from typing import Any, BinaryIO, Optional

from gdbmem.errors import TargetError
from gdbmem.files import open_regular
from gdbmem.linux.files.target_side_helper import DATA, END, FAILED, PIECE, Rights, serve
from gdbmem.linux.process.process import memory_folder
from gdbmem.text import printable

# Access to the files of another process, with its rights only.
#
# A helper process holds the target's root and current folder open, takes its user and groups, drops all
# capabilities, and executes requests. Paths that the target names or can change are opened only by the helper: with
# openat2() below the target's root, without following links out of it. The contents come back over a socket.


LARGEST_BYTES = 1 << 30  # of a file to copy: heap profiles take some MiB
SECONDS = 30.0  # for an answer: the file may be on a network, or on a FUSE file system of the target's user


def rights_of(pid: int) -> Rights:
    """Return the rights of process *pid*. Raises OSError if there is none."""
    process = os.open(memory_folder(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _rights(process)
    finally:
        os.close(process)


def _rights(process: int) -> Rights:
    """Return the rights of the process whose folder in /proc is open as *process*."""
    descriptor = os.open("status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    with open(descriptor, "rb") as stream:  # noqa: PTH123  (a descriptor)
        lines = dict(line.split(b":", 1) for line in stream.read().splitlines() if b":" in line)
    return Rights(
        int(lines[b"Uid"].split()[3]),
        int(lines[b"Gid"].split()[3]),
        tuple(sorted(int(word) for word in lines[b"Groups"].split())),
    )


class TargetSide:
    """The helper for process *pid*. The context manager ends it and removes its folder."""

    def __init__(self, pid: int) -> None:
        """Start the helper. Raises TargetError if it can't take the rights of *pid*."""
        self._pid = pid
        self.folder = ""  # created by make_folder(), as a path of the process
        self._name_of_root = "/"
        try:
            self._name_of_root = os.readlink(f"{memory_folder(pid)}/root")  # noqa: PTH115
            with contextlib.ExitStack() as opened:
                root, current, rights = self._open(opened)
                self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._child = os.fork()
                if self._child == 0:
                    serve(theirs, root, current, rights)
                theirs.close()
        except OSError as error:
            raise self._error(f"its root folder can't be opened: {error.strerror}") from error
        self._socket.settimeout(SECONDS)
        try:
            self._ask("ready")
        except BaseException:
            self.close()
            raise

    def _open(self, opened: contextlib.ExitStack) -> tuple[int, int, Rights]:
        found: list[int] = []
        for path in (memory_folder(self._pid), "root", "cwd"):
            process = found[0] if found else None
            found.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process))
            opened.callback(os.close, found[-1])
        # Read after its root: a program that gains rights has them before it can choose another root.
        return found[1], found[2], _rights(found[0])

    def __enter__(self) -> TargetSide:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def make_folder(self) -> str:
        """Create a folder that the process can write to; return its path in the process's view."""
        self.folder = self._ask("make").decode()
        return self.folder

    def may_write(self, path: str, identity: tuple[int, int]) -> bool:
        """Return whether the process can write into the folder *path* of device and inode *identity*."""
        return self._ask("may write", path, list(identity)) == b"yes"

    def name_there(self, name: str) -> str:
        """Return the path in the process's view of the file *name* of /proc/PID/maps: its root may be a chroot."""
        beside = name.removeprefix(self._name_of_root)
        # The only character that the kernel escapes.
        return (beside if beside.startswith("/") else name).replace("\\012", "\n")

    def open(self, path: str) -> int:
        """Return a descriptor of the regular file *path* of the process, opened for reading with its rights.

        Raises TargetError. Reading may take as long as the file system of the process's user lets it.
        """
        try:
            self._socket.send(json.dumps(["open", path]).encode())
            piece, found, _, _ = socket.recv_fds(self._socket, PIECE + 1, 1)
        except OSError:
            piece, found = b"", []
        if piece[:1] != DATA or len(found) != 1:
            for number in found:
                os.close(number)
            raise self._error(piece[1:].decode(errors="replace") or "its helper process has ended")
        self._exchange()
        if not stat.S_ISREG(os.fstat(found[0]).st_mode):
            os.close(found[0])
            raise self._error(f"{path} is not a regular file")
        return found[0]

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Return up to *size* bytes of the regular file *path* of the process."""
        return self._ask("read", path, offset, size)

    def collect(self, path: str, stream: BinaryIO) -> None:
        """Write the contents of the regular file *path* of the process to *stream*, and remove the file.

        Raises TargetError, also for a link and a file over LARGEST_BYTES.
        """
        self._ask("copy", path, LARGEST_BYTES, True, stream=stream)

    def copy(self, path: str, stream: BinaryIO) -> None:
        """Write the contents of the regular file *path* of the process to *stream*. Raises TargetError as `collect`."""
        self._ask("copy", path, LARGEST_BYTES, False, stream=stream)

    def close(self) -> None:
        """End the helper: it removes its folder when the socket closes. If it was killed, another helper does."""
        self._socket.close()
        status = _wait(self._child, 5.0)
        if status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            status = _wait(self._child, 2.0)
        if self.folder and status != 0:
            with contextlib.suppress(TargetError), TargetSide(self._pid) as another:
                another._ask("adopt", self.folder)

    def _ask(self, *words: Any, stream: Optional[BinaryIO] = None) -> bytes:
        answer = io.BytesIO()
        kind, data = self._exchange(json.dumps(words).encode())
        while kind == DATA:
            (stream or answer).write(data)
            kind, data = self._exchange()
        if kind == END:
            return answer.getvalue()
        raise self._error(data.decode(errors="replace"))

    def _exchange(self, *request: bytes) -> tuple[bytes, bytes]:
        """Send *request*, if there is one; return the kind of the next piece of the answer, and the piece."""
        try:
            for words in request:
                self._socket.send(words)
            piece = self._socket.recv(PIECE + 1)
        except socket.timeout:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            return FAILED, f"no answer within {SECONDS:.0f} s".encode()
        except OSError:
            piece = b""
        return (piece[:1], piece[1:]) if piece else (FAILED, b"its helper process has ended")

    def _error(self, reason: str) -> TargetError:
        return TargetError(
            f"the files of process {self._pid} can't be reached with its own rights: {printable(reason)}",
            slug="target-side",
            hint="is the disk full, or /tmp of the process?",
        )


def _wait(child: int, seconds: float) -> Optional[int]:
    """Collect *child*; return its exit status, None if it did not end within *seconds*."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            pid, status = os.waitpid(child, os.WNOHANG)
        except ChildProcessError:
            return 0  # who knows how
        if pid:
            return status
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.002)


_PIECE = 1 << 16
_MOST_LINKS = 40  # symbolic links in a path, the kernel's limit


class TargetFiles:
    """The files of process *pid*; without one (a core) those of the same names here. Leave with the context manager."""

    def __init__(self, pid: Optional[int] = None) -> None:
        """Start a helper if one is needed; without one only trusted files are opened."""
        self.rights: Optional[Rights] = None  # rights for reading untrusted files; None: ours
        self.is_elsewhere = False
        self._side: Optional[TargetSide] = None
        if pid is None:
            return
        try:
            self.is_elsewhere = not has_our_view(pid)
            rights = rights_of(pid)
        except OSError:
            return  # it has just ended
        if not self.is_elsewhere and rights.uid == os.geteuid():
            return
        self.rights = rights
        try:
            self._side = TargetSide(pid)
        except TargetError:
            self._side = None

    def __enter__(self) -> TargetFiles:
        return self

    def __exit__(self, *_: object) -> None:
        if self._side is not None:
            self._side.close()

    def is_trusted(self, name: str) -> bool:
        """Return whether only root and the current user can change the meaning of *name* for the process."""
        return not self.is_elsewhere and _is_unchangeable(Path(name))

    def open(self, name: str) -> BinaryIO:
        """Open the regular file *name* of /proc/PID/maps. Raises OSError on failure."""
        if self.rights is None or self.is_trusted(name):
            return open_regular(name)
        if self._side is None:
            raise PermissionError(f"the files of the process can't be reached: {name}")
        stream = _FileThere(self._side, self._side.name_there(name))
        stream.read(1)  # fails now rather than later
        stream.seek(0)
        return io.BufferedReader(stream, _PIECE)


def has_our_view(pid: int) -> bool:
    """Return whether paths mean the same to process *pid* and to this one. Raises OSError if it has ended."""
    there = memory_folder(pid)
    ours, theirs = (os.readlink(f"{folder}/ns/mnt") for folder in ("/proc/self", there))  # noqa: PTH115
    return ours == theirs and os.path.samestat(os.stat(f"{there}/root/"), os.stat("/"))  # noqa: PTH116


def _is_unchangeable(path: Path) -> bool:
    """Return whether *path*, a path without links, belongs to root or us, and no other user may write to it."""
    if not path.is_absolute() or ".." in path.parts:
        return False
    try:
        found = [one.lstat() for one in (path, *path.parents)]
    except (OSError, ValueError):
        return False
    return all(
        one.st_uid in (0, os.geteuid()) and not one.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        and not stat.S_ISLNK(one.st_mode)
        for one in found
    )  # fmt: skip


def may_be_opened(name: str) -> bool:
    """Return whether *name* is a regular file, and only root and we can change its meaning.

    All links in the path are checked. Such a name can be opened even if another user provided it.
    """
    path = Path(name)
    for _ in range(_MOST_LINKS):
        if not path.is_absolute() or ".." in path.parts:
            return False
        try:
            found = [(one, one.lstat()) for one in (*reversed(path.parents), path)]
            link = next((one for one, facts in found if stat.S_ISLNK(facts.st_mode)), None)
            target = link.readlink() if link is not None else None
        except (OSError, ValueError):
            return False
        if not all(_is_safe(facts) for _, facts in found):
            return False
        if link is None or target is None:
            return stat.S_ISREG(found[-1][1].st_mode)
        path = Path(os.path.normpath(link.parent / target)) / path.relative_to(link)
    return False


def _is_safe(facts: os.stat_result) -> bool:
    is_writable = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not stat.S_ISLNK(facts.st_mode)
    return facts.st_uid in (0, os.geteuid()) and not is_writable


class _FileThere(io.RawIOBase):
    """A regular file of the process, read piece by piece with its rights."""

    def __init__(self, side: TargetSide, name: str) -> None:
        super().__init__()
        self._side, self._name, self._at = side, name, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to *offset*; its end is not known."""
        if whence == os.SEEK_END:
            raise io.UnsupportedOperation("the size is not known")
        self._at = offset + (self._at if whence == os.SEEK_CUR else 0)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the parent's is wider
        try:
            data = self._side.read(self._name, self._at, len(buffer))
        except TargetError as error:
            raise OSError(error.message) from error
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
