"""Analysing a process for gdb in the `gdbmem` command's own interpreter, where numpy is.

gdb hands over an open /proc/PID/mem and the threads' registers; the ledger comes back as JSON. Without such
an interpreter gdb does the same work itself, slower.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, Optional

from gdbmem.allocators.glibc.caches import ThreadPointers
from gdbmem.arrays import import_numpy
from gdbmem.errors import GdbmemError, InputError, TargetError, ToolError
from gdbmem.files import NEUTRAL_FOLDER
from gdbmem.inspection.block_questions import Looks
from gdbmem.inspection.read_process import explain_stopped
from gdbmem.linux.process_memory import ProcMemory
from gdbmem.model.ledger import Ledger
from gdbmem.report.ledger.ledger_json import ledger_json, read_ledger

_SECONDS = 3600.0
_REFUSED = 3  # its status with a message; 1 is that of an uncaught exception, such as a missing numpy


def explain_for_gdb(
    pid: int, name: str, descriptor: int, threads: Sequence[ThreadPointers], *, swapped: bool = False
) -> Optional[Ledger]:
    """Return the ledger of stopped process *pid*, made by a worker; None where there is none to be had."""
    for answer in _answers({**_request(pid, name, descriptor, threads), "swapped": swapped}):
        try:
            return read_ledger(answer, "the worker's answer")
        except InputError:
            continue
    return None


def look_for_gdb(
    pid: int,
    name: str,
    descriptor: int,
    threads: Sequence[ThreadPointers],
    looks: Looks,
    *,
    swapped: bool = False,
) -> Optional[Ledger]:
    """Return the ledger, and fill *looks*, likewise."""
    request = {**_request(pid, name, descriptor, threads), "looks": looks.order(), "swapped": swapped}
    for answer in _answers(request):
        try:
            document = json.loads(answer)
            ledger = read_ledger(document["ledger"], "the worker's answer")
            looks.fill(document["looks"])
        except (InputError, ValueError, KeyError, TypeError):
            continue
        return ledger
    return None


def _request(pid: int, name: str, descriptor: int, threads: Sequence[ThreadPointers]) -> dict[str, Any]:
    return {
        "pid": pid,
        "name": name,
        "descriptor": descriptor,
        "threads": [list(astuple(thread)) for thread in threads],
    }


def _answers(request: dict[str, Any]) -> Iterator[str]:
    """Yield the answers of the workers that are to be had; raises GdbmemError for a message, or a killed one."""
    for python in interpreters():
        done = _run(python, request, request["descriptor"])
        if done is not None and done.returncode < 0:
            raise _killed(-done.returncode)
        if done is None or done.returncode not in (0, _REFUSED):
            continue  # no numpy there, or another gdbmem
        if done.returncode == _REFUSED:
            failure = json.loads(done.stdout)
            raise TargetError(failure["message"], slug=failure["slug"], hint=failure["hint"])
        yield done.stdout


def _killed(number: int) -> GdbmemError:
    # gdb doesn't read the heap itself then: what the OOM killer ends there would be gdb, with the process in its hands.

    return ToolError(
        f"the process that reads the heap for gdb was ended by {signal.Signals(number).name}",
        slug="worker-killed",
        hint="type the command again; is there memory left?",
    )


def _run(
    python: Path, request: dict[str, Any], descriptor: int
) -> Optional[subprocess.CompletedProcess[str]]:
    package = Path(__file__).resolve().parent.parent.parent
    # gdb's Python may have settings of its own in the environment; this package is the one to use.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = str(package)
    try:
        return subprocess.run(
            [str(python), "-s", "-m", "gdbmem.inspection.worker"],
            input=json.dumps(request),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="surrogateescape",
            pass_fds=(descriptor,),
            env=environment,
            cwd=NEUTRAL_FOLDER,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None


def interpreters() -> Iterator[Path]:
    """Yield the Pythons that may have numpy: $GDBMEM_PYTHON alone if set, else the command's own."""
    named = os.environ.get("GDBMEM_PYTHON")
    if named is not None:
        if named:
            yield Path(named).absolute()  # it is started in another folder
        return
    package = Path(__file__).resolve().parent.parent
    # A checkout's environment; an installed package's prefix (PREFIX/lib/python3.x/site-packages/gdbmem).
    candidates = [
        package.parent / ".venv/bin/python",
        *(folder / "bin/python3" for folder in list(package.parents)[3:4]),
    ]
    script = shutil.which("gdbmem")
    if script:
        candidates.append(Path(script).resolve().with_name("python3"))
    yield from (path for path in dict.fromkeys(candidates) if path.exists())


def main() -> int:
    """Read one request from the standard input, analyse, and write the ledger."""
    import_numpy()  # without it this worker is of no use: gdb can do the rest itself

    request = json.load(sys.stdin)
    threads = [ThreadPointers(*values) for values in request["threads"]]
    memory = ProcMemory(request["pid"], request["descriptor"])
    try:
        looks = Looks.ordered(request["looks"]) if "looks" in request else None
        swapped = bool(request.get("swapped"))
        ledger = explain_stopped(
            request["pid"], request["name"], memory, threads, look=looks, swapped=swapped
        )
    except GdbmemError as error:
        json.dump({"message": error.message, "slug": error.slug, "hint": error.hint}, sys.stdout)
        return _REFUSED
    if looks is None:
        sys.stdout.write(ledger_json(ledger))
    else:
        json.dump({"ledger": ledger_json(ledger), "looks": looks.document()}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
