"""The part of a page made by a script, a call graph and a table of one profile, and the pictures without scripts."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from gdbmem.analysis.profiles.amounts import Row
from gdbmem.analysis.profiles.largest import LargePaths, large_paths
from gdbmem.analysis.profiles.query import Query
from gdbmem.analysis.profiles.ranking import rank
from gdbmem.analysis.profiles.sites import describe_site
from gdbmem.model.profiles.diff import Diff
from gdbmem.patterns import lazy_pattern
from gdbmem.records import dataclass, replace
from gdbmem.report.naming import unlisted_site
from gdbmem.report.page.pictures import Layer, stack, zoomable_stack
from gdbmem.report.page.profile_data import pack, packed
from gdbmem.units import format_size

_SCRIPTS = (
    "unpacking.js",
    "hiding.js",
    "profile.js",
    "sizes.js",
    "calls.js",
    "flame.js",
    "wrappers.js",
    "table.js",
    "explorer.js",
)
_TIMELINE = ("unpacking.js", "sizes.js", "scales.js", "timeline.js")
# What a page does not need of the modules: imports, the word `export`, and comments that begin a line.
_DROPPED = lazy_pattern(
    r"^(?:import [^\n]*\n|export | *(?:/\*\*[^*]*(?:\*(?!/)[^*]*)*\*/|//[^\n]*)\n)", re.MULTILINE
)
_LAYERS = 8


@dataclass(frozen=True)
class Explored:
    """The profile that a page's script shows, and its history."""

    profile: str  # in the form of profile_data.packed()
    stack: str = ""  # SVG; "" for one moment or two
    course: str = ""  # the same in the form of pack()
    notice: str = ""  # the paths shown as one


def explored(
    diff: Diff,
    query: Query,
    *,
    times: Sequence[float] = (),
    time_unit: str = "s",
    shown: Optional[tuple[int, int]] = None,
    like: Optional[Diff] = None,
) -> Explored:
    """Return *diff*, a diff of a series if it has a history, for the page's script.

    *times* are those of the snapshots of a series, in *time_unit*; without them no history is drawn. Lines are named
    with the wrappers of *like*, a section of the page that shows the same as *shown*.
    """
    asked = Query(mine=query.mine, known=query.known, by="line")
    query = replace(asked, wrappers=rank(diff if like is None else like, asked).wrappers)
    picture = course = ""
    if diff.course and len(times) == len(diff.course) and times[-1] > times[0]:
        names = [side.name for side in diff.sides]
        layers = _layers(diff, query)
        picture = stack(layers, times, names, time_unit)
        course = pack(zoomable_stack(layers, times, names, time_unit))
    large = large_paths(diff, asked if like is None else query)
    named = shown if like is not None else (0, 1) if len(diff.course) <= 2 else None
    packing = packed(large.diff, query, shown=shown, named=named, has_all=not large.merged)
    return Explored(packing, picture, course, _notice(large))


def _notice(large: LargePaths) -> str:
    if not large.merged:
        return ""
    size = format_size(large.largest_bytes)
    return f"the graph and its table show the {large.merged:,} smallest paths, each of at most {size}, as one"


def _layers(diff: Diff, query: Query) -> list[Layer]:
    ranking = rank(diff, Query(mine=query.mine, wrappers=query.wrappers, by="line", unchanged=True))
    rows = sorted(ranking.rows, key=lambda row: -max(row.amount.course))[:_LAYERS]
    layers = [Layer(_name(row), row.amount.course) for row in rows]
    rest = [column[0] - sum(layer.sizes[at] for layer in layers) for at, column in enumerate(diff.course)]
    return [*layers, Layer("all others", rest)] if any(rest) else layers


def _name(row: Row) -> str:
    return unlisted_site(row) if row.site is None else describe_site(row.site)


def script() -> str:
    """Return the page's script: modules of ``web/`` as one."""
    return _joined(_SCRIPTS, "start")


def timeline_script() -> str:
    """Return the script that zooms pictures over time."""
    return _joined(_TIMELINE, "startTimelines")


def following() -> str:
    """Return the script by which a served page loads newer versions."""
    return _joined(("follow.js",), "follow")


def _joined(names: Sequence[str], begin: str) -> str:
    folder = Path(__file__).parent / "web"
    parts = [(folder / name).read_text(encoding="utf-8") for name in names]
    text = _DROPPED.sub("", "".join(parts))
    return f'(() => {{\n"use strict";\n{text}{begin}();\n}})();\n'


def digest(text: str) -> str:
    """Return the hash source by which a content security policy allows exactly *text*."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
