"""A run folder that a stranger wrote: nothing outside it is read or written, and it costs no more than its size."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from pathlib import Path
from typing import Any, Callable

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import InputError
from gdbmem.model.series import Mark, SeriesFacts
from gdbmem.runs import distrust
from gdbmem.runs.distrust import check_own
from gdbmem.runs.run import Run, open_run, run_for_process
from gdbmem.runs.saved_results import CONTAINERS, LEDGER, keep, saved_records, saved_text
from gdbmem.runs.unseen import SNAP, unseen_in_run
from gdbmem.series.store import Damaged, Recording, SeriesWriter

PROCESS = {"pid": 7, "start_ticks": 1, "boot_id": "x"}
FOLDED = "main;grow 1000\n"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Make a file outside the run that would be read as a profile."""
    (tmp_path / "secret").mkdir()
    file = tmp_path / "secret/0001.folded"
    file.write_text(FOLDED)
    return file


def planted(parent: Path, *lines: dict[str, Any], **facts: Any) -> Path:
    """Make a run folder whose parts are all forged."""
    folder = parent / "gdbmem.fake.7"
    (folder / "snapshots").mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps({"format_version": 1, "kind": "run", "process": PROCESS, **facts})
    )
    (folder / "snapshots.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def line(file: str, **changes: Any) -> dict[str, Any]:
    return {"base_name": "a", "ordinal": 1, "file": file, "engine": "gperftools", **changes}


def fifo(path: Path) -> Any:
    return os.mkfifo(path)


@pytest.mark.parametrize(
    "make",
    [
        lambda folder, secret: line(f"../secret/{secret.name}"),
        lambda folder, secret: line(str(secret)),
        lambda folder, secret: line(f"snapshots/../../secret/{secret.name}"),
        lambda folder, secret: (
            (folder / "snapshots/a.folded").symlink_to(secret) or line("snapshots/a.folded")
        ),
        lambda folder, secret: (folder / "more").symlink_to(secret.parent) or line(f"more/{secret.name}"),
        lambda folder, secret: fifo(folder / "snapshots/a.folded") or line("snapshots/a.folded"),
        lambda folder, secret: line("snapshots"),
    ],
    ids=["dots", "absolute", "dots-inside", "link", "linked-folder", "fifo", "folder"],
)
@pytest.mark.parametrize("command", ["show", "diff", "report", "export"])
def test_no_snapshot_of_a_run_is_read_from_outside_it(
    make: Callable[[Path, Path], dict[str, Any]],
    command: str,
    tmp_path: Path,
    secret: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = planted(tmp_path)
    (folder / "snapshots.jsonl").write_text(json.dumps(make(folder, secret)) + "\n")
    one = f"{folder}:a"
    words = {
        "show": ["show", one],
        "diff": ["diff", one, one],
        "report": ["report", one, "-o", str(tmp_path / "page.html")],
        "export": ["export", one, "--to", "folded"],
    }[command]
    assert main(words) in (1, 2)
    shown = capsys.readouterr()
    assert "grow" not in shown.out + shown.err
    assert "report this as a bug" not in shown.err
    assert not (tmp_path / "page.html").exists() or "grow" not in (tmp_path / "page.html").read_text()


def test_links_in_place_of_a_runs_own_files_are_not_followed(tmp_path: Path, secret: Path) -> None:
    folder = planted(tmp_path)
    good = folder / "snapshots.jsonl"
    other = tmp_path / "secret/log"
    other.write_text(json.dumps(line("snapshots/0001.folded")) + "\n")
    good.unlink()
    good.symlink_to(other)
    (folder / "snapshots").rmdir()
    (folder / "snapshots").symlink_to(secret.parent)
    run = open_run(folder)
    assert run.snapshots == []
    with pytest.raises(InputError, match="cannot write"):
        run.append("b", file="snapshots/0002.folded", engine="gperftools")
    assert other.read_text().count("\n") == 1
    (folder / "run.json").rename(tmp_path / "secret/run.json")
    (folder / "run.json").symlink_to(tmp_path / "secret/run.json")
    with pytest.raises(InputError, match="is not a run folder"):
        open_run(folder)


@pytest.mark.parametrize("kind", [LEDGER, CONTAINERS])
def test_no_ledger_of_a_run_is_read_from_outside_it(kind: str, tmp_path: Path) -> None:
    folder = planted(tmp_path)
    (tmp_path / "secret.json").write_text('{"name": "s", "private": true}')
    where = folder / f"{kind}s".replace("containerss", "containers")
    where.mkdir()
    (where / "0001.json").symlink_to(tmp_path / "secret.json")
    entry = {"kind": kind, "base_name": "up", "ordinal": 1, "file": "../secret.json"}
    linked = {**entry, "base_name": "linked", "file": f"{where.name}/0001.json"}
    (folder / "kept.jsonl").write_text(json.dumps(entry) + "\n" + json.dumps(linked) + "\n")
    run = open_run(folder)
    [record] = saved_records(run, kind)
    assert record.base_name == "linked"
    with pytest.raises(InputError, match="a link leads out of the run folder"):
        saved_text(run, record)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: folder.chmod(0o777),
        lambda folder: folder.chmod(0o720),
        lambda folder: (folder / "snapshots").chmod(0o702),
        lambda folder: (folder / "snapshots").rmdir() or (folder / "snapshots").symlink_to("/tmp"),
        pytest.param(
            lambda folder: os.chown(folder, 12345, 12345),
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away"),
        ),
    ],
    ids=["anybody", "group", "inside", "link", "owner"],
)
def test_a_run_that_another_user_can_change_is_not_taken_up(
    change: Callable[[Path], object], tmp_path: Path
) -> None:
    folder = planted(tmp_path)
    again, is_new = run_for_process("fake", PROCESS, parent=tmp_path)
    assert again.folder == folder.resolve() and not is_new
    change(folder)
    other, is_new = run_for_process("fake", PROCESS, parent=tmp_path)
    assert is_new and other.folder != folder.resolve()
    with pytest.raises(InputError, match="nothing is written into"):
        run_for_process("fake", PROCESS, parent=tmp_path, folder=folder)


def test_values_of_other_types_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = line("snapshots/0001.folded", base_name="good")
    wrong = [
        line("snapshots/x", **{name: [1]}) for name in ("base_name", "ordinal", "place", "hit", "seconds")
    ]
    folder = planted(
        tmp_path, good, *wrong, warnings=[1, {"slug": 3}], arguments="abc", versions=[], engine=7, recipe="x",
        expectations=[3], monitor=1, starts={},
    )  # fmt: skip
    (folder / "snapshots/0001.folded").write_text(FOLDED)
    run = open_run(folder)
    assert [record.name for record in run.snapshots] == ["good"]
    said = " ".join(notice.message for notice in run.notices)
    assert "5 lines of snapshots.jsonl are damaged and left out" in said
    for name in (
        "warnings",
        "arguments",
        "versions",
        "engine",
        "recipe",
        "expectations",
        "monitor",
        "starts",
    ):
        assert name in said
    for words in (["show", str(folder)], ["report", str(folder), "-o", str(tmp_path / "page.html")]):
        assert main(words) == 0
        assert "report this as a bug" not in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[]", "3", "null", '"x"', "[" * 100_000, '{"format_version": "x"}', "{"])
def test_any_json_in_place_of_the_facts_is_a_sentence_at_worst(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = planted(tmp_path)
    (folder / "run.json").write_text(text)
    for words in (["show"], ["report", "-o", str(tmp_path / "page.html")], ["monitor"]):
        assert main([*words, str(folder)]) in (0, 1, 2)
        assert "report this as a bug" not in capsys.readouterr().err


def recording(parent: Path) -> Path:
    folder = parent / "run"
    folder.mkdir()
    Run(folder).update(program="x")
    SeriesWriter(folder, SeriesFacts("x", 1.0, 0.0, "b", 0.0)).close()
    return folder


@pytest.mark.parametrize(
    "statements",
    [
        "DROP TABLE sample; CREATE VIEW sample AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n AS line, n AS t, n AS rss_bytes FROM r",  # noqa: E501
        "CREATE TRIGGER later AFTER INSERT ON mark BEGIN DELETE FROM sample; END",
        "CREATE VIRTUAL TABLE more USING fts5(x)",
        "DROP TABLE mark; CREATE TABLE mark (t REAL, text TEXT AS (hex(zeroblob(100000000))))",
        "UPDATE fact SET value = 'much' WHERE name = 'interval_seconds'",
        "UPDATE fact SET value = 'new' WHERE name = 'version'",
        "INSERT INTO mark VALUES ('then', 3)",
    ],
    ids=["endless-view", "trigger", "virtual", "computed", "fact", "version", "mark"],
)
def test_a_series_that_a_stranger_wrote_is_refused_at_once(
    statements: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recording(tmp_path)
    connection = sqlite3.connect(folder / "series.sqlite")
    try:
        connection.executescript(statements)
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite can't make it: {error}")
    connection.close()
    began = time.monotonic()
    with pytest.raises(Damaged):
        Recording(folder)
    assert main(["report", str(folder), "-o", str(tmp_path / "page.html")]) == 1
    assert time.monotonic() - began < 20  # an endless one would take for ever
    assert "report this as a bug" not in capsys.readouterr().err


def test_text_among_the_samples_of_a_series_is_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recording(tmp_path)
    with sqlite3.connect(folder / "series.sqlite") as connection:
        connection.execute(
            "INSERT INTO sample (line, t, rss_bytes) VALUES (0, 'x', 'y'), (0, 1, 'y'), (1, 2, x'00')"
        )
    for words in (["report", "-o", str(tmp_path / "page.html")], ["monitor"], ["monitor", "--json"]):
        assert main([*words, str(folder)]) in (0, 1)
        assert "report this as a bug" not in capsys.readouterr().err


def test_a_series_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    folder = recording(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    Recording(folder).close()
    after = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert {name: after[name] for name in before} == before
    assert (folder / "series.sqlite").stat().st_mode & 0o077 == 0


def test_ones_own_run_is_ones_own(tmp_path: Path) -> None:
    check_own(Run.create("x", parent=tmp_path, pid=1).folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Make a run and a recording that another run's name will lead to."""
    folder = Run.create("precious", parent=tmp_path, pid=1, folder=tmp_path / "victim").folder
    (folder / "run.json").write_text(json.dumps({"format_version": 1, "kind": "run", "status": 0}))
    (folder / "snapshots/0001.massif").write_text("precious")
    (folder / "snapshots.jsonl").write_text("")
    SeriesWriter(folder, SeriesFacts("precious", 1.0, 1.7e9, "boot", 0.0)).close()
    (folder / "series.sqlite-wal").write_bytes(b"precious")
    return folder


def swap(folder: Path, victim: Path, how: str) -> None:
    folder.rename(folder.with_name("moved"))
    if how == "link":
        folder.symlink_to(victim)
    else:
        victim.rename(folder)


@pytest.mark.parametrize("how", ["link", "folder"])
def test_a_folder_put_in_place_of_a_run_is_never_written_into(tmp_path: Path, victim: Path, how: str) -> None:
    run = Run.create("x", parent=tmp_path, pid=2)
    before = contents(victim)
    swap(run.folder, victim, how)
    run.update(ended="now")
    run.append("a", file="snapshots/0001.massif", engine="massif")
    keep(run, LEDGER, "a", "{}")
    with pytest.raises(InputError, match="removed, renamed or replaced"):
        run.next_file("massif")  # which valgrind would write by the folder's name
    run.remove()
    assert contents(run.folder) == before
    assert [path.name for path in (tmp_path / "moved").iterdir()] == []


@pytest.mark.parametrize("how", ["link", "folder"])
def test_a_folder_put_in_place_of_a_recording_is_never_written_into(
    tmp_path: Path, victim: Path, how: str
) -> None:
    folder = Run.create("x", parent=tmp_path, pid=2).folder
    writer = SeriesWriter(folder, SeriesFacts("x", 1.0, 1.7e9, "boot", 0.0))
    before = contents(victim)
    swap(folder, victim, how)
    assert writer.has_gone
    assert writer.mark(Mark(1.0, "kept")) == ""
    writer.close()
    assert contents(folder) == before
    with contextlib.closing(Recording(tmp_path / "moved")) as recording:
        assert [mark.text for mark in recording.marks] == ["kept"]


def test_a_folder_put_in_place_of_a_run_while_it_is_made_is_refused(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, made = contents(victim), Path.mkdir

    def mkdir(self: Path, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        monkeypatch.undo()
        swap(self, victim, "link")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(InputError, match="cannot make the run folder"):
        Run.create("x", parent=tmp_path, pid=2)
    assert contents(victim) == before


def test_a_small_file_of_a_run_is_read_by_a_process_with_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distrust, "LARGEST_BYTES", 1 << 50)  # which no process has room for
    (tmp_path / "run.json").write_bytes(b"{}")
    assert distrust.read_regular(tmp_path / "run.json") == b"{}"


@pytest.mark.parametrize(
    "facts",
    [
        {"end": {"status": "x"}}, {"end": {"status": 0, "forks": 2, "fork_peak_bytes": "1"}}, {"end": {"failure": 1}},
        {"points": [{"name": "a", "hits": "many"}]}, {"points": [{"name": "a", "failed": 5}]},
        {"points": [{"name": ["a"]}]}, {"points": [{"name": "a", "failed": {"snap": ["x"]}}]}, {"end": "killed"},
        {"points": {"a": 1}}, {"points": ["a"]},
    ],
)  # fmt: skip
def test_a_gate_refuses_what_a_forged_run_says_of_its_end_and_points(
    facts: dict[str, Any], tmp_path: Path
) -> None:
    run = open_run(planted(tmp_path, line("snapshots/0001.folded"), **facts))
    with pytest.raises(
        InputError, match=r"run\.json of gdbmem\.fake\.7 can't be read: .*(is expected|without fields)"
    ) as caught:
        unseen_in_run(run, SNAP, ["a"])
    assert caught.value.slug == "run-damaged"
