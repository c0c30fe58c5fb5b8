"""Where a value is in memory, for the results of a scheduler's workers."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from gdbmem.object_extents import Extents

numpy = pytest.importorskip("numpy")


def sizes(value: Any) -> int:
    found = Extents(time.monotonic() + 60)
    found.follow(value)
    assert found.is_whole
    parts = dict(zip(found.starts, found.sizes))  # an object that several refer to counts once
    return sum(parts.values())


def test_strings_in_a_list_count_with_the_list_and_its_table() -> None:
    value = [str(number) * 3 for number in range(1000, 2000)]
    assert sizes(value) == sys.getsizeof(value) + sum(map(sys.getsizeof, value))
    assert sizes([value[0]] * 100) == sys.getsizeof([value[0]] * 100) + sys.getsizeof(value[0])


def test_a_dictionary_counts_with_its_table_keys_and_values() -> None:
    value = {str(number) * 2: number for number in range(1000, 2000)}
    inner = sum(sys.getsizeof(one) for pair in value.items() for one in pair)
    assert sizes(value) == sys.getsizeof(value) + inner


@pytest.mark.parametrize("step", [1, 2])
def test_a_view_keeps_the_whole_array(step: int) -> None:
    whole = numpy.ones(100_000)
    assert 0 <= sizes(whole[10::step]) - whole.nbytes < 1000


def test_a_buffer_of_python_under_an_array_is_found() -> None:
    assert 0 <= sizes(numpy.frombuffer(bytearray(100_000), numpy.uint8)) - 100_000 < 1000


def test_objects_in_arrays_and_attributes_are_followed() -> None:
    class Result:
        def __init__(self) -> None:
            self.names = numpy.array([str(number) * 9 for number in range(1000, 2000)], object)

        def __sizeof__(self) -> int:
            raise AssertionError("nothing of the program is called")

    value = Result()
    strings = sum(map(sys.getsizeof, value.names.tolist()))
    assert 0 <= sizes(value) - strings - value.names.nbytes < 2000


def test_modules_classes_and_functions_are_the_programs_own() -> None:
    assert sizes([sys, Extents, sizes, None, True]) == sys.getsizeof([0] * 5)


def test_what_takes_too_long_is_said_to_be_a_part() -> None:
    found = Extents(time.monotonic() - 1)
    found.follow([[1], [2]])
    assert not found.is_whole


class Buffer:
    """As pyarrow has it."""

    __module__ = "pyarrow.lib"

    def __init__(self, address: int, size: int, parent: Any = None) -> None:
        self.address, self.size, self.parent = address, size, parent


class Table:
    __module__ = "pyarrow.lib"

    def __init__(self, *columns: Any) -> None:
        self.columns = columns


class Chunked:
    __module__ = "pyarrow.lib"

    def __init__(self, *chunks: Any) -> None:
        self.chunks = chunks


class Array:
    __module__ = "pyarrow.lib"

    def buffers(self) -> list[Any]:
        return [None, Buffer(1 << 40, 4096), Buffer((1 << 40) + 64, 64, Buffer(1 << 41, 8192))]


def test_buffers_of_arrow_are_found_by_address_also_those_that_share_a_parent() -> None:
    found = Extents(time.monotonic() + 60)
    found.follow(Table(Chunked(Array(), Array())))
    far = {start: size for start, size in zip(found.starts, found.sizes) if start in (1 << 40, 1 << 41)}
    assert far == {1 << 40: 4096, 1 << 41: 8192}
    assert (1 << 40) + 64 not in found.starts
