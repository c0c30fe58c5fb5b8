"""What a process holds beside the heap that a profiler counts: mappings of real processes, cut to what matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from gdbmem.engines.valgrind import client_arena_bytes
from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.memory.resident import own_bytes, under_valgrind
from gdbmem.linux.memory.unmapped import file_system_bytes

KIB, MIB = 1 << 10, 1 << 20


def mapping(
    start: int, size: int, permissions: str = "rw-p", name: str = "", held: int = 0, inode: int = 0
) -> Mapping:
    shared = held if permissions[3] == "s" else 0
    return Mapping(start, start + size, permissions, 0, "08:01", inode, name, rss_bytes=held,
                   anonymous_bytes=held - shared)  # fmt: skip


NATIVE = [
    mapping(0x1000, MIB, "r-xp", "/bin/prog", 900 * KIB, inode=7),
    mapping(0x101000, MIB, "rw-p", "/bin/prog", 8 * KIB, inode=7)._replace(offset=MIB),  # its variables
    mapping(0x201000, MIB, held=40 * KIB),  # .bss
    mapping(0x400000, 2 * MIB, name="[heap]", held=100 * KIB),
    mapping(0x10000000, 10 * MIB, held=9 * MIB),
    mapping(0x20000000, MIB, "rw-s", "/dev/zero (deleted)", held=512 * KIB, inode=9),
    mapping(0x28000000, MIB, "rw-s", "/secretmem (deleted)", held=256 * KIB, inode=10),
    mapping(0x30000000, MIB, "rw-p", "/data/model", held=300 * KIB, inode=11),
    mapping(0x7FFE0000, MIB, name="[stack]", held=700 * KIB),
]


def test_all_that_can_hold_what_a_program_allocates_is_counted_and_nothing_else() -> None:
    assert own_bytes(NATIVE) == 40 * KIB + 100 * KIB + 9 * MIB + 768 * KIB + 300 * KIB


def test_what_a_program_writes_into_a_copy_of_its_own_file_is_counted() -> None:
    copy = mapping(0x50000000, MIB, "rw-p", "/bin/prog", 60 * KIB, inode=7)
    assert own_bytes([*NATIVE, copy]) == own_bytes(NATIVE) + 60 * KIB


def test_memory_in_files_of_a_tmpfs_is_counted_wherever_it_is_mounted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mountinfo").write_text(
        "22 1 0:20 / /proc rw shared:5 - proc proc rw\n90 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "95 90 0:42 / /var/run rw,nosuid shared:7 master:1 - tmpfs tmpfs rw,size=100k\n"
    )
    monkeypatch.setattr("gdbmem.linux.memory.unmapped.memory_folder", lambda pid: str(tmp_path))
    pool = mapping(0x40000000, MIB, "rw-s", "/var/run/pool", held=600 * KIB, inode=12)
    mappings = [one._replace(device="00:2a") for one in (*NATIVE, pool, pool._replace(permissions="r--s"))]
    assert file_system_bytes(1, mappings) == 600 * KIB, "code, and what is only read, is not the program's"
    assert file_system_bytes(1, [pool]) == 0, "the kernel writes it to a disk"


def test_under_valgrind_its_own_memory_and_the_blocks_of_malloc_are_told_apart() -> None:
    mappings = [
        mapping(0x108000, MIB, "r-xp", "/home/u/prog", 4 * KIB, inode=7),
        mapping(0x4000000, 0x35000, "r-xp", "/lib/x86_64-linux-gnu/ld-2.36.so", 4 * KIB, inode=8),
        mapping(0x4035000, 3 * MIB, "rwxp", held=3 * MIB),  # the break
        mapping(0x4A3A000, 28 * MIB, "rwxp", held=20 * MIB),  # blocks of malloc, and code made by the program
        mapping(0x663A000, 10 * MIB, "rw-p", held=10 * MIB),  # mapped by the program
        mapping(0x58000000, 0x239000, "r-xp", "/usr/libexec/valgrind/massif-amd64-linux", 4 * KIB, inode=10),
        mapping(0x58239000, 10 * MIB, "rw-p", held=1320 * KIB),  # variables of valgrind
        mapping(0x1002001000, 7 * MIB, "rwxp", held=7 * MIB),  # valgrind's own
    ]
    assert under_valgrind(mappings) == (13 * MIB, 28 * MIB)


HUGE = mapping(0x7F542D800000, 2 * MIB)._replace(hugetlb_bytes=2 * MIB)
HUGE_FILE = mapping(0x7F542DA00000, 2 * MIB, "rw-s", "/mnt/huge/pool", inode=11)._replace(
    hugetlb_bytes=2 * MIB
)


@pytest.mark.parametrize("pool", [HUGE, HUGE_FILE], ids=["anonymous", "a file"])
def test_pages_of_hugetlbfs_are_counted_also_where_valgrind_has_its_own_memory(pool: Mapping) -> None:
    """A leak of them passed all gates on heaps: they are no part of the resident set."""
    assert own_bytes([pool]) == 2 * MIB
    assert under_valgrind([pool]) == (2 * MIB, 0)


def test_valgrinds_own_count_of_the_blocks_is_read() -> None:
    answer = (
        "1,234,096,128 bytes have already been mmap-ed ANONYMOUS.\n"
        "--27996-- core    :     8,388,608/    8,388,608 max/curr mmap'd, 0/0 unsplit/split sb unmmap'd\n"
        "--27996-- client  :    41,943,040/   37,752,832 max/curr mmap'd, 0/0 unsplit/split sb unmmap'd\n"
    )
    assert client_arena_bytes(answer) == 37_752_832
    assert client_arena_bytes("no such monitor command") is None
