"""The rank that a launcher of parallel programs (mpirun, srun, torchrun) has given this process, by its variables."""

import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple, Optional, TextIO

from gdbmem.errors import UsageError
from gdbmem.text import printable


class Rank(NamedTuple):
    """One of the processes that a launcher starts as one job; what its launcher does not tell is None or ""."""

    launcher: str  # "Open MPI", "MPICH", "Slurm", "torchrun", …
    rank: int
    size: Optional[int] = None  # the number of ranks of the job
    local_rank: Optional[int] = None  # among those of its host
    host: str = ""
    job: str = ""
    restart: Optional[int] = None  # how often torchrun has restarted the job

    @property
    def has_others(self) -> bool:
        """False if it is known to be the only one."""
        return self.size is None or self.size > 1


class _Launcher(NamedTuple):
    """The variables by which a launcher tells a process its rank."""

    name: str
    rank: tuple[str, ...]
    size: tuple[str, ...] = ()
    local_rank: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    restart: str = ""
    needs: str = ""  # a variable without which the others are not the launcher's


# In the order of trust: a launcher that is started by another one inherits that one's variables. All ranks that mpirun
# starts from a Slurm batch script have SLURM_PROCID=0, but no number as their step.
_LAUNCHERS = (
    _Launcher(
        "torchrun",
        ("RANK",),
        ("WORLD_SIZE",),
        ("LOCAL_RANK",),
        ("TORCHELASTIC_RUN_ID",),
        restart="TORCHELASTIC_RESTART_COUNT",
        needs="TORCHELASTIC_RUN_ID",
    ),
    _Launcher(
        "Open MPI",
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("PMIX_NAMESPACE", "SLURM_JOB_ID"),
    ),
    _Launcher(
        "MVAPICH",
        ("MV2_COMM_WORLD_RANK",),
        ("MV2_COMM_WORLD_SIZE",),
        ("MV2_COMM_WORLD_LOCAL_RANK",),
        ("SLURM_JOB_ID",),
    ),
    _Launcher("Flux", ("FLUX_TASK_RANK",), ("FLUX_JOB_SIZE",), ("FLUX_TASK_LOCAL_ID",), ("FLUX_JOB_ID",)),
    _Launcher("PALS", ("PALS_RANKID",), (), ("PALS_LOCAL_RANKID",), ("PALS_APID",)),
    _Launcher("MPICH", ("PMI_RANK", "PMI_ID"), ("PMI_SIZE",), ("MPI_LOCALRANKID",), ("SLURM_JOB_ID",)),
    _Launcher(
        "Slurm",
        ("SLURM_PROCID",),
        ("SLURM_NTASKS", "SLURM_NPROCS"),
        ("SLURM_LOCALID",),
        ("SLURM_JOB_ID",),
        needs="SLURM_STEP_ID",
    ),
)
ONE_PER_NODE = "--one-per-node"
_NUMBER = re.compile(r"[0-9]{1,9}")
_LONGEST_JOB = 64


def rank_of(environment: Mapping[str, str]) -> Optional[Rank]:
    """Return the rank that *environment* tells; None if no launcher that is known has set it."""
    for launcher in _LAUNCHERS:
        rank = _number(environment, launcher.rank)
        if rank is None or (launcher.needs and not environment.get(launcher.needs)):
            continue
        step = environment.get("SLURM_STEP_ID", "")
        if launcher.name == "Slurm" and not _NUMBER.fullmatch(step):
            continue
        job = next((environment[name] for name in launcher.job if environment.get(name)), "")
        return Rank(
            launcher.name,
            rank,
            _number(environment, launcher.size),
            _number(environment, launcher.local_rank),
            os.uname().nodename,
            f"{job}.{step}" if launcher.name == "Slurm" and job else job,
            _number(environment, (launcher.restart,)),
        )
    return None


def _number(environment: Mapping[str, str], names: tuple[str, ...]) -> Optional[int]:
    for name in names:
        if _NUMBER.fullmatch(environment.get(name, "")):
            return int(environment[name])
    return None


def own_rank() -> Optional[Rank]:
    """Return the rank of this process; None if it is none, or the only one of its job."""
    found = rank_of(os.environ)
    return found if found is not None and found.has_others else None


def default_name(program: str, pid: int, rank: Optional[Rank]) -> str:
    """Return the name of the run folder of *program*: with the job and the rank in place of *pid* if there is one."""
    if rank is None:
        return f"gdbmem.{program}.{pid}"
    job = job_name(rank)
    return f"gdbmem.{program}.{job}.r{rank.rank}{_restart(rank)}"


def job_name(rank: Rank, parent: Optional[int] = None) -> str:
    """Return the job of *rank* as a file's name; if the launcher does not tell it, a number that its ranks share.

    That is the pid of the ranks' *parent* on their host (None: our own), the launcher.
    """
    return _file_name(rank.job) or str(os.getppid() if parent is None else parent)


def monitor_address(rank: Rank) -> str:
    """Return the name of the socket that the monitor of all ranks of this host, and of the job of *rank*, has bound."""
    return f"\0gdbmem-{os.geteuid()}-{job_name(rank)}.monitor"


def folder_of_host(run: Optional[str], rank: Rank, program: str) -> str:
    """Return the folder of the run of all ranks of this host: *run*, expanded, or its default name.

    Raises UsageError as expanded() does.
    """
    name = program.rpartition("/")[2]
    return (
        expanded(run, rank._replace(restart=None), os.getpid())
        if run
        else f"gdbmem.{name}.{job_name(rank)}.{os.uname().nodename}"
    )


def without_rank(environment: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* without what makes a process a rank."""
    rank = {name for launcher in _LAUNCHERS for name in launcher.rank}
    return {name: value for name, value in environment.items() if name not in rank}


def expanded(folder: str, rank: Optional[Rank], pid: int) -> str:
    """Return *folder* with %r, %h, %p and %j replaced by the rank, the host, *pid* and the job; %% is a %.

    After an elastic restart it ends with the number of that: the folder of the ranks before exists.
    Raises UsageError if it names a rank or a job that is unknown.
    """
    values = {
        "r": "" if rank is None else str(rank.rank),
        "j": "" if rank is None else _file_name(rank.job),
        "h": _file_name(os.uname().nodename),
        "p": str(pid),
        "%": "%",
    }

    def replace(found: re.Match[str]) -> str:
        letter = found.group(1)
        if not values[letter]:
            option = f"--run {printable(folder)}"
            if rank is not None:
                raise UsageError(
                    f"{option}: no job is known, because {rank.launcher} names none",
                    slug="no-rank",
                    hint="leave out %j",
                )
            raise _no_rank(option, "rank" if letter == "r" else "job")
        return values[letter]

    name = re.sub(r"%([rhpj%])", replace, folder)
    return name.rstrip("/") + _restart(rank) if rank is not None else name


def _restart(rank: Rank) -> str:
    return f".restart{rank.restart}" if rank.restart else ""


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+-]", "_", text)[:_LONGEST_JOB].lstrip(".")


def is_chosen(ranks: Optional[str]) -> bool:
    """Return whether this process's rank is one of *ranks*, as in ``0,4-7``; None is all.

    Raises UsageError if it has no rank, or if they are none.
    """
    if ranks is None:
        return True
    chosen = [re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part) for part in ranks.split(",")]
    rank = own_rank()
    if rank is None:
        raise _no_rank("--on-ranks", "rank")
    found = False
    for part in chosen:
        first, last = (int(part[1]), int(part[2] or part[1])) if part else (1, 0)
        if last < first:
            raise UsageError(f"'{printable(ranks)}' names no ranks", slug="no-rank", hint="--on-ranks 0,4-7")
        found = found or first <= rank.rank <= last
    return found


def _no_rank(option: str, what: str) -> UsageError:
    return UsageError(
        f"{option}: no {what} is known, because no launcher of several ranks has set its variables",
        slug="no-rank",
        hint="start gdbmem by mpirun, srun or torchrun",
    )


class _Labelled(io.TextIOBase):
    """A stream that begins each line with a label; no terminal: mpirun collects it even if it looks like one."""

    def __init__(self, stream: TextIO, label: str) -> None:
        self._stream = stream
        self._label = label
        self._at_start = True

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            if self._at_start:
                self._stream.write(self._label if line == "\n" else f"{self._label} ")
            self._stream.write(line)
            self._at_start = line.endswith("\n")
        return len(text)

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._stream.fileno()

    def flush(self) -> None:
        self._stream.flush()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    @property
    def buffer(self) -> BinaryIO:
        return self._stream.buffer


@contextmanager
def labelled_outputs(words: Sequence[str]) -> Iterator[None]:
    """Begin each line that the command *words* prints with the rank, where there are several, until the `with` ends.

    Those of a result for a program (JSON, a profile) are left as they are.
    """
    rank = own_rank()
    if rank is None or (words[0] == "launch" and "--recipe" not in words):
        yield
        return
    own = words[: words.index("--")] if "--" in words else words
    streams = sys.stdout, sys.stderr
    try:
        sys.stderr = _Labelled(sys.stderr, f"[{rank.rank}]")
        if "--json" not in own and "-" not in own:
            sys.stdout = _Labelled(sys.stdout, f"[{rank.rank}]")
        yield
    finally:
        sys.stdout, sys.stderr = streams
