"""The ranks of a job on this host, found by the variables of their launcher."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.cli import monitor_one_per_node
from gdbmem.cli.main import main
from gdbmem.linux.process import process
from gdbmem.linux.process.process import parse_stat
from gdbmem.recording import ranks_of_host
from gdbmem.recording.ranks_of_host import RanksHere
from gdbmem.runs.ranks import rank_of, without_rank

MPI = {"OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "1807"}


class Host:
    """Processes: pid → parent, environment, command line."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[int, tuple[int, dict[str, str], Sequence[str]]] = {}
        stat = "{} (x) S {} " + "0 " * 17 + "77 " + "0 " * 30
        monkeypatch.setattr(process, "pids", lambda: list(self.found))
        monkeypatch.setattr(
            process, "stat_of", lambda pid: parse_stat(stat.format(pid, self.found[pid][0]).encode())
        )
        monkeypatch.setattr(process, "initial_environment", lambda pid: self.found[pid][1])
        monkeypatch.setattr(ranks_of_host, "words_of", lambda pid: self.found[pid][2])


def test_ranks_are_found_without_their_children_and_those_of_other_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, ranks = Host(monkeypatch), RanksHere("1807")
    first, second = ({**MPI, "OMPI_COMM_WORLD_RANK": str(n)} for n in range(2))
    host.found = {
        10: (1, {}, ["mpirun"]),
        11: (10, first, ["sh", "solve.sh"]),
        12: (11, first, ["./solver"]),
        13: (10, second, ["python", "gdbmem", "monitor", "--one-per-node", "--", "./solver"]),
        14: (10, {**first, "PMIX_NAMESPACE": "1808"}, ["./solver"]),
    }
    assert ranks.find() == {11}
    assert [(one["pid"], one["rank"], one["start_ticks"]) for one in ranks.take_changed()] == [(11, 0, 77)]
    assert ranks.take_changed() == []
    host.found[13] = (10, second, ["./solver"])  # it has executed the program
    assert ranks.find() == {11, 13}
    assert [one["rank"] for one in ranks.take_changed()] == [0, 1]


def test_a_job_without_a_name_is_known_by_the_launchers_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.found = {
        20: (5, {"PMI_RANK": "0", "PMI_SIZE": "2"}, []),
        21: (6, {"PMI_RANK": "0", "PMI_SIZE": "2"}, []),
    }
    assert RanksHere("5").find() == {20}


@pytest.mark.parametrize(
    ("words", "run"),
    [
        (["--one-per-node"], "gdbmem.solver.1807"),
        (["-q", "--one-per-node", "--run", "%j", "--interval=1s"], "1807"),
        (["--one-per-node", "--run=%r"], None),  # for the message
        (["--one-per-node", "--on-ranks", "0"], None),
        (["--one-per-node", "--run"], None),
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_rank_whose_host_has_its_monitor_executes_its_program_with_no_more_than_that(
    words: list[str],
    run: Optional[str],
    is_there: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {**MPI, "OMPI_COMM_WORLD_RANK": "0", "PMIX_NAMESPACE": "1807"}.items():
        monkeypatch.setenv(name, value)
    executed: list[tuple[str, list[str], str]] = []

    def execute(program: str, arguments: list[str], environment: dict[str, str]) -> None:
        executed.append((program, arguments, environment["GDBMEM_RUN"]))
        raise FileNotFoundError  # in place of not coming back: what was changed for the program is put back

    monkeypatch.setattr(os, "execvpe", execute)
    monkeypatch.setattr(
        monitor_one_per_node, "_has_monitor", lambda address: is_there and "-1807." in address
    )
    monitor_one_per_node.execute_where_recorded(["monitor", *words, "--", "./solver", "--", "x"])
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN
    if run is None or not is_there:
        assert not executed
        return
    ((program, arguments, folder),) = executed
    assert (program, arguments) == ("./solver", ["./solver", "--", "x"])
    assert folder.startswith(f"{Path.cwd()}/{run}")


def test_how_a_rank_has_ended_is_kept_beside_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    host, ranks = Host(monkeypatch), RanksHere("1807")
    host.found = {11 + n: (1, {**MPI, "OMPI_COMM_WORLD_RANK": str(n)}, []) for n in range(2)}
    ranks.find()
    assert [one["status"] for one in ranks.take_changed()] == [None, None]

    class Exits:
        def take(self) -> dict[int, int]:
            return {12: 3, 4711: 1}

    monkeypatch.setattr(ranks, "_exits", Exits())
    assert [one["status"] for one in ranks.take_changed()] == [None, 3]
    assert ranks.take_changed() == []


def test_the_monitor_itself_is_no_rank() -> None:
    assert (
        rank_of(without_rank({**MPI, "OMPI_COMM_WORLD_RANK": "1", "SLURM_PROCID": "0", "SLURM_STEP_ID": "2"}))
        is None
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--one-per-node", "--", "true"], "no launcher of several ranks"),
        (["--one-per-node", "4711"], "needs a program"),
        (["--one-per-node", "--fail-on", "growing", "--", "true"], "--fail-on can't be combined"),
        (["--one-per-node", "--run", "r.%r", "--", "true"], "all ranks of a host in one run"),
    ],
)
def test_what_one_monitor_of_all_ranks_cannot_do_is_refused(
    words: Sequence[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "r.%r" in words:
        for name, value in {**MPI, "OMPI_COMM_WORLD_RANK": "0"}.items():
            monkeypatch.setenv(name, value)
    assert main(["monitor", *words]) == 2
    assert said in capsys.readouterr().err
