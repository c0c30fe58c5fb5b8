"""Our dataclasses beside the standard library's, whose behaviour they have to have."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
import types
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple, get_type_hints

import pytest

from gdbmem import records

_SOURCE = """
@dataclass
class Plain:
    name: str
    count: int = 3
    rows: list = field(default_factory=list)
    hidden: int = field(default=5, repr=False)
    label: str = field(default="", compare=False)

    def doubled(self):
        return self.count * 2

@dataclass(frozen=True)
class Cold:
    first: int
    second: tuple = ()

    @property
    def total(self):
        return self.first + len(self.second)

@dataclass(frozen=True)
class Heir(Cold):
    second: tuple = (1,)
    third: str = "x"

@dataclass
class Checked:
    size: int
    made: int = field(init=False)

    def __post_init__(self):
        if self.size < 0:
            raise ValueError(self.size)
        self.made = self.size + 1

@dataclass
class HeirOfChecked(Checked):
    more: int = 0

@dataclass(frozen=True)
class Empty:
    pass

@dataclass(frozen=True)
class Own:
    word: str

    def __repr__(self):
        return "own"

    def __eq__(self, other):
        return isinstance(other, Own) and self.word.lower() == other.word.lower()

    def __hash__(self):
        return hash(self.word.lower())

class Bare(Cold):
    def total_twice(self):
        return 2 * self.total
"""


class Point(NamedTuple):
    x: int
    inner: object


def _classes(library: types.ModuleType) -> dict[str, Any]:
    # Under the same module name, so that what is printed of both is the same.
    names: dict[str, Any] = {"dataclass": library.dataclass, "field": library.field, "__name__": __name__}
    exec(compile(_SOURCE, "classes", "exec", flags=0, dont_inherit=False), names)
    return names


def _outcome(call: Any) -> object:
    try:
        found = call()
    except Exception as error:  # noqa: BLE001  (both libraries' errors are compared)
        return type(error), str(error)
    return repr(found), type(found).__name__


_QUESTIONS = [
    "Plain('a')",
    "Plain('a', 4, [1])",
    "Plain(name='a', count=9, label='l')",
    "Plain()",
    "Plain('a', 1, [], 2, 'l', 3)",
    "Plain('a', other=1)",
    "Plain('a') == Plain('a', label='other')",
    "Plain('a') == Plain('a', hidden=6)",
    "Plain('a') == Cold(1)",
    "Plain('a') != Plain('b')",
    "Plain('a').doubled()",
    "Plain('a').rows is Plain('a').rows",
    "hash(Plain('a'))",
    "Plain.count",
    "Plain.rows",
    "Plain.hidden",
    "Cold(1, (2,))",
    "Cold(1) == Cold(1)",
    "Cold(1) == Heir(1, ())",
    "hash(Cold(1, (2,)))",
    "hash(Cold(1, [2]))",
    "{Cold(1): 2}[Cold(1)]",
    "setattr(Cold(1), 'first', 2)",
    "delattr(Cold(1), 'first')",
    "Cold(1).total",
    "Cold(float('nan')) == Cold(float('nan'))",
    "Heir(1)",
    "Heir(1) == Heir(1, (1,), 'x')",
    "hash(Heir(1))",
    "Heir(1, third='z').total",
    "Checked(3)",
    "Checked(-3)",
    "Checked(3, 4)",
    "HeirOfChecked(3, 4)",
    "Empty() == Empty()",
    "hash(Empty())",
    "Empty()",
    "Empty(1)",
    "Own('A') == Own('a')",
    "hash(Own('A')) == hash(Own('a'))",
    "Own('A')",
    "Bare(4)",
    "Bare(4) == Bare(4)",
    "Bare(4) == Cold(4)",
    "Bare(4).total_twice()",
    *(
        ["Plain.__match_args__, Heir.__match_args__, Checked.__match_args__"]
        if sys.version_info >= (3, 10)
        else []
    ),
    "replace(Plain('a'), count=7)",
    "replace(Heir(1), first=2)",
    "replace(Heir(1), fourth=2)",
    "replace(Checked(1), size=5)",
    "replace(Checked(1), size=-5)",
    "asdict(Plain('a', rows=[Cold(1), (Heir(2),), {'k': Cold(3)}]))",
    "asdict(Cold(1, (Point(1, Cold(2)),)))",
    "asdict(Cold(OrderedDict(a=Cold(1))))",
    "[one.name for one in fields(Heir)], [one.name for one in fields(Checked(1))]",
    "fields(3)",
    "is_dataclass(Heir), is_dataclass(Heir(1)), is_dataclass(3), is_dataclass(int)",
    "copy.copy(Heir(1)), copy.deepcopy(Plain('a', rows=[[1]]))",
]


@pytest.fixture
def both() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    shared = {"copy": copy, "Point": Point, "OrderedDict": OrderedDict}
    names = ("replace", "asdict", "fields", "is_dataclass")
    found = []
    for library in (records, dataclasses):
        words = {name: getattr(library, name) for name in names}
        found.append({**_classes(library), **words, **shared})
    yield found[0], found[1]


@pytest.mark.parametrize("question", _QUESTIONS)
def test_our_dataclasses_answer_as_the_standard_library_s_do(question: str, both: Any) -> None:
    ours, theirs = (_outcome(lambda names=names: eval(question, names)) for names in both)
    assert ours == theirs


def test_the_standard_library_s_functions_take_ours() -> None:
    ours = _classes(records)
    made: Any = ours["Heir"](1, third="y")
    assert dataclasses.asdict(made) == {"first": 1, "second": (1,), "third": "y"}
    assert dataclasses.replace(made, first=2) == ours["Heir"](2, third="y")
    assert [one.name for one in dataclasses.fields(ours["Checked"])] == ["size", "made"]
    assert all(map(dataclasses.is_dataclass, (made, ours["Heir"])))
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.first = 3
    assert get_type_hints(ours["Cold"]) == get_type_hints(_classes(dataclasses)["Cold"])


def test_one_that_was_unpickled_before_any_was_made_is_whole() -> None:
    methods = {"__annotations__": {"slug": "str"}, "__module__": __name__, "__qualname__": "Sent"}
    kind: Any = records.dataclass(frozen=True)(type("Sent", (), methods))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "Sent", kind)
        # as another process wrote it: no instance of this class was made here
        received = pickle.loads(b"c" + __name__.encode() + b"\nSent\n)\x81}\x8c\x04slug\x8c\x01xsb.")
    assert repr(received) == "Sent(slug='x')"
    assert (received, hash(received)) == (kind("x"), hash(kind("x")))


@pytest.mark.parametrize("name", ["Plain", "Heir", "Checked", "HeirOfChecked", "Empty"])
def test_help_shows_the_parameters_of_a_class_before_one_was_made(name: str) -> None:
    ours, theirs = (_classes(module)[name] for module in (records, dataclasses))
    shown, expected = (inspect.signature(one).parameters.values() for one in (ours, theirs))
    assert [(one.name, one.kind) for one in shown] == [(one.name, one.kind) for one in expected]
    assert [one.default is one.empty for one in shown] == [one.default is one.empty for one in expected]
