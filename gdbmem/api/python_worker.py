"""Reading a Python process for gdb, in the `gdbmem` command's own interpreter, where numpy is.

gdb passes an open /proc/PID/mem and the threads' registers, or the path of a core; the report comes back.
"""

from __future__ import annotations

import io
import json
import sys

from gdbmem.allocators.glibc.layout import ThreadPointers
from gdbmem.api.python import WRITERS, HeldProcess, ReportWords, Target
from gdbmem.arrays import import_numpy
from gdbmem.errors import GdbmemError
from gdbmem.files import JsonObject
from gdbmem.inspection.worker_requests import refuse
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.terminal.console import make_console


def main() -> int:
    """Read one request from the standard input, and write the requested report."""
    import_numpy()
    request = json.load(sys.stdin)
    stream = io.StringIO()
    console = make_console(stream, width=request["width"], color=request["color"])
    try:
        WRITERS[request["action"]](_target(request), ReportWords(**request["wanted"]), stream, console)
    except GdbmemError as error:
        return refuse(error)
    json.dump({"text": stream.getvalue()}, sys.stdout)
    return 0


def _target(request: JsonObject) -> Target:
    if request["core"] is not None:
        return Target(core=request["core"], program=request["program"])
    memory = ProcMemory(request["pid"], request["descriptor"])
    threads = [ThreadPointers(*values) for values in request["threads"]]
    return Target(request["pid"], swapped=request["swapped"], stopped=HeldProcess(memory, threads))


if __name__ == "__main__":
    sys.exit(main())
