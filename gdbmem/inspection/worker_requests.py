"""Running long analyses in the `gdbmem` command's own interpreter: gdb's side of `api/gdb_worker.py`.

Without such an interpreter gdb does the same work itself, slower.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from gdbmem.errors import GdbmemError, InputError, TargetError, ToolError
from gdbmem.files import NEUTRAL_FOLDER
from gdbmem.formats.documents import read_ledger
from gdbmem.inspection.interpreters import interpreters, module_words, own_environment
from gdbmem.model.ledger import Ledger

if TYPE_CHECKING:
    from gdbmem.inspection.block_queries import BlockQueries
    from gdbmem.model.memory import ThreadPointers

LEDGER, HEAP, PYTHON = "ledger", "heap", "python"  # what a worker can be asked for
_WORKER = "gdbmem.api.gdb_worker"
_SECONDS = 3600.0
_REFUSED = 3  # its status with a message; 1 is that of an uncaught exception, such as a missing numpy


def explain_for_gdb(
    process: Mapping[str, object],
    descriptor: int,
    queries: Optional[BlockQueries] = None,
    *,
    swapped: bool = False,
) -> Optional[Ledger]:
    """Return the ledger of *process*, a stopped_request(), and fill *queries*, by a worker; None if there is none."""
    order = None if queries is None else queries.order()
    request = {**process, "queries": order, "swapped": swapped}
    for answer in answers_of_workers(LEDGER, request, descriptor):
        try:
            document = json.loads(answer)
            ledger = read_ledger(document["ledger"], "the worker's answer")
            if queries is not None:
                queries.fill(document["queries"])
        except (InputError, ValueError, KeyError, TypeError):
            continue
        return ledger
    return None


def stopped_request(
    pid: int, name: str, descriptor: int, threads: Sequence[ThreadPointers]
) -> dict[str, object]:
    """Return a stopped process as JSON values."""
    pointers = [list(thread) for thread in threads]
    return {"pid": pid, "name": name, "descriptor": descriptor, "threads": pointers}


def answers_of_workers(job: str, request: Mapping[str, object], descriptor: Optional[int]) -> Iterator[str]:
    """Yield the answers of the available workers to *job*, LEDGER, HEAP or PYTHON, with the values of *request*.

    Raises GdbmemError for an error message, or a killed worker.
    """
    for python in interpreters():
        done = _run(python, {**request, "job": job}, descriptor)
        if done is not None and done.returncode < 0:
            raise _killed(-done.returncode)
        if done is None or done.returncode not in (0, _REFUSED):
            continue  # no numpy there, or a different gdbmem
        if done.returncode == _REFUSED:
            raise TargetError(**json.loads(done.stdout))
        yield done.stdout


def _killed(number: int) -> GdbmemError:
    # gdb doesn't read the heap itself then: the OOM killer would end gdb, which holds the process.

    return ToolError(
        f"the process that reads the heap for gdb was ended by {signal.Signals(number).name}",
        slug="worker-killed",
        hint="type the command again, with more memory free",
    )


def _run(
    python: Path, request: Mapping[str, object], descriptor: Optional[int]
) -> Optional[subprocess.CompletedProcess[str]]:
    try:
        return subprocess.run(
            [str(python), "-s", *module_words(_WORKER)],
            input=json.dumps(request),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="surrogateescape",
            pass_fds=() if descriptor is None else (descriptor,),
            env=own_environment(),
            cwd=NEUTRAL_FOLDER,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None


def refuse(error: GdbmemError) -> int:
    """Write *error* as a worker's answer; return the worker's status."""
    json.dump(error.parts, sys.stdout)
    return _REFUSED
