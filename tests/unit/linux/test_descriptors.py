"""What a process holds by its descriptors: by the kernel's own count, or said to be unknown."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdbmem.linux.memory import descriptors
from gdbmem.linux.memory.descriptors import Held, held_by_descriptors
from gdbmem.linux.memory.maps import Mapping, mappings_of

KIB = 1 << 10


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    class Libc:
        @staticmethod
        def syscall(*_: int) -> int:
            return -1

    monkeypatch.setattr(descriptors, "_libc", Libc)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def waiting(descriptor: int) -> tuple[int, int]:
    name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    return descriptors._waiting_bytes(os.getpid(), {name: (os.getpid(), descriptor)})


def held() -> Held:
    return held_by_descriptors(os.getpid(), mappings_of(os.getpid(), "smaps"), ())


@pytest.mark.usefixtures("forbidden")
@pytest.mark.parametrize("end", [0, 1])
def test_what_waits_in_a_pipe_is_known_where_descriptors_may_not_be_duplicated(
    end: int, pipe: tuple[int, int]
) -> None:
    assert waiting(pipe[end]) == (0, 0)
    os.write(pipe[1], bytes(48 * KIB))
    assert waiting(pipe[end]) == (48 * KIB, 16 * KIB), "no more than the whole pipe"
    os.read(pipe[0], 40 * KIB)
    assert waiting(pipe[end]) == (8 * KIB, 56 * KIB)


@pytest.mark.usefixtures("forbidden")
def test_a_socket_that_may_not_be_read_is_unknown_not_empty() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.send(bytes(32 * KIB))
        known, unread = waiting(theirs.fileno())
        assert known == 0 and unread >= 32 * KIB


def test_files_that_nobody_has_received_are_unknown_not_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        file = os.memfd_create("sent")
        os.write(file, bytes(512 * KIB))
        socket.send_fds(ours, [b"x"], [file])
        os.close(file)
        assert held().unread_bytes >= 512 * KIB
        for received in socket.recv_fds(theirs, 1, 1)[1]:
            os.close(received)
        assert held().unread_bytes < 512 * KIB, "but for what waits in the pipes of the tests' runner"


def test_what_packets_in_a_pipe_take_is_unknown_up_to_the_whole_pipe() -> None:
    ends = os.pipe2(os.O_DIRECT)
    for _ in range(8):
        os.write(ends[1], b"x")
    assert waiting(ends[0]) == (8, 64 * KIB - 8)
    for end in ends:
        os.close(end)


def test_what_a_thread_has_open_in_a_table_of_its_own_counts() -> None:
    ready, done = threading.Event(), threading.Event()

    def keeps_a_file() -> None:
        ctypes.CDLL(None).unshare(0x400)  # CLONE_FILES
        os.write(os.memfd_create("own"), bytes(256 * KIB))
        ready.set()
        done.wait()

    before = held().known_bytes
    thread = threading.Thread(target=keeps_a_file)
    thread.start()
    ready.wait()
    assert held().known_bytes == before + 256 * KIB
    done.set()
    thread.join()


def test_the_part_of_a_file_in_memory_that_is_not_mapped_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_waiting_bytes", lambda *_: (0, 0))
    before = held().known_bytes
    file = os.memfd_create("pool")
    os.write(file, bytes(256 * KIB))
    with mmap.mmap(file, 64 * KIB) as area:
        area[:] = bytes(64 * KIB)
        assert held().known_bytes == before + 192 * KIB
    os.close(file)


RING = """mnt_id:\t17
ino:\t6768095
SqMask:\t0x7
CqMask:\t0xf
UserFiles:\t0
UserBufs:\t2
    0: 0x7ffff7dbd000/65536
    1: 0x7ffff7000000/65536
PollList:
"""
MAP = "map_type:\t2\nmax_entries:\t16\nmemlock:\t65848\nmap_id:\t{}\n"


def mapped(start: int, size: int, name: str = "", rss: int = 0) -> Mapping:
    return Mapping(start, start + size, "rw-p", 0, "00:10", 0, name, rss_bytes=rss)


def buffer_bytes(*texts: str, mappings: tuple[Mapping, ...] = ()) -> int:
    return descriptors._buffer_bytes({"anon_inode:x": set(texts)}, mappings)


def test_registered_buffers_count_once_they_are_unmapped() -> None:
    rings = 8 * 68 + 16 * 16
    assert buffer_bytes(RING) == rings + 2 * 65536
    there = mapped(0x7FFFF7000000, 1 << 20)
    assert buffer_bytes(RING, mappings=(there,)) == rings + 65536
    assert buffer_bytes(RING, RING.replace("8095", "8096"), mappings=(there,)) == 2 * rings + 3 * 65536


def test_a_buffer_of_the_kernel_counts_once_whether_it_is_mapped_or_only_open() -> None:
    both = MAP.format(1), MAP.format(2)
    assert buffer_bytes(*both) == 2 * 65848
    area = mapped(0x7FFFF7D9D000, 65536, "anon_inode:x")
    assert buffer_bytes(*both, mappings=(area,)) == 2 * 65848
    assert buffer_bytes(mappings=(area, area)) == 2 * 65536
    assert buffer_bytes(mappings=(area._replace(rss_bytes=65536),)) == 0, "the resident set has it"
