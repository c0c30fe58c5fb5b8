"""The memory that a process holds, or has left behind, without a mapping: files in memory, System V's objects, queues.

Source: tmpfs(5), sysvipc(7), mq_overview(7); proc(5), mountinfo, sysvipc; setns(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Container, Iterator, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple, Optional, Union

from gdbmem.linux.memory.descriptors import (
    device_name,
    held_by_descriptors,
    queue_bytes,
)
from gdbmem.linux.memory.maps import Mapping, mappings_of
from gdbmem.linux.process.process import memory_folder, pids, stat_of

_SHARED = "/dev/shm"
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_MEMORY_ONLY = frozenset({"hugetlbfs", "mqueue"})  # they have no files as a disk has
_NEW_USER, _NEW_IPC = 0x10000000, 0x08000000  # CLONE_NEWUSER, CLONE_NEWIPC
_SET_DUMPABLE = 4  # PR_SET_DUMPABLE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class Unmapped(NamedTuple):
    """Memory of a process that its mappings don't show, bytes."""

    known_bytes: int
    unread_bytes: int  # the most that there may be where gdbmem can't read how much there is


def unmapped_memory(pid: int, mappings: Sequence[Mapping]) -> Unmapped:
    """Return what process *pid* holds beside what *mappings* show, or has left where no process holds it.

    That is in files in memory, buffers of the kernel, pipes, sockets and message queues, in detached segments,
    queued messages and semaphores of System V, also of namespaces of its own. Raises OSError if that can't be read.
    """
    mounts = _mounts(pid)
    held = held_by_descriptors(pid, mappings, _memory_devices(mounts))
    seen = held.files.union((m.device, m.inode) for m in mappings if m.inode)
    left = _system_v_bytes(pid) + _left_bytes(pid, mounts, seen)
    return Unmapped(held.known_bytes + left, held.unread_bytes)


def file_system_bytes(pid: int, mappings: Sequence[Mapping]) -> int:
    """Return the bytes that *pid* shares by files of a tmpfs other than /dev/shm, which resident.own_bytes() lacks.

    Raises OSError if its mounts can't be read.
    """
    devices = _memory_devices(_mounts(pid))
    with_code = {(m.device, m.inode) for m in mappings if "x" in m.permissions}
    files = [m for m in mappings if m.is_file and "w" in m.permissions and m.permissions.endswith("s")]
    return sum(
        m.rss_bytes + m.swap_bytes
        for m in files
        if m.device in devices and (m.device, m.inode) not in with_code
    )


class _Mount(NamedTuple):
    point: str  # below the root of the process
    device: str  # as /proc/PID/maps has it
    kind: str  # the type of the file system


def _mounts(pid: Union[int, str]) -> list[_Mount]:
    """Return the mounts that process *pid*, or "self", sees, the later ones over the earlier. Raises OSError."""
    found = []
    folder = memory_folder(pid) if isinstance(pid, int) else f"/proc/{pid}"
    for line in Path(f"{folder}/mountinfo").read_bytes().splitlines():
        words = line.split()
        device = "{:02x}:{:02x}".format(*map(int, words[2].split(b":")))
        found.append(_Mount(os.fsdecode(words[4]), device, os.fsdecode(words[words.index(b"-") + 1])))
    return found


def _memory_devices(mounts: Sequence[_Mount]) -> set[str]:
    return {mount.device for mount in mounts if mount.kind in _IN_MEMORY}


# System V's segments, queues and semaphores

_SYSTEM_V = ("shm", "msg", "sem")
_MESSAGE_BYTES, _SEMAPHORE_BYTES = 64, 64  # of the kernel, beside a message's text


def _system_v_bytes(pid: int) -> int:
    """Return what *pid* holds by System V's objects: segments, queues and semaphores.

    That is what is resident of the detached segments that it created, the messages in queues to which it was the last
    to send, and all semaphores that its user created. Raises OSError if they are of another namespace that can't be
    entered.
    """
    segments, queues, semaphores = _system_v_tables(pid)
    detached = _rows(segments, "cpid", "nattch", "rss")
    left = sum(resident for creator, attached, resident in detached if creator == pid and not attached)
    for sender, queued, messages in _rows(queues, "lspid", "cbytes", "qnum"):
        left += (queued + messages * _MESSAGE_BYTES) if sender == pid else 0
    user = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
    sets = _rows(semaphores, "cuid", "nsems")
    return left + sum(count * _SEMAPHORE_BYTES for creator, count in sets if creator == user)


def _rows(table: str, *columns: str) -> Iterator[list[int]]:
    head, *rows = table.splitlines() or [""]
    names = head.split()
    if set(columns) <= set(names):
        places = [names.index(column) for column in columns]
        for words in map(str.split, rows):
            yield [int(words[place]) for place in places]


def _system_v_tables(pid: int) -> list[str]:
    """Return the kernel's tables of _SYSTEM_V in the namespace of *pid*; "" where there are none."""
    spaces = [(f"/proc/self/ns/{kind}", f"{memory_folder(pid)}/ns/{kind}") for kind in ("user", "ipc")]
    others = [os.readlink(ours) != os.readlink(theirs) for ours, theirs in spaces]  # noqa: PTH115
    if not others[1]:
        return _read_tables()
    entered = [
        (os.open(theirs, os.O_RDONLY | os.O_CLOEXEC), kind)
        for is_other, (_, theirs), kind in zip(others, spaces, (_NEW_USER, _NEW_IPC))
        if is_other
    ]
    try:
        return _read_in(entered)
    finally:
        for descriptor, _ in entered:
            os.close(descriptor)


def _read_tables() -> list[str]:
    texts = []
    for kind in _SYSTEM_V:
        try:
            texts.append(Path(f"/proc/sysvipc/{kind}").read_text())
        except FileNotFoundError:  # a kernel without them
            texts.append("")
    return texts


def _read_in(namespaces: Sequence[tuple[int, int]]) -> list[str]:
    """Return the tables that a child of this process reads in *namespaces*. Raises PermissionError."""
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # the memory of this process is nobody's there
            if not any(_libc.setns(descriptor, kind) for descriptor, kind in namespaces):
                with open(theirs, "wb") as stream:  # noqa: PTH123  (a descriptor)
                    stream.write("\0".join(_read_tables()).encode())
                status = 0
        finally:
            os._exit(status)
    os.close(theirs)
    try:
        with open(ours, "rb") as stream:  # noqa: PTH123  (a descriptor)
            text = stream.read().decode()
    finally:
        _, status = os.waitpid(child, 0)
    if status:
        raise PermissionError("its namespace of System V's objects can't be entered")
    return text.split("\0")


# Files in memory and message queues that nobody has open


def _left_bytes(pid: int, mounts: Sequence[_Mount], known: Container[tuple[str, int]]) -> int:
    """Return the bytes of files that have changed since *pid* started, and that no process has open.

    They are below its /dev/shm, in its hugetlbfs, in file systems in memory that only it has mounted, and its message
    queues. Who wrote them isn't recorded: they are of
    its user. *known* ones are counted elsewhere. Raises OSError.
    """
    ours = {mount.device for mount in _mounts("self")}
    points = [_SHARED]
    for mount in mounts:
        # A file system in memory that isn't mounted here is the program's own: nobody else writes there.
        if mount.kind in _MEMORY_ONLY or (mount.kind in _IN_MEMORY and mount.device not in ours):
            points.append(mount.point)
    return sum(_left_below(pid, mounts, point, known) for point in dict.fromkeys(points))


def _left_below(pid: int, mounts: Sequence[_Mount], point: str, known: Container[tuple[str, int]]) -> int:
    mount = _mount_of(point, mounts)
    folder = _memory_folder(pid, mounts, point)
    if folder is None or mount is None:
        return 0
    try:
        device = device_name(os.fstat(folder).st_dev)
        user = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
        began = _started(pid)
        left: dict[str, tuple[int, int]] = {}  # inode and bytes, by path
        for path, facts in _files_below(folder, point, {mount.point for mount in mounts}, user):
            is_new = facts.st_uid == user and facts.st_ctime >= began
            if is_new and (device, facts.st_ino) not in known:
                is_queue = mount.kind == "mqueue"
                size = (
                    queue_bytes(path.rpartition("/")[2], folder=folder) if is_queue else facts.st_blocks * 512
                )
                left[path] = facts.st_ino, size
    finally:
        os.close(folder)
    in_use = _in_use(device, point, {inode: path for path, (inode, _) in left.items()}) if left else ()
    return sum(size for path, (_, size) in left.items() if path not in in_use)


def _files_below(
    folder: int, path: str, points: Container[str], user: int
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the regular files below *path*, open as *folder*; *points* are the folders where others are mounted.

    Folders that *user*, as whom this process runs, may not enter have no files of this user.
    """
    closed = PermissionError if user == os.geteuid() else FileNotFoundError
    for entry in os.scandir(folder):
        there = f"{path}/{entry.name}"
        with contextlib.suppress(FileNotFoundError, closed):
            if entry.is_file(follow_symlinks=False):
                yield there, entry.stat(follow_symlinks=False)
            elif entry.is_dir(follow_symlinks=False) and there not in points:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                inner = os.open(entry.name, flags, dir_fd=folder)
                try:
                    yield from _files_below(inner, there, points, user)
                finally:
                    os.close(inner)


def _memory_folder(pid: int, mounts: Sequence[_Mount], point: str) -> Optional[int]:
    """Return a descriptor of the folder *point* that *pid* sees; None if it has none in memory. Raises OSError."""
    over = {part: _mount_of(part, mounts) for part in (*map(str, PurePath(point).parents), point)}
    shared = over[point]
    if shared is None or shared.kind not in _IN_MEMORY.union(_MEMORY_ONLY):
        return None
    root = f"{memory_folder(pid)}/root"
    is_ours = os.readlink(root) == "/" and os.readlink("/proc/self/ns/mnt") == os.readlink(  # noqa: PTH115
        f"{memory_folder(pid)}/ns/mnt"
    )
    # A file system of its user may answer never.
    if not is_ours and any(mount is not None and mount.kind.startswith("fuse") for mount in over.values()):
        raise PermissionError("its root is on FUSE")
    try:
        folder = os.open(f"{root}{point}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if device_name(os.fstat(folder).st_dev) != shared.device:
        os.close(folder)
        raise PermissionError(f"its {point} is another folder now")
    return folder


def _mount_of(path: str, mounts: Sequence[_Mount]) -> Optional[_Mount]:
    """Return the mount that *path*, without links, is on."""
    covering = [one for one in mounts if one.point == path or path.startswith(one.point.rstrip("/") + "/")]
    longest = max((len(one.point) for one in covering), default=0)
    return next((one for one in reversed(covering) if len(one.point) == longest), None)


def _started(pid: int) -> float:
    """Return when *pid* started, in seconds since 1970, up to two clock ticks early. Raises OSError."""
    found = stat_of(pid)
    if found is None:
        raise ProcessLookupError
    since_boot = float(Path("/proc/uptime").read_bytes().split()[0])
    return time.time() - since_boot + (found.start_ticks - 2) / os.sysconf("SC_CLK_TCK")


def _in_use(device: str, point: str, paths: dict[int, str]) -> set[str]:
    """Return those of the files *paths* (by inode) of *device*, below *point*, that a process has open or mapped."""
    names = set(paths.values())
    found: set[str] = set()
    for pid in pids():
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    # To follow it could ask the file's system. Its path begins at our root, not at that of the process.
                    link = os.readlink(entry.path)  # noqa: PTH115
                    _, mounted, name = link.rpartition(f"{point}/")
                    found.update(
                        (mounted + name, point + link)
                    )  # the kernel leaves out where a queue is mounted
        with contextlib.suppress(OSError):
            for one in mappings_of(pid):
                if one.device == device and one.inode in paths:
                    found.add(paths[one.inode])
    return found & names
