"""The ranks of a parallel job on this host, and the one monitor of all of them (`monitor --one-per-node`)."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Optional

from gdbmem.files import JsonObject
from gdbmem.inspection.interpreters import module_words
from gdbmem.json_values import as_json
from gdbmem.linux.monitoring.children import ExitEvents
from gdbmem.linux.process import process
from gdbmem.linux.process.process import words_of
from gdbmem.runs.ranks import ONE_PER_NODE, Rank, job_name, monitor_address, rank_of, without_rank


class RanksHere:
    """The processes on this host that a launcher has started as the ranks of one job."""

    def __init__(self, job: str) -> None:
        """*job* is as job_name() has it."""
        self._job = job
        self._known: dict[tuple[int, int], Optional[Rank]] = {}  # by pid and start
        self._found: dict[tuple[int, int], Rank] = {}  # those without the descendants
        self._told = 0
        self._exits: Optional[ExitEvents] = None
        self._statuses: dict[tuple[int, int], int] = {}  # of those that have ended, if the kernel has told

    def listen(self) -> None:
        """Learn from now on how the ranks end, where this user may listen to that; close() afterwards."""
        with contextlib.suppress(OSError):
            self._exits = ExitEvents()

    def close(self) -> None:
        """Stop listening."""
        if self._exits is not None:
            self._exits.close()
            self._exits = None

    def find(self) -> set[int]:
        """Return the ranks, without their descendants, which have the launcher's variables too."""
        stats = {pid: stat for pid in process.pids() if (stat := process.stat_of(pid)) is not None}
        ranks = {pid: rank for pid, stat in stats.items() if (rank := self._rank(pid, stat)) is not None}
        roots = {pid for pid in ranks if not self._is_below(pid, ranks, stats)}
        self._found.update({(pid, stats[pid].start_ticks): ranks[pid] for pid in roots})
        return roots

    def take_changed(self) -> list[JsonObject]:
        """Return the facts of all ranks that were found so far; [] if they are those of the last call."""
        ended = self._exits.take() if self._exits is not None else {}
        # Of two with one pid the later one is the one that has just ended.
        latest = {pid: (pid, ticks) for pid, ticks in self._found}
        self._statuses.update({latest[pid]: status for pid, status in ended.items() if pid in latest})
        if len(self._found) + len(self._statuses) == self._told:
            return []
        self._told = len(self._found) + len(self._statuses)
        return [
            {"pid": key[0], "start_ticks": key[1], **as_json(rank), "status": self._statuses.get(key)}
            for key, rank in self._found.items()
        ]

    def _rank(self, pid: int, stat: process.Stat) -> Optional[Rank]:
        key = pid, stat.start_ticks
        if key in self._known:
            return self._known[key]
        rank = rank_of(process.initial_environment(pid))
        if rank is not None and job_name(rank, stat.parent) == self._job:
            if ONE_PER_NODE in words_of(pid):  # gdbmem, which is about to execute the program
                return None
        else:
            rank = None
        self._known[key] = rank
        return rank

    @staticmethod
    def _is_below(pid: int, ranks: Container[int], stats: Mapping[int, process.Stat]) -> bool:
        seen = {pid}
        at = stats[pid].parent
        while at in stats and at not in seen:
            if at in ranks:
                return True
            seen.add(at)
            at = stats[at].parent
        return False


# One monitor of the ranks of a host. The first rank starts it, in a session of its own, below a shell that starts
# another one if it is killed; both hold an abstract socket by the job's name, so that the other ranks start none.


_AGAIN = """
first=$1 run=$2 log=$3; shift 3
if [ -e "$run/run.json" ]; then "$@" --resume "$run"; else "$@" --job "$first" --run "$run"; fi
status=$? left=20
while [ $status -gt 128 ] && [ $left -gt 0 ]; do
  left=$((left - 1))
  "$@" --resume "$run"
  status=$?
done
[ -s "$log" ] || rm -f "$log"
"""


def start_node_monitor(rank: Rank, folder: Path, words: Sequence[str]) -> bool:
    """Start a monitor of this host's ranks of the job of *rank*, recorded in *folder*; return False if there is one.

    *words* are its other options. It survives this process, has none of its files open, and ends after the last rank.
    Raises OSError.
    """
    name = socket.socket(socket.AF_UNIX)
    with name:
        try:
            name.bind(monitor_address(rank))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        folder.parent.mkdir(parents=True, exist_ok=True)
        log = folder.with_name(f"{folder.name}.log")
        monitor = [
            sys.executable,
            *module_words("gdbmem.cli.main"),
            "monitor",
            "--until-exit",
            "--quiet",
            *words,
        ]
        with log.open("ab") as said:
            shell = subprocess.Popen(
                # Its child is the monitor's shell, and not a child that the program would have to wait for.
                [
                    "/bin/sh",
                    "-c",
                    '"$@" &',
                    "sh",
                    "/bin/sh",
                    "-c",
                    _AGAIN,
                    "sh",
                    job_name(rank),
                    str(folder),
                    str(log),
                    *monitor,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=without_rank(os.environ),
                pass_fds=(name.fileno(),),
                start_new_session=True,
            )
        shell.wait()
    return True
