"""The decoder's recipe with each engine that runs natively, against the same recipe under massif.

valgrind's cost depends on how a program computes. The decoder's acoustic model is compiled as matrix libraries
are, with fused multiply-add where the processor has it; then without; then without vectors; and there is a decoder
that only allocates.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from benchmarks.racing import Ratio
from gdbmem.engines.engine import options_of
from gdbmem.launch.job import Job
from gdbmem.launch.program import find_program
from gdbmem.launch.recipe import play_recipe
from gdbmem.recipes.reader import load_recipe
from gdbmem.setup.gdb_packages import ensure_private_folder
from gdbmem.setup.gdb_python import find_gdb

TITLE = "A recipe at native speed"
SOURCE = Path(__file__).parents[1] / "examples" / "decoder"
SMALL = ("--states", "20000", "--batches", "3", "--utterances", "400")
ROUNDS = 2


@dataclass(frozen=True)
class Decoder:
    """A way to compile and call the decoder."""

    what: str
    scoring: str  # the compiler's options for its acoustic model
    layers: int  # of that model; 0: it only allocates
    at_most: Optional[float] = None


DECODERS = (
    # One layer, because valgrind takes a minute for two.
    Decoder("a decoder that computes as matrix libraries do", "-O3", 1, 0.1),
    Decoder("one that computes without fused multiply-add", "-O3 -DFOR_ANY_PROCESSOR", 40),
    Decoder("one that computes number by number", "-O1 -DFOR_ANY_PROCESSOR", 40),
    Decoder("one that only allocates", "-O3", 0),
)


def race() -> Sequence[Ratio]:
    ensure_private_folder()
    with tempfile.TemporaryDirectory() as folder:
        return [row for decoder in DECODERS for row in _rows(decoder, Path(folder))]


def _rows(decoder: Decoder, folder: Path) -> Iterator[Ratio]:
    build = folder / f"build-{DECODERS.index(decoder)}"
    subprocess.run(
        ["make", "-s", "-C", str(SOURCE), f"BUILD={build}", f"SCORING={decoder.scoring}"], check=True
    )
    words = [*SMALL, *(["--work", str(decoder.layers)] if decoder.layers else [])]
    engines = [
        name
        for name, library in (("gperftools", "tcmalloc"), ("jemalloc", "jemalloc"))
        if find_library(library)
    ]
    took: dict[str, list[float]] = {name: [] for name in ["massif", *engines]}
    for _ in range(ROUNDS):
        for engine, figures in took.items():
            figures.append(_seconds(engine, build / "decoder", words))
    for engine in engines:
        found = [a / b for a, b in zip(took[engine], took["massif"])]
        yield Ratio(f"recipe, {engine} / massif, {decoder.what}", found, decoder.at_most)


def _seconds(engine: str, program: Path, words: Sequence[str]) -> float:
    """Return the CPU seconds of the whole recipe with *engine*, including gdb's start and all snapshots."""
    recipe = load_recipe(SOURCE / "leak.yaml")._replace(engine=engine, expectations=())
    with tempfile.TemporaryDirectory() as name:
        job = Job(
            program=find_program(str(program)),
            arguments=list(words),
            options=options_of(engine, {}),
            stdin="/dev/null",
            stdout="",
            run_folder=Path(name) / "run",
            gdb=find_gdb(None),
            engine=engine,
        )
        before = os.times()
        outcome = play_recipe(recipe, job, progress=lambda text: None, command=["benchmark"])
        after = os.times()
        assert outcome.status == 0, outcome
        assert [len(point.snapshots) for point in outcome.points] == [3, 3, 3]
        return sum(after[:4]) - sum(before[:4])
