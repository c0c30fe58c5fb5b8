"""The name of a process is that of its program, not that of the valgrind around it."""

from __future__ import annotations

import pytest

from gdbmem.linux.process.process import program_name


@pytest.mark.parametrize(
    ("comm", "words", "name"),
    [
        ("massif-amd64-li", "/usr/bin/valgrind.bin -q --tool=massif ./shop/server -v", "server"),
        ("cachegrind-amd6", "valgrind --tool=cachegrind ls", "ls"),
        ("massif-amd64-li", "/usr/bin/valgrind.bin -q", "massif-amd64-li"),
        ("valgrind.bin", "/usr/bin/valgrind.bin ./server", "valgrind.bin"),
        ("redis-server", "redis-server *:6379", "redis-server"),
        ("kworker/0:1-eve", "", "kworker/0:1-eve"),
    ],
)
def test_a_process_is_called_by_the_program_that_valgrind_runs(comm: str, words: str, name: str) -> None:
    assert program_name(comm, words.split()) == name
