"""Line tables of code objects at their edges, and damaged ones."""

from __future__ import annotations

from types import CodeType
from typing import Any

import pytest

from gdbmem.allocators.cpython.code_objects import LineTable, line_of


def test_before_the_first_instruction_it_is_the_line_of_the_definition() -> None:
    code: Any = test_before_the_first_instruction_it_is_the_line_of_the_definition.__code__
    assert isinstance(code, CodeType)
    assert line_of(b"", LineTable.LOCATIONS, code.co_firstlineno, -2) == code.co_firstlineno


@pytest.mark.parametrize("kind", LineTable)
def test_a_damaged_table_ends_and_names_no_line_it_does_not_have(kind: LineTable) -> None:
    for table in (b"\xff" * 999, b"\xf8" * 5, b"\xf0", b"\x80", bytes(range(256)) * 4):
        for offset in (0, 2, 10_000_000):
            line_of(table, kind, 1, offset)
    assert line_of(b"", LineTable.LOCATIONS, 5, 4) is None
