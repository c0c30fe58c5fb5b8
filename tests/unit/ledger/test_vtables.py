"""Classes by vtables: data that only resembles one is not named, for any untrusted file."""

from __future__ import annotations

import io
import struct
from typing import Optional

import pytest

from gdbmem.ledger.blocks import class_of, name_types, print_types, types_headline
from gdbmem.model.heap_blocks import BlockType, BlockTypes
from gdbmem.model.memory import BytesMemory
from gdbmem.terminal.console import make_console

FILE = 0x7F0000000000  # where the file's constants are
VTABLE, INFO, NAME, KIND = FILE + 0x100, FILE + 0x200, FILE + 0x300, FILE + 0x400


def memory(
    *, to_start: int = 0, info: int = INFO, kind: int = KIND, name: int = NAME, text: bytes = b"3Foo"
) -> BytesMemory:
    data = bytearray(0x400 + 64)
    struct.pack_into("<qQ", data, VTABLE - 16 - FILE, to_start, info)
    struct.pack_into("<QQ", data, INFO - FILE, kind, name)
    data[NAME - FILE : NAME - FILE + len(text)] = text
    return BytesMemory([(FILE, bytes(data))])


def found(held: BytesMemory, vtable: int = VTABLE) -> Optional[str]:
    return class_of(held, vtable, lambda address: FILE <= address < FILE + 0x1000)


@pytest.mark.parametrize("text", [b"3Foo", b"*3Foo", b"N2ns3FooE", b"St3map", b"N12_GLOBAL__N_13FooE"])
def test_a_vtable_with_its_type_information_names_the_class(text: bytes) -> None:
    assert found(memory(text=text)) == text.decode().lstrip("*")


@pytest.mark.parametrize(
    "held",
    [
        memory(to_start=-16),  # the vtable of a part of an object
        memory(info=0),  # compiled without, and no symbol
        memory(info=0x1234),
        memory(info=INFO + 4),
        memory(kind=0x5555),
        memory(name=0x5555),
        memory(name=FILE + 0xFF8),  # where nothing can be read
        memory(text=b"\x1b[31m"),
        memory(text=b"3Foo; shell rm"),
        memory(text=b""),
        memory(text=b"x" * 100),
    ],
)
def test_what_is_no_vtable_or_names_no_class_is_none(held: BytesMemory) -> None:
    assert found(held) is None


def test_an_address_that_cannot_be_read_is_no_vtable() -> None:
    assert found(memory(), FILE) is None
    assert found(memory(), VTABLE + 1) is None


def test_without_type_information_a_symbol_may_name_it() -> None:
    name = class_of(
        memory(info=0), VTABLE, lambda _: True, lambda address: "3Bar" if address == VTABLE else ""
    )
    assert name == "3Bar"


def test_two_vtables_of_one_class_are_one_type_and_unknown_ones_are_unknown() -> None:
    columns = {("class", 1): 2, ("class", 2): 3, ("class", 3): 4, ("unknown", 0): 5}
    types = name_types(columns, columns, dict.fromkeys(columns, 0.5), {1: "3Foo", 2: "3Foo"}.get)
    assert [(one.kind, one.name, one.blocks, one.pinned_bytes) for one in types] == [
        ("unknown", "", 9, 1.0),
        ("class", "3Foo", 5, 1.0),
    ]


def test_a_strangers_class_is_only_text_and_no_block_at_all_is_a_sentence() -> None:
    stream = io.StringIO()
    console = make_console(stream)
    print_types(BlockTypes([BlockType("class", "3Foo", 2, 48, 0.0)]), {"3Foo": "Foo\x1b[31m[red]"}, console)
    found = [
        BlockType("unknown", "", 9, 900 << 20, 0.0),
        BlockType("class", "5Large", 2, 1 << 20, 0.0),
        BlockType("class", "4Item", 50_000, 2_400_000, 0.0),
        BlockType("class", "5Event", 500, 12_000, 0.0),
        BlockType("class", "5Other", 1, 8, 0.0),
    ]
    assert types_headline(BlockTypes(found), {"4Item": "Item", "5Event": "Event", "5Large": "Large"}) == (
        "Most objects are 50,000 of Item (2.3 MiB), 500 of Event (11.7 KiB), 2 of Large (1.0 MiB) and 1 more class."
    )
    assert not types_headline(BlockTypes(found[:1]), {})
    print_types(BlockTypes([]), {}, console)
    assert "Foo\\x1b[31m[red]" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
    assert "No live block has a type that could be recognised." in stream.getvalue()
