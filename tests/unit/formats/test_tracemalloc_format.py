"""Snapshots of tracemalloc's tables: read completely, refused if cut, and compared with untraced memory."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gdbmem.api.profiles import diff
from gdbmem.api.runs import judge_growth
from gdbmem.errors import InputError
from gdbmem.formats.json_profiles import encode_own, untraced_bytes
from gdbmem.formats.opening import open_profile
from gdbmem.model.calltree import TRACING, UNTRACED
from gdbmem.model.judgement import MET, NOT_JUDGED
from gdbmem.page.explorer import profile_data
from gdbmem.profiles.diff import as_growth
from gdbmem.profiles.export import encode
from gdbmem.profiles.paths import Query
from gdbmem.profiles.ranking import rank
from gdbmem.profiles.text import site_name
from gdbmem.runs.operand import load_operand

CAPTURES = Path(__file__).parents[2] / "captures" / "tracemalloc"
BEFORE, AFTER = CAPTURES / "batch-2.tracemalloc", CAPTURES / "batch-4.tracemalloc"


def document(path: Path) -> Any:
    return json.loads(path.read_bytes())["gdbmem_tracemalloc"]


def written(path: Path, **changes: object) -> Path:
    values = {**document(AFTER), **changes}
    del values["version"]
    path.write_bytes(encode_own("tracemalloc", values))
    return path


def test_the_diff_names_the_line_and_adds_up_with_what_nobody_traces() -> None:
    found = diff(BEFORE, AFTER)
    before, after = document(BEFORE), document(AFTER)
    sizes = [sum(size for size, _, _ in one["stacks"]) for one in (before, after)]
    assert found.delta_bytes == sizes[1] - sizes[0]
    beside = {one.name: one.delta_bytes for one in found.outside}
    assert beside[UNTRACED] + beside[TRACING] + found.delta_bytes == after["rss_bytes"] - before["rss_bytes"]
    assert beside[UNTRACED] >= 2 * 4 << 20


def test_a_limit_that_what_nobody_traces_may_exceed_is_not_judged() -> None:
    found = diff(BEFORE, AFTER)
    untraced = next(one.delta_bytes for one in found.outside if one.name == UNTRACED)
    growth = judge_growth(found, Query(), 1 << 20)
    assert growth.judged == NOT_JUDGED
    assert [one.could_hide_bytes for one in growth.unseen] == [untraced]
    assert "metric: untraced" in growth.sentence
    assert judge_growth(found, Query(), 64 << 20).judged == MET


def test_what_one_side_does_not_know_is_not_reported_to_have_grown(tmp_path: Path) -> None:
    core = written(tmp_path / "core", rss_bytes=None)
    assert [one.name for one in diff(BEFORE, core).outside] == [TRACING]
    assert untraced_bytes(100, 90, 20) is None
    assert untraced_bytes(100, 60, 20) == 20


def test_a_file_that_was_cut_or_changed_is_refused_in_a_sentence(tmp_path: Path) -> None:
    whole, path = AFTER.read_bytes(), tmp_path / "cut"
    for size in range(30, len(whole) - 1, 997):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError) as caught:
            open_profile(path)
        assert caught.value.slug == "tracemalloc-damaged"
    changes: list[dict[str, object]] = [
        {"stacks": [[5, 1, [10**6]]]}, {"stacks": [[5, 1]]}, {"frames": [[3, 4]]}, {"own_bytes": "x"},
        {"stacks": 5}, {"rss_bytes": []},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(InputError) as caught:
            open_profile(written(path, **change))
        assert caught.value.slug == "tracemalloc-damaged", change


def test_a_file_of_another_version_states_which(tmp_path: Path) -> None:
    path = tmp_path / "newer"
    path.write_bytes(AFTER.read_bytes().replace(b'"version":1', b'"version":2'))
    with pytest.raises(InputError, match="is of version 2, not 1"):
        open_profile(path)


def test_lines_without_functions_are_named_by_their_place_wherever_they_are_shown(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a", frames=[["/x/json/__init__.py", 7], ["/x/main.py", 3]], stacks=[[64, 1, [0, 1]]]
    )
    found = as_growth(load_operand(str(path)).snapshot)
    for kind in ("folded", "speedscope", "pprof"):
        text = encode(found, kind, is_change=False)
        data = gzip.decompress(text) if kind == "pprof" else text
        assert b"???" not in data and b"json/__init__.py" in data, kind
    rows = rank(found, Query(by="function")).rows
    assert [site_name(row, "function") for row in rows] == ["json/__init__.py:7"]
    assert "???" not in json.dumps(profile_data(found, Query()))


@pytest.mark.parametrize(
    ("cut", "stacks", "said"),
    [(1, 1, "1 of 1 traceback is cut at 3 frames"), (2, 3, "2 of 3 tracebacks are cut at 3 frames")],
)
def test_cut_tracebacks_are_counted_in_a_sentence(cut: int, stacks: int, said: str, tmp_path: Path) -> None:
    few = document(AFTER)["stacks"][:stacks]
    profile = open_profile(str(written(tmp_path / "cut", stacks=few, cut_tracebacks=cut)))
    assert [one.message for one in profile.notices if one.message.startswith(said)]
