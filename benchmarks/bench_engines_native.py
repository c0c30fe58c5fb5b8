"""The decoder's recipe with each engine that runs natively, against the same recipe under massif.

valgrind's cost depends on how a program computes. The decoder's acoustic model is compiled as matrix libraries
are, with fused multiply-add where the processor has it; then without; then without vectors; and there is a decoder
that only allocates.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from ctypes.util import find_library
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.racing import Row, seconds_of
from gdbmem.engines.engine import options_of
from gdbmem.launch.job import Job
from gdbmem.launch.program import find_program
from gdbmem.launch.unattended import play_recipe
from gdbmem.recipes.reader import load_recipe
from gdbmem.setup.gdb_packages import ensure_private_folder
from gdbmem.setup.gdb_python import find_gdb

TITLE = "A recipe at native speed"
SOURCE = Path(__file__).parents[1] / "examples" / "decoder"
SMALL = ("--states", "20000", "--batches", "3", "--utterances", "400")
FASTER = 0.1


@dataclass(frozen=True)
class Decoder:
    """A way to compile and call the decoder."""

    what: str
    scoring: str  # the compiler's options for its acoustic model
    layers: int  # of that model; 0: it only allocates
    bar: str = ""


DECODERS = (
    # One layer, because valgrind takes a minute for two.
    Decoder("a decoder that computes as matrix libraries do", "-O3", 1, "at least 10× faster"),
    Decoder("one that computes without fused multiply-add", "-O3 -DFOR_ANY_PROCESSOR", 40),
    Decoder("one that computes number by number", "-O1 -DFOR_ANY_PROCESSOR", 40),
    Decoder("one that only allocates", "-O3", 0),
)


def race() -> Sequence[Row]:
    ensure_private_folder()
    with tempfile.TemporaryDirectory() as folder:
        return [row for decoder in DECODERS for row in _rows(decoder, Path(folder))]


def _rows(decoder: Decoder, folder: Path) -> Sequence[Row]:
    build = folder / f"build-{DECODERS.index(decoder)}"
    subprocess.run(
        ["make", "-s", "-C", str(SOURCE), f"BUILD={build}", f"SCORING={decoder.scoring}"], check=True
    )
    words = [*SMALL, *(["--work", str(decoder.layers)] if decoder.layers else [])]
    massif = _seconds("massif", build / "decoder", words)
    return [
        Row(
            f"recipe, {engine} / massif, {decoder.what}",
            _seconds(engine, build / "decoder", words),
            massif,
            decoder.bar,
            at_most=FASTER if decoder.bar else None,
        )
        for engine, library in (("gperftools", "tcmalloc"), ("jemalloc", "jemalloc"))
        if find_library(library)
    ]


def _seconds(engine: str, program: Path, words: Sequence[str]) -> float:
    """Return the duration of the whole recipe with *engine*, including gdb's start and all snapshots."""
    recipe = replace(load_recipe(SOURCE / "leak.yaml"), engine=engine, expectations=())
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
        outcome = None

        def play() -> None:
            nonlocal outcome
            outcome = play_recipe(recipe, job, progress=lambda text: None, command=["benchmark"])

        seconds = seconds_of(play)
        assert outcome is not None and outcome.status == 0, outcome
        assert [len(point.snapshots) for point in outcome.points] == [3, 3, 3]
        return seconds
