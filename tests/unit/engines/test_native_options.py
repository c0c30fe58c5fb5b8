"""The options of engines that run natively: each engine takes its own, and names the engine of the others."""

from __future__ import annotations

import pytest

from gdbmem.engines import gperftools, jemalloc
from gdbmem.engines.engine import NativeOptions, options_of
from gdbmem.errors import InputError, UsageError
from gdbmem.recipes.reader import parse_recipe


def test_every_allocation_is_counted_unless_a_rate_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_CONF", raising=False)
    assert "lg_prof_sample:0," in jemalloc.environment("/p", NativeOptions())["MALLOC_CONF"]
    assert "lg_prof_sample:0," in jemalloc.environment("/p", NativeOptions(sample_rate=0))["MALLOC_CONF"]
    sampled = jemalloc.environment("/p", NativeOptions(sample_rate=512 << 10, dump_interval=1 << 30))
    assert "lg_prof_sample:19," in sampled["MALLOC_CONF"] and sampled["MALLOC_CONF"].endswith(
        ",lg_prof_interval:30"
    )


def test_a_rate_that_jemalloc_would_round_is_refused() -> None:
    with pytest.raises(UsageError, match="power of two for sample-rate, not 500000"):
        jemalloc.environment("/p", NativeOptions(sample_rate=500_000))


def test_gperftools_dumps_by_itself_only_when_asked_to() -> None:
    asked = gperftools.environment("/p", NativeOptions(dump_interval=1 << 20))
    assert asked["HEAP_PROFILE_ALLOCATION_INTERVAL"] == str(1 << 20)
    assert int(gperftools.environment("/p", NativeOptions())["HEAP_PROFILE_ALLOCATION_INTERVAL"]) > 1 << 50


def test_auto_chooses_when_the_program_is_known_and_takes_no_options() -> None:
    recipe = parse_recipe("program: x\nengine: auto\npoints: [{at: main, do: [snap, ledger]}]\n", "r.yaml")
    assert recipe.engine == "auto", "whether it can take a ledger is known at the launch"
    with pytest.raises(InputError, match="'threshold' is not an option of the engine auto"):
        parse_recipe(RECIPE.format("auto", "threshold", "1"), "r.yaml")


@pytest.mark.parametrize("engine", ["massif", "gperftools", "none"])
def test_an_option_of_another_engine_names_the_engine_that_takes_it(engine: str) -> None:
    with pytest.raises(
        UsageError, match=f"--sample-rate cannot be used with --engine {engine}; it is for jemalloc"
    ):
        options_of(engine, {"sample_rate": 1024})


RECIPE = "program: x\nengine: {}\noptions: {{{}: {}}}\npoints: [{{at: main}}]\n"


def test_a_recipe_states_the_same_words_as_the_command_line() -> None:
    recipe = parse_recipe(RECIPE.format("jemalloc", "sample-rate", "512KiB"), "r.yaml")
    assert recipe.options == {"sample_rate": 512 << 10}


@pytest.mark.parametrize(
    ("engine", "option"),
    [
        ("massif", "sample-rate"),
        ("gperftools", "sample-rate"),
        ("gperftools", "threshold"),
        ("none", "dump-interval"),
    ],
)
def test_a_recipe_with_an_option_of_another_engine_is_a_problem_with_its_place(
    engine: str, option: str
) -> None:
    with pytest.raises(InputError, match=f"r.yaml:3:.*'{option}' is not an option of the engine {engine}"):
        parse_recipe(RECIPE.format(engine, option, "1KiB"), "r.yaml")
