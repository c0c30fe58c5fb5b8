"""The one object that every gate asks: what it saw, what it could not see, and what follows."""

from __future__ import annotations

import json

import pytest

from gdbmem.json_values import from_json
from gdbmem.model.judgement import AT_LEAST, MET, NOT_JUDGED, NOT_MET, Judgement, Unseen, exit_status
from gdbmem.terminal.document import judgement_line, judgement_object

KIB = 1024
STATIC = Unseen("static-binary", "massif counts nothing of a static program: use engine: none, metric: rss")
POOL = Unseen("massif-blind", "a pool of 3 MiB", 3072 * KIB)
HEAP = Judgement("heap from a to b", "heap from a to b: +48 KiB", limit=64 * KIB, measured=48 * KIB, low=48 * KIB,
                 high=48 * KIB)  # fmt: skip


def test_growth_within_the_limit_is_met_only_if_nothing_is_hidden() -> None:
    assert HEAP.judged == MET
    assert HEAP._replace(unseen=(STATIC,)).judged == NOT_JUDGED
    assert HEAP._replace(unseen=(POOL,)).judged == NOT_JUDGED


def test_growth_beyond_the_limit_is_not_met_whatever_else_is_hidden() -> None:
    assert HEAP._replace(limit=10 * KIB, unseen=(STATIC,)).judged == NOT_MET


def test_a_bound_smaller_than_the_room_below_the_limit_does_not_refuse() -> None:
    assert HEAP._replace(limit=100 * 1024 * KIB, unseen=(POOL,)).judged == MET
    assert HEAP._replace(limit=5 * 1024 * KIB, unseen=(POOL, POOL)).judged == NOT_JUDGED, "bounds add up"


def test_a_limit_within_the_error_of_what_was_seen_is_not_judged() -> None:
    assert HEAP._replace(low=32 * KIB, high=80 * KIB).judged == NOT_JUDGED


@pytest.mark.parametrize(
    ("measured", "unseen", "judged"),
    [
        (70, (), MET),
        (70, (POOL,), MET),
        (70, (STATIC,), NOT_JUDGED),
        (48, (), NOT_MET),
        (48, (POOL,), NOT_JUDGED),
        (48, (STATIC,), NOT_JUDGED),
    ],
)
def test_a_lower_limit_counts_what_is_hidden_for_the_program(
    measured: int, unseen: tuple[Unseen, ...], judged: str
) -> None:
    size = measured * KIB
    least = HEAP._replace(relation=AT_LEAST, measured=size, low=size, high=size, unseen=unseen)
    assert least.judged == judged


def test_what_is_known_to_have_grown_in_bytes_keeps_no_lower_limit_of_blocks_from_being_met() -> None:
    blocks = HEAP._replace(
        unit="blocks", relation=AT_LEAST, limit=3, measured=3, low=3, high=3, unseen=(POOL,)
    )
    assert blocks.judged == MET
    assert blocks._replace(unseen=(STATIC,)).judged == NOT_JUDGED


def test_bytes_hide_any_number_of_blocks() -> None:
    blocks = HEAP._replace(unit="blocks", limit=100, measured=3, low=3, high=3)
    assert blocks.judged == MET
    assert blocks._replace(unseen=(POOL,)).judged == NOT_JUDGED
    assert blocks._replace(unseen=(POOL._replace(could_hide_bytes=0),)).judged == MET


def test_what_is_hidden_of_a_slope_came_during_the_recording() -> None:
    slope = HEAP._replace(
        unit="bytes per second", limit=100.0, measured=5.0, low=0.0, high=10.0, seconds=3600.0
    )
    assert slope._replace(unseen=(POOL._replace(could_hide_bytes=90 * 3600),)).judged == MET
    assert slope._replace(unseen=(POOL._replace(could_hide_bytes=91 * 3600),)).judged == NOT_JUDGED


def test_a_verdict_without_a_number_passes_only_if_nothing_is_hidden() -> None:
    verdict = Judgement("verdict", "plateau", outcome=MET)
    assert verdict.judged == MET
    assert verdict._replace(unseen=(STATIC,)).judged == NOT_JUDGED
    assert verdict._replace(unseen=(STATIC._replace(could_hide_bytes=0),)).judged == MET
    assert verdict._replace(outcome=NOT_MET, unseen=(STATIC,)).judged == NOT_MET


def test_nothing_measured_is_not_judged() -> None:
    assert Judgement("heap", "'reset' was never hit").judged == NOT_JUDGED


def test_the_status_is_4_before_125_and_no_judgement_passes_nothing() -> None:
    not_met, not_judged = HEAP._replace(limit=0), HEAP._replace(unseen=(STATIC,))
    assert exit_status([HEAP, not_judged, not_met]) == 4
    assert exit_status([HEAP, not_judged]) == 125
    assert exit_status([HEAP, HEAP]) == 0
    assert exit_status([]) == 125


def test_the_reasons_are_in_the_line_only_where_they_decide() -> None:
    assert judgement_line(HEAP) == "ok         heap from a to b: +48 KiB"
    refused = judgement_line(HEAP._replace(unseen=(STATIC,)))
    assert refused == f"NOT JUDGED heap from a to b: +48 KiB; could not be judged: {STATIC.message}"
    assert judgement_line(HEAP._replace(limit=0, unseen=(STATIC,))).endswith("+48 KiB")


def test_json_holds_the_outcome_and_reads_back_as_it_was() -> None:
    judgement = HEAP._replace(unseen=(STATIC, POOL))
    document = json.loads(json.dumps(judgement_object(judgement)))
    assert document["judged"] == NOT_JUDGED
    assert [one["could_hide_bytes"] for one in document["unseen"]] == [None, 3072 * KIB]
    assert from_json(Judgement, document) == judgement
