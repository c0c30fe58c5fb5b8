"""The Python interpreters that may have the `gdbmem` command's own packages, and what gdb has them do.

That is the work of `api/gdb_worker.py`. Without such an interpreter gdb reads a ledger itself, slower.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from gdbmem.errors import GdbmemError, InputError, TargetError, ToolError
from gdbmem.files import NEUTRAL_FOLDER

if TYPE_CHECKING:
    from gdbmem.inspection.block_queries import BlockQueries
    from gdbmem.model.ledger import Ledger
    from gdbmem.model.memory import ThreadPointers

INTERPRETER = "GDBMEM_PYTHON"  # the variable that names one
_PACKAGE = Path(__file__).resolve().parents[2]


def interpreters() -> Iterator[Path]:
    """Yield the Pythons that may have numpy: $GDBMEM_PYTHON alone if set, else the command's own."""
    named = os.environ.get(INTERPRETER)
    if named is not None:
        if named:
            yield Path(named).absolute()  # it is started in another folder
        return
    package = _PACKAGE / "gdbmem"
    # A checkout's environment; an installed package's prefix (PREFIX/lib/python3.x/site-packages/gdbmem).
    candidates = [
        package.parent / ".venv/bin/python",
        *(folder / "bin/python3" for folder in list(package.parents)[3:4]),
    ]
    script = shutil.which("gdbmem")
    if script:
        candidates.append(Path(script).resolve().with_name("python3"))
    yield from (path for path in dict.fromkeys(candidates) if path.exists())


def module_words(module: str) -> list[str]:
    """Return the arguments with which a Python runs *module* of this package, and no code from the current folder.

    ``-m`` would search that folder first, also for modules that Python itself needs.
    """
    start = "import sys; sys.path[:1] == [''] and sys.path.pop(0); import runpy"
    return ["-c", f"{start}; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"]


def own_environment() -> Mapping[str, str]:
    """Return the environment in which they use this package, without what is set for gdb's own Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": str(_PACKAGE)}


def own_python(what: str, module: str) -> tuple[list[str], Mapping[str, str]]:
    """Return the command line that runs *module* there, and its environment.

    Raises ToolError, which names *what* needs it, if there is none.
    """
    python = next(iter(interpreters()), None)
    if python is None:
        raise no_interpreter(what)
    return [str(python), "-s", *module_words(module)], own_environment()


def no_interpreter(what: str) -> ToolError:
    """Return the error for *what* needs such an interpreter, where there is none."""
    return ToolError(
        f"{what} needs the Python that gdbmem was installed into, which was not found",
        slug="python-worker-missing",
        hint="name it: GDBMEM_PYTHON=/path/to/python",
    )


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
    from gdbmem.formats.documents import read_ledger  # for gdb only

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
