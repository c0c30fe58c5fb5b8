"""memcontainers: the memory of containers equals that of operator new."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Program
from tests.live.test_memexplain import gdb
from tests.live.user import environment

pytestmark = pytest.mark.needs("gdb")


def survey(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def rows(path: Path) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in survey(path)["containers"]}


LIBCXX = ("-stdlib=libc++", "-Wno-deprecated")
LIBRARIES = ["libstdc++", pytest.param("libc++", marks=pytest.mark.needs("clang++"))]


def built_with(library: str, program: Program, name: str) -> Path:
    return program(name, *LIBCXX, compiler="clang++") if library == "libc++" else program(name)


@pytest.fixture(scope="module", params=LIBRARIES)
def two_points(
    request: pytest.FixtureRequest, program: Program, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, str]:
    folder = tmp_path_factory.mktemp("containers")
    done = gdb(
        folder,
        built_with(request.param, program, "containers_known"),
        "break checkpoint",
        "run",
        "memcontainers --save start --json -o 1.json",
        "memcontainers --top 3",
        "memcontainers --json -o expr.json states",
        "next",
        "continue",
        "memcontainers --since start --json -o 2.json",
        "memcontainers --since start",
        "memcontainers --since nothing",
        "next",
    )
    return folder, done.stdout, done.stderr


def test_the_bytes_of_all_containers_are_those_operator_new_gave_out(
    two_points: tuple[Path, str, str],
) -> None:
    folder, shown, _ = two_points
    given = [int(value) for value in re.findall(r"point \d given (\d+)", shown)]
    assert [survey(folder / f"{n}.json")["held_bytes"] for n in (1, 2)] == given


def test_a_map_that_is_never_erased_stands_out_between_two_points(two_points: tuple[Path, str, str]) -> None:
    folder, shown, _ = two_points
    states = rows(folder / "2.json")["main::decoder.task_states"]
    assert (states["delta_size"], states["size"]) == (2000, 2000)
    assert "main::decoder.task_states[*].second: 0 → 200,000 elements, +781.2 KiB" in shown


def test_a_vector_that_was_cleared_but_not_shrunk_is_the_answer(two_points: tuple[Path, str, str]) -> None:
    folder, shown, _ = two_points
    cleared = rows(folder / "1.json")["main::cleared"]
    assert (cleared["size"], cleared["capacity"], cleared["slack_bytes"]) == (0, 3 << 20, 3 << 20)
    assert "most in main::cleared: 0 of 3,145,728 elements" in shown


@pytest.mark.parametrize(
    ("path", "size"),
    [
        ("states", 1000),
        ("states[*].arcs", 2997),
        ("names", 500),
        ("pool::buffers", 50),
        ("pool::buffers[*]", 50_000),
        ("main::decoder.words", 3000),
        ("main::decoder.queue", 700),
        ("main::maybe", 77),
        ("main::fixed[*]", 30),
        ("*main::owned.arcs", 3),
        ("*main::shared.arcs", 4),
        ("main::root.children", 3),
        ("main::root.children[*].children", 6),
    ],
)
def test_each_kind_is_reached_and_counted(two_points: tuple[Path, str, str], path: str, size: int) -> None:
    folder, _, _ = two_points
    assert rows(folder / "1.json")[path]["size"] == size


def test_what_is_shared_or_leads_in_a_circle_is_counted_once(two_points: tuple[Path, str, str]) -> None:
    folder, _, _ = two_points
    found = rows(folder / "1.json")
    assert "main::again" not in found
    assert "main::root.children[*].parent.children" not in found


def test_a_variable_declared_further_down_is_not_read_before_it_is_constructed(
    two_points: tuple[Path, str, str],
) -> None:
    assert "main::late" not in rows(two_points[0] / "1.json")


def test_an_expression_limits_it(two_points: tuple[Path, str, str]) -> None:
    folder, _, _ = two_points
    assert set(rows(folder / "expr.json")) == {"states", "states[*].arcs", "states[*].name"}


def test_a_survey_that_nobody_saved_is_a_sentence(two_points: tuple[Path, str, str]) -> None:
    assert "no containers were saved as 'nothing'; there are start" in two_points[2]


def test_a_program_without_debug_information_is_a_sentence(program: Program, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run(["strip", "-o", bare, program("containers_known")], check=True)
    done = gdb(tmp_path, bare, "starti", "memcontainers")
    assert "no container was reached" in done.stdout, done.stderr


@pytest.mark.needs("valgrind")
def test_under_massif_the_survey_is_the_same(program: Program, tmp_path: Path) -> None:
    natively = gdb(
        tmp_path,
        program("containers_known"),
        "break checkpoint",
        "run",
        "memcontainers --json -o native.json",
    )
    assert (tmp_path / "native.json").exists(), natively.stderr
    done = subprocess.run(
        [
            Path(sys.executable).with_name("gdbmem"),
            *("launch", "--massif", program("containers_known"), "--run", tmp_path / "run"),
            *("--ex", "break checkpoint", "--ex", "continue"),
            *("--ex", f"memcontainers --json -o {tmp_path}/1.json", "--ex", "kill", "--ex", "quit"),
        ],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=environment(),
        check=False,
        timeout=100,
    )
    assert (tmp_path / "1.json").exists(), done.stderr
    here, there = rows(tmp_path / "1.json"), rows(tmp_path / "native.json")
    assert {path: row for path, row in here.items() if row != there.get(path)} == {}
    assert set(here) == set(there)


@pytest.mark.parametrize(
    "compiler",
    ["g++", pytest.param("clang++", marks=[pytest.mark.needs("clang++"), pytest.mark.thorough])],
)
def test_what_only_a_reference_leads_to_is_reached_bits_too(
    compiler: str, program: Program, tmp_path: Path
) -> None:
    flags = LIBCXX if compiler == "clang++" else ()
    built = program("containers_by_reference", *flags, compiler=compiler)
    words = (
        "break look",
        "run",
        "memcontainers --json -o all.json",
        "memcontainers rows --json -o rows.json",
    )
    done = gdb(tmp_path, built, *words, "memcontainers made()", "memcontainers 3", "continue")
    found = rows(tmp_path / "all.json")
    assert (found["look::rows"]["size"], found["look::rows[*]"]["size"]) == (20, 2000)
    assert set(rows(tmp_path / "rows.json")) == {"rows", "rows[*]"}
    told = re.search(r"bits (\d+) of (\d+)", done.stdout)
    assert told is not None, done.stderr
    bits = found["look::bits"]
    assert (bits["size"], bits["capacity"]) == (int(told[1]), int(told[2]))
    assert bits["held_bytes"] == int(told[2]) // 8
    assert "no container was reached from 3; it must be a variable, or in one" in done.stdout


@pytest.mark.needs("clang++")
@pytest.mark.parametrize("layout", ["", "-D_LIBCPP_ABI_ALTERNATE_STRING_LAYOUT"], ids=["usual", "alternate"])
def test_strings_of_both_layouts_of_libcxx_hold_what_operator_new_gave_out(
    layout: str, program: Program, tmp_path: Path
) -> None:
    built = program("string_layouts", *LIBCXX, *filter(None, [layout]), compiler="clang++")
    done = gdb(tmp_path, built, "break printf", "run", "up", "memcontainers --json -o 1.json", "continue")
    given = re.search(r"given (\d+)", done.stdout)
    assert given is not None and (tmp_path / "1.json").exists(), done.stderr
    assert survey(tmp_path / "1.json")["held_bytes"] == int(given[1])
    found = rows(tmp_path / "1.json")
    sizes = {
        name: found[f"main::{name}"]["size"] for name in ("none", "brief", "full", "first", "roomy", "wide")
    }
    assert sizes == {"none": 0, "brief": 7, "full": 10, "first": 11, "roomy": 200, "wide": 4}
    assert found["main::full"]["capacity"] == 10
    assert found["main::roomy"]["slack_bytes"] >= 1600
