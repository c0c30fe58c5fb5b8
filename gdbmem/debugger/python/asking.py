"""Reading the Python process or core in gdb with the `gdbmem` command's own Python, which has numpy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Optional

import gdb

from gdbmem.api.python_reports import KEEP_TRACES, ReportWords
from gdbmem.debugger.ledger.here import core_path, local_pid, threads_here
from gdbmem.debugger.location import program_file
from gdbmem.errors import TargetError, ToolError
from gdbmem.inspection.worker_requests import answers_of_workers, stopped_request
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.linux.process.process import check_analysable
from gdbmem.records import asdict

_NO_TRACES = "python-no-traces"
_WORKER = "gdbmem.api.python_worker"


def ask_worker(
    action: str, wanted: ReportWords, *, width: int = 80, color: bool = False, swapped: bool = False
) -> str:
    """Return the report *action* on the process or core, with the options *wanted*.

    Raises TargetError if it can't be read, ToolError if there is no worker.
    """
    request: dict[str, object] = {
        "action": action, "wanted": asdict(wanted), "width": width, "color": color, "swapped": swapped, "core": None,
    }  # fmt: skip
    core = core_path()
    if core is not None:
        request.update(core=str(core.absolute()), program=_program())
        return _answer(request, None)
    pid = local_pid()
    name = check_analysable(pid, may_be_traced=True).name
    with ProcMemory(pid) as memory:
        request.update(stopped_request(pid, name, memory.descriptor, threads_here()))
        return _answer(request, memory.descriptor)


def keep_traces_here(path: Path) -> None:
    """Write the traces of tracemalloc in the stopped process to the new file *path*; errors as for ask_worker()."""
    try:
        ask_worker(KEEP_TRACES, ReportWords(profile=str(path)))
    except TargetError as error:
        if error.slug != _NO_TRACES:
            raise
        raise TargetError(
            "tracemalloc is not tracing at this point",
            slug=error.slug,
            hint="the interpreter has not started or has ended, stopped tracemalloc or ignores its environment"
            " (-E, -I), or its version is not supported (CPython 3.9 and later are)",
        ) from error


def _program() -> Optional[str]:
    return gdb.current_progspace().filename and str(Path(program_file()).absolute())


def _answer(request: dict[str, object], descriptor: Optional[int]) -> str:
    for answer in answers_of_workers(request, descriptor, _WORKER):
        return str(json.loads(answer)["text"])
    raise ToolError(
        "this needs the Python of the gdbmem command, with numpy, and none was found",
        slug="python-worker-missing",
        hint="install gdbmem with pip, or name its Python with the environment variable GDBMEM_PYTHON",
    )
