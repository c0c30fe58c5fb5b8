"""Runs inside gdb: steps a program through with gdb's own commands and with memwatch's, and writes where each stopped.

The functions f1, f2, … of the program are stepped through one after the other, so that a stop in the wrong place spoils
one of them only. The places go to places.json, by verb (those in GDB_VERBS) and function.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gdb

MOST = int(os.environ.get("GDB_STOPS", "7"))  # in one function

Place = list[Any]


def here() -> Place:
    frame = gdb.newest_frame()
    position = frame.find_sal()
    file = Path(position.symtab.filename).name if position.symtab is not None else ""
    return [frame.name(), file, position.line, frame.pc(), int(frame.read_register("sp"))]


def functions() -> list[str]:
    found: list[str] = []
    while _defined(f"f{len(found) + 1}"):
        found.append(f"f{len(found) + 1}")
    return found


def _defined(name: str) -> bool:
    try:
        return bool(gdb.decode_line(name)[1])
    except gdb.error:
        return False


def standing() -> str:
    """Return which of the functions the newest frame is in, without its parameters; "" for any other."""
    name = re.match(r"f\d+(?=\W|$)", gdb.newest_frame().name() or "")
    return name[0] if name and gdb.selected_inferior().pid else ""


def each_function() -> Iterator[str]:
    """Run the program; yield at each first call of a function, to which steps may have led already."""
    for name in functions():
        gdb.execute(f"tbreak {name}", to_string=True)
    gdb.execute("run > /dev/null", to_string=True)
    seen = set()
    while gdb.selected_inferior().pid:
        name = standing()
        if name and name not in seen:
            seen.add(name)
            yield name
        else:
            gdb.execute("continue", to_string=True)
    gdb.execute("delete")


def walk(command: str) -> dict[str, list[Place]]:
    """Return where *command*, repeated, stops in each function's first call."""
    places: dict[str, list[Place]] = {}
    for name in each_function():
        stops = places[name] = [here()]
        while len(stops) < MOST:
            gdb.execute(command, to_string=True)
            if not gdb.selected_inferior().pid:
                break
            stops.append(here())
            if stops[-1][0] == "main" or standing() not in ("", name):
                break
    return places


def walk_at_once(command: str) -> dict[str, list[Place]]:
    """Return where each of MOST steps of one *command* began, from each function's first call on."""
    places: dict[str, list[Place]] = {}
    for name in each_function():
        gdb.execute(f"{command} --json -o steps.json --force {MOST}", to_string=True)
        steps = json.loads(Path("steps.json").read_text())["steps"]
        places[name] = [[one["function"], Path(one["file"] or "").name, one["line"] or 0] for one in steps]
    return places


found = {}
for verb in os.environ["GDB_VERBS"].split():
    ours = f"memwatch {verb}"
    found[verb] = {"theirs": walk(verb), "ours": walk(ours), "at_once": walk_at_once(ours)}
Path("places.json").write_text(json.dumps(found))
