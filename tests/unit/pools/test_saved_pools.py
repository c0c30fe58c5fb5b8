"""Pools that were saved as JSON are the same when they are read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import pytest

from gdbmem.api.pools import answer_failed, compare_pools, read_pools
from gdbmem.errors import InputError
from gdbmem.pools.output import pools_document, pools_json

CAPTURES = Path(__file__).parents[2] / "captures/bfc"


@pytest.mark.parametrize(
    "name",
    ["tensorflow-2.21.log", "tensorflow-2.21-first.pb", "onnxruntime-1.32.log", "torch-2.13-cpp.pickle"],
)
def test_saved_pools_give_the_same_answers_as_what_they_were_saved_from(name: str, tmp_path: Path) -> None:
    pools = read_pools(CAPTURES / name).allocators
    (tmp_path / "saved.json").write_text(pools_json(pools))
    again = read_pools(tmp_path / "saved.json").allocators
    failed, failed_again = map(answer_failed, pools), map(answer_failed, again)
    assert pools_document(again, list(failed_again)) == pools_document(pools, list(failed))
    assert not any(diff.sizes or diff.owners for diff in compare_pools(pools[-1:], again[-1:]))


def _cut(text: str) -> str:
    return text[: len(text) // 2]


def _changed(change: Callable[[Any], None]) -> Callable[[str], str]:
    def of(text: str) -> str:
        document = json.loads(text)
        change(document["allocators"][0])
        return json.dumps(document)

    return of


@pytest.mark.parametrize(
    "damage",
    [
        _cut,
        _changed(lambda one: one.pop("regions")),
        _changed(lambda one: one.update(name=7)),
        _changed(lambda one: one["regions"][0].update(size_bytes=0)),
        _changed(lambda one: one["regions"][0]["chunks"][0].update(size_bytes=-1)),
        _changed(lambda one: one["regions"][0]["chunks"][0].update(address=1 << 64)),
        _changed(lambda one: one["regions"][0]["chunks"][0].update(owner=[1])),
        _changed(lambda one: one["options"].update(more=1)),
        _changed(lambda one: one.update(limit_bytes="300 MiB")),
    ],
)
def test_a_saved_file_that_was_changed_or_cut_is_refused_by_one_sentence(
    damage: Callable[[str], str], tmp_path: Path
) -> None:
    text = pools_json(read_pools(CAPTURES / "tensorflow-2.21.log").allocators)
    (tmp_path / "saved.json").write_text(damage(text))
    with pytest.raises(InputError) as caught:
        read_pools(tmp_path / "saved.json")
    assert caught.value.slug == "bad-pools"
