"""Valgrind's DHAT, versions 1 (valgrind 3.15 and 3.16) and 2 of its JSON: a whole run, each stack at its end, at
the peak, and in all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Optional

from gdbmem.errors import InputError
from gdbmem.files import Data, JsonObject
from gdbmem.formats.json_profiles import read_json_profile
from gdbmem.formats.stacks import (
    ALLOCATED,
    IN_USE,
    LIFETIMES,
    NEVER_READ,
    NEVER_WRITTEN,
    OWN_PEAK,
    POINTS,
    READ,
    SHORT_LIVED,
    WRITTEN,
    Content,
    Stack,
    StackProfile,
    by_metric,
    check_count,
    check_path,
    choose_metric,
    total_of,
)
from gdbmem.model.calltree import PEAK, Frame
from gdbmem.text import printable

_KEYS = {PEAK: ("gb", "gbk"), IN_USE: ("eb", "ebk"), ALLOCATED: ("tb", "tbk"), OWN_PEAK: ("mb", "mbk")}
_KEYS_1 = {**_KEYS, IN_USE: ("fb", "fbk")}
# Bytes read and written, where DHAT counted accesses; an access of a byte again counts again.
_ACCESSES = {READ: ("rb", "tbk"), WRITTEN: ("wb", "tbk")}
# What is allocated by the paths whose number of this key, a block, is at most the limit.
_PARTS = {NEVER_READ: "rb", NEVER_WRITTEN: "wb", SHORT_LIVED: "tl"}
_TIMES = {"instrs": "instructions"}
_LONGEST_LIFE = 500  # of a short-lived block, if the file has no limit of its own: instructions
# valgrind's own malloc stands at the top of each stack; no other tool's files have it.
_OWN = re.compile(r"\(in (?:.*/)?vgpreload_[\w.-]+\)$|/vg_replace_malloc\.c:[0-9]+\)$")
_FRAME = re.compile(
    r"(?:(0x[0-9A-Fa-f]+): )?(?:(.*) \((?:in (.*)|(.*?):(\d{1,9})(?::\d{1,9})?)\)|(.*))", re.DOTALL
)


def read_dhat(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Read *data*; raises InputError if it is cut (JSON has no readable half) or of another mode."""
    return read_json_profile(
        data,
        source,
        lambda found: _profile(found, source, metric),
        wanted="what DHAT writes",
        if_cut="DHAT writes its file when the program ends, unless it is killed with SIGKILL",
    )


def _profile(found: JsonObject, source: str, metric: Optional[str]) -> StackProfile:
    points, known = _points(found, source)
    table = [str(text) for text in found["ftbl"]]
    if found.get("bkacc", True):
        known = {**known, **_ACCESSES}
    keys = _keys_of(points, known, source)
    parts = {name: key for name, key in _PARTS.items() if key == "tl" or READ in keys}
    if not found.get("bklt", True) or ALLOCATED not in keys or any("tl" not in point for point in points):
        del parts[SHORT_LIVED]
    metrics = [*by_metric(keys), *parts]
    chosen = choose_metric(metric, metrics, source)
    if chosen in parts:
        limit = int(found.get("tuth", _LONGEST_LIFE)) if chosen == SHORT_LIVED else 0
        points = [point for point in points if point[parts[chosen]] <= limit * point["tbk"]]
        keys = {**keys, chosen: keys[ALLOCATED]}
    own = [_OWN.search(text) is not None for text in table]

    def profile(name: str, pair: Optional[tuple[str, str]]) -> StackProfile:
        stacks = [_stack(point, pair, own, source) for point in points]
        stacks = [stack for stack in stacks if stack.bytes or stack.blocks]
        return StackProfile(
            source=source,
            source_format="dhat",
            metric=name,
            metrics=metrics,
            total_bytes=total_of(stacks),
            notices=[],
            load=lambda profile: Content(
                stacks, [() if text == "[root]" else (_frame(text),) for text in table]
            ),
            command=str(found.get("cmd", "")),
        )

    made = profile(chosen, keys[chosen])
    used: dict[str, Optional[tuple[str, str]]]
    used = {name: keys[name] for name in (ALLOCATED, READ, WRITTEN) if name in keys}
    if SHORT_LIVED in parts:
        used[LIFETIMES] = ("tl", "tbk")
    if len(used) > 1 and ALLOCATED in used:
        used[POINTS] = None
        made.uses = lambda: {name: profile(name, pair) for name, pair in used.items()}
        made.unit_of_time = _TIMES.get(str(found.get("tu", "instrs")), str(found.get("tu")))
    return made


def _points(found: JsonObject, source: str) -> tuple[list[JsonObject], Mapping[str, tuple[str, str]]]:
    """Return the records of all paths, and the keys of their numbers by metric. Raises InputError for another mode."""
    version = found["dhatFileVersion"]
    mode = "heap" if version == 1 else found["mode"]
    if version not in (1, 2) or mode not in ("heap", "rust-heap"):
        raise InputError(
            f"{printable(source)} is of version {printable(str(version))}, mode {printable(str(mode))} of DHAT",
            slug="format-unreadable",
            hint="versions 1 and 2 of its heap mode are what can be read",
        )
    if version == 2:
        return found["pps"], _KEYS
    return [{**point, "tl": point["tli"]} if "tli" in point else point for point in found["aps"]], _KEYS_1


def _keys_of(
    points: Sequence[JsonObject], known: Mapping[str, tuple[str, str]], source: str
) -> dict[str, tuple[str, str]]:
    """Return those of *known* that *points* have: each of them, or none."""
    keys = {}
    for name, pair in known.items():
        count = sum(pair[0] in point and pair[1] in point for point in points)
        if 0 < count < len(points):
            lacking = f"{len(points) - count} of the {len(points)} records of {printable(source)}"
            raise InputError(
                f"{lacking} lack '{pair[0]}' or '{pair[1]}'",
                slug="json-damaged",
                hint="DHAT writes all counts of each record: was the file edited?",
            )
        if count or not points:
            keys[name] = pair
    return keys


def _stack(point: JsonObject, keys: Optional[tuple[str, str]], own: Sequence[bool], source: str) -> Stack:
    """Return the path of *point* with its numbers of these *keys*; without, it counts itself."""
    size, blocks = (int(point[key]) for key in keys) if keys is not None else (1, 1)
    path = tuple(point["fs"])
    check_path(path, len(own), source)
    if len(path) > 1 and own[path[0]]:
        path = path[1:]
    return Stack(path, check_count(size, source), check_count(blocks, source))


def _frame(text: str) -> Frame:
    match = _FRAME.fullmatch(text)
    assert match is not None  # the last branch takes anything
    address, function, place, file, line, alone = match.groups()
    # Nameless calls are distinguished by their addresses, which under valgrind are the same in each run.
    name = address if (alone or function) == "???" else alone or function
    if place is not None:
        return Frame(name, object=None if place == "???" else place)
    return Frame(name) if file is None else Frame(None if name == address else name, file, int(line))
