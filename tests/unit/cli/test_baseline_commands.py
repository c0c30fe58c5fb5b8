"""`gdbmem baseline` and `gdbmem bisect` as they are typed, on runs that were made before."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.cli.commands import baseline
from gdbmem.cli.main import main
from gdbmem.errors import InputError, MissingToolError
from gdbmem.gates.baseline import RunMeasures
from gdbmem.launch.job import surroundings
from gdbmem.model.judgement import BYTES, Judgement, Unseen
from gdbmem.runs.run import Run

RECIPE = "program: ./p\npoints:\n  - {at: main, name: a}\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (
        "GITHUB_BASE_REF",
        "GITHUB_HEAD_REF",
        "GITHUB_REF_NAME",
        "CI_DEFAULT_BRANCH",
        "CI_COMMIT_REF_NAME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(baseline, "git", lambda *words: "abc")
    Path("leak.yaml").write_text(RECIPE)


def runs_of(folder: str, *sizes: int, engine: str = "massif", status: int = 0) -> list[str]:
    for number, size in enumerate(sizes):
        Path(folder).mkdir(exist_ok=True)
        run = Run.create("p", parent=Path(folder), pid=1, folder=Path(folder) / str(number))
        run.update(
            engine=engine,
            surroundings=surroundings(),
            recipe={"source": "ci/leak.yaml"},
            end={"status": status, "meant": 0},
        )
        run.append("a", file=run.next_file("massif"), engine=engine, heap_bytes=size)
    return [f"{folder}/{number}" for number in range(len(sizes))]


def test_more_than_main_by_more_than_noise_fails_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    random.seed(3)
    main_runs = runs_of("main", *(100_000 + random.randrange(500) for _ in range(12)))
    assert main(["baseline", "save", "--branch", "main", *main_runs]) == 0
    assert capsys.readouterr().out == "leak: 1 measure of 12 runs saved as main\n"
    equal = runs_of("equal", *(100_000 + random.randrange(500) for _ in range(5)))
    assert main(["baseline", "check", *equal]) == 0
    more = runs_of("more", *(102_000 + random.randrange(500) for _ in range(5)))
    assert main(["baseline", "check", *more, "--ci", "junit", "--ci", "bencher"]) == 4
    said = capsys.readouterr().out
    assert "NOT MET    leak: heap at a: 99." in said and "more than on main, more than by noise" in said
    assert "<failure" in Path("gdbmem.junit.xml").read_text()
    (metric,) = json.loads(Path("gdbmem.bencher.json").read_text()).values()
    assert 0 < metric["bytes"]["lower_value"] < metric["bytes"]["value"] < metric["bytes"]["upper_value"]
    assert main(["baseline", "check", *more, "--allow", "10KiB"]) == 0
    assert main(["baseline", "save", "--branch", "next", *more]) == 0
    assert main(["baseline", "check", *more, "--against", "next"]) == 125, "5 and 5 runs can't tell"
    capsys.readouterr()
    assert main(["baseline", "check", *more, "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["against"], document["judged"][0]["judged"]) == (
        "baseline",
        "main",
        "not_met",
    )


def test_what_cannot_be_compared_is_125_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["baseline", "check", *runs_of("a", 1)]) == 125
    assert "[baseline-unreadable]" in capsys.readouterr().err
    assert main(["baseline", "save", "--branch", "main", *runs_of("main", *[1000] * 12)]) == 0
    assert main(["baseline", "check", *runs_of("jemalloc", *[1000] * 5, engine="jemalloc")]) == 125
    assert "not comparable with main: another engine (jemalloc, not massif)" in capsys.readouterr().out
    assert main(["baseline", "check", *runs_of("killed", *[1000] * 5, status=137)]) == 125
    assert "SIGKILL" in capsys.readouterr().out
    assert main(["baseline", "save", *runs_of("dead", 1, status=137)]) == 1, (
        "no baseline of a run that failed"
    )
    Path("other.yaml").write_text(RECIPE)
    assert main(["baseline", "check", "other.yaml"]) == 125
    assert "other has no baseline; there are some of leak" in capsys.readouterr().err
    Path("gdbmem-baseline.json").write_text("{")
    assert main(["baseline", "check", *runs_of("b", 1)]) == 125
    assert main(["baseline", "save", *runs_of("c", 1)]) == 1, "a damaged file is not replaced"
    assert main(["baseline", "check", "--runs", "0", "leak.yaml"]) == 2


class Program:
    """Stands for the runs of a recipe: sizes with noise, or a failure."""

    def __init__(self, size: float, noise: float = 0, *, unseen: Optional[Unseen] = None) -> None:
        self.size, self.noise, self.unseen, self.runs = size, noise, unseen, 0
        self.error: Optional[Exception] = None
        self.judgements: tuple[Judgement, ...] = ()
        self.engine = "massif"

    def __call__(self, recipe: object) -> RunMeasures:
        self.runs += 1
        if self.error is not None:
            raise self.error
        value = random.gauss(self.size, self.noise) if self.noise else self.size
        unseen = () if self.unseen is None else (self.unseen,)
        around = {**surroundings(), "engine": self.engine}
        return RunMeasures("leak", around, {"heap at a": (value, BYTES)}, unseen, self.judgements)


def bisected(program: Program, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(baseline, "measure_once", program)
    return main(["bisect", "leak.yaml", *words])


def save(good: float, bad: float, noise: float) -> None:
    for name, size in (("good", good), ("bad", bad)):
        sizes = [int(random.gauss(size, noise)) if noise else int(size) for _ in range(12)]
        assert main(["baseline", "save", "--branch", name, *runs_of(f"{name}{size}{noise}", *sizes)]) == 0


SIDES = ("--good", "good", "--bad", "bad")


def test_commits_are_decided_by_as_many_runs_as_their_noise_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    random.seed(4)
    for noise, most, undecided in ((0, 1, 0), (500, 4, 0), (1500, 40, 8)):
        save(100_000, 102_000, noise)
        skipped = 0
        for size, status in ((100_000, 0), (102_000, 1)) * 20:
            program = Program(size, noise)
            found = bisected(program, monkeypatch, *SIDES, "-q")
            last = capsys.readouterr().out.splitlines()[-1]
            skipped += found == 125
            assert found in (status, 125), (noise, size)
            assert program.runs <= most, last
            assert found == 125 or last.startswith(
                f"{'bad' if status else 'good'} after {program.runs} run"
            ), last
        assert skipped <= undecided
    program = Program(101_000, 100)
    assert bisected(program, monkeypatch, *SIDES, "--runs", "6") == 125 and program.runs == 6
    assert "skipped: 6 runs can't tell whether it is good or bad" in capsys.readouterr().out


def test_what_does_not_run_is_skipped_and_own_errors_end_the_bisection(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save(1000, 2000, 0)
    good = Program(1000)
    assert bisected(Program(1000, unseen=Unseen("x", "it was killed")), monkeypatch, *SIDES) == 125
    broken = Program(1)
    broken.error = InputError("there is no program ./p", slug="program-not-found")
    assert bisected(broken, monkeypatch, *SIDES) == 125
    for words in (
        ("--good", "good"),
        ("--good", "good", "--bad", "none"),
        ("--good", "bad", "--bad", "good"),
        (*SIDES, "--measure", "x"),
        (*SIDES, "--file", "none"),
        (*SIDES, "--frob"),
        (*SIDES, "--runs", "0"),
        (),
    ):
        assert bisected(good, monkeypatch, *words) >= 128, words
    good.engine = "jemalloc"
    assert bisected(good, monkeypatch, *SIDES) >= 128, "every commit would be skipped"
    broken.error = MissingToolError("there is no gdb", slug="x")
    assert bisected(broken, monkeypatch, *SIDES) >= 128
    Path("leak.yaml").write_text("program: [")
    assert bisected(good, monkeypatch, *SIDES) >= 128
    assert main(["bisect", "gone.yaml"]) >= 128
    capsys.readouterr()


def test_without_baselines_the_recipe_s_expectations_decide(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for measured, unseen, status in ((5, (), 0), (50, (), 1), (5, (Unseen("x", "it was killed"),), 125)):
        program = Program(1)
        program.judgements = (Judgement("heap", "heap", 10, measured, measured, measured, unseen),)
        assert bisected(program, monkeypatch) == status
        assert "after 1 run" in capsys.readouterr().out or status == 125
