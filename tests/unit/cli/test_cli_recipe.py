"""`gdbmem recipe check`: every problem on a separate line, nothing run, a status for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gdbmem.cli.main import main

SOUND = "program: ./no-such-program\npoints: [{at: main}]\n"


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_sound_recipe_is_ok_without_its_program_being_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "r.yaml", SOUND)
    assert main(["recipe", "check", path]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{path}: ok (1 point, 0 expectations; as yet there is no program")
    assert "no-such-program" in said


def test_every_problem_of_every_file_is_a_line_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write(tmp_path, "good.yaml", SOUND)
    bad = write(tmp_path, "bad.yaml", "program: a\ntimeout: 5\npoints: [{at: main, afer: no}]\n")
    assert main(["recipe", "check", bad, good, str(tmp_path / "none.yaml")]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{good}: ok (1 point, 0 expectations; as yet ")
    first, second, third = captured.err.splitlines()
    assert first.startswith(f"{bad}:2:10: 'timeout': '5' is not a duration; ")
    assert second.startswith(f"{bad}:3:21: unknown key 'afer' in a point; ")
    assert third.startswith(f"cannot read the recipe {tmp_path}/none.yaml: No such file")


def test_options_that_the_launch_cannot_take_are_found_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "r.yaml", SOUND + "options: {valgrind-opt: [--vgdb=no]}\n")
    assert main(["recipe", "check", path]) == 1
    assert "--vgdb is set by the launch itself" in capsys.readouterr().err


def test_json_holds_the_same_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "r.yaml", "program: a\ntimeout: 5\npoints: [{at: main}]\n")
    assert main(["recipe", "check", "--json", path]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "format_version": 1,
        "kind": "recipe-check",
        "warnings": [],
        "files": [
            {
                "file": path,
                "ok": False,
                "problems": [
                    {
                        "line": 2,
                        "column": 10,
                        "message": "'timeout': '5' is not a duration",
                        "hint": "write it as in 500ms, 10s, 5min or 2h",
                    }
                ],
            }
        ],
    }


@pytest.mark.parametrize("words", [["recipe"], ["recipe", "check"], ["recipe", "run", "x"]])
def test_wrong_words_are_a_usage_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_brace_that_is_never_closed_is_reported_on_its_own_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "r.yaml", "program: a\npoints:\n  - {at: main, name: x\n  - {at: other}\n")
    assert main(["recipe", "check", path]) == 1
    assert capsys.readouterr().err.startswith(f"{path}:3:5: this is not YAML: ")


def test_of_thousands_of_problems_the_first_are_printed_and_the_others_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "r.yaml", "program: a\npoints: [{at: main}]\ndiff:\n" + "  - [x, x]\n" * 1000)
    assert main(["recipe", "check", path]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21 and lines[-1] == f"{path}: 2,980 more problems; --json lists all"
    assert main(["recipe", "check", path, "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["files"][0]["problems"]) == 3000


@pytest.mark.parametrize(
    ("engine", "problem"),
    [
        (
            "massif",
            "massif can't count the heap of ./static, which is statically linked; use options: {pages-as-heap",
        ),
        (
            "memcheck",
            "memcheck can't count the heap of ./static, which is statically linked; use engine: faults",
        ),
        ("faults", ""),
        ("massif\noptions: {pages-as-heap: yes}", ""),
    ],
)
def test_a_heap_that_the_engine_cannot_count_is_named_before_the_run(
    engine: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"  # without program headers: nothing names a dynamic loader
    (tmp_path / "static").write_bytes(header)
    (tmp_path / "static").chmod(0o755)
    path = write(
        tmp_path,
        "r.yaml",
        f"program: ./static\nengine: {engine}\npoints: [{{at: m}}]\nexpect: [{{between: [m#1, m], at_most: 0}}]\n",
    )
    assert main(["recipe", "check", path]) == (1 if problem else 0)
    assert problem in capsys.readouterr().err


def test_the_junit_file_of_an_earlier_run_does_not_stand_for_one_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "leak.xml"
    junit.write_text("<testsuites tests='1' failures='0'/>")
    path = write(tmp_path, "r.yaml", "progam: ./x\n")
    assert main(["launch", "--recipe", path, "--junit", str(junit)]) == 125
    assert 'errors="1"' in junit.read_text() and "unknown key" in junit.read_text()
    path = write(tmp_path, "s.yaml", SOUND)
    assert main(["launch", "--recipe", path, "--junit", str(junit)]) == 127
    assert "there is no program" in junit.read_text()
