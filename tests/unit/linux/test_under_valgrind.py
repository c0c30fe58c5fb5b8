"""The program's own memory beside valgrind's, from the mappings of a massif process with 100 threads."""

from __future__ import annotations

from gdbmem.linux.memory.maps import parse_smaps
from gdbmem.linux.memory.resident import mapped_bytes


def mapping(start: int, size_kib: int, permissions: str, resident_kib: int, name: str = "") -> str:
    end = start + (size_kib << 10)
    return (
        f"{start:x}-{end:x} {permissions} 00000000 00:00 0 {name}\n"
        f"Rss: {resident_kib:14} kB\nAnonymous: {resident_kib:8} kB\n"
    )


def test_valgrinds_memory_and_stacks_are_not_what_the_program_mapped() -> None:
    text = mapping(0x2106D000, 5124, "rwxp", 5124)  # what massif hands out for malloc
    text += "".join(
        mapping(0x40000000 + n * 0x801000, 4, "---p", 0)
        + mapping(0x40001000 + n * 0x801000, 8192, "rw-p", 12)
        for n in range(100)
    )
    text += "".join(mapping(0x1004EB8000 + n * 0x104000, 1024, "rwxp", 1024) for n in range(100))
    assert mapped_bytes(parse_smaps(text.encode())) == 0


def test_what_the_program_mapped_is_counted_also_right_above_a_stack() -> None:
    text = mapping(0x4A2B000, 204800, "rw-p", 204800)
    text += mapping(0x50000000, 4, "---p", 0)
    text += mapping(0x50001000, 8192 + 1024, "rw-p", 8192 + 1024)
    assert mapped_bytes(parse_smaps(text.encode())) == (204800 + 1024) << 10
