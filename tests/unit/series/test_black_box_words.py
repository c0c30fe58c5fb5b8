"""What a report says of a black box."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gdbmem.api import black_box_worker
from gdbmem.errors import TargetError
from gdbmem.series.black_box import (
    FILE,
    FOLDER,
    BlackBox,
    BlackBoxEnd,
    BlackBoxRecord,
    LevelReached,
    black_box_document,
    black_box_of,
    black_box_sentences,
)

MIB = 1 << 20
RECORD = BlackBoxRecord(
    10.0,
    0.9,
    230 * MIB,
    256 * MIB,
    "its control group",
    4711,
    "server",
    "black-box/0001",
    False,
    10.4,
    0.2,
    ["x.txt"],
)
BOX = BlackBox(
    1.0, 256 * MIB, "its control group", [LevelReached(0.5, 8.0)], [RECORD], [BlackBoxEnd(11.0, 4711, True)]
)


def test_the_age_of_the_last_whole_ledger_and_the_time_that_there_was_are_told() -> None:
    (said,) = black_box_sentences(BOX)
    assert said.startswith(
        "black box: process 4711 (server) was gone, killed by the kernel for lack of memory 600 ms"
    )
    assert (
        "after its last complete ledger was on disk, at 90% of its control group's 256.0 MiB, in black-box/0001"
        in said
    )
    assert said.endswith("; there was 3.0 s from 50% of the limit")


def test_the_time_that_the_kernel_needed_is_not_told_as_time_to_look() -> None:
    box = BOX._replace(ends=[BlackBoxEnd(11.0, 4711, True, 10.75)])
    assert black_box_sentences(box)[0].endswith("from 50% of the limit; the kill itself took 250 ms")


def test_a_core_is_told_with_the_command_that_reads_it() -> None:
    box = BOX._replace(records=[RECORD._replace(parts=["core", "x.txt"])])
    assert (
        "black-box/0001/core is its core: gdbmem heap --core RUN/black-box/0001/core"
        in black_box_sentences(box)
    )


@pytest.mark.parametrize("ledger_t", [None, 11.5])
def test_a_ledger_that_is_missing_or_of_after_the_end_is_not_told_as_one_before(ledger_t: float) -> None:
    box = BOX._replace(records=[RECORD._replace(ledger_t=ledger_t)])
    assert "no ledger of it was complete before" in black_box_sentences(box)[0]


def test_a_kill_that_cant_be_told_is_not_told() -> None:
    for is_killed in (None, False):
        box = BOX._replace(ends=[BlackBoxEnd(11.0, 4711, is_killed)])
        assert "was gone 600 ms after" in black_box_sentences(box)[0]


def test_a_quiet_black_box_says_how_near_the_limit_was() -> None:
    box = BlackBox(0.431, 256 * MIB, "its control group", notes=["--hold: \x1b[2J"])
    assert black_box_sentences(box) == [
        "black box: at most 43% of its control group's 256.0 MiB was used; nothing was recorded",
        "--hold: \\x1b[2J",
    ]


def test_a_black_box_that_saw_no_limit_tells_no_share_of_one() -> None:
    assert black_box_sentences(BlackBox(0.0, 0, "")) == ["black box: nothing was recorded"]


def test_what_a_black_box_wrote_is_read_back_and_a_damaged_file_is_none(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    file = tmp_path / FOLDER / FILE
    assert black_box_of(tmp_path) is None
    file.write_text(json.dumps(black_box_document(BOX)))
    found = black_box_of(tmp_path)
    assert found is not None and black_box_sentences(found) == black_box_sentences(BOX)
    for damaged in ("", "[]", '{"highest": "x"}'):
        file.write_text(damaged)
        assert black_box_of(tmp_path) is None


def test_a_black_box_that_cannot_watch_says_why_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise TargetError(
            "the processes of this run have ended", slug="no-such-process", hint="start a new run"
        )

    monkeypatch.setattr(black_box_worker, "BlackBoxWorker", refuse)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert black_box_worker.main(["run", "0.2", "-"]) == 1
    assert capsys.readouterr().err == "the processes of this run have ended\n"
