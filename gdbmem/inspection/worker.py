"""Analysing a process for gdb in the `gdbmem` command's own interpreter, where numpy is.

gdb passes an open /proc/PID/mem and the threads' registers (`worker_requests.py`); the ledger comes back as JSON.
"""

from __future__ import annotations

import json
import sys

from gdbmem.allocators.glibc.layout import ThreadPointers
from gdbmem.arrays import import_numpy
from gdbmem.errors import GdbmemError
from gdbmem.inspection.block_queries import Looks
from gdbmem.inspection.read_process import explain_stopped
from gdbmem.inspection.worker_requests import refuse
from gdbmem.ledger.document import ledger_json
from gdbmem.linux.memory.process_memory import ProcMemory


def main() -> int:
    """Read one request from the standard input, analyse, and write the ledger."""
    import_numpy()  # without it this worker is useless: gdb can do the rest itself

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
        return refuse(error)
    if looks is None:
        sys.stdout.write(ledger_json(ledger))
    else:
        json.dump({"ledger": ledger_json(ledger), "looks": looks.document()}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
