"""Any process of a command is killed at any time: nothing is left behind, and the inspected process continues."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.cover import cover
from tests.murder.rounds import outcome_line, planned, run_round
from tests.murder.scenes import SCENES
from tests.processes import MARKER
from tests.zoo.building import CannotRunHereError

pytestmark = pytest.mark.needs("gdb", "gcc", "valgrind", "stty")
# Most kinds of command, and all that may be killed in them; 111, 132 and 140 have found something.
SEEDS = (111, 132, 140, 1002, 1006, 1007, 1011, 1018, 1031, 1044)
FURTHER_SEEDS = (1009, 1012, 1014, 1048, 1100, 1104)  # of kinds of command that the others have, too


@pytest.fixture(autouse=True)
def as_in_a_shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put back what a round sets, and have Ctrl-C work also where the tests are a job in the background."""
    monkeypatch.setenv(MARKER, os.environ.get(MARKER, ""))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_each_scene_has_its_own_name() -> None:
    assert len({scene.name for scene in SCENES}) == len(SCENES) >= 30


@pytest.mark.parametrize("seed", cover([*SEEDS, *FURTHER_SEEDS], lambda seed: seed in SEEDS))
def test_nothing_is_left_and_the_process_unharmed_when_one_is_killed(seed: int) -> None:
    try:
        outcome = run_round(planned(seed))
    except CannotRunHereError as error:
        pytest.skip(str(error))
    assert not outcome.harms, f"{outcome_line(outcome)}\n{outcome.said}"


@pytest.mark.parametrize("seed", cover([9001, 9002], lambda seed: seed == 9001))
def test_a_killed_worker_is_reported_in_a_sentence_and_harms_nothing(seed: int) -> None:
    outcome = run_round(planned(seed, "memexplain", "worker"))
    assert outcome.killed, "it was not met"
    assert not outcome.harms, f"{outcome_line(outcome)}\n{outcome.said}"
    assert "was ended by SIGKILL" in outcome.said
