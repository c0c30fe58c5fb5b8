"""memcontainers follows the dynamic types of objects: behind an interface, in a variant, an any, a tuple."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.live.test_memcontainers import LIBRARIES, built_with, rows, survey
from tests.live.test_memexplain import gdb

pytestmark = pytest.mark.needs("gdb")


@pytest.fixture(scope="module", params=LIBRARIES)
def surveyed(
    request: pytest.FixtureRequest, program: Program, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, str]:
    folder = tmp_path_factory.mktemp("classes")
    done = gdb(
        folder,
        built_with(request.param, program, "containers_by_interface"),
        "set print demangle off",
        "break checkpoint",
        "run",
        "memcontainers --save start --json -o 1.json",
        "continue",
        "memcontainers --since start --json -o 2.json",
        "memcontainers --since start",
        "memcontainers --json -o expr.json *server->first",
        "memcontainers --json -o any.json server->large",
        "continue",
        "memcontainers --json -o iterators.json",
        "set language c",
        "memcontainers --json -o c.json",
        "show language",
        "continue",
    )
    assert (folder / "expr.json").exists(), done.stderr
    return folder, done.stdout, done.stderr


def test_behind_interfaces_too_all_that_operator_new_gave_out_is_found(
    surveyed: tuple[Path, str, str],
) -> None:
    folder, shown, messages = surveyed
    given = [int(value) for value in re.findall(r"point \d given (\d+)", shown)]
    assert [survey(folder / f"{n}.json")["held_bytes"] for n in (1, 2)] == given[:2]
    assert "gdbmem failed" not in messages


def test_a_map_that_is_never_erased_is_named_although_only_an_interface_leads_to_it(
    surveyed: tuple[Path, str, str],
) -> None:
    folder, shown, _ = surveyed
    grown = rows(folder / "2.json")["server.first.((anonymous namespace)::Cache).entries"]
    assert (grown["delta_size"], grown["size"]) == (2000, 2000)
    assert "first.((anonymous namespace)::Cache).entries[*].second: 0 → 100,000 elements, +390.6 KiB" in shown


@pytest.mark.parametrize(
    ("path", "size"),
    [
        ("services[*]", 30),
        ("*services[*].((anonymous namespace)::Cache).entries", 40),
        ("*services[*].((anonymous namespace)::Log).lines", 40),
        ("*made.((anonymous namespace)::Log).lines", 1),
        ("*adopted.((anonymous namespace)::Cache).entries", 1),
        ("named[*].(Both).items", 21),
        ("named[*].(Both).more", 33),
        ("named[*].(Both).name", 43),
        ("named[*].((anonymous namespace)::Log).name", 43),
        ("choice", 17),
        ("other.(Named).name", 43),
        ("parts.get<1>", 19),
        ("parts.get<2>", 49),
        ("*pair.second.((anonymous namespace)::Cache).entries", 1),
        ("fixed[*]", 29),
    ],
)
def test_each_way_is_followed(surveyed: tuple[Path, str, str], path: str, size: int) -> None:
    found = rows(surveyed[0] / "1.json")
    name = path.lstrip("*")
    assert found[f"{path[: -len(name)]}server.{name}"]["size"] == size


@pytest.mark.parametrize(
    ("path", "size"),
    [("server.large", 3), ("server.text", 43), ("server.pointed", 31), ("*server.owned", 37)],
)
def test_what_an_any_holds_is_found_in_it_or_in_its_own_block(
    surveyed: tuple[Path, str, str], path: str, size: int
) -> None:
    found = rows(surveyed[0] / "1.json")
    outside = f"*{path}" in found  # libstdc++'s has room for a pointer, libc++'s for three
    assert found[f"*{path}" if outside else path]["size"] == size
    assert not outside or found[path]["type"] == "std::any"


def test_a_program_that_stands_in_c_has_the_same_containers(surveyed: tuple[Path, str, str]) -> None:
    folder, shown, _ = surveyed
    assert rows(folder / "c.json").keys() == rows(folder / "iterators.json").keys()
    assert survey(folder / "c.json")["held_bytes"] == survey(folder / "iterators.json")["held_bytes"]
    assert 'The current source language is "c".' in shown
    assert "server->large" in set(rows(folder / "any.json")) <= {"server->large", "*server->large"}


def test_what_is_no_object_of_its_class_is_not_looked_into(surveyed: tuple[Path, str, str]) -> None:
    found = rows(surveyed[0] / "1.json")
    assert not [path for path in found if "broken" in path or "gone" in path]


def test_what_an_iterator_points_to_behind_the_end_is_not_counted(surveyed: tuple[Path, str, str]) -> None:
    folder, shown, _ = surveyed
    given = int(re.findall(r"point 3 given (\d+)", shown)[0])
    assert survey(folder / "iterators.json")["held_bytes"] == given - 43 * 4
    assert [
        row["size"] for path, row in rows(folder / "iterators.json").items() if path.endswith("::all[*]")
    ] == [41]


def test_an_expression_names_an_object_by_its_interface(surveyed: tuple[Path, str, str]) -> None:
    found = rows(surveyed[0] / "expr.json")
    assert found["*server->first.((anonymous namespace)::Cache).entries"]["size"] == 2000


BASE = """
#include <memory>
#include <vector>
struct Base { std::vector<int> mine; virtual ~Base() {} virtual int go() { return 1; } };
struct Later;
Base *make();
Later *declared();
"""
OTHER = """
#include "base.h"
struct Secret : Base { std::vector<int> hidden; int go() override { return 2; } };
struct Later { virtual ~Later() {} std::vector<int> late; };
Base *make() { auto made = new Secret; made->hidden.resize(5); made->mine.resize(3); return made; }
Later *declared() { auto made = new Later; made->late.resize(7); return made; }
"""
MAIN = """
#include "base.h"
void stop() {}
int main() { std::unique_ptr<Base> base(make()); Later *later = declared(); stop(); return later && base->go(); }
"""


@pytest.mark.needs("g++")
@pytest.mark.parametrize(
    "known", [pytest.param(True, marks=pytest.mark.thorough), False], ids=["with -g", "without"]
)
def test_of_a_class_without_debug_information_the_base_is_looked_into_and_that_is_reported(
    known: bool, tmp_path: Path
) -> None:
    for name, text in (("base.h", BASE), ("other.cpp", OTHER), ("main.cpp", MAIN)):
        (tmp_path / name).write_text(text)
    flags = ["-g", "-femit-class-debug-always", "-O0"]
    for name, more in (("main", flags), ("other", flags if known else ["-g0"])):
        subprocess.run(["g++", *more, "-c", f"{name}.cpp", "-o", f"{name}.o"], cwd=tmp_path, check=True)
    subprocess.run(["g++", "main.o", "other.o", "-o", "whole"], cwd=tmp_path, check=True)
    done = gdb(tmp_path, tmp_path / "whole", "break stop", "run", "memcontainers --json -o 1.json")
    found = {path: row["size"] for path, row in rows(tmp_path / "1.json").items()}
    warnings = survey(tmp_path / "1.json")["warnings"]
    if known:
        assert found == {
            "main::base": 1, "*main::base.(Secret).mine": 3, "*main::base.(Secret).hidden": 5, "main::later.late": 7,
        }, done  # fmt: skip
        assert warnings == []
    else:
        assert found == {"main::base": 1, "*main::base.mine": 3}, done
        assert [warning["slug"] for warning in warnings] == ["class-unknown"]
        assert "scanned: Later, Secret" in warnings[0]["message"]
