"""A verdict states what happened to the program, not only that a snapshot is missing."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, Optional

import pytest

from gdbmem.api.recipes import Diffs, SavedPairs, verdict_of
from gdbmem.cli import launch_recipe
from gdbmem.cli.main import main
from gdbmem.commands.shell import SHELL_COMMANDS
from gdbmem.errors import Notice
from gdbmem.gates.reports import Gate, Judged, junit
from gdbmem.launch.recipe import Outcome, PlayedPoint
from gdbmem.model.diff import Expectation, ExpectationVerdict, Position
from gdbmem.runs.run import Run
from gdbmem.runs.unseen import end_facts
from gdbmem.terminal.document import judgement_line
from tests.unit.massif_files import HEADER, snapshot

NEVER = Notice("point-never-hit", "leak.yaml:4:5: 'main.c:7' was hit 30 times, never as required by 'hits'")
NOWHERE = Notice(
    "point-unresolved", "leak.yaml:4:5: the program has no location 'mian'; is it built with -g?"
)
ABORTED = Notice("program-signal", "the program got SIGABRT (Aborted) in main at ends.c:9")


def played(folder: Path, *taken: str, notices: tuple[Notice, ...] = (), **facts: Any) -> Outcome:
    """Return the outcome of a recipe with the points 'a' and 'm', after the snapshots *taken*."""
    folder.mkdir(exist_ok=True)
    run = Run.create("prog", parent=folder, pid=1)
    points = {
        name: PlayedPoint(name, f"{name}.c:7", f"leak.yaml:{line}:5") for line, name in ((3, "a"), (4, "m"))
    }
    for name in taken:
        file = run.next_file("massif")
        (run.folder / file).write_text(HEADER + snapshot())
        points[name].snapshots.append(run.append(name, file=file, engine="massif").label)
        points[name].hits += 1
    outcome = Outcome(run, list(points.values()), notices=list(notices), **{"status": 0, **facts})
    run.update(points=[vars(point) for point in points.values()], end=end_facts(outcome.end))
    return outcome


def judged(outcome: Outcome, after: str = "m", *, at_most: int = 0) -> ExpectationVerdict:
    expectation = Expectation("a", after, Position(9, 5), at_most=at_most)
    return verdict_of(expectation, Diffs(outcome), SavedPairs((), outcome), outcome, ())


@pytest.mark.parametrize(
    ("notices", "reason"),
    [
        ([NEVER], "'main.c:7' was hit 30 times, never as required by 'hits'"),
        ([NOWHERE], "the program has no location 'mian'; is it built with -g?"),
        ([], "'m.c:7' was never hit"),
        (
            [ABORTED],
            "'m.c:7' was never hit; the program got SIGABRT (Aborted) in main at ends.c:9 and"
            " was ended by SIGABRT (status 134); write 'ends: SIGABRT' if it is meant to end so",
        ),
    ],
)
def test_a_missing_snapshot_is_explained_in_the_verdict_and_in_the_junit_file(
    notices: list[Notice], reason: str, tmp_path: Path
) -> None:
    verdict = judged(played(tmp_path, "a", notices=tuple(notices), status=134 if ABORTED in notices else 0))
    assert judgement_line(verdict.judgement) == f"NOT JUDGED heap from a to m: could not be judged, {reason}"
    assert reason.split(";")[0] in junit(Gate("leak", [Judged(verdict.judgement)])).replace("&#39;", "'")


def test_a_point_that_was_taken_less_often_than_the_expectation_asks_states_how_often(tmp_path: Path) -> None:
    verdict = judged(played(tmp_path, "a", "m", "m"), "m#3")
    assert verdict.text.endswith("could not be judged, 'm' was recorded 2 times only")


def test_an_interrupted_recipe_reports_it_and_neither_passes_nor_fails(tmp_path: Path) -> None:
    outcome = played(tmp_path, "a", "m", interrupted=int(signal.SIGINT))
    for limit in (0, -1):
        verdict = judged(outcome, at_most=limit)
        assert verdict.met is None
        assert verdict.text.endswith("could not be judged, the launch was interrupted (Ctrl-C)")


def test_what_holds_until_the_launch_failed_is_no_success_and_what_is_broken_stays_so(tmp_path: Path) -> None:
    outcome = played(tmp_path, "a", "m", failure="the program had not ended after 2.0 s")
    assert judged(outcome, at_most=-1).met is False
    verdict = judged(outcome, at_most=0)
    assert verdict.met is None
    assert verdict.text.endswith("could not be judged: the program had not ended after 2.0 s")
    assert judged(outcome, "m#2").text.endswith("the program had not ended after 2.0 s")


def test_snapshots_that_are_there_are_judged(tmp_path: Path) -> None:
    assert judged(played(tmp_path, "a", "m", notices=(NEVER,))).met is True


def test_ctrl_c_while_the_answer_is_printed_states_where_the_run_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "leak.yaml").write_text("program: /bin/sh\npoints: [{at: a}, {at: m}]\ndiff: [[a, m]]\n")
    words = ["--recipe", str(tmp_path / "leak.yaml"), "--gdb", "/bin/sh"]
    args = SHELL_COMMANDS["launch"].parser().parse_args(words)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch_recipe, "play_recipe", lambda *_, **__: played(tmp_path, "a", "m"))
    monkeypatch.setattr(launch_recipe, "_print", interrupt)
    with pytest.raises(KeyboardInterrupt):
        launch_recipe.run_recipe(args, None, [], command=[])
    folder = tmp_path / "gdbmem.prog.1"
    assert capsys.readouterr().err.endswith(
        f"the run is kept in {folder}/; see more with  gdbmem show {folder}\n"
    )


@pytest.mark.parametrize(
    ("status", "meant", "met"),
    [
        (0, 0, True),
        (3, 0, None),
        (137, 0, None),
        (None, 0, None),
        (137, 137, True),
        (3, None, True),
        (0, 137, None),
    ],
)
def test_a_leak_test_does_not_pass_because_the_program_died(
    status: Optional[int], meant: Optional[int], met: Optional[bool], tmp_path: Path
) -> None:
    outcome = played(tmp_path, "a", "m", status=status, meant=meant)
    verdict = judged(outcome)
    assert verdict.met is met
    assert judged(outcome, at_most=-1).met is False, "what was seen stays a failure"
    if met is None and status is not None:
        assert f"(status {status})" in verdict.text or f"status {status}" in verdict.text
        assert verdict.judgement.unseen[0].could_hide_bytes is None


def test_a_snapshot_compared_with_itself_is_no_leak_test(tmp_path: Path) -> None:
    outcome = played(tmp_path, "m")
    expectation = Expectation("m#1", "m", Position(9, 5), at_most=0)
    verdict = verdict_of(expectation, Diffs(outcome), SavedPairs((), outcome), outcome, ())
    assert verdict.met is None
    assert verdict.text.endswith("'m#1' and 'm' are the same snapshot: 'm.c:7' was hit 1 time")


def test_a_verdict_names_the_snapshots_that_were_compared_and_a_last_one_that_may_be_meant_as_the_first(
    tmp_path: Path,
) -> None:
    outcome = played(tmp_path, "a", "m", "a", "m", "m")
    assert judged(outcome).text.startswith("heap from a#2 (the last of 2) to m#3: ")
    expectation = Expectation("a#1", "m", Position(9, 5), at_most=0)
    verdict = verdict_of(expectation, Diffs(outcome), SavedPairs((), outcome), outcome, ())
    assert verdict.text.startswith("heap from a#1 to m#3: ")
    assert verdict.judgement.name == "heap from a#1 to m", "a service knows it again by its name"


def test_snapshots_in_the_wrong_order_are_not_judged(tmp_path: Path) -> None:
    verdict = judged(played(tmp_path, "m", "a"))
    assert verdict.met is None
    assert verdict.text.endswith("could not be judged, 'a' was recorded later than 'm'")


def test_the_last_snapshot_of_a_point_is_not_the_last_one_that_succeeded(tmp_path: Path) -> None:
    outcome = played(tmp_path, "a", "m", "m")
    outcome.points[1].failed["snap"] = "the disk is full"
    outcome.run.update(points=[vars(point) for point in outcome.points])
    assert judged(outcome).text.endswith(
        "could not be judged: the last snapshot at 'm' failed: the disk is full"
    )
    assert judged(outcome, "m#2").met is True


def test_snapshots_before_and_after_an_exec_are_of_two_programs(tmp_path: Path) -> None:
    outcome = played(tmp_path, "a")
    for execution in ("1", "2"):
        file = outcome.run.next_file("massif")
        (outcome.run.folder / file).write_text(HEADER + snapshot())
        outcome.run.append("m", file=file, engine="massif", execution=execution)
    expectation = Expectation("m#1", "m", Position(9, 5), at_most=0)
    verdict = verdict_of(expectation, Diffs(outcome), SavedPairs((), outcome), outcome, ())
    assert verdict.met is None and "executed another one (exec)" in verdict.text


_PAGES = "(page allocation syscalls) mmap/mremap/brk, --alloc-fns, etc."


def grown_outside(
    folder: Path, grown: int, *, engine: str = "massif", pages: bool = False, **fields: Any
) -> Outcome:
    outcome, text = played(folder, "a"), HEADER + snapshot()
    if pages:
        text = text.replace("(heap allocation functions) malloc/new/new[], --alloc-fns, etc.", _PAGES)
    for size in (0, grown):
        file = outcome.run.next_file("massif")
        (outcome.run.folder / file).write_text(text)
        outcome.run.append("m", file=file, engine=engine, outside_bytes=size, **fields)
    return outcome


@pytest.mark.parametrize(
    ("grown", "limit", "met"),
    [(200 << 20, 64 << 10, None), (3 << 20, 100 << 20, True), (3 << 20, 2 << 20, None), (32 << 10, 0, True)],
)
def test_growth_that_only_the_kernel_counts_is_held_against_the_limit(
    grown: int, limit: int, met: Optional[bool], tmp_path: Path
) -> None:
    outcome = grown_outside(tmp_path, grown)
    expectation = Expectation("m#1", "m", Position(9, 5), at_most=limit)
    verdict = verdict_of(expectation, Diffs(outcome), SavedPairs((), outcome), outcome, ())
    assert verdict.met is met
    if met is None:
        assert "engine: faults" in verdict.text


@pytest.mark.parametrize(("unread", "limit", "met"), [(1 << 20, 2 << 20, True), (1 << 20, 64 << 10, None)])
def test_pipes_that_cant_be_read_refuse_only_gates_whose_limit_they_could_exceed(
    unread: int, limit: int, met: Optional[bool], tmp_path: Path
) -> None:
    outcome = grown_outside(tmp_path, 0, unread_bytes=unread)
    expectation = Expectation("m#1", "m", Position(9, 5), at_most=limit)
    verdict = verdict_of(expectation, Diffs(outcome), SavedPairs((), outcome), outcome, ())
    assert verdict.met is met
    assert met or "pipes and sockets hold can't be read" in verdict.text


def test_a_program_whose_memory_may_not_be_read_passes_no_gate(tmp_path: Path) -> None:
    """A leak by mmap in a program that is not dumpable passed where an ordinary user ran it."""
    outcome = grown_outside(tmp_path, 0, execution="1")
    file = outcome.run.next_file("massif")
    (outcome.run.folder / file).write_text(HEADER + snapshot())
    outcome.run.append("m", file=file, engine="massif", execution="1")
    for names, met in ((("m#1", "m#2"), True), (("m#1", "m#3"), None), (("m#3", "m#3"), None)):
        expectation = Expectation(*names, Position(9, 5), at_most=100 << 20)
        verdict = verdict_of(expectation, Diffs(outcome), SavedPairs((), outcome), outcome, ())
        assert verdict.met is met
    assert (
        main(["diff", f"{outcome.run.folder}:m#1", f"{outcome.run.folder}:m#3", "--fail-on", "1GiB"]) == 125
    )


def test_processes_of_the_programs_own_file_are_held_against_any_limit(tmp_path: Path) -> None:
    outcome = grown_outside(tmp_path, 0, heap_bytes=1000)
    outcome.own = 1
    outcome.run.update(end=end_facts(outcome.end))
    expectation = Expectation("m#1", "m", Position(9, 5), at_most=1 << 30)
    verdict = verdict_of(expectation, Diffs(outcome), SavedPairs((), outcome), outcome, ())
    assert verdict.met is None
    assert "started 1 process of its own file" in verdict.text and "gdbmem monitor" in verdict.text


def test_children_that_ran_the_programs_code_are_held_against_the_limit(tmp_path: Path) -> None:
    cases = ((None, True, None), (50 << 20, True, None), (1 << 10, False, None), (1 << 10, True, True))
    for number, (peak, pages, met) in enumerate(cases):
        outcome = grown_outside(tmp_path / str(number), 0, pages=pages, heap_bytes=1000)
        outcome.forks, outcome.fork_peak_bytes = 2, peak
        outcome.run.update(end=end_facts(outcome.end))
        expectation = Expectation("m#1", "m", Position(9, 5), at_most=64 << 10)
        verdict = verdict_of(expectation, Diffs(outcome), SavedPairs((), outcome), outcome, ())
        assert verdict.met is met
        if met is None:
            assert "forked 2 children" in verdict.text and "gdbmem monitor --fail-on" in verdict.text


def test_diff_of_a_run_whose_program_died_is_judged_as_its_recipe_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = played(tmp_path, "a", "m", status=139).run.folder
    words = ["diff", f"{run}:a", f"{run}:m", "--fail-on", "64KiB"]
    assert main(words) == 125
    assert "the program was ended by SIGSEGV (status 139)" in capsys.readouterr().err
    assert main([*words, "--json"]) == 125
    judgement = json.loads(capsys.readouterr().out)["judgement"]
    assert (judgement["judged"], judgement["unseen"][0]["slug"]) == ("not_judged", "program-failed")
