"""The memory that a process holds by its descriptors: files in memory, buffers of the kernel, queues, pipes, sockets.

Source: memfd_create(2), pipe(7), vmsplice(2), unix(7), packet(7), sock_diag(7), mq_overview(7), io_uring_register(2),
bpf(2), pidfd_getfd(2), kcmp(2); proc(5), fdinfo.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import socket
import struct
import sys
import termios
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.linux.process.process import living_thread, memory_folder, thread_ids

_PIDFD_OPEN, _PIDFD_GETFD = 434, 438  # on every architecture
_PIDFD_THREAD = os.O_EXCL  # from Linux 6.9 on
_KCMP, _KCMP_FILES = {"x86_64": 312, "aarch64": 272}.get(os.uname().machine, -1), 2
_GETPIPE_SZ = 1032
_PIPE, _SOCKET, _BUFFER = "pipe:", "socket:", "anon_inode:"
_SECRET = "/secretmem"
_MEMORY_NAMES = ("/memfd:", "/dev/shm/", _SECRET)
_POSIX_QUEUE_BYTES = 80  # of the text that describes a queue
_REGISTERED = re.compile(r"^ *\d+: 0x([0-9a-f]+)/(\d+)$", re.MULTILINE)
_SUBMISSION_BYTES, _COMPLETION_BYTES = 64 + 4, 16  # of io_uring, an entry
_ANY_AMOUNT = sys.maxsize
_SO_MEMINFO = 55  # its first word is SK_MEMINFO_RMEM_ALLOC
_SOCK_DIAG, _BY_FAMILY, _DUMP = 4, 20, 0x301
_NETLINK, _PACKET_REQUEST, _PACKET_ANSWER = map(struct.Struct, ("=I2H2I", "=2BH4I", "=2BH3I"))
_SHOW_INFO, _SHOW_RINGS = 1, 4
_INFO, _RECEIVE_RING, _SEND_RING = 0, 2, 3  # attributes
_TPACKET_V2 = 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class Held(NamedTuple):
    """Memory that a process holds by its descriptors beside what its mappings show, bytes."""

    known_bytes: int
    unread_bytes: int  # the most that may be where gdbmem can't read how much there is
    files: frozenset[tuple[str, int]]  # the files in memory that it has open: device and inode


def held_by_descriptors(pid: int, mappings: Sequence[Mapping], devices: Container[str]) -> Held:
    """Return what process *pid*, with *mappings*, holds by its descriptors; *devices* are file systems in memory.

    Raises OSError if they can't be listed.
    """
    files: dict[tuple[str, int], int] = {}  # bytes, by device and inode
    channels: dict[str, tuple[int, int]] = {}  # thread and descriptor, by the name of the pipe or socket
    buffers: dict[str, set[str]] = {}  # what the kernel says of each, by kind
    queues = in_flight = 0
    for tid, entry in _descriptors(pid):
        folder = f"/proc/{pid}/task/{tid}"
        with contextlib.suppress(OSError):  # it has just been closed
            facts = entry.stat()
            device = device_name(facts.st_dev)
            # A file with a name, as that of the standard output, is memory of its file system.
            is_gone = not facts.st_nlink and device in devices
            name = os.readlink(entry.path)  # noqa: PTH115  (hot path)
            number = int(entry.name)
            if is_gone or name.startswith(_MEMORY_NAMES):
                # Of secret memory the kernel tells only the size of the file.
                size = facts.st_size if name.startswith(_SECRET) else facts.st_blocks * 512
                files[device, facts.st_ino] = size
            elif name.startswith(_PIPE):
                channels[name] = min((tid, number), channels.get(name, (tid, number)))
            elif name.startswith(_SOCKET):
                channels[name] = min((tid, number), channels.get(name, (tid, number)))
                in_flight += _number(_facts(folder, number), "scm_fds")
            elif name.startswith(_BUFFER):
                buffers.setdefault(name, set()).add(_facts(folder, number))
            elif facts.st_size == _POSIX_QUEUE_BYTES and name.count("/") == 1:
                queues += queue_bytes(entry.path)
    # How full its standard streams are is up to those who read them.
    waiting, unread = _waiting_bytes(pid, {name: one for name, one in channels.items() if one[1] > 2})
    beside = _beside_mappings({**_mapped_files(memory_folder(pid), mappings), **files}, mappings)
    known = waiting + queues + beside + _buffer_bytes(buffers, mappings)
    if in_flight:
        unread += _shared_memory_bytes()
    rings = _unmapped_rings(pid, mappings) & channels.keys()
    if rings:
        sizes = _ring_sizes()
        known += sum(sizes.get(name) or 0 for name in rings)
        if any(sizes.get(name) is None for name in rings):
            unread = _ANY_AMOUNT
    return Held(known, min(unread, _ANY_AMOUNT), frozenset(files))


def _descriptors(pid: int) -> Iterator[tuple[int, os.DirEntry[str]]]:
    """Yield the descriptors of *pid*, each with a thread that has it: one may have a table of its own (unshare(2)).

    Raises OSError if those of the first thread that lives can't be listed.
    """
    first = living_thread(pid) or pid
    tables = [first]
    yield from ((first, entry) for entry in os.scandir(f"/proc/{pid}/task/{first}/fd"))
    for tid in thread_ids(pid):
        compared = [_libc.syscall(_KCMP, tid, one, _KCMP_FILES, 0, 0) for one in tables]
        if 0 in compared:
            continue
        if -1 not in compared:  # this kernel compares
            tables.append(tid)
        with contextlib.suppress(OSError):  # it has ended
            yield from ((tid, entry) for entry in os.scandir(f"/proc/{pid}/task/{tid}/fd"))


def device_name(number: int) -> str:
    """Return device *number* as /proc/PID/maps has it."""
    return f"{os.major(number):02x}:{os.minor(number):02x}"


def queue_bytes(path: str, *, folder: Optional[int] = None) -> int:
    """Return the bytes that are queued in the POSIX message queue *path*, below *folder*. Raises OSError."""
    queue = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    try:
        text = os.read(queue, _POSIX_QUEUE_BYTES)
    finally:
        os.close(queue)
    return int(text.split()[0].partition(b":")[2]) if text.startswith(b"QSIZE:") else 0


def _facts(folder: str, number: int) -> str:
    """Return what the kernel says of a descriptor, without what two of one file may differ in. Raises OSError."""
    text = Path(f"{folder}/fdinfo/{number}").read_text()
    return "\n".join(line for line in text.splitlines() if not line.startswith(("pos:", "flags:")))


def _number(facts: str, name: str) -> int:
    found = re.search(rf"^{name}:\s*(0x[0-9a-f]+|\d+)$", facts, re.MULTILINE)
    return int(found[1], 0) if found else 0


def _mapped_files(folder: str, mappings: Sequence[Mapping]) -> dict[tuple[str, int], int]:
    """Return the bytes of the files in memory that *mappings* show; without CAP_CHECKPOINT_RESTORE of none."""
    areas = {(one.device, one.inode): one for one in mappings if one.inode and one.is_shared_memory}
    files = {}
    for file, one in areas.items():
        with contextlib.suppress(OSError):
            files[file] = os.stat(f"{folder}/map_files/{one.start:x}-{one.end:x}").st_blocks * 512  # noqa: PTH116
    return files


def _beside_mappings(files: dict[tuple[str, int], int], mappings: Sequence[Mapping]) -> int:
    """Return the bytes of *files* that are not resident in *mappings*, as pages that MADV_DONTNEED has unmapped."""
    mapped: dict[tuple[str, int], int] = {}
    for one in mappings:
        if one.inode and (one.is_shared_memory or (one.device, one.inode) in files):
            mapped[one.device, one.inode] = (
                mapped.get((one.device, one.inode), 0) + one.rss_bytes + one.swap_bytes
            )
    return sum(max(size - mapped.get(file, 0), 0) for file, size in files.items())


def _buffer_bytes(buffers: dict[str, set[str]], mappings: Sequence[Mapping]) -> int:
    """Return the bytes of the kernel's *buffers* and of those that *mappings* show, less what is resident there.

    The descriptor of one that is mapped may be closed, so that the larger of both counts.
    """
    mapped: dict[str, int] = {}
    resident = 0
    for one in mappings:
        if one.is_kernel_buffer:
            mapped[one.name] = mapped.get(one.name, 0) + one.size_bytes
            resident += one.rss_bytes
    total = 0
    registered: list[tuple[int, int]] = []
    for name in buffers.keys() | mapped.keys():
        facts = buffers.get(name, set())
        total += max(sum(map(_own_bytes, facts)), mapped.get(name, 0))
        registered += [(int(at, 16), int(size)) for one in facts for at, size in _REGISTERED.findall(one)]
    # Pages of registered buffers stay when they are unmapped; each that is mapped now excuses one buffer.
    places = Ranges((at, at + size) for at, size in registered)
    pinned = sum(size for _, size in registered) - sum(places.within(one.start, one.end) for one in mappings)
    return total - resident + pinned


def _own_bytes(facts: str) -> int:
    """Return the size of the kernel's buffer that *facts* describe: a map of BPF, the rings of io_uring."""
    entries = _number(facts, "SqMask"), _number(facts, "CqMask")
    rings = (entries[0] + 1) * _SUBMISSION_BYTES + (entries[1] + 1) * _COMPLETION_BYTES if all(entries) else 0
    return _number(facts, "memlock") + rings


def _shared_memory_bytes() -> int:
    """Return the size of all files in memory of this machine: what files that are being sent hold can't be read."""
    with contextlib.suppress(OSError):
        found = re.search(r"^Shmem: *(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
        if found:
            return int(found[1]) << 10
    return _ANY_AMOUNT


# Pipes and sockets


def _waiting_bytes(pid: int, channels: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Return the bytes that wait in the pipes and sockets *channels* of *pid*: sent and not read, or not yet sent.

    Of a pair of sockets in one process both have them. The second number is the most that may wait where that can't
    be read: in sockets before Linux 5.6, or where a filter forbids to duplicate them; and in pipes, in which each
    packet (O_DIRECT) or piece (vmsplice) has a page of its own.
    """
    found = unread = 0
    processes: dict[int, int] = {}  # by thread
    try:
        for name, (tid, number) in channels.items():
            if tid not in processes:
                processes[tid] = _libc.syscall(_PIDFD_OPEN, tid, 0 if tid == pid else _PIDFD_THREAD)
            process = processes[tid]
            ours = _libc.syscall(_PIDFD_GETFD, process, number, 0) if process >= 0 else -1
            if ours < 0 and name.startswith(_PIPE):
                ours = _open_again(f"/proc/{pid}/task/{tid}", number)
            if ours < 0:
                unread += _most_waiting(name)
                continue
            try:
                waiting = _ioctl(ours, termios.FIONREAD)
                if name.startswith(_SOCKET):
                    waiting = max(waiting, _received(ours)) + _ioctl(ours, termios.TIOCOUTQ)
                elif waiting:
                    unread += fcntl.fcntl(ours, _GETPIPE_SZ) - waiting
                found += waiting
            finally:
                os.close(ours)
    finally:
        for process in processes.values():
            if process >= 0:
                os.close(process)
    return found, unread


def _unmapped_rings(pid: int, mappings: Sequence[Mapping]) -> set[str]:
    """Return the names of the sockets for packets of *pid*'s network that are not mapped: each may have a ring."""
    try:
        rows = Path(f"{memory_folder(pid)}/net/packet").read_text().splitlines()[1:]
    except OSError:  # a kernel without them
        return set()
    return {f"{_SOCKET}[{row.split()[-1]}]" for row in rows}.difference(one.name for one in mappings)


def _ring_sizes() -> dict[str, Optional[int]]:
    """Return the bytes of the rings of our own network's sockets for packets, by name; None if one may be hidden.

    {} if the kernel can't list them.
    """
    sizes: dict[str, Optional[int]] = {}
    with (
        contextlib.suppress(OSError, struct.error),
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel,
    ):
        request = _PACKET_REQUEST.pack(socket.AF_PACKET, 0, 0, 0, _SHOW_INFO | _SHOW_RINGS, 0, 0)
        kernel.send(_NETLINK.pack(_NETLINK.size + len(request), _BY_FAMILY, _DUMP, 1, 0) + request)
        kind = _BY_FAMILY
        while kind == _BY_FAMILY:
            message = kernel.recv(1 << 16)
            while message and kind == _BY_FAMILY:
                size, kind, *_ = _NETLINK.unpack_from(message)
                if kind == _BY_FAMILY:
                    _, _, _, inode, _, _ = _PACKET_ANSWER.unpack_from(message, _NETLINK.size)
                    facts = _attributes(message[_NETLINK.size + _PACKET_ANSWER.size : size])
                    sizes[f"{_SOCKET}[{inode}]"] = _ring_bytes(facts)
                message = message[_aligned(size) :]
    return sizes


def _ring_bytes(facts: dict[int, bytes]) -> Optional[int]:
    """Return the bytes of a socket's rings by the kernel's *facts*; None if it doesn't tell."""
    if _INFO not in facts:
        return None
    if int.from_bytes(facts[_INFO][4:8], sys.byteorder) > _TPACKET_V2 and _SEND_RING not in facts:
        return None  # of the third version the kernel tells nothing of that ring
    total = 0
    for ring in (_RECEIVE_RING, _SEND_RING):
        if ring in facts:
            size, count = struct.unpack_from("=2I", facts[ring])
            total += int(size) * int(count)
    return total


def _attributes(text: bytes) -> dict[int, bytes]:
    """Return the attributes of a message of netlink by their kind."""
    found = {}
    while text:
        size, kind = struct.unpack_from("=2H", text)
        found[kind] = text[4:size]
        text = text[_aligned(max(size, 4)) :]
    return found


def _aligned(size: int) -> int:
    return (size + 3) & ~3


def _open_again(folder: str, number: int) -> int:
    """Return a new descriptor of that end of a pipe which a process has as *number*; -1 if that is not possible.

    As the process keeps that end, others notice nothing, but for the SIGIO that a descriptor may ask for.
    """
    with contextlib.suppress(OSError, ValueError):
        flags = _flags(folder, number)
        if not flags & fcntl.FASYNC:
            end = flags & os.O_ACCMODE
            return os.open(f"{folder}/fd/{number}", end | os.O_NONBLOCK | os.O_CLOEXEC)
    return -1


def _flags(folder: str, number: int) -> int:
    text = Path(f"{folder}/fdinfo/{number}").read_text()
    return next(int(line.split()[1], 8) for line in text.splitlines() if line.startswith("flags:"))


def _ioctl(descriptor: int, request: int) -> int:
    """Return what *request* says of *descriptor*; 0 if it doesn't have such a queue."""
    try:
        return int.from_bytes(fcntl.ioctl(descriptor, request, bytes(4)), sys.byteorder)
    except OSError:
        return 0


def _received(descriptor: int) -> int:
    """Return the bytes that the kernel holds for what a socket has received: FIONREAD tells the first datagram's."""
    duplicate = socket.socket(fileno=os.dup(descriptor))
    try:
        return int.from_bytes(duplicate.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4), sys.byteorder)
    except OSError:  # before Linux 4.12
        return 0
    finally:
        duplicate.close()


def _most_waiting(name: str) -> int:
    """Return the most that can wait in a pipe or socket called *name*, as far as its owner has no privileges."""
    names = ["fs/pipe-max-size"] if name.startswith(_PIPE) else ["net/core/rmem_max", "net/core/wmem_max"]
    try:
        return sum(map(_setting, names)) * len(names)
    except OSError:
        return _ANY_AMOUNT


def _setting(name: str) -> int:
    return int(Path(f"/proc/sys/{name}").read_text())
