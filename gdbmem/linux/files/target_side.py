"""Access to the files of another process, with its rights only.

A helper process holds the target's root and current folder open, takes its user and groups, drops all capabilities,
and executes requests. Paths that the target names or can change are opened only by the helper: with openat2() below
the target's root, without following links out of it. The contents come back over a socket.
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
from typing import Any, BinaryIO, Optional

from gdbmem.errors import TargetError
from gdbmem.linux.files.target_side_helper import DATA, END, FAILED, PIECE, Rights, serve
from gdbmem.linux.process.process import memory_folder
from gdbmem.text import printable

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
        """Write the contents of the regular file *path* of the process to *stream*. Raises TargetError likewise."""
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
