"""Records from untrusted JSON."""

from __future__ import annotations

import json
from typing import Any, Optional, TypedDict

import pytest

from gdbmem.json_values import fits, from_json
from gdbmem.model.containers import Container, Survey
from gdbmem.records import asdict


class Piece(TypedDict):
    name: str
    size: int


def test_a_record_comes_back_with_the_records_in_it() -> None:
    survey = Survey([Container("a[*]", "std::vector<int>", 2, 3, 8, 32, 20)], [], None)
    assert from_json(Survey, json.loads(json.dumps(asdict(survey)))) == survey


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 1 << 63), (float, 1), (str, "a"), (bool, True), (list[str], []), (dict[str, int], {"a": 1}),
        (Optional[int], None), (Optional[int], 1), (Any, object()), (list[Piece], [{"name": "a", "size": 1}]),
    ],
)  # fmt: skip
def test_a_value_of_the_expected_type_is_taken(kind: Any, value: object) -> None:
    assert fits(kind, value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, True), (int, 1.0), (int, "1"), (int, 1 << 64), (int, None), (float, float("nan")), (float, 10**400),
        (str, None), (bool, 1), (list[str], ["a", 1]), (list[str], "ab"), (dict[str, int], {"a": "b"}),
        (Optional[int], "1"), (Piece, {"name": "a"}), (Piece, {"name": "a", "size": 1, "more": 1}), (Piece, []),
        (Container, {"path": "a"}), (Container, {"path": "a", "self": 1}),
    ],
)  # fmt: skip
def test_another_value_is_refused(kind: Any, value: object) -> None:
    assert not fits(kind, value)
    with pytest.raises(ValueError, match=r" where | with"):
        from_json(kind, value)
