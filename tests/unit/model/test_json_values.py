"""Records from untrusted JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple, Optional, TypedDict

import pytest

from gdbmem.json_values import Key, as_json, fits, from_fields, from_json
from gdbmem.model.containers import Container, Survey


class Piece(TypedDict):
    name: str
    size: int


def test_a_record_comes_back_with_the_records_in_it() -> None:
    survey = Survey([PART], [], None)
    assert from_json(Survey, json.loads(json.dumps(as_json(survey)))) == survey


@dataclass(frozen=True)
class Block:
    """A record whose documents differ from it."""

    size: Annotated[int, Key("size_bytes")]
    owner: Annotated[str, Key(or_null=True)] = ""
    seconds: Annotated[float, Key(digits=3)] = 0.0
    parts: Sequence[Container] = ()
    by_name: Mapping[str, Container] = field(default_factory=dict)

    @property
    def end(self) -> Annotated[int, Key("end_bytes")]:
        return self.size + 1

    @property
    def whole(self) -> Container:
        return self.parts[0]


PART = Container("a[*]", "std::vector<int>", 2, 3, 8, 32, 20)
BLOCK = Block(7, "", 0.12345, [PART], {"b": PART})


def test_a_document_has_the_names_and_forms_that_the_annotations_say() -> None:
    part = {
        "path": "a[*]", "type": "std::vector<int>", "containers": 2, "size": 3, "capacity": 8, "held_bytes": 32,
        "slack_bytes": 20,
    }  # fmt: skip
    found = as_json(BLOCK)
    assert found == {
        "size_bytes": 7,
        "owner": None,
        "seconds": 0.123,
        "parts": [part],
        "by_name": {"b": part},
    }
    assert list(found) == ["size_bytes", "owner", "seconds", "parts", "by_name"]
    assert from_json(Block, found) == replace(BLOCK, seconds=0.123)
    assert as_json(BLOCK, "owner", "end", "size") == {"owner": None, "end_bytes": 8, "size_bytes": 7}
    assert as_json(BLOCK, "whole") == {"whole": part}


class Line(NamedTuple):
    file: str
    number: int


@dataclass(frozen=True)
class Table:
    """A record with others as rows."""

    lines: Annotated[tuple[Line, ...], Key(rows=True)]
    first: Annotated[Line, Key(rows=True)]
    hits: frozenset[int] = frozenset()


def test_rows_have_the_values_of_a_record_in_its_order() -> None:
    table = Table((Line("a.c", 1), Line("b.c", 2)), Line("a.c", 1), frozenset({9, 3}))
    document = {"lines": [["a.c", 1], ["b.c", 2]], "first": ["a.c", 1], "hits": [3, 9]}
    assert as_json(table) == document
    assert from_json(Table, document) == table
    for row in (["a.c"], ["a.c", 1, 2], ["a.c", "1"], {"file": "a.c", "number": 1}):
        with pytest.raises(ValueError, match=r" where | without all of its fields"):
            from_json(Table, {**document, "lines": [row]})


def test_computed_values_of_a_document_are_not_read_back() -> None:
    assert from_json(Block, {**as_json(BLOCK), "end": 99}).end == 8
    with pytest.raises(ValueError, match=r"parts: path: 7 where str is expected"):
        from_json(Block, {"size_bytes": 7, "parts": [{"path": 7}]})
    with pytest.raises(ValueError, match="Block with '__class__'"):
        from_json(Block, {**as_json(BLOCK), "__class__": 99})


def test_of_a_larger_document_a_record_takes_its_own_fields() -> None:
    assert from_fields(Block, {"size_bytes": 7, "kind": "block"}, owner="main") == Block(7, "main")
    for values in ({}, {"size": 7}, {"size_bytes": "7"}):
        with pytest.raises(ValueError, match=r" where | without"):
            from_fields(Block, values)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 1 << 63), (float, 1), (float, 1e30), (str, "a"), (bool, True), (list[str], []),
        (dict[str, int], {"a": 1}),
        (Optional[int], None), (Optional[int], 1), (Any, object()), (list[Piece], [{"name": "a", "size": 1}]),
    ],
)  # fmt: skip
def test_a_value_of_the_expected_type_is_taken(kind: Any, value: object) -> None:
    assert fits(kind, value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, True), (int, 1.0), (int, "1"), (int, 1 << 64), (int, None), (float, float("nan")), (float, float("inf")),
        (float, 10**400), (float, 1e300),
        (str, None), (bool, 1), (list[str], ["a", 1]), (list[str], "ab"), (dict[str, int], {"a": "b"}),
        (Optional[int], "1"), (Piece, {"name": "a"}), (Piece, {"name": "a", "size": 1, "more": 1}), (Piece, []),
        (Container, {"path": "a"}), (Container, {"path": "a", "self": 1}),
    ],
)  # fmt: skip
def test_another_value_is_refused(kind: Any, value: object) -> None:
    assert not fits(kind, value)
    with pytest.raises(ValueError, match=r" where | with"):
        from_json(kind, value)
