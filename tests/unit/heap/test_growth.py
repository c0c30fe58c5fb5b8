"""Two moments of a heap: what grew, what is lost since by its former holder, and what a gate makes of doubts."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest

from gdbmem.api import encode_heap_blocks, heap_blocks
from gdbmem.cli.main import main
from gdbmem.errors import InputError, Notice
from gdbmem.formats.documents import read_heap
from gdbmem.formats.opening import open_profile
from gdbmem.heap.growth import compared, judge_growth, judge_heap
from gdbmem.heap.text import growth_json, leaks_in_words, lost_in_words, print_growth
from gdbmem.model.heap_graph import DAMAGED, HeapLimit, SavedHeap
from gdbmem.terminal.console import make_console
from gdbmem.text import format_size

CAPTURES = Path(__file__).parents[2] / "captures"
ENTRY, OTHER = 224, 48  # bytes of what the program lost: 120 entries of its cache, and 20 others
LOST = 120 * ENTRY + 20 * OTHER
NAMES = ("first", "second")


def moment(name: str) -> SavedHeap:
    return read_heap((CAPTURES / "documents" / f"heap-{name}.json").read_text(), name)


FIRST, SECOND = moment("first"), moment("second")


def judged(before: SavedHeap, after: SavedHeap, subject: str, limit: int) -> str:
    (found,) = judge_growth(compared(before, after, NAMES), before, after, [HeapLimit(subject, limit)])
    return found.judged


def doubtful(saved: SavedHeap) -> SavedHeap:
    """Return *saved* as if part of its memory had not been read."""
    leaks = replace(saved.view.leaks, least_bytes=0, least_blocks=0, doubt="a part was not read")
    return replace(saved, view=replace(saved.view, leaks=leaks))


def test_what_was_held_and_is_lost_is_named_by_its_former_holder() -> None:
    found = compared(FIRST, SECOND, NAMES)
    lost = {one.holder.name if one.holder else None: (one.blocks, one.bytes) for one in found.lost.groups}
    assert lost == {"cache": (60, 60 * ENTRY), None: (80, 60 * ENTRY + 20 * OTHER)}
    assert (found.lost.least_bytes, found.lost.most_bytes, found.lost.blocks) == (LOST, LOST, 140)
    assert {one.name: one.delta_bytes for one in found.holders if one.name in ("tasks", "cache")} == {
        "tasks": 20 * 160, "cache": -60 * ENTRY,
    }  # fmt: skip
    again = compared(SECOND, SECOND, NAMES)
    assert (again.lost.most_bytes, again.lost.groups, again.holders, again.types) == (0, [], [], [])


def test_the_blocks_of_a_saved_heap_are_columns_that_add_up_to_its_holders() -> None:
    addresses, sizes, holders = heap_blocks(SECOND)
    assert (len(addresses), sizes.sum()) == (SECOND.view.live_blocks, SECOND.view.live_bytes)
    for place, one in enumerate(SECOND.holders):
        assert sizes[holders == place].sum() == one.bytes
    with pytest.raises(InputError, match="too many blocks"):
        heap_blocks(replace(SECOND, blocks=None))


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_the_blocks_are_a_table_that_adds_up_to_the_holders_and_to_what_is_lost(
    kind: str, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow", reason="an optional dependency: pip install pyarrow")
    from pyarrow import feather, parquet

    file = tmp_path / f"blocks.{kind}"
    file.write_bytes(encode_heap_blocks(SECOND, kind))
    rows = (feather if kind == "arrow" else parquet).read_table(file).to_pylist()
    assert (len(rows), sum(row["size_bytes"] for row in rows)) == (
        SECOND.view.live_blocks,
        SECOND.view.live_bytes,
    )
    assert [row["address"] for row in rows] == heap_blocks(SECOND)[0].tolist()
    for one in (one for one in SECOND.holders if one.kind == "data"):
        mine = [row["size_bytes"] for row in rows if (row["holder"] or "").split(" (")[0] == one.name]
        assert sum(mine) == one.bytes
    lost = [row["size_bytes"] for row in rows if row["lost"] == "lost"]
    assert sum(lost) == SECOND.view.leaks.least_bytes


@pytest.mark.parametrize(
    ("subject", "limit", "outcome"),
    [("leaked", LOST, "met"), ("leaked", LOST - 1, "not_met"), ("tasks", 20 * 160, "met"), ("tasks", 0, "not_met"),
     ("cache", 0, "met"), ("caches", 1 << 40, "not_judged"), ("", 1 << 20, "met"), ("", 0, "not_met")],
)  # fmt: skip
def test_a_gate_judges_what_is_known(subject: str, limit: int, outcome: str) -> None:
    assert judged(FIRST, SECOND, subject, limit) == outcome


@pytest.mark.parametrize(
    ("before", "after", "limit", "outcome"),
    [
        (FIRST, doubtful(SECOND), 0, "not_judged"),
        (FIRST, doubtful(SECOND), LOST, "met"),  # no more than that can be lost
        (
            doubtful(replace(SECOND, time=1.0)),
            SECOND,
            0,
            "not_judged",
        ),  # what seemed lost before may have been held
        (doubtful(replace(SECOND, time=1.0)), SECOND, LOST, "met"),
        (SECOND, SECOND, 1 << 40, "not_judged"),  # one moment
        (SECOND, FIRST, 1 << 40, "not_judged"),  # in the wrong order
    ],
)
def test_a_gate_never_passes_what_could_not_be_seen(
    before: SavedHeap, after: SavedHeap, limit: int, outcome: str
) -> None:
    assert judged(before, after, "leaked", limit) == outcome


def test_a_heap_that_was_read_in_part_has_no_upper_bound_and_passes_no_gate() -> None:
    leaks = replace(SECOND.view.leaks, least_bytes=0, least_blocks=0, doubt=DAMAGED).of_a_part()
    part = replace(SECOND, view=replace(SECOND.view, leaks=leaks))
    assert f"at most 140 blocks, {format_size(LOST)}" in leaks_in_words(leaks)
    (found,) = judge_heap(part.view, part.holders, [HeapLimit("leaked", 1 << 40)])
    assert (found.judged, found.high) == ("not_judged", None)
    assert judged(FIRST, part, "leaked", 1 << 40) == "not_judged"
    elsewhere = replace(part, execution="another")
    for before, after in ((FIRST, part), (part, FIRST), (FIRST, elsewhere), (elsewhere, FIRST)):
        grown = compared(before, after, NAMES)
        lost = json.loads(growth_json(grown))["lost"]
        assert None in (lost["least_bytes"], lost["most_bytes"]) or not lost["least_bytes"]
        assert after is FIRST or "is unknown: not all of the heap could be read" in lost_in_words(grown)


@pytest.mark.parametrize("slug", ["heap-corrupt", "swapped-unread", "core-cut"])
def test_a_gate_on_a_damaged_heap_says_so(slug: str) -> None:
    broken = replace(SECOND, view=replace(SECOND.view, notices=[Notice(slug, "something is missing")]))
    (found,) = judge_heap(broken.view, broken.holders, [HeapLimit("", 1 << 40)])
    assert (found.judged, found.unseen[0].message) == ("not_judged", "something is missing")
    assert judged(FIRST, broken, "tasks", 1 << 40) == "not_judged"
    later = replace(broken, time=(broken.time or 0) + 1)
    assert lost_in_words(compared(SECOND, SECOND, NAMES)) == "No block is lost that was not before."
    assert "known to be lost" in lost_in_words(compared(SECOND, later, NAMES))


def test_blocks_of_two_executions_are_not_taken_for_each_other() -> None:
    other = replace(FIRST, execution="another")
    found = compared(other, SECOND, NAMES)
    assert (found.is_one_process, found.lost.blocks, found.lost.least_bytes) == (False, None, LOST)
    assert [one.slug for one in found.notices] == ["two-processes"]
    assert (
        compared(replace(FIRST, execution=""), replace(SECOND, execution=""), NAMES).is_one_process is False
    )


def test_threads_of_two_executions_are_compared_together() -> None:
    stack = next(one for one in FIRST.holders if one.name == "tasks")._replace(kind="stack", bytes=100)
    before = replace(FIRST, execution="a", holders=[stack._replace(name="stack of thread 7")])
    after = replace(
        SECOND, execution="b", holders=[stack._replace(name=f"stack of thread {n}") for n in (8, 9)]
    )
    (change,) = compared(before, after, NAMES).holders
    assert (change.name, change.before_bytes, change.after_bytes) == ("stack of any thread", 100, 200)


@pytest.mark.parametrize("column", ["addresses", "sizes", "holders"])
@pytest.mark.parametrize("text", ["", "AAAA", "%%%", None])
def test_columns_of_strangers_are_refused_in_a_sentence(column: str, text: Optional[str]) -> None:
    assert SECOND.blocks is not None
    text = SECOND.blocks.addresses[:-8] if text is None else text
    changed: dict[str, Any] = {column: text}
    broken = replace(SECOND, blocks=SECOND.blocks._replace(**changed))
    with pytest.raises(InputError, match="can't be read"):
        compared(FIRST, broken, NAMES)


def test_names_of_strangers_bring_no_escapes_to_the_terminal() -> None:
    name = "evil\x1b]0;title\x07"
    holders = [SECOND.holders[0]._replace(name=name, bytes=1 << 30), *SECOND.holders[1:]]
    stream = io.StringIO()
    print_growth(compared(FIRST, replace(SECOND, holders=holders), (name, name)), make_console(stream), 10)
    assert "evil" in stream.getvalue()
    assert not {"\x1b", "\x07"} & set(stream.getvalue())


@pytest.mark.parametrize("name", ["first", "second"])
def test_the_paths_of_a_saved_heap_add_up_to_its_live_blocks(name: str) -> None:
    profile = open_profile(CAPTURES / "documents" / f"heap-{name}.json")
    tree = profile.tree(0)
    assert tree is not None
    tree.check()
    assert profile.snapshots[0].heap_bytes == moment(name).view.live_bytes


def test_show_prints_the_holders_of_a_saved_heap_and_of_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, answer = CAPTURES / "documents" / "heap-first.json", tmp_path / "answer.json"
    document = json.loads(saved.read_text())
    answer.write_text(json.dumps({name: value for name, value in document.items() if name != "saved"}))
    for path in (saved, answer):
        assert main(["show", str(path)]) == 0
        assert "60  cache (heap_moments): 60 of 216 bytes" in capsys.readouterr().out
