"""The decoder's recipe with each engine that runs natively, against the same recipe under massif."""

from __future__ import annotations

import dataclasses
import subprocess
import tempfile
from collections.abc import Sequence
from ctypes.util import find_library
from pathlib import Path

from benchmarks.racing import Row, seconds_of
from gdbmem.engines.engine import options_of
from gdbmem.launch.gdbpython import ensure_private_folder, find_gdb
from gdbmem.launch.job import Job
from gdbmem.launch.program import find_program
from gdbmem.launch.unattended import play_recipe
from gdbmem.runs.recipe_reader import load_recipe

TITLE = "A recipe at native speed"
DECODER = Path(__file__).parents[1] / "examples" / "decoder"
SMALL = ("--states", "20000", "--batches", "3", "--utterances", "400")
# Rounds of scoring for each arc: a decoder that computes between its allocations, and one that does little else.
COMPUTES, ALLOCATES = ("--work", "400"), ("--work", "1")
FASTER = 0.1


def race() -> Sequence[Row]:
    ensure_private_folder()
    subprocess.run(["make", "-s", "-C", str(DECODER)], check=True)
    engines = [
        name
        for name, library in (("gperftools", "tcmalloc"), ("jemalloc", "jemalloc"))
        if find_library(library)
    ]
    rows = []
    for words, what in ((COMPUTES, "computes"), (ALLOCATES, "only allocates")):
        massif = _seconds("massif", words)
        for engine in engines:
            bar = {"bar": "at least 10× faster", "at_most": FASTER} if words is COMPUTES else {}
            ours = _seconds(engine, words)
            rows.append(Row(f"recipe, {engine} / massif, a decoder that {what}", ours, massif, **bar))  # type: ignore[arg-type]
    return rows


def _seconds(engine: str, words: Sequence[str]) -> float:
    """Return how long the whole recipe takes with *engine*, gdb's start and all snapshots in it."""
    recipe = dataclasses.replace(load_recipe(DECODER / "leak.yaml"), engine=engine, expectations=())
    with tempfile.TemporaryDirectory() as name:
        job = Job(
            program=find_program(recipe.program, folder=recipe.folder),
            arguments=[*SMALL, *words],
            options=options_of(engine, {}),
            stdin="/dev/null",
            stdout="",
            run_folder=Path(name) / "run",
            gdb=find_gdb(None),
            engine=engine,
        )
        outcome = None

        def play() -> None:
            nonlocal outcome
            outcome = play_recipe(recipe, job, progress=lambda text: None, command=["benchmark"])

        seconds = seconds_of(play)
        assert outcome is not None and outcome.status == 0, outcome
        assert [len(point.snapshots) for point in outcome.points] == [3, 3, 3]
        return seconds
