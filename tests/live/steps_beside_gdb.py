"""Runs inside gdb: steps a program's main thread by gdb's own `next`, then by memwatch's with some timeouts.

The stops go to stops.json: function, line, and the pages that the main thread has touched by then; for a
step of memwatch also its bytes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import gdb

STEPS = int(os.environ.get("GDB_STEPS", "11"))
START = int(os.environ["GDB_START"])
TIMEOUTS = os.environ["GDB_TIMEOUTS"].split()
STEP = Path("step.json")


def here() -> list[Any]:
    frame = gdb.newest_frame()
    pages = gdb.parse_and_eval("*(long *)&mine.pages")
    return [frame.name(), frame.find_sal().line, int(pages)]


def walk(command: str) -> list[list[Any]]:
    """Return the stops of the main thread from the start of the first round on; the program is killed afterwards."""
    gdb.execute(f"tbreak {START}", to_string=True)
    gdb.execute("run > /dev/null", to_string=True)
    stops = [here()]
    while len(stops) <= STEPS:
        gdb.execute(command, to_string=True)
        if not gdb.selected_inferior().pid or gdb.selected_thread().num != 1:
            break
        stops.append(here())
        if STEP.exists():
            (step,) = json.loads(STEP.read_text())["steps"]
            stops[-1].append(step["delta_bytes"])
    if gdb.selected_inferior().pid:
        gdb.execute("kill", to_string=True)
    return stops


found: dict[str, list[list[Any]]] = {"gdb": walk("next")}
for timeout in TIMEOUTS:
    found[timeout] = walk(f"memwatch next --timeout {timeout} --json --force -o {STEP}")
Path("stops.json").write_text(json.dumps(found))
