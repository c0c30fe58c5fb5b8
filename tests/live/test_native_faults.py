"""Failures of engines that are loaded into the program: each is reported, or harmless."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from ctypes.util import find_library
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.cover import cover
from tests.libraries import needs_library
from tests.live.test_native_engines import ENGINES, Played
from tests.live.user import GDBMEM, at_terminal, environment, shell

pytestmark = [pytest.mark.needs("gdb", "g++"), pytest.mark.usefixtures("no_process_left")]


def slugs(text: str) -> set[str]:
    return {warning["slug"] for warning in json.loads(text)["warnings"]}


def test_what_gperftools_cuts_off_a_dump_is_taken_from_the_program_itself(
    program: Program, tmp_path: Path
) -> None:
    needs_library("gperftools")
    recipe = f"""
program: {program("many_paths")}
args: ["7000", "2"]
engine: gperftools
points: [{{at: built, name: built}}]
diff: [["built#1", "built#2"]]
"""
    played = Played(tmp_path, recipe)
    (diff,) = played.result["diffs"]
    assert not diff["warnings"] and not diff["rest"]["uncertain_bytes"]
    # Each path allocates once a round.
    assert diff["delta_blocks"] == 7000
    assert sum(path["delta_blocks"] for path in diff["paths"]) + diff["rest"]["delta_blocks"] == 7000
    assert (
        sum(path["delta_bytes"] for path in diff["paths"]) + diff["rest"]["delta_bytes"]
        == diff["delta_bytes"]
    )
    size = (played.run / "snapshots" / "0001.gperftools").stat().st_size
    assert size > 1 << 20, "more than gperftools 2.10 writes"
    # The dump at the program's end is gperftools' own, of which the missing share is reported.
    own = shell(GDBMEM, "show", f"{played.run}:own", "--json", folder=tmp_path)
    (dump,) = (played.run / "snapshots").glob("own.*")
    is_cut = dump.stat().st_size <= 1 << 20  # later ones write it whole
    assert ("profile-truncated" in slugs(own.stdout)) == is_cut


@pytest.mark.parametrize("engine", ENGINES)
def test_while_another_thread_holds_the_allocators_locks_snapshots_are_taken_without_a_deadlock(
    engine: str, program: Program, tmp_path: Path
) -> None:
    needs_library(engine)
    recipe = f"program: {program('holds_the_lock')}\nengine: {engine}\ntimeout: 60s\npoints: [{{at: grown, name: g}}]\n"
    played = Played(tmp_path, recipe)
    assert played.status == 0, played.messages
    assert len(played.result["points"][0]["snapshots"]) == 20 and played.output == "kept 200\n"


@pytest.mark.parametrize("engine", cover(ENGINES, lambda engine: engine == "jemalloc"))
def test_inside_the_allocator_with_its_lock_held_a_snapshot_at_the_prompt_is_refused(
    engine: str, program: Program, tmp_path: Path
) -> None:
    needs_library(engine)
    with at_terminal(
        [GDBMEM, "launch", "--engine", engine, str(program("holds_the_lock"))], tmp_path
    ) as user:
        user.prompt()
        user.type("break grown")
        user.type("continue")
        user.type("delete 1")
        # Each is called with the lock held that a snapshot takes first: to note a block, to unmap or map a page.
        places = ["LowLevelAlloc::AllocWithArena"] if engine == "gperftools" else ["madvise", "mmap64"]
        for place in places:
            user.type(f"break {place}")
        while True:
            assert "hit Breakpoint" in user.type("continue")
            if ("libtcmalloc" if engine == "gperftools" else "libjemalloc") in user.type("bt"):
                break
        assert "could deadlock" in user.type("memsnap inside")
        user.type("delete 2 3" if engine == "jemalloc" else "delete 2")
        assert "exited normally" in user.type("continue")


def test_a_program_with_its_own_allocator_is_distinguished(program: Program, tmp_path: Path) -> None:
    needs_library("gperftools")
    recipe = f"program: {program('allocates_itself')}\nengine: gperftools\npoints: [{{at: built}}]\n"
    played = Played(tmp_path, recipe)
    assert played.result["points"][0]["hits"] == 1
    (warning,) = played.result["warnings"]
    assert warning["slug"] == "own-allocator"
    assert "if the program has its own allocator" in warning["message"]


def test_a_setuid_program_is_refused_because_it_ignores_the_preload(program: Program, tmp_path: Path) -> None:
    copy = tmp_path / "privileged"
    shutil.copy(program("keeps"), copy)
    copy.chmod(0o4755)
    done = shell(GDBMEM, "launch", "--engine", "jemalloc", copy, folder=tmp_path)
    assert done.returncode == 126 and "setuid" in done.stderr
    assert "ignore a profiler that is preloaded" in done.stderr


def test_a_fork_leaves_the_parents_snapshots_alone(program: Program, tmp_path: Path) -> None:
    needs_library("gperftools")
    recipe = f"program: {program('forks')}\nengine: gperftools\npoints: [{{at: work, after: true}}, {{at: reaped}}]\n"
    played = Played(tmp_path, recipe)
    assert played.status == 0 and played.output == "reaped\n"
    names = [point["snapshots"] for point in played.result["points"]]
    assert [len(one) for one in names] == [1, 1], "the child runs on without gdb"
    shown = shell(GDBMEM, "show", f"{played.run}:reaped", "--json", folder=tmp_path)
    assert json.loads(shown.stdout)["snapshots"][0]["heap_bytes"] >= 100 * 100
    assert "work" in shown.stdout and "1000" not in re.findall(r'"delta_blocks": (\d+)', shown.stdout)


def test_a_child_that_dumps_to_the_same_file_does_not_take_the_place_of_the_parents_snapshot(
    program: Program, tmp_path: Path
) -> None:
    needs_library("gperftools")
    # The child's dump at its exit and the parent's first one are both PREFIX.0001.heap.
    child_dumps = program("forks", "-DCHILD_ENDS=exit")
    played = Played(tmp_path, f"program: {child_dumps}\nengine: gperftools\npoints: [{{at: reaped}}]\n")
    assert played.status == 0 and "signal" not in played.messages, played.messages
    (point,) = played.result["points"]
    assert (point["hits"], point["snapshots"]) == (1, ["reaped"])
    shown = shell(GDBMEM, "show", f"{played.run}:reaped", "--by", "path", "--json", folder=tmp_path)
    (path,) = json.loads(shown.stdout)["sites"]["paths"]
    assert (path["delta_bytes"], path["delta_blocks"]) == (100 * 100, 100), (
        "the parent's blocks, not the child's 1,000"
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_forked_childs_own_dumps_are_distinguished_or_said_to_be_mixed(
    engine: str, program: Program, tmp_path: Path
) -> None:
    needs_library(engine)
    recipe = f"""
program: {program("forks", "-DPARENT_GOES_ON")}
engine: {engine}
options: {{dump-interval: 4KiB}}
points: [{{at: reaped, name: reaped}}]
"""
    played = Played(tmp_path, recipe)
    (warnings, shown) = (
        played.result["warnings"],
        shell(GDBMEM, "show", played.run, "--json", folder=tmp_path),
    )
    snapshots = json.loads(shown.stdout)["snapshots"]
    times = [one["seconds"] for one in snapshots]
    assert times == sorted(times), "one time line"
    (program_itself,) = {one["process"] for one in snapshots if one["name"] == "reaped"}
    of_child = [one for one in snapshots if one["process"] not in (program_itself, None)]
    if engine == "gperftools":
        assert [warning["slug"] for warning in warnings] == ["mixed-dumps"] and not of_child
    else:
        assert not warnings and max(one["heap_bytes"] for one in of_child) > 150_000, "it keeps 200,000 bytes"
        own = [one for one in snapshots if one["process"] == program_itself]
        assert max(one["heap_bytes"] for one in own) < 150_000


@pytest.mark.parametrize("engine", cover(ENGINES, lambda engine: engine == "gperftools"))
def test_a_snapshot_that_cannot_be_written_is_reported_and_the_program_goes_on(
    engine: str, program: Program, tmp_path: Path
) -> None:
    needs_library(engine)
    with at_terminal(
        [GDBMEM, "launch", "--engine", engine, "--run", "run", str(program("keeps"))], tmp_path
    ) as user:
        user.prompt()
        user.type("membreak --name kept batch")
        user.type("break mix")
        assert "snapshot kept: heap" in user.type("continue")
        user.type("delete 2")
        shutil.rmtree(tmp_path / "run" / "snapshots")
        shown = user.type("continue")
        assert shown.count("wrote no heap profile") == 2 and "exited normally" in shown
        assert "kept 300 blocks, sum 5.0000" in user.text


def said_in_any_case() -> int:
    """Return how often a quiet gperftools prints that it starts: some versions read the setting only afterwards."""
    settings = {
        "PERFTOOLS_VERBOSE": "-1",
        "HEAPPROFILE": "/dev/null",
        "LD_PRELOAD": find_library("tcmalloc") or "",
    }
    done = subprocess.run(
        ["true"], env={**os.environ, **settings}, capture_output=True, text=True, check=True
    )
    return done.stderr.count("Starting tracking")


def test_gperftools_says_nothing_between_the_programs_own_lines_but_its_errors(
    program: Program, tmp_path: Path
) -> None:
    needs_library("gperftools")
    recipe = f"program: {program('keeps')}\nengine: gperftools\npoints: [{{at: batch, name: b}}]\n"
    played = Played(tmp_path, recipe)
    assert len(played.result["points"][0]["snapshots"]) == 3
    assert played.messages.count("Starting tracking") == said_in_any_case()
    assert "Dumping heap profile" not in played.messages
    shutil.rmtree(tmp_path / "run")
    prefix = f"{tmp_path}/nowhere/p"
    played = Played(tmp_path, f"{recipe}env: {{HEAPPROFILE: {prefix}}}\n")
    assert f"Failed dumping heap profile to {prefix}" in played.messages
    shutil.rmtree(tmp_path / "run")
    played = Played(tmp_path, f"{recipe}env: {{PERFTOOLS_VERBOSE: '0'}}\n")
    assert "Starting tracking the heap" in played.messages, "who asks for them gets them"


def test_profiling_signals_reach_the_program_and_stop_nothing(program: Program, tmp_path: Path) -> None:
    needs_library("gperftools")
    recipe = f"""
program: {program("ticks_by_signal")}
engine: gperftools
env: {{HEAPPROFILESIGNAL: "12"}}
points: [{{at: ticked, name: ticked}}]
"""
    played = Played(tmp_path, recipe)
    assert played.status == 0, played.messages
    assert re.fullmatch(r"ticks [1-9]\d*\n", played.output)
    shown = shell(GDBMEM, "show", played.run, "--json", folder=tmp_path)
    names = [one["name"] for one in json.loads(shown.stdout)["snapshots"]]
    assert "ticked" in names and any(name.startswith("own") for name in names), "by its signal and at the end"


def test_a_program_that_was_built_anew_since_its_profile_is_warned_of(
    program: Program, tmp_path: Path
) -> None:
    needs_library("gperftools")
    copy = tmp_path / "keeps"
    shutil.copy(program("keeps"), copy)
    variables = {"LD_PRELOAD": "libtcmalloc.so.4", "HEAPPROFILE": str(tmp_path / "p")}
    subprocess.run(
        [str(copy)], cwd=tmp_path, check=True, capture_output=True, env={**environment(), **variables}
    )
    (dump,) = tmp_path.glob("p.*.heap")
    copy.unlink()
    assert "binary-missing" in slugs(shell(GDBMEM, "show", dump, "--json", folder=tmp_path).stdout)
    shutil.copyfile(program("meets"), copy)
    recorded = dump.stat().st_mtime
    assert copy.stat().st_mtime >= recorded
    text = dump.read_text()
    # The brief form of a map names the build-id of each binary.
    start = text.index("MAPPED_LIBRARIES:")
    line = re.search(r"([0-9a-f]+)-([0-9a-f]+) r-xp ([0-9a-f]+) \S+ \d+ +(\S*/keeps)", text[start:])
    assert line is not None
    brief = f"{line[1]}-{line[2]}: {line[4]} (@{line[3]}) {'ab' * 20}\n"
    dump.write_text(text[:start] + "MAPPED_LIBRARIES:\n" + brief)
    assert "build-id-differs" in slugs(shell(GDBMEM, "show", dump, "--json", folder=tmp_path).stdout)


def test_snapshots_do_not_depend_on_the_language_that_gdb_reads_expressions_in(
    program: Program, tmp_path: Path
) -> None:
    needs_library("gperftools")
    with at_terminal([GDBMEM, "launch", "--engine", "gperftools", str(program("keeps"))], tmp_path) as user:
        user.prompt()
        user.type("break batch")
        user.type("continue")
        user.type("delete 1")
        # A program in Go, Fortran, Rust or Ada has gdb read them as its own language's.
        for language in ("go", "fortran", "rust", "ada"):
            user.type(f"set language {language}")
            assert f"snapshot {language}: heap" in user.type(f"memsnap {language}")
            assert f'is "{language}"' in user.type("show language"), "left as it was"
        user.type("membreak --name passing mix")
        shown = user.type("continue")
        assert "snapshot passing#3: heap" in shown and "exited normally" in shown
        assert "kept 300 blocks, sum 5.0000" in user.text


@pytest.mark.parametrize("engine", cover(ENGINES, lambda engine: engine == "jemalloc"))
def test_a_snapshot_on_a_coroutines_small_stack_writes_nothing_behind_it(
    engine: str, program: Program, tmp_path: Path
) -> None:
    needs_library(engine)
    recipe = f"""
program: {program("small_stack")}
engine: {engine}
points: [{{at: deep, name: passing}}, {{at: deep, do: [snap, {{gdb: info program}}]}}]
"""
    played = Played(tmp_path, recipe)
    assert played.status == 0, played.messages
    assert [len(point["snapshots"]) for point in played.result["points"]] == [1, 1]
    assert played.output == "0 bytes behind the stack have changed\n"


def test_a_program_that_jemalloc_is_linked_into_is_counted_at_its_own_lines(
    program: Program, tmp_path: Path
) -> None:
    words = ["gcc", "-print-file-name=libjemalloc.a"]
    archive = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(archive).is_absolute():
        pytest.skip("libjemalloc-dev missing: scripts/setup installs it")
    linked = program("keeps", "-Wl,--whole-archive", archive, "-Wl,--no-whole-archive", "-lm", "-ldl")
    played = Played(tmp_path, f"program: {linked}\nengine: jemalloc\npoints: [{{at: mix, name: mixed}}]\n")
    assert played.result["warnings"] == []
    assert "mixed#2: heap" in played.messages and "grew most at keeps.cpp:10 (keep)" in played.messages
    other = tmp_path / "other"
    other.mkdir()
    played = Played(other, f"program: {linked}\nengine: gperftools\npoints: [{{at: mix}}]\n")
    assert [warning["slug"] for warning in played.result["warnings"]] == ["own-allocator"]


@pytest.mark.parametrize("engine", cover(("gperftools", "faults"), lambda engine: engine == "faults"))
def test_snapshots_after_the_main_threads_end_have_names_and_are_judged(
    engine: str, program: Program, tmp_path: Path
) -> None:
    needs_library("gperftools")
    ends = program("main_thread_ends", "-pthread")
    recipe = (
        f"program: {ends}\nengine: {engine}\npoints: [{{at: grown, name: grown}}]\n"
        "expect: [{between: [grown#1, grown], at_least: 190KiB}]\n"  # the program: 200,000 bytes
    )
    played = Played(tmp_path, recipe)
    assert played.status == 0, played.messages
    # The kernel takes the stacks of some of the faults only: of so few, perhaps of none that the program's code makes.
    where = r"(main_thread_ends\.c|memset\S*):\d+ \(" if engine == "faults" else r"main_thread_ends\.c:\d+ \("
    assert re.search(f"grew most at {where}", played.messages), played.messages
