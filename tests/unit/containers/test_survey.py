"""Containers in raw memory: other objects are not counted, whatever their words are."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import pytest

from gdbmem.containers.library_types import Resolved, TypePlan
from gdbmem.containers.survey import Surveyor
from gdbmem.model.memory import BytesMemory

LOW, HIGH, SIZE = 0x555555560000, 0x7FFFF7D00000, 1 << 16
HASH = TypePlan("hash", "std::unordered_map<int, int>", 56, element_size=8, element_offset=8, node_size=16)
VECTOR = TypePlan("vector", "std::vector<int>", 24, element_size=4)


class Scene:
    """Two mapped areas with nothing in between."""

    def __init__(self) -> None:
        self.areas = {LOW: bytearray(SIZE), HIGH: bytearray(SIZE)}

    def write(self, address: int, words: Sequence[int], tail: bytes = b"") -> None:
        base = LOW if address < HIGH else HIGH
        data = struct.pack(f"<{len(words)}Q", *words) + tail
        self.areas[base][address - base : address - base + len(data)] = data

    def memory(self) -> BytesMemory:
        return BytesMemory([(base, bytes(data)) for base, data in self.areas.items()])

    def held(self, plan: TypePlan, address: int) -> list[int]:
        surveyor = Surveyor(self.memory())
        surveyor.visit("it", plan, address)
        survey = surveyor.survey()
        survey.check()
        return [container.held_bytes for container in survey.containers]


@pytest.mark.parametrize(
    ("count", "load", "first", "held"),
    [
        (3, 1.0, LOW + 512, [16 * 8 + 3 * 16]),
        (10**11, 1.0, LOW + 512, []),
        (3, 0.0, LOW + 512, []),
        (3, float("nan"), LOW + 512, []),
        (3, 1.0, HIGH - 4096, []),
        (100, 8.0, LOW + 512, [16 * 8 + 100 * 16]),
    ],
)
def test_a_hash_table_needs_elements_that_fit_its_buckets(
    count: int, load: float, first: int, held: list[int]
) -> None:
    scene = Scene()
    scene.write(LOW, [LOW + 1024, 16, first, count], struct.pack("<f", load))
    assert scene.held(HASH, LOW) == held


def test_a_vector_does_not_lie_across_what_is_not_mapped() -> None:
    scene = Scene()
    scene.write(LOW, [LOW + 64, LOW + 128, HIGH + 64])
    assert scene.held(VECTOR, LOW) == []
    scene.write(LOW, [LOW + 64, LOW + 128, LOW + 256])
    assert scene.held(VECTOR, LOW) == [192]


COUNTED = TypePlan("counted", "V", 32, element_size=8, places=((0, 8), (8, 8), (16, 8), (24, 8)), count=8)
OPEN = TypePlan("open_hash", "H", 32, element_size=8, places=((0, 8), (8, 8), (16, 8)))


def test_a_ring_that_begins_amid_its_buffer_holds_all_of_it_once_wherever_its_value_was_moved() -> None:
    scene = Scene()
    scene.write(LOW, [LOW + 512, 3, 8, 6, LOW + 512, 3, 8, 6])  # the second one was moved to the first
    surveyor = Surveyor(scene.memory())
    for number, address in enumerate((LOW, LOW + 32)):
        surveyor.visit(f"v{number}", COUNTED, address)
    (row,) = surveyor.survey().containers
    assert (row.path, row.size, row.capacity, row.held_bytes, row.slack_bytes) == (
        "v0",
        3,
        8,
        8 * 8 + 8,
        5 * 8,
    )
    for words in (
        [LOW + 512, 9, 8, 0],
        [LOW + 512, 3, 8, 9],
        [HIGH - 4096, 3, 8, 0],
        [LOW + 512, 3, 1 << 50, 0],
    ):
        scene.write(LOW, words)
        assert scene.held(COUNTED, LOW) == []


def test_elements_of_an_open_hash_table_are_those_whose_control_byte_is_clear() -> None:
    inner = TypePlan("vector", "std::vector<int>", 24, element_size=4)
    table = TypePlan("open_hash", "H", 32, inner, 24, places=((0, 8), (8, 8), (16, 8)))
    scene = Scene()
    control = LOW + 4096
    scene.write(LOW, [control, 15, 2])
    scene.write(control, [], bytes([0xFF, 0x12] + [0xFF] * 12 + [0x00, 0x80]) + bytes([0xFF] * 16))
    for bucket, size in ((1, 40), (14, 80), (2, 4000)):
        scene.write(control - 24 * (bucket + 1), [HIGH, HIGH + size, HIGH + size])
    assert scene.held(table, LOW) == [16 * 24 + 16 + 16, 120]
    scene.write(LOW, [control, 14, 2])  # not a power of two
    assert scene.held(OPEN, LOW) == []


@pytest.mark.parametrize(
    "kind",
    [
        "vector",
        "hash",
        "tree",
        "list",
        "deque",
        "string",
        "bits",
        "shared",
        "variant",
        "counted",
        "open_hash",
    ],
)
def test_words_at_random_hold_no_more_than_there_is_memory(kind: str) -> None:
    chance = random.Random(7)
    values = [LOW, LOW + 512, HIGH, HIGH + 4096, 0, 1, 2, 40, 1 << 20, 1 << 38, 1 << 63]
    words = [chance.choice(values) + 8 * chance.randrange(64) for _ in range(SIZE // 8)]
    memory = BytesMemory([(LOW, struct.pack(f"<{len(words)}Q", *words)), (HIGH, bytes(SIZE))])
    places = ((0, 8), (8, 8), (16, 8))
    plan = TypePlan(kind, "x", 80, VECTOR, 8, element_offset=8, node_size=40, count=16, places=places)
    for number in range(700):
        surveyor = Surveyor(memory)
        surveyor.visit("it", plan, LOW + 80 * number)
        survey = surveyor.survey()
        survey.check()
        assert survey.held_bytes <= 9 * 2 * SIZE


def test_an_object_whose_class_nobody_knows_is_not_looked_into_and_another_one_once() -> None:
    scene, asked = Scene(), []
    derived = TypePlan("struct", "Derived", 32, fields=[(8, "items", VECTOR)])

    def resolve(vtable: int, address: int) -> Resolved | None:
        asked.append(vtable)
        return Resolved(derived, offset=8) if vtable == HIGH else None

    base = TypePlan("struct", "Base", 8, resolve=resolve)
    owned = TypePlan("unique", "std::unique_ptr<Base>", 8, base, 8)
    several = TypePlan("array", "", 24, owned, 8, count=3)
    scene.write(LOW, [LOW + 264, LOW + 520, LOW + 1024])
    for address, vtable in ((LOW + 256, HIGH), (LOW + 512, HIGH)):
        scene.write(address, [LOW + 2048, LOW + 2048, LOW + 2056, LOW + 2064])
        scene.write(address + 8, [vtable])
        scene.write(address + 16, [LOW + 2056, LOW + 2064])
    assert scene.held(several, LOW) == [64]
    assert sorted(asked) == [0, HIGH]


def test_the_shortest_way_names_an_object_whichever_variable_comes_first() -> None:
    scene = Scene()
    holder = TypePlan("struct", "Holder", 24, fields=[(0, "items", VECTOR)])
    near = TypePlan("pointer", "", 8, holder)
    far = TypePlan("struct", "Far", 8, fields=[(0, "way", TypePlan("pointer", "", 8, near))])
    scene.write(LOW + 64, [LOW + 256, LOW + 256, LOW + 272])
    scene.write(LOW, [LOW + 8, LOW + 64])  # far → near → holder
    surveyor = Surveyor(scene.memory())
    surveyor.visit("far", far, LOW)
    surveyor.visit("near", near, LOW + 8)
    assert [container.path for container in surveyor.survey().containers] == ["near.items"]


def test_nodes_that_own_each_other_are_followed_to_a_depth_that_is_reported() -> None:
    scene = Scene()
    node = TypePlan("struct", "Node", 8)
    node.fields.append((0, "next", TypePlan("unique", "std::unique_ptr<Node>", 8, node, 8)))
    for number in range(1000):
        scene.write(LOW + 8 * number, [LOW + 8 * (number + 1)])
    surveyor = Surveyor(scene.memory())
    surveyor.visit("first", node, LOW)
    survey = surveyor.survey()
    assert len(survey.containers) == 31
    assert [notice.slug for notice in survey.notices] == ["containers-cut"]
