"""The ranks of a job on this host, found by the variables of their launcher."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gdbmem.cli.main import main
from gdbmem.linux.process import process
from gdbmem.linux.process.process import parse_stat
from gdbmem.recording import targets
from gdbmem.recording.targets import RanksHere
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
        monkeypatch.setattr(targets, "words_of", lambda pid: self.found[pid][2])


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
