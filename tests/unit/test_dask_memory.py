"""The unmanaged memory of Dask's workers: what is said of it, and where a result is in memory."""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
import types
from typing import Any

import pytest

from gdbmem.dask_memory import ClusterMemory, Extents, Result, Term, WorkerMemory
from gdbmem.json_values import as_json, from_json

numpy = pytest.importorskip("numpy")

MIB = 1 << 20
WORKER = WorkerMemory(
    "tcp://10.0.0.1:4711", 17, 200 * MIB, 76 * MIB, 40 * MIB,
    [Term("allocator.pymalloc", "live", 100 * MIB, "Python's objects"), Term("file.code", "", 60 * MIB, "code\x1b[2J")],
    [Result("zeros", 76 * MIB, 40 * MIB)], 0.015,
)  # fmt: skip


def test_the_terms_of_a_worker_add_up_to_what_dask_calls_unmanaged() -> None:
    terms = sum(term.size_bytes for term in WORKER.terms)
    assert terms + WORKER.sizeof_error_bytes == WORKER.unmanaged_bytes == 124 * MIB


def test_the_error_of_sizeof_is_told_with_the_result_that_has_it() -> None:
    lines = str(WORKER).splitlines()
    assert lines[0] == "tcp://10.0.0.1:4711: 124.0 MiB unmanaged: 200.0 MiB in memory − 76.0 MiB managed"
    assert lines[1:4] == [
        "   100.0 MiB  Python's objects",
        "    60.0 MiB  code\\x1b[2J",
        "   -36.0 MiB  that sizeof() counts and is not in memory",
    ]
    assert "  result zeros: 76.0 MiB by sizeof(), 40.0 MiB in memory (-36.0 MiB)" in lines
    assert lines[-1] == "  stopped for 15 ms"


def test_a_cluster_is_the_sum_of_its_workers_and_names_those_that_could_not_be_read() -> None:
    cluster = ClusterMemory([WORKER, WORKER], {"tcp://10.0.0.2:1": "no \x1b"})
    total = cluster.total()
    assert total.unmanaged_bytes == 2 * WORKER.unmanaged_bytes
    assert [term.size_bytes for term in total.terms] == [200 * MIB, 120 * MIB]
    text = str(cluster)
    assert text.startswith("2 workers: 248.0 MiB unmanaged")
    assert text.endswith("tcp://10.0.0.2:1: no \\x1b")


def test_a_worker_is_read_back_from_what_its_child_wrote() -> None:
    assert from_json(WorkerMemory, as_json(WORKER)) == WORKER._replace(notices=[])


@pytest.mark.parametrize("broken", [{}, {**as_json(WORKER), "pid": "x"}])
def test_an_answer_of_another_form_is_no_worker(broken: dict[str, object]) -> None:
    with pytest.raises(Exception, match=r"."):
        from_json(WorkerMemory, broken)


# Where a value is in memory, for the results of a scheduler's workers.


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


def test_the_log_of_a_paused_worker_tells_its_memory_or_why_not_and_its_watch_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", types.SimpleNamespace(WorkerPlugin=object))
    monkeypatch.delitem(sys.modules, "gdbmem.dask", raising=False)
    plugins = importlib.import_module("gdbmem.dask")
    monkeypatch.setattr(plugins, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(plugins, "_AGAIN_SECONDS", 0.0)
    answers: list[object] = [OSError(12, "no memory"), {"error": "it was\x1b gone"}, as_json(WORKER)]
    told: list[object] = []

    async def explain(worker: object) -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch() -> None:
        status = types.SimpleNamespace(name="paused")
        worker = types.SimpleNamespace(status=status, log_event=lambda topic, found: told.append(found))
        plugin = plugins.MemoryPlugin()
        plugin.setup(worker)
        while answers:
            await asyncio.sleep(0)
        status.name = "running"
        for _ in range(5):
            await asyncio.sleep(0)
        plugin.teardown(worker)

    monkeypatch.setattr(plugins, "explain_worker", explain)
    with caplog.at_level("WARNING", "distributed.worker"):
        asyncio.run(watch())
    first, second, third = (record.getMessage() for record in caplog.records)
    assert first == "gdbmem could not read this worker's memory: OSError: [Errno 12] no memory"
    assert second.endswith("it was\\x1b gone")
    assert third == str(WORKER)
    assert {record.name for record in caplog.records} == {"distributed.worker.gdbmem"}
    assert len(told) == 2
