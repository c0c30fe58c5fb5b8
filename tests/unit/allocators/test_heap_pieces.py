"""A main arena in pieces apart from the break: found by where their chunks lead, made up in bytes."""

from __future__ import annotations

import pytest

from gdbmem.allocators.glibc.arenas import area_of, find_pieces
from gdbmem.linux.memory.maps import Mapping
from gdbmem.model.memory import BytesMemory

LOW, PAGE = 0x7F0000000000, 4096
FENCEPOST = (16, 16)
TOP = 0x800


def mapping(start: int, end: int, permissions: str = "rw-p", name: str = "") -> Mapping:
    return Mapping(start, end, permissions, 0, "00:00", 0, name)


def chunks(*sizes: int, flags: int = 1) -> bytes:
    """Return chunks of *sizes*, each in use after one in use."""
    data = b""
    for size in sizes:
        data += bytes(8) + (size | flags).to_bytes(8, "little") + bytes(size - 16)
    return data


def pieces_in(data: bytes, *, top: int = -LOW, top_end: int = -LOW) -> list[tuple[int, int]]:
    """Return what is found in *data*, mapped at LOW; the results count from there."""
    padded = data + bytes(-len(data) % PAGE)
    memory = BytesMemory([(LOW, padded)])
    found = find_pieces(memory, [mapping(LOW, LOW + len(padded))], LOW + top, LOW + top_end)
    return [(start - LOW, end - LOW) for start, end in found]


def full_piece(pages: int = 1) -> bytes:
    return chunks(32, 64, pages * PAGE - 128, *FENCEPOST)


def test_a_piece_ends_behind_the_fencepost_that_malloc_closed_it_with() -> None:
    assert pieces_in(full_piece(2)) == [(0, 2 * PAGE)]
    assert pieces_in(chunks(32, PAGE - 80, *FENCEPOST, 16)) == [(0, PAGE)]  # room for a third word was left


def test_pieces_of_one_mapping_are_distinguished_and_pages_of_others_between_them_passed_over() -> None:
    program = b"\x41" * PAGE
    assert pieces_in(full_piece() + program + full_piece(3)) == [(0, PAGE), (2 * PAGE, 5 * PAGE)]


def test_the_piece_of_the_top_chunk_comes_last_wherever_it_lies() -> None:
    with_top = chunks(TOP, PAGE - TOP)
    found = pieces_in(with_top + full_piece(), top=TOP, top_end=PAGE)
    assert found == [(PAGE, 2 * PAGE), (0, PAGE)]


def test_what_the_program_keeps_in_a_block_of_its_own_mapping_is_never_taken_for_a_piece() -> None:
    block = chunks(3 * PAGE, flags=2)
    likeness = block[:PAGE] + full_piece() + block[2 * PAGE :]
    assert pieces_in(likeness + full_piece()) == [(3 * PAGE, 4 * PAGE)]


@pytest.mark.parametrize(
    "data",
    [
        chunks(32, PAGE),  # over the end
        chunks(64) + chunks(64, flags=4) + chunks(PAGE - 160, *FENCEPOST),  # a thread's arena
        chunks(64, 64, *FENCEPOST) + bytes(PAGE - 160),  # a fencepost in the middle of a page
        bytes(8) + (24 | 1).to_bytes(8, "little"),  # too small for a chunk
    ],
    ids=["over-the-end", "another-arena", "fencepost-inside", "too-small"],
)
def test_chunks_that_lead_nowhere_are_no_piece(data: bytes) -> None:
    assert pieces_in(data) == []


def test_memory_that_cannot_be_read_hides_only_itself() -> None:
    memory = BytesMemory([(LOW + PAGE, full_piece())])
    assert find_pieces(memory, [mapping(LOW, LOW + 2 * PAGE)], 0, 0) == [(LOW + PAGE, LOW + 2 * PAGE)]


def test_mappings_that_touch_are_one_area_unless_one_is_read_only() -> None:
    one, two, three = LOW, LOW + PAGE, LOW + 2 * PAGE
    touching = [mapping(one, two), mapping(two, three, "rwxp")]
    assert area_of(touching, two + 8) == (one, three)
    assert area_of([mapping(one, two), mapping(two, three, "r--p")], one) == (one, two)
    assert area_of(touching, three) is None
