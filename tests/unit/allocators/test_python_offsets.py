"""The offsets that CPython publishes, and what is said of a release that publishes others."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from gdbmem.allocators.cpython import traces
from gdbmem.allocators.cpython.interpreters import find_debug_offsets, published_version
from gdbmem.errors import TargetError
from gdbmem.inspection.python_queries import refuse_newer
from gdbmem.linux.memory.maps import Mapping
from gdbmem.model.memory import BytesMemory

CAPTURES = Path(__file__).parents[2] / "captures" / "cpython"
RUNTIME, INTERPRETER, THREAD, PTHREAD = 0x10000, 0x20000, 0x30000, 0x40000
FILE = Mapping(RUNTIME, RUNTIME + 4096, "rw-p", 0, "fe:00", 7, "/usr/bin/python3")
Change = Callable[[list[int]], None]


def process(release: str, change: Change = lambda words: None) -> BytesMemory:
    """Return the memory of an interpreter of *release* with one thread; *change* changes its published words."""
    text = (CAPTURES / f"offsets-{release}.txt").read_text().partition("\n")[2]
    words = [int(word, 0) for word in text.split()]
    heads = words[5], words[9]
    interpreter, thread = bytearray(8192), bytearray(4096)
    struct.pack_into("<Q", interpreter, heads[1], THREAD)
    pthread_at = {"3.14": 152, "3.15": 176}[release]  # by Include/internal/pycore_debug_offsets.h of each
    struct.pack_into("<QQ", thread, pthread_at, PTHREAD, 4711)
    change(words)
    runtime = bytearray(4096)
    struct.pack_into("<120Q", runtime, 0, *words)
    struct.pack_into("<Q", runtime, heads[0], INTERPRETER)
    pthread = struct.pack("<QQQ", PTHREAD, 0, PTHREAD)
    return BytesMemory(
        [
            (RUNTIME, bytes(runtime)),
            (INTERPRETER, bytes(interpreter)),
            (THREAD, bytes(thread)),
            (PTHREAD, pthread),
        ]
    )


@pytest.mark.parametrize(
    ("release", "thread_id", "instruction", "owner"), [("3.14", 152, 56, 74), ("3.15", 176, 56, 74)]
)
def test_the_frames_of_a_release_with_more_members_are_not_lost(
    release: str, thread_id: int, instruction: int, owner: int
) -> None:
    found = find_debug_offsets(process(release), [FILE])
    assert found is not None
    assert found.version[:2] == tuple(map(int, release.split(".")))
    assert (found.current_frame, found.thread_id, found.native_thread_id) == (72, thread_id, thread_id + 8)
    assert (found.frame_previous, found.frame_executable) == (8, 0)
    assert (found.frame_instruction, found.frame_owner) == (instruction, owner)
    assert found.remote is not None
    assert found.remote.path_bytes == 512


def test_a_release_beyond_the_known_is_refused_by_its_name() -> None:
    def newer(words: list[int]) -> None:
        words[1] = 3 << 24 | 16 << 16 | 1 << 8 | 0xF0
        words[22:60] = [0] * 38

    memory = process("3.15", newer)
    assert find_debug_offsets(memory, [FILE]) is None
    version = published_version(memory, [FILE])
    assert version == (3, 16, 1)
    with pytest.raises(
        TargetError, match=r"CPython 3\.16\.1: the frames of releases after 3\.\d+ are unknown"
    ):
        refuse_newer(version, "the frames")
    refuse_newer((3, 15, 9), "the frames")
    refuse_newer(None, "the frames")


def test_names_of_files_are_read_as_text_and_as_str() -> None:
    text = "/srv/söurce.py".encode()
    compact = struct.pack("<QQqqI", 1, 0x900000, 6, -1, 0x64) + bytes(4) + b"run.py\0"
    memory = BytesMemory(
        [(0x1000, text.ljust(64, b"\0")), (0x2000, compact.ljust(128, b"\0")), (0x3000, b"\7" * 64)]
    )
    assert traces._file_name(memory, 0x1000) == "/srv/söurce.py"
    assert traces._file_name(memory, 0x2000) == "run.py"
    assert traces._file_name(memory, 0x3000) == ""
