"""Ledgers and surveys that a run keeps are never lost, mixed up, or listed wrongly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gdbmem.containers.containers import containers_json
from gdbmem.errors import InputError
from gdbmem.formats.documents import read_survey
from gdbmem.model.containers import Container, Survey, Uncounted
from gdbmem.runs.run import Run
from gdbmem.runs.saved_results import CONTAINERS, LEDGER, find_saved, keep, saved_records, saved_text

TEXT = json.dumps({"kind": "ledger", "value": 1})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create("prog", parent=tmp_path, pid=1)


def names(run: Run, kind: str = "") -> list[str]:
    return [record.name for record in saved_records(run, kind)]


def test_names_are_counted_for_each_kind_and_the_last_of_a_name_is_meant(run: Run) -> None:
    for number in range(3):
        keep(run, LEDGER, "a", json.dumps({"value": number}), total_bytes=number)
    keep(run, CONTAINERS, "a", TEXT)
    assert names(run, LEDGER) == ["a#1", "a#2", "a#3"]
    assert names(run, CONTAINERS) == ["a"]
    found = [find_saved(run, LEDGER, name) for name in ("a", "a#1")]
    assert [json.loads(saved_text(run, record))["value"] for record in found] == [2, 0]
    assert [record.total_bytes for record in found] == [2, 0]


def test_a_file_whose_line_was_never_written_is_listed_by_the_name_inside(run: Run) -> None:
    keep(run, LEDGER, "a", TEXT)
    keep(run, LEDGER, "b\x1b#x", TEXT, place="main at a.c:1")
    (run.folder / "kept.jsonl").write_text('{"kind": "ledg')
    (run.folder / "ledgers" / "0003.json").write_text("{cut")
    assert names(run) == ["a", "b\x1b#x"]
    assert keep(run, LEDGER, "a", TEXT).label == "a#2"


def test_a_name_that_nobody_gave_is_answered_with_those_there_are(run: Run) -> None:
    with pytest.raises(InputError, match="no ledger was saved as 'x'"):
        find_saved(None, LEDGER, "x")
    keep(run, CONTAINERS, "a\x1b[31m", TEXT)
    with pytest.raises(InputError) as caught:
        find_saved(run, CONTAINERS, "x\x1b")
    assert "\x1b" not in str(caught.value) and "there are a" in caught.value.hint
    with pytest.raises(InputError, match="can't name"):
        keep(run, LEDGER, "a#2", TEXT)


def test_a_file_that_is_gone_is_a_sentence(run: Run) -> None:
    record = keep(run, LEDGER, "a", TEXT)
    (run.folder / record.file).unlink()
    with pytest.raises(InputError, match="the file of ledger a"):
        saved_text(run, find_saved(run, LEDGER, "a"))


def test_a_survey_is_read_back_as_it_was() -> None:
    rows = [Container("a[*]", "std::vector<int>", 2, 3, 8, 32, 20)]
    unread, unsound = (Uncounted("b", "absl::Cord", 1),), (Uncounted("c", "std::map<int, int>", 2),)
    survey = Survey(rows, [], 4096, unread, unsound)
    assert read_survey(containers_json(survey), "file") == survey


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "ledger"}', '{"kind": "containers"}', "1"])
def test_what_is_no_survey_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="holds no scan of containers"):
        read_survey(text, "file")


def test_a_survey_with_a_text_in_place_of_a_number_is_refused() -> None:
    text = containers_json(Survey([Container("a", "std::string", 1, 2, 3, 4, 0)]))
    with pytest.raises(InputError, match="holds no scan of containers"):
        read_survey(text.replace('"held_bytes": 4', '"held_bytes": "4"', 1), "file")
