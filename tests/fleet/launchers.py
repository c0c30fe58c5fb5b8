"""How the launchers of parallel jobs are called, and a Slurm of this machine alone."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

TORCH = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gdbmem" / "python" / "torch" / "bin"
# The shell's name of a rank, whatever has started it.
RANK = "${PMI_RANK-${OMPI_COMM_WORLD_RANK-${RANK-$SLURM_PROCID}}}"
_SLURM = """\
ClusterName=fleet
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8
PartitionName=all Nodes={host} Default=YES State=UP OverSubscribe=FORCE:8
"""


class Launcher(NamedTuple):
    """One of them."""

    name: str  # as gdbmem calls it
    words: tuple[str, ...]  # before the program; {n} is the number of ranks
    ends_as_its_ranks: bool = True  # False: its status is 1 if that of a rank is not 0
    cancel: tuple[str, ...] = ()  # what ends a job: otherwise a SIGTERM to the launcher
    environment: Mapping[str, str] = {}

    def command(self, count: int, *program: str) -> list[str]:
        """Return the words that start *program* as *count* ranks."""
        return [*(word.format(n=count) for word in self.words), *program]


OPEN_MPI = Launcher("Open MPI", ("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "{n}"))
MPICH = Launcher("MPICH", ("mpirun.mpich", "-n", "{n}"))
TORCHRUN = Launcher(
    "torchrun",
    (str(TORCH / "torchrun"), "--standalone", "--nproc-per-node", "{n}", "--no-python", "--"),
    False,
)
# A SIGTERM to srun kills the ranks with SIGKILL.
SRUN = Launcher("Slurm", ("srun", "--overcommit", "-n", "{n}"), cancel=("scancel", "--user=root"))


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Launcher]:
    """Yield srun with a controller and a node on this machine, which end afterwards."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1], other.getsockname()[1]]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(_SLURM.format(host=host, ports=ports, folder=folder))
    environment = {"SLURM_CONF": str(folder / "slurm.conf")}
    with contextlib.ExitStack() as stack:
        for daemon in ("slurmctld", "slurmd"):
            log = stack.enter_context((folder / f"{daemon}.log").open("wb"))
            process = subprocess.Popen(
                [daemon, "-D"],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
            stack.callback(_end, process)
        _await_node(environment)
        yield SRUN._replace(environment=environment)


def _await_node(environment: Mapping[str, str]) -> None:
    until = time.monotonic() + 60
    while True:
        said = subprocess.run(
            ["sinfo", "-h", "-o", "%T"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if said.stdout.strip() == "idle":
            return
        assert time.monotonic() < until, said
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(60)
