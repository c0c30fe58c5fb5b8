"""The ranks of parallel jobs, by the variables that launchers set: as recorded under each of them."""

from __future__ import annotations

import io
import re
import sys

import pytest

from gdbmem import __version__
from gdbmem.cli.main import main
from gdbmem.errors import UsageError
from gdbmem.runs.ranks import Rank, default_name, expanded, is_chosen, labelled_outputs, own_rank, rank_of

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "PMIX_NAMESPACE": "180748289",
    "PMIX_RANK": "2",
}
HYDRA = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4", "PMI_FD": "7"}
HYDRA_BY_PORT = {"PMI_ID": "1", "PMI_PORT": "node7:41223"}
SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
}
BATCH_SCRIPT = {"SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "batch"}
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "1",
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for variables in (OPEN_MPI, HYDRA, HYDRA_BY_PORT, SRUN, TORCHRUN):
        for name in variables:
            monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("variables", "launcher", "rank", "size", "local_rank", "job", "restart"),
    [
        (OPEN_MPI, "Open MPI", 2, 3, 1, "180748289", None),
        (HYDRA, "MPICH", 5, 8, 1, "", None),
        (HYDRA_BY_PORT, "MPICH", 1, None, None, "", None),
        (SRUN, "Slurm", 3, 4, 1, "77.0", None),
        (TORCHRUN, "torchrun", 1, 2, 1, "none", 1),
        # The innermost launcher is the program's.
        ({**SRUN, **TORCHRUN}, "torchrun", 1, 2, 1, "none", 1),
        ({**BATCH_SCRIPT, **OPEN_MPI}, "Open MPI", 2, 3, 1, "180748289", None),
        ({**BATCH_SCRIPT, **HYDRA}, "MPICH", 5, 8, 1, "77", None),
    ],
)
def test_the_rank_is_that_of_the_launcher_that_started_the_program(
    variables: dict[str, str],
    launcher: str,
    rank: int,
    size: int | None,
    local_rank: int | None,
    job: str,
    restart: int | None,
) -> None:
    found = rank_of(variables)
    assert found is not None and found.host
    assert found._replace(host="") == Rank(launcher, rank, size, local_rank, "", job, restart)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        BATCH_SCRIPT,
        {"RANK": "3", "WORLD_SIZE": "8"},  # of anybody
        {"PMI_RANK": "-1"},
        {"PMI_RANK": "1\n"},
        {"OMPI_COMM_WORLD_RANK": "²"},
        {"OMPI_COMM_WORLD_RANK": "9" * 5000},
    ],
)
def test_other_variables_make_no_program_a_rank(variables: dict[str, str]) -> None:
    assert rank_of(variables) is None


def test_the_only_rank_of_a_job_is_an_ordinary_program(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("SLURM_PROCID", "0")
    environment.setenv("SLURM_STEP_ID", "0")
    assert own_rank() is not None
    environment.setenv("SLURM_NTASKS", "1")  # a shell by `srun --pty bash`
    assert own_rank() is None


def test_ranks_and_restarts_of_a_job_have_folders_of_their_own() -> None:
    names = [default_name("solver", 7, rank_of({**TORCHRUN, "RANK": rank})) for rank in ("0", "1")]
    names.append(default_name("solver", 7, rank_of({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "2"})))
    names.append(default_name("solver", 7, None))
    assert names == [
        "gdbmem.solver.none.r0.restart1",
        "gdbmem.solver.none.r1.restart1",
        "gdbmem.solver.none.r1.restart2",
        "gdbmem.solver.7",
    ]
    hostile = default_name(
        "solver", 7, rank_of({**OPEN_MPI, "PMIX_NAMESPACE": "../../etc/\x1b[2J" + "x" * 300})
    )
    assert re.fullmatch(r"gdbmem\.solver\.[A-Za-z0-9_+-][A-Za-z0-9_.+-]*\.r2", hostile) and len(hostile) < 120


def test_a_folder_is_named_by_rank_job_host_and_process() -> None:
    rank = rank_of(SRUN)
    assert expanded("runs/%j/r.%r.%p", rank, 4711) == "runs/77.0/r.3.4711"
    assert expanded("%%r 50%", rank, 1) == "%r 50%"
    assert "/" not in expanded("%h", None, 1) and expanded("%h", None, 1) != ""
    for folder in ("r.%r", "%j"):
        with pytest.raises(UsageError, match=r"no (rank|job) is known"):
            expanded(folder, None, 1)
    with pytest.raises(UsageError, match="no job is known, because MPICH names none"):
        expanded("%j", rank_of(HYDRA), 1)


def test_an_elastic_restart_does_not_end_because_the_folder_that_run_names_exists() -> None:
    restarts = [rank_of({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": str(number)}) for number in range(3)]
    names = [expanded("runs/r.%r/", rank, 1) for rank in restarts]
    assert names == ["runs/r.1", "runs/r.1.restart1", "runs/r.1.restart2"]


def test_only_the_ranks_that_are_named_are_recorded(environment: pytest.MonkeyPatch) -> None:
    assert is_chosen(None)
    with pytest.raises(UsageError, match="no rank is known"):
        is_chosen("0")
    for name, value in OPEN_MPI.items():
        environment.setenv(name, value)
    assert is_chosen("0,2") and is_chosen("1-3") and not is_chosen("0,3-9")
    for wrong in ("", "a", "3-1", "1,", "-1", "1 2", "9" * 30):
        with pytest.raises(UsageError, match="names no ranks"):
            is_chosen(wrong)


def test_lines_of_ranks_that_print_at_the_same_time_stay_apart(environment: pytest.MonkeyPatch) -> None:
    for name, value in OPEN_MPI.items():
        environment.setenv(name, value)
    out, errors = io.StringIO(), io.StringIO()
    environment.setattr(sys, "stdout", out)
    environment.setattr(sys, "stderr", errors)
    with labelled_outputs(["monitor", "--", "./p", "--json"]):
        print("one\n\ntwo", end="")
        print(" and more")
        print("no chart", file=sys.stderr)
        assert not sys.stdout.isatty()
    with labelled_outputs(["monitor", "--json", "--", "./p"]):
        print("{}")
    main(["--version"])
    assert out.getvalue() == f"[2] one\n[2]\n[2] two and more\n{{}}\ngdbmem {__version__}\n"
    assert errors.getvalue() == "[2] no chart\n"
