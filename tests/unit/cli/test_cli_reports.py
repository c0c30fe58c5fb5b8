"""`gdbmem diff` and `gdbmem show` as they are typed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from gdbmem.cli.main import main
from gdbmem.runs.run import Run
from tests.unit.massif_texts import massif, path

LOAD = path(300, "allocate (new_allocator.h:137)", "load (load.cpp:7)", "main (main.cpp:9)")
LEAK = path(5000, "allocate (new_allocator.h:137)", "remember (decoder.cpp:120)", "main (main.cpp:9)")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    Path("before.ms").write_text(massif(LOAD))
    Path("after.ms").write_text(massif([*LOAD, *LEAK]))
    Path("history").write_text(massif(None, LOAD, [*LOAD, *LEAK], LOAD, sizes=(0, 300, 5300, 300)))
    made = Run.create("decoder", parent=tmp_path, pid=1, folder=tmp_path / "run")
    made.update(program="decoder", warnings=[{"slug": "x", "message": "the launch warned"}])
    for name, lines in (("loaded", LOAD), ("reset", [*LOAD, *LEAK])):
        relative = made.next_file("massif")
        (made.folder / relative).write_text(massif(lines))
        made.append(
            name,
            file=relative,
            engine="massif",
            heap_bytes=sum(size for depth, size, _ in lines if depth == 1),
        )
    return tmp_path


def document(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_first_line_of_a_diff_is_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "before.ms", "after.ms"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert (
        first == "heap grew by 4.9 KiB from before.ms to after.ms; all of it from decoder.cpp:120 (remember)"
    )
    assert any("by allocate (new_allocator.h:137)" in line for line in rest)


def test_a_run_alone_compares_its_last_two_snapshots(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "run"]) == 0
    assert "from loaded to reset;" in capsys.readouterr().out
    assert main(["diff", "run:reset", "run:loaded"]) == 0
    assert capsys.readouterr().out.startswith("heap shrank by 4.9 KiB from reset to loaded;")


def test_a_diff_as_json_holds_every_path_with_all_its_frames(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "diff", "before.ms", "run:reset")
    assert (found["format_version"], found["kind"], found["delta_bytes"]) == (1, "diff", 5000)
    assert found["before"] == {"source": "before.ms", "name": "before.ms", "total_bytes": 300}
    assert found["after"] == {"source": "run:reset", "name": "reset", "total_bytes": 5300}
    only, *others = found["paths"]
    assert {row["change"] for row in others} == {"unchanged"}
    assert [frame["function"] for frame in only["frames"]] == ["allocate", "remember", "main"]
    assert only["frames"][1] == {
        "function": "remember",
        "file": "decoder.cpp",
        "line": 120,
        "object": None,
        "inlined": False,
    }
    assert only["site"] == only["frames"][1]
    assert (only["delta_bytes"], only["before_bytes"], only["after_bytes"]) == (5000, 0, 5000)
    assert (only["delta_blocks"], only["uncertain_bytes"]) == (None, 0)
    assert {"slug": "x", "message": "the launch warned"} in found["warnings"]


def test_json_paths_and_the_rest_add_up_whatever_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    Path("known").write_text("nothing like it\n")
    many = [line for n in range(1, 30) for line in path(n, f"f{n} (a.cpp:{n})")]
    Path("many.ms").write_text(massif(many))
    found = document(
        capsys, "diff", "before.ms", "many.ms", "--top", "4", "--focus", "f|load", "--known", "known"
    )
    parts = [*found["paths"], found["rest"], found["unmatched"], found["known"]]
    assert len(found["paths"]) == 4 and found["rest"]["paths"] == 26
    assert sum(part["delta_bytes"] for part in parts) == found["delta_bytes"]


def test_bytes_that_are_no_utf8_survive_json(capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.ms").write_bytes(massif(path(5, "f (a\xff.cpp:1)")).encode("latin-1"))
    found = document(capsys, "diff", "before.ms", "odd.ms")
    files = {frame["file"] for entry in found["paths"] for frame in entry["frames"]}
    assert "a\udcff.cpp" in files


def test_fail_on_judges_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    Path("known").write_text("remember\n")
    words = ["diff", "before.ms", "after.ms", "--fail-on", "1KiB"]
    assert main(words) == 4
    captured = capsys.readouterr()
    assert captured.out.startswith("heap grew")
    assert captured.err == "gdbmem: not met: it grew by 4.9 KiB; --fail-on allows 1.0 KiB\n"
    assert main([*words, "--known", "known"]) == 0
    assert main(["diff", "after.ms", "before.ms", "--fail-on", "0"]) == 0


def sampled(name: str, blocks: int) -> None:
    """Write a profile of *blocks* sampled blocks of 512 KiB, at a sample each 512 KiB."""
    size = blocks << 19
    Path(name).write_text(
        f"heap_v2/524288\n  t*: {blocks}: {size} [0: 0]\n@ 0x1000 0x2000\n  t*: {blocks}: {size} [0: 0]\n"
    )


# Each block stands for 512 KiB / (1 - 1/e) = 810 KiB; one's standard error is that times the root of 1/e, 491 KiB.
@pytest.mark.parametrize(
    ("blocks", "limit", "status", "verdict"),
    [
        (1, "3MiB", 0, ""),
        (
            1,
            "2MiB",
            125,
            "not judged: it grew by 810.0 KiB, and samples may be 1.4 MiB off (3 standard errors)",
        ),
        (16, "12MiB", 125, "not judged: it grew by 12.7 MiB"),
        (16, "6MiB", 4, "not met: it grew by 12.7 MiB, and samples may be 5.8 MiB off (3 standard errors)"),
        (16, "19MiB", 0, ""),
    ],
)
@pytest.mark.parametrize("filters", [[], ["--focus", "."]])
def test_fail_on_is_no_verdict_within_what_samples_may_be_off(
    blocks: int, limit: str, status: int, verdict: str, filters: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sampled("before.heap", 0)
    sampled("after.heap", blocks)
    assert main(["diff", "before.heap", "after.heap", "--fail-on", limit, *filters]) == status
    said = [line for line in capsys.readouterr().err.splitlines() if "judged" in line or "not met" in line]
    assert len(said) == (1 if verdict else 0)
    assert verdict in " ".join(said)
    assert ("sample more often" in " ".join(said)) == (status == 125)


def test_of_one_run_samples_that_stay_the_same_are_no_doubt(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run.create("server", parent=Path.cwd(), pid=2, folder=Path("sampled").absolute())
    run.update(program="server")
    for name in ("one", "two"):
        file = run.next_file("jemalloc")
        sampled(str(run.folder / file), 16)
        run.append(name, file=file, engine="jemalloc", heap_bytes=16 << 19)
    assert main(["diff", "sampled", "--fail-on", "0"]) == 0
    assert main(["diff", "sampled:one", "sampled:two", "--fail-on", "0"]) == 0
    sampled("one.heap", 16)
    assert main(["diff", "one.heap", "sampled:two", "--fail-on", "0"]) == 125, "of two processes it is chance"


def test_fail_on_states_when_it_could_not_judge(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "before.ms", "gone.ms", "--fail-on", "1KiB"]) == 125
    assert capsys.readouterr().err.startswith("gdbmem: not judged: there is no file or run 'gone.ms'")
    assert main(["diff", "before.ms", "gone.ms"]) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["diff"],
        ["diff", "before.ms"],
        ["diff", "--series", "a", "b"],
        ["show"],
        ["diff", "x", "y", "--focus", "("],
    ],
)
def test_wrong_words_are_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_result_goes_to_a_file_and_never_over_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["diff", "before.ms", "after.ms", "-o", "result"]
    assert main(words) == 0
    assert Path("result").read_text().startswith("heap grew")
    assert capsys.readouterr().out == ""
    assert main(words) == 1
    assert main([*words, "--force", "--json"]) == 0
    assert json.loads(Path("result").read_text())["kind"] == "diff"


def test_a_failed_diff_leaves_no_half_result() -> None:
    assert main(["diff", "before.ms", "gone.ms", "-o", "result"]) == 1
    assert not Path("result").exists()


def test_show_draws_the_timeline_and_the_sites_at_the_peak(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "history"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("./decoder words.txt\n4 snapshots, 3 with a call tree\n")
    assert "peak: 5.2 KiB in snapshot 2, at 2.0 k instructions, with a call tree\n" in text
    assert "heap holds 5.2 KiB at snapshot 2; 94 % of it from decoder.cpp:120 (remember)\n" in text


@pytest.mark.parametrize("words", [["history", "--snapshot", "3"], ["history:3"]])
def test_show_takes_any_snapshot(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", *words]) == 0
    assert "heap holds 300 B at snapshot 3; all of it from load.cpp:7 (load)" in capsys.readouterr().out


def test_show_does_not_guess_between_two_snapshots() -> None:
    assert main(["show", "history:3", "--snapshot", "2"]) == 2


def test_show_lists_a_run_and_its_last_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run/massif.1.5.out").write_text(massif(LOAD))
    assert main(["show", "run"]) == 0
    text = capsys.readouterr().out
    assert "loaded" in text and "+4.9 KiB" in text
    assert "massif's own history: gdbmem show" in text and "massif.1.5.out" in text
    assert "note: the launch warned" in text
    assert "heap holds 5.2 KiB at reset; 94 % of it from decoder.cpp:120 (remember)" in text
    assert main(["show", "run", "--snapshot", "loaded"]) == 0
    assert "heap holds 300 B at loaded;" in capsys.readouterr().out


def test_show_lists_an_empty_run(capsys: pytest.CaptureFixture[str]) -> None:
    empty = Run.create("x", parent=Path(), pid=1, folder=Path("empty"))
    empty.update(program="x")
    assert main(["show", "empty"]) == 0
    assert "no snapshot" in capsys.readouterr().out
    assert document(capsys, "show", "empty")["snapshots"] == []


def test_a_profile_as_json_has_its_totals_peak_and_sites(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "show", "history")
    assert (found["kind"], found["source_format"], found["unit"]) == ("profile", "massif", "bytes of heap")
    assert found["peak"] == {"index": 2, "total_bytes": 5300}
    assert found["snapshots"][1] == {
        "index": 1,
        "name": None,
        "time": 1000.0,
        "time_unit": "i",
        "heap_bytes": 300,
        "extra_bytes": 0,
        "stacks_bytes": 0,
        "total_bytes": 300,
        "has_tree": True,
        "beside": {},
    }
    assert found["sites"]["index"] == 2
    assert [row["delta_bytes"] for row in found["sites"]["paths"]] == [5000, 300]


def test_a_profile_without_trees_still_has_its_timeline(capsys: pytest.CaptureFixture[str]) -> None:
    Path("none").write_text(massif(None, None, sizes=(0, 5)))
    assert main(["show", "none"]) == 0
    assert "no snapshot has a call tree" in capsys.readouterr().out
    assert document(capsys, "show", "none")["sites"] is None


def test_a_run_as_json_lists_what_is_known_and_null_for_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "show", "run")
    assert found["kind"] == "list"
    assert found["snapshots"][0] == {
        "name": "loaded",
        "file": "snapshots/0001.massif",
        "engine": "massif",
        "place": None,
        "thread": None,
        "hit": None,
        "seconds": None,
        "heap_bytes": 300,
        "process": None,
    }
    assert document(capsys, "show", "run:reset")["kind"] == "profile"


def test_the_list_of_a_run_that_counted_pages_does_not_call_them_heap(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (here / "run" / "snapshots").iterdir():
        file.write_text(massif(LOAD, root="(page allocation syscalls) mmap/mremap/brk, --alloc-fns, etc."))
    assert main(["show", "run"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].split()[:2] == ["name", "mapped"]
    assert "\nmapped memory holds 300 B at reset" in shown


def test_the_list_of_a_run_is_shown_although_a_file_of_it_is_damaged(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "run" / "snapshots" / "0002.massif").write_text("not massif's")
    assert main(["show", "run"]) == 1
    assert capsys.readouterr().out.splitlines()[0].split()[:2] == ["name", "heap"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["after.ms", "after.ms"], "are the same file"),
        (["before.ms", "after.ms", "--focus", "NoSuchName"], "no path matches the filters"),
        (["before.ms", "after.ms", "--ignore", "."], "no path matches the filters"),
        (["before.ms", "one.heap"], "are of different engines: jemalloc, massif"),
        (["before.ms", "other.ms"], "are of different programs: "),
    ],
)
def test_a_gate_that_compares_nothing_does_not_pass(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sampled("one.heap", 0)
    text = Path("before.ms").read_text()
    command = next(line for line in text.splitlines() if line.startswith("cmd:"))
    Path("other.ms").write_text(text.replace(command, "cmd: /usr/bin/other --here"))
    assert main(["diff", *words, "--fail-on", "1GiB"]) == 125
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("line", ["^", "|foo", ".*", "x?", "."])
def test_a_known_line_that_matches_everything_is_refused(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("known").write_text(f"remember\n{line}\n")
    assert main(["diff", "before.ms", "after.ms", "--fail-on", "1GiB", "--known", "known"]) == 125
    assert f"known:2: '{line}' matches every path" in capsys.readouterr().err


class _Gone(io.TextIOWrapper):
    """A standard output whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_picture_beside_a_page_stays_although_the_reader_of_the_page_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gdbmem.cli.main._give_up_output", lambda: None)
    monkeypatch.setattr("sys.stdout", _Gone(io.BytesIO()))
    assert main(["report", "history", "--svg", "history.svg", "-o", "-"]) == 128 + 13
    assert Path("history.svg").read_text().endswith("</svg>\n")
