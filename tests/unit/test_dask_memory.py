"""What is said of the unmanaged memory of Dask's workers."""

from __future__ import annotations

import pytest

from gdbmem.dask_memory import ClusterMemory, Result, Term, WorkerMemory
from gdbmem.json_values import as_json, from_json

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
