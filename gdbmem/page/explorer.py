"""The part of a page made by a script, a call graph and a table of one profile, and the pictures without scripts."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.model.calltree import PRUNED, Frame, Frames
from gdbmem.model.diff import Diff
from gdbmem.page.pictures import Layer, stack, zoomable_stack
from gdbmem.profiles.diff import may_be_many
from gdbmem.profiles.own_code import (
    OWN,
    describe_site,
    full_function,
    function_name,
    has_place_only,
    unlisted_site,
)
from gdbmem.profiles.paths import (
    PathTree,
    Query,
    allocator_frames,
    has_alloc_in_name,
    matches,
    named_wrappers,
    nameless_frames,
    ranks_of,
    smallest_tree,
    thread_frames,
)
from gdbmem.profiles.ranking import KNOWN, LISTED, UNMATCHED, GroupedPaths, grouped, rank
from gdbmem.profiles.tree_from_main import LargePaths, large_paths
from gdbmem.text import format_size, printable

# The profile for a page's script: the paths of a diff as columns, compressed for the browser.


_LONGEST_NAME = 2000  # characters; foreign names may have 100,000
_NOT_LISTED, _ACCEPTED = -1, -2  # in place of a site's frame


def packed(
    diff: Diff,
    query: Query,
    *,
    shown: Optional[tuple[int, int]] = None,
    named: Optional[tuple[int, int]] = None,
    has_all: bool = True,
) -> str:
    """Return *diff* in the form of the page: base64 of gzip of the JSON that ``web/profile.js`` reads.

    A diff against nothing is one snapshot. *shown* are the numbers of the snapshots compared initially, with -1 as
    the first for none; by default the first and the last, or the only one by itself. *named* are those whose wrappers
    *query* has, if any. Unless *diff* *has_all* paths, these wrappers hold for any two snapshots.
    """
    return pack(profile_data(diff, query, shown=shown, named=named, has_all=has_all))


def pack(document: Mapping[str, object]) -> str:
    """Return *document* in the form of a page: base64 of gzip of JSON, which ``web/unpacking.js`` reads."""
    text = json.dumps(document, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 4, mtime=0)).decode()


def profile_data(
    diff: Diff,
    query: Query,
    *,
    shown: Optional[tuple[int, int]] = None,
    named: Optional[tuple[int, int]] = None,
    has_all: bool = True,
) -> dict[str, object]:
    """Return *diff* as ``Written`` of ``web/profile.js``."""
    paths = grouped(diff, Query(mine=query.mine, known=query.known, wrappers=query.wrappers, by="line"))
    ends = list(paths.holders())
    if any(one.sites for one in diff.side_sites):  # sites are those of the nodes as they are
        tree = PathTree(diff.parent, diff.frame, ends, outermost_first=False)
    else:
        tree = smallest_tree(*_without_threads(diff, ends))
    snapshots = _snapshots(diff, ends)
    strings: dict[str, int] = {}
    fates = [paths.fate(end) if paths.walk.marks else LISTED for end in ends]
    site = paths.walk.site
    return {
        "unit": diff.unit,
        "relative": diff.is_relative,
        "frames": _frames(Frames.of(diff.frames), paths.walk.ranks, strings),
        "strings": list(strings),
        "outermost_first": tree.outermost_first,
        "parent": [node - parent if node else 0 for node, parent in enumerate(tree.parent)],
        "frame": list(tree.frame),
        "ends": [end - former for end, former in zip(tree.ends, [0, *tree.ends])],
        "site": [_site(diff, site[end], fate) for end, fate in zip(ends, fates)],
        "snapshots": snapshots,
        "threads": _threads(diff, ends),
        "shown": list(shown or (0 if len(snapshots) > 1 else -1, len(snapshots) - 1)),
        "doubt": _doubt(diff, paths, ends),
        "hides": diff.hides_paths,
        "hiding": _uncertainty(diff, ends, site) if diff.side_sites else None,
        "naming": _wrapper_names(diff, query, named) if has_all and len(snapshots) > 1 else None,
    }


def _without_threads(diff: Diff, ends: Sequence[int]) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Return parents, frames and *ends* of the paths of *diff* without the threads that they begin with."""
    threads = set(thread_frames(diff))
    if not threads:
        return diff.parent, diff.frame, ends
    nodes: dict[tuple[int, int], int] = {(-1, diff.frame[0]): 0}  # by parent and frame
    place = [0]  # of each node of the diff
    for above, frame in zip(diff.parent[1:], diff.frame[1:]):
        parent = place[above]
        place.append(parent if frame in threads else nodes.setdefault((parent, frame), len(nodes)))
    parents, frames = zip(*nodes)
    return parents, frames, [place[end] for end in ends]


def _threads(diff: Diff, ends: Sequence[int]) -> Optional[dict[str, object]]:
    """Return the threads of *diff*, the largest first, and that of each path (-1: several); None unless it has two."""
    threads = thread_frames(diff)
    if not threads:
        return None
    of_node = [-1]
    for above, frame in zip(diff.parent[1:], diff.frame[1:]):
        of_node.append(of_node[above] if above else frame)
    sizes: Counter[int] = Counter(dict.fromkeys(threads, 0))
    own = diff.own_after
    for end in ends:
        sizes[of_node[end]] += own[end]
    order = sorted(threads, key=lambda frame: -sizes[frame])
    number_of = {frame: number for number, frame in enumerate(order)}
    names = [printable(_cut(diff.frames[frame].function or "")) for frame in order]
    of = [number_of.get(of_node[end], -1) for end in ends]
    return {"names": names, "of": of} if len(set(of)) > 1 else None


def _wrapper_names(diff: Diff, query: Query, named: Optional[tuple[int, int]]) -> dict[str, object]:
    """Return the data for the wrappers, and with these the names, of any snapshot or two."""
    frames = Frames.of(diff.frames)
    functions: dict[Optional[str], int] = {None: -1}
    for function in frames.functions:
        functions.setdefault(function, len(functions) - 1)
    mine = query.mine
    return {
        "rank": list(ranks_of(diff)),
        "functions": [functions[function] for function in frames.functions],
        "mine": [n for n, frame in enumerate(diff.frames) if matches(mine, frame)] if mine else [],
        "allocators": sorted(allocator_frames(diff)),
        "nameless": sorted(nameless_frames(diff)),
        "wrappers": sorted(functions[function] for function in named_wrappers(diff)),
        "named": sorted(
            number for function, number in functions.items() if function and has_alloc_in_name(function)
        ),
        "known": named,
    }


def _uncertainty(diff: Diff, ends: Sequence[int], site: Sequence[int]) -> dict[str, object]:
    """Return the data for the uncertainty of the difference of any two snapshots."""
    numbers: dict[tuple[int, int], int] = {}  # of frames and the addresses of their calls
    sides = []
    recordings = list(dict.fromkeys(one.recording for one in diff.side_sites))
    for one in diff.side_sites:
        addresses = None
        if one.addresses is not None:
            both = ((frame, at) for frame, found in enumerate(one.addresses) for at in sorted(found))
            held = sorted(numbers.setdefault(pair, len(numbers)) for pair in both)
            addresses = [number - former for number, former in zip(held, [0, *held])]
        sides.append(
            {
                "sites": list(one.sites),
                "addresses": addresses,
                "threshold": one.threshold_bytes,
                "cut": one.is_cut,
                "variance": None if one.variance is None else [one.variance[end] for end in ends],
                "recording": recordings.index(one.recording) if one.recording else -1,
            }
        )
    frames = Frames.of(diff.frames)
    rows = enumerate(zip(frames.functions, frames.files))
    return {
        "sides": sides,
        "address_frames": [frame for frame, _ in numbers],
        "inlined": [number for number, inlined in enumerate(frames.inlined) if inlined],
        "unknown": [number for number, (function, file) in rows if function is None and file is None],
        "many": [number for number, frame in enumerate(frames) if may_be_many(frame)],
        "unsited": [at for at, end in enumerate(ends) if diff.frame[end] == PRUNED and not site[end]],
    }


def _site(diff: Diff, node: int, fate: int) -> int:
    if fate in (KNOWN, UNMATCHED):
        return _ACCEPTED
    return diff.frame[node] if node and diff.frame[node] >= 0 else _NOT_LISTED


def _snapshots(diff: Diff, ends: Sequence[int]) -> list[dict[str, object]]:
    own = diff.own_course or [diff.own_before, diff.own_after]
    sides = list(diff.sides)[-len(own) :]
    blocks: list[Optional[Sequence[int]]] = [None] * len(own)
    if diff.before_blocks is not None and diff.after_blocks is not None:
        blocks[0], blocks[-1] = diff.own(diff.before_blocks), diff.own(diff.after_blocks)
    if not diff.course and not any(diff.before):
        own, sides, blocks = own[1:], sides[1:], blocks[1:]
    return [
        {
            "name": printable(side.name),
            "total": side.total_bytes,
            "bytes": [column[end] for end in ends],
            "blocks": counts and [counts[end] for end in ends],
        }
        for side, column, counts in zip(sides, own, blocks)
    ]


def _frames(frames: Frames, ranks: Sequence[int], strings: dict[str, int]) -> dict[str, list[int]]:
    names: dict[Optional[str], tuple[int, int]] = {}

    def number(text: str) -> int:
        return strings.setdefault(_cut(text), len(strings))

    def names_of(function: Optional[str]) -> tuple[int, int]:
        if function is not None and function.isascii() and function.isidentifier():
            return number(function), -1  # most names of a C program, and of the largest files
        if function not in names:
            frame = Frame(function)
            short, full = function_name(frame), full_function(frame)
            names[function] = number(short), -1 if short == full else number(full)
        return names[function]

    both = [
        names_of(function_name(frames[at]) if function is None and has_place_only(frames[at]) else function)
        for at, function in enumerate(frames.functions)
    ]
    places: dict[Optional[str], int] = {None: -1}
    for text in dict.fromkeys([*frames.files, *frames.objects]):  # in an order that is the same each time
        if text is not None:
            places[text] = number(printable(text))
    return {
        "name": [name for name, _ in both],
        "full": [full for _, full in both],
        "file": [places[text] for text in frames.files],
        "line": list(frames.lines),
        "object": [places[text] for text in frames.objects],
        "own": [int(rank == OWN) for rank in ranks],
    }


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


def _doubt(diff: Diff, paths: GroupedPaths, ends: Sequence[int]) -> Optional[dict[str, object]]:
    origin, most, unlisted_bytes = paths.walk.origin, paths.walk.most_hidden, paths.unlisted_bytes
    is_estimate = diff.variance is not None or diff.path_variance is not None
    if not origin and not is_estimate and not unlisted_bytes:
        return None
    bounds = [diff.uncertain[end] for end in ends] if origin else [0] * len(ends)
    numbers: dict[int, int] = {}
    origins = [
        numbers.setdefault(origin[end], len(numbers)) if bound else -1 for end, bound in zip(ends, bounds)
    ]
    return {
        "bound": bounds,
        "origin": origins,
        "most": [most.get(node, 0) for node in numbers],
        "elsewhere": unlisted_bytes,
        "variance": paths.variances() if is_estimate else None,
    }


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
_DROPPED = re.compile(
    r"^(?:import [^\n]*\n|export | *(?:/\*\*[^*]*(?:\*(?!/)[^*]*)*\*/|//[^\n]*)\n)", re.MULTILINE
)
_LAYERS = 8


class Explored(NamedTuple):
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
    query = asked._replace(wrappers=rank(diff if like is None else like, asked).wrappers)
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
    layers = [
        Layer(unlisted_site(row) if row.site is None else describe_site(row.site), row.amount.course)
        for row in rows
    ]
    rest = [column[0] - sum(layer.sizes[at] for layer in layers) for at, column in enumerate(diff.course)]
    return [*layers, Layer("all others", rest)] if any(rest) else layers


def script() -> str:
    """Return the page's script: modules of ``web/`` as one."""
    return _joined(_SCRIPTS, "start")


def timeline_script() -> str:
    """Return the script that zooms pictures over time."""
    return _joined(_TIMELINE, "startTimelines")


def reload_script() -> str:
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
