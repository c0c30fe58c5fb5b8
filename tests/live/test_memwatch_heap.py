"""memwatch's heap: malloc's bytes, line by line, against malloc's own count."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.libraries import needs_library
from tests.live.memwatching import line_of, run_gdb, steps

pytestmark = [pytest.mark.needs("gdb", "gcc"), pytest.mark.usefixtures("no_process_left")]

Program = Callable[..., Path]
# Without these two caches malloc's own count leaves out every free chunk.
NO_CACHES = "set environment GLIBC_TUNABLES glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0"


def heap_by_line(folder: Path) -> dict[int, int]:
    return {step["line"]: step["heap_delta_bytes"] for step in steps(folder)}


def at(text: str) -> int:
    return line_of("heap_lines.c", text)


@pytest.mark.parametrize("symbols", [True, False], ids=["libc-symbols", "stripped-libc"])
def test_an_allocation_of_40_bytes_shows_and_so_does_its_end(
    program: Program, scratch: Path, symbols: bool
) -> None:
    without = [] if symbols else ["set debug-file-directory /nowhere"]
    run_gdb(
        program("heap_lines", "-O0"),
        [*without, "break main", "run", "memwatch next --source heap --json -o steps.json 6"],
        folder=scratch,
    )
    found = heap_by_line(scratch)
    # 40 bytes take a chunk of 48. malloc's cache of the thread, which its first call or free makes, is not the line's.
    assert found[at("malloc(40)")] == 48
    assert found[at("free(a)")] == -48
    assert found[at("malloc(1000000)")] == 1003520  # whole pages: glibc maps a block of this size
    assert found[at("keep[i] = malloc")] == sum(max(32, (24 + i % 200 + 8 + 15) & ~15) for i in range(20000))


@pytest.mark.skipif(shutil.which("musl-gcc") is None, reason="musl-gcc missing: scripts/setup installs it")
def test_steps_of_a_static_program_of_another_c_library_are_not_reported_to_have_ended_it(
    scratch: Path,
) -> None:
    (scratch / "small.c").write_text(
        "#include <stdlib.h>\nint main(void) {\n  char *p = malloc(40);\n  free(p);\n  return 0;\n}\n"
    )
    built = scratch / "small"
    subprocess.run(["musl-gcc", "-static", "-g", scratch / "small.c", "-o", built], check=True)
    said = run_gdb(
        built, ["break main", "run", "memwatch next --source heap", "memwatch next 2", "kill"], folder=scratch
    ).output
    assert said.count("glibc's malloc was not found in this process") == 2, said
    assert "unknown change in 2 steps" in said
    assert "gone" not in said and "128 KiB" not in said and " 0 B" not in said


def test_the_heap_equals_mallocs_own_count(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("heap_lines", "-O0"),
        [NO_CACHES, f"break {at('return a')}", "run", "print $heap()"],
        folder=scratch,
    )
    counted = next(int(line) for line in said.output.splitlines() if line.isdigit())
    shown = int(said.output.split("$1 = ")[1].split()[0])
    # printf's buffer was allocated after malloc was asked.
    assert 0 <= shown - counted <= 8192


def test_the_caches_of_free_blocks_are_not_in_use(program: Program, scratch: Path) -> None:
    run_gdb(
        program("heap_lines", "-O0"),
        ["break main", "run", "memwatch next --source heap --json -o steps.json 7"],
        folder=scratch,
    )
    found = heap_by_line(scratch)
    allocated = found[at("keep[i] = malloc")]
    freed = sum(max(32, (24 + i % 200 + 8 + 15) & ~15) for i in range(0, 20000, 2))
    assert found[at("free(keep[i])")] == -freed
    assert allocated > freed


def test_rss_and_heap_are_functions_for_any_condition(program: Program, scratch: Path) -> None:
    said = run_gdb(
        program("heap_lines", "-O0"),
        [
            f"break {at('free(b)')} if $heap() > 1000000",
            "run",
            "print $rss() > 100000",
            "print $heap() < 2000000",
        ],
        folder=scratch,
    )
    assert "Breakpoint 1, main" in said.output
    assert "$1 = 1" in said.output and "$2 = 1" in said.output


@pytest.mark.parametrize("malloc", ["musl", "jemalloc"])
def test_a_malloc_that_is_not_glibcs_is_no_empty_heap(program: Program, scratch: Path, malloc: str) -> None:
    built, settings, reason = program("heap_lines", "-O0"), [], "glibc's malloc was not found"
    if malloc == "musl":
        if shutil.which("musl-gcc") is None:
            pytest.skip("musl-gcc missing: scripts/setup installs it")
        (scratch / "small.c").write_text(
            "#include <stdlib.h>\nint main(void) {\n  return malloc(40) == 0;\n}\n"
        )
        built = scratch / "small"
        subprocess.run(["musl-gcc", "-g", scratch / "small.c", "-o", built], check=True)
    else:
        needs_library("jemalloc")
        settings = ["set environment LD_PRELOAD libjemalloc.so.2"]
        reason = "the allocator is jemalloc, and only glibc's blocks can be counted at each step"
    said = run_gdb(
        built,
        [*settings, "break main", "run", "next", "memwatch next --source heap", "print $heap()"],
        folder=scratch,
    )
    assert said.output.count(reason) + said.complaints.count(reason) == 2, said
    assert "$1" not in said.output


@pytest.fixture
def massif(request: pytest.FixtureRequest, program: Program, scratch: Path) -> Iterator[list[str]]:
    """Yield what has gdb stop in main of heap_lines, or the program that the test names, under massif."""
    log = (scratch / "valgrind.log").open("wb")
    child = subprocess.Popen(
        ["valgrind", "--tool=massif", "--vgdb-stop-at=startup", f"--massif-out-file={scratch}/out",
         str(program(getattr(request, "param", "heap_lines"), "-O0"))],
        stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=scratch, env=os.environ,
    )  # fmt: skip
    yield ["set sysroot", f"target remote | vgdb --wait=20 --pid={child.pid}", "break main", "continue"]
    child.terminate()
    child.wait()
    log.close()


@pytest.mark.needs("valgrind")
def test_under_massif_the_numbers_are_massifs_own_to_the_byte(
    program: Program, scratch: Path, massif: list[str]
) -> None:
    said = run_gdb(
        program("heap_lines", "-O0"),
        [
            *massif,
            "memwatch next --json -o steps.json 6",
            "memwatch next --source statm",
            "print $rss()",
        ],
        folder=scratch,
    )
    found = heap_by_line(scratch)
    assert found[at("malloc(40)")] == 40 and found[at("free(a)")] == -40
    assert found[at("malloc(1000000)")] == 1000000
    assert found[at("keep[i] = malloc")] == sum(24 + i % 200 for i in range(20000))
    assert steps(scratch)[0]["source"] == "massif"
    assert "statm would measure valgrind, not the program" in said.output
    assert "the resident memory is valgrind's own" in said.output


def many_frees(program: Program, folder: Path, steps_wanted: int) -> str:
    return run_gdb(
        program("frees_many", "-O0"),
        ["break main", "run", f"memwatch next --source heap --json -o steps.json {steps_wanted}", "memwatch report"],
        folder=folder,
    ).output  # fmt: skip


def freed_by(text: str) -> int:
    return line_of("frees_many.c", text)


def test_a_line_that_frees_20_000_blocks_is_charged_for_them_among_other_lines(
    program: Program, scratch: Path
) -> None:
    many_frees(program, scratch, 7)
    found = heap_by_line(scratch)
    chunks = [max(32, (100 + i % 200 + 8 + 15) & ~15) for i in range(40_000)]
    assert found[freed_by("drop(2);")] == -sum(chunks[::2])
    assert found[freed_by("void *b = malloc(40)")] == 48 and found[freed_by("free(a)")] == -48
    assert all(step["exact"] for step in steps(scratch))


def test_where_free_blocks_are_too_many_to_count_the_steps_report_it(program: Program, scratch: Path) -> None:
    said = many_frees(program, scratch, 300)
    uncounted = [step for step in steps(scratch) if not step["exact"]]
    assert uncounted[0]["line"] == freed_by("drop(2);")
    assert all("too many free blocks to count" in step["note"] for step in uncounted)
    # The memory that malloc took from the kernel stays the same: no block is invented.
    assert {step["heap_delta_bytes"] for step in uncounted[:3]} == {0}
    assert "steps not exact: too many free blocks to count" in " ".join(said.split())


@pytest.mark.needs("valgrind")
def test_under_massif_a_breakpoints_commands_run_once_and_after_the_stop(
    program: Program, scratch: Path, massif: list[str]
) -> None:
    said = run_gdb(
        program("heap_lines", "-O0"),
        [
            *massif,
            f"break {at('free(a)')}",
            "commands\nsilent\necho COMMAND\\n\nend",
            "memwatch next --json -o steps.json 6",
            "kill",
        ],
        folder=scratch,
    )
    assert said.output.count("COMMAND") == 1
    assert steps(scratch)[-1]["ended"] == "breakpoint 2"
    assert heap_by_line(scratch)[at("malloc(40)")] == 40


@pytest.mark.needs("valgrind")
@pytest.mark.parametrize("massif", ["rendezvous"], indirect=True)
def test_under_massif_a_line_that_waits_for_another_thread_ends_and_is_marked_shared(
    program: Program, scratch: Path, massif: list[str]
) -> None:
    said = run_gdb(
        program("rendezvous", "-O0"),
        [
            *massif,
            "tbreak take",
            "continue",
            "finish",
            "memwatch next --json -o steps.json 20",
            "show scheduler-locking",
            "kill",
        ],
        folder=scratch,
    )
    waits = line_of("rendezvous.c", "        take();")
    waited = [step for step in steps(scratch) if step["line"] == waits]
    assert len(steps(scratch)) == 20 and len(waited) >= 5
    assert {step["lock"] for step in waited} == {"shared"}
    assert all(step["shared_threads"] == [2] and "in turns" in step["note"] for step in waited)
    assert {step["delta_bytes"] for step in steps(scratch)} == {0}  # it allocates nothing
    assert 'is "replay"' in said.output
