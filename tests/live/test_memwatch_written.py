"""`memwatch written`: the pages that a step wrote, against a program that knows which it writes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gdbmem.setup.gdb_python import loader_file
from tests.live.memwatching import line_of, run_gdb
from tests.live.user import SECONDS

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]
PAGE = 4096
LINES = ("scatters", "same", "reads", "kernel", "new", "variable", "shared", "thread", "child", "unmaps")


def at(mark: str) -> int:
    return line_of("writes_pages.c", f"/* {mark} */")


def has_written_pages() -> bool:
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (
        release is not None
        and (int(release[1]), int(release[2])) >= (6, 7)
        and os.uname().machine == "x86_64"
    )


needs_kernel = pytest.mark.skipif(not has_written_pages(), reason="needs Linux 6.7 or later on x86-64")


@pytest.fixture(scope="module")
def told(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The output for each marked line of the program, and the output of the program."""
    folder = tmp_path_factory.mktemp("written")
    commands = [f"break writes_pages.c:{at('scatters')}", "run"]
    commands += [f"memwatch written --json -o {one}.json next" for one in LINES]
    look = "python print('fd', len(__import__('os').listdir(f'/proc/{gdb.selected_inferior().pid}/fd')))"
    flags = "python print('armed', ' uw' in open(f'/proc/{gdb.selected_inferior().pid}/smaps').read())"
    said = run_gdb(program("writes_pages"), [*commands[:2], look, *commands[2:], look, flags], folder=folder)
    assert "Traceback" not in said.output + said.complaints, said
    found = {one: json.loads((folder / f"{one}.json").read_text()) for one in LINES}
    yield {**found, "output": said.output}


def pages(document: dict[str, Any], base: int, count: int) -> set[int]:
    """Return the numbers of the written pages behind address *base*."""
    return {
        (address - base) // PAGE
        for one in document["ranges"]
        if one["written"]
        for address in range(one["start"], one["end"], PAGE)
        if base <= address < base + count * PAGE
    }


def address(told: dict[str, Any], name: str) -> int:
    match = re.search(rf"{name} (0x\w+)", told["output"])
    assert match
    return int(match[1], 16)


@needs_kernel
def test_exactly_the_pages_that_a_line_writes_are_listed(told: dict[str, Any]) -> None:
    pool = address(told, "pool")
    expected: dict[str, set[int]] = {
        "scatters": set(range(0, 100, 10)),
        "same": {3},  # with the value that it had
        "reads": set(),  # 300 pages that are there, 100 that are only reserved
        "kernel": {200, 201},  # by read(2)
        "thread": set(range(150, 157)),
        "child": set(),
    }
    assert {one: pages(told[one], pool, 512) for one in expected} == expected
    assert [told[one]["line"] for one in LINES] == [at(one) for one in LINES]
    assert all(told[one]["unwatched_bytes"] == 0 and told[one]["ended"] is None for one in LINES)


@needs_kernel
def test_new_memory_variables_and_shared_pages_are_distinguished(told: dict[str, Any]) -> None:
    assert 5 * PAGE in [one["bytes"] for one in told["new"]["ranges"]]  # of 64 that are reserved
    named = {one["in"] for one in told["variable"]["ranges"]}
    assert "variable table" in named and pages(told["variable"], address(told, "table"), 16) == {5}
    assert pages(told["shared"], address(told, "shared"), 32) == {3}
    assert told["shared"]["came_bytes"] == PAGE  # a shared page that was untouched before: read or written
    assert "stack of thread 1" in {one["in"] for one in told["scatters"]["ranges"]}


@needs_kernel
def test_the_program_keeps_no_descriptor_and_no_protection(told: dict[str, Any]) -> None:
    before, after = re.findall(r"^fd (\d+)", told["output"], re.M)
    assert before == after
    assert "armed False" in told["output"]


@needs_kernel
def test_a_program_executed_meanwhile_and_one_that_ends_are_unknown_and_not_zero(
    program: Program, scratch: Path
) -> None:
    path = program("writes_pages")
    said = run_gdb(
        path,
        ["break scatter", f"run {path} again", "memwatch written continue", "memwatch written continue",
         "memwatch written", "memwatch written print 1"],
        folder=scratch,
    )  # fmt: skip
    assert "unknown: which pages 'continue' from" in said.output
    assert "(the process has executed another program)" in said.output
    assert re.search(r"unknown: which pages 'continue' .* wrote \(the program ended", said.output)
    assert "[not-running]" in said.output
    assert "'print' is not a command by which memwatch written runs the program" in said.output


@needs_kernel
def test_a_killed_gdb_leaves_nothing_in_the_program(program: Program, scratch: Path) -> None:
    script = scratch / "commands.gdb"
    script.write_text("memwatch written continue\n")
    words = [str(program("steady_server")), "8"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as target:
        smaps = Path(f"/proc/{target.pid}/smaps")
        words = [
            "gdb",
            "-nx",
            "-q",
            "-batch",
            "-p",
            str(target.pid),
            "-x",
            str(loader_file()),
            "-x",
            str(script),
        ]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as gdb:
            end = time.monotonic() + SECONDS
            while " uw" not in smaps.read_text() and time.monotonic() < end:
                time.sleep(0.01)
            assert " uw" in smaps.read_text()
            gdb.send_signal(signal.SIGKILL)
            gdb.wait()
        assert target.poll() is None
        assert " uw" not in smaps.read_text()
        open_files = [str(one.readlink()) for one in Path(f"/proc/{target.pid}/fd").iterdir()]
        assert not [one for one in open_files if "userfaultfd" in one]
        target.kill()


def test_without_a_program_one_sentence_states_what_to_type(program: Program, scratch: Path) -> None:
    said = run_gdb(program("writes_pages"), ["memwatch written"], folder=scratch)
    assert "the program is not being run; type 'start' first" in said.output
