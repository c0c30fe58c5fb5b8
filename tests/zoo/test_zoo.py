"""Each animal of the zoo and each command at least once: after it the animal is as it was, and the answer not wrong."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.zoo.animals import ANIMALS, Animal
from tests.zoo.answers import CANNOT, WRONG
from tests.zoo.cells import why_not
from tests.zoo.commands import COMMANDS, Command
from tests.zoo.known_wrong import KNOWN_WRONG
from tests.zoo.table import cover, run_twice, sentence, verdict

pytestmark = pytest.mark.needs("gdb", "gcc", "g++", "valgrind")
# Damage is done to animals of one kind, in many ways, which tests/live/test_explain_damage.py meets one by one.
_ALWAYS = ("damaged-size-huge", "damaged-free-bk", "damaged-in-use-cleared", "damaged-tcache-loop")
_COVER = cover()
_CELLS = [
    pytest.param(
        animal,
        command,
        id=f"{command.name} on {animal.name}",
        marks=pytest.mark.thorough
        if animal.name.startswith("damaged-") and animal.name not in _ALWAYS
        else (),
    )
    for animal, command in _COVER
]


@pytest.fixture(autouse=True)
def sigint_is_not_ignored() -> Iterator[None]:
    """Make Ctrl-C work in processes started here, also where the tests themselves are a job in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_each_animal_and_each_command_is_met_and_has_its_own_name() -> None:
    assert {animal.name for animal, _ in _COVER} == {animal.name for animal in ANIMALS}
    always = {
        command.name
        for animal, command in _COVER
        if animal.name in _ALWAYS or not animal.name.startswith("damaged-")
    }
    assert always == {command.name for command in COMMANDS}
    assert len({animal.name for animal in ANIMALS}) == len(ANIMALS) >= 40
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)


def test_what_is_known_to_be_wrong_can_be_run_and_has_a_sentence() -> None:
    runnable = {(a.name, c.name) for a in ANIMALS for c in COMMANDS if not why_not(a, c)}
    assert set(KNOWN_WRONG) <= runnable
    assert all(KNOWN_WRONG.values())


@pytest.mark.parametrize(("animal", "command"), _CELLS)
def test_the_animal_is_unharmed_and_the_answer_not_wrong(animal: Animal, command: Command) -> None:
    cell = run_twice(animal, command)
    if verdict(cell) == CANNOT:
        pytest.skip(cell.answer.sentence)
    assert verdict(cell) != WRONG, f"{sentence(cell)}\n{cell.said}"
