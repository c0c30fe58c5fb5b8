"""The result of `gdbmem bfc` and membfc as text, as JSON (kind=bfc), and as a picture; the outcome of a request."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Callable, Optional, TextIO

from gdbmem.errors import Notice, UsageError
from gdbmem.json_values import as_json
from gdbmem.model.bfc import FREE, IN_USE, PENDING, PYTORCH, STATES, TAGS, Allocator, Decision, Region
from gdbmem.pools.decision import Request, decide
from gdbmem.pools.explanation import decision_sentence, headline, pool_name, with_advice
from gdbmem.pools.replay import WhatIf, replay
from gdbmem.pools.text import PoolView, print_pools
from gdbmem.pools.torch import decide_torch
from gdbmem.terminal.charting import Attribute, Swatch, box, drawing, key_in_rows, text
from gdbmem.terminal.console import Console, picture_kind, print_notices
from gdbmem.terminal.document import Document, head, to_json
from gdbmem.text import format_size, plural, printable

# A pool as a picture (SVG): regions as rows of chunks, and a refused request drawn to scale against the holes.


_WIDTH, _ROW, _GAP = 1000, 22, 22
_MOST_REGIONS = 200  # of an allocator, the largest ones
_FINEST = 0.5  # pixels: smaller chunks are drawn together
_COLORS = {IN_USE: "#2f6fb7", FREE: "#4ca65b", PENDING: "#e0a13a"}
_NAMES = {IN_USE: "in use", FREE: "free", PENDING: "freed, not yet usable"}
_MIXED, _IN_THE_WAY, _REQUEST = "#7f9aa0", "#c0392b", "#8e44ad"
_LONGEST_TITLE = 160


def render_pools(allocators: Sequence[Allocator], decisions: Sequence[Optional[Decision]], kind: str) -> str:
    """Return the picture of *allocators*: as SVG, or as a page with it if *kind* is "html"."""
    drawn = _draw(allocators, decisions)
    if kind == "svg":
        return drawn
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Pools of memory</title>'
        "<style>body{margin:1em;background:#fff}svg{width:100%;height:auto}</style></head>"
        f"<body>{drawn}</body></html>\n"
    )


def _draw(allocators: Sequence[Allocator], decisions: Sequence[Optional[Decision]]) -> str:
    names = [
        *((_NAMES[state], _COLORS[state]) for state in (IN_USE, FREE, PENDING)),
        ("several small chunks", _MIXED),
        ("in the way of the request", _IN_THE_WAY),
        ("the request", _REQUEST),
    ]
    parts, _ = key_in_rows(names, (0, 8), _WIDTH, Swatch(10, 10, 15, 10))
    top = 34
    for allocator, decision in zip_longest(allocators, decisions):
        top = _map_allocator(allocator, decision, parts, top)
    return drawing((_WIDTH + 20, top + 10), parts, left=-10, fill="#222") + "\n"


def _map_allocator(allocator: Allocator, decision: Optional[Decision], parts: list[str], top: int) -> int:
    for number, line in enumerate(_broken(f"{pool_name(allocator)}: {headline(allocator, decision)}")):
        parts.append(text(0, top + 14 + 16 * number, line, font_weight=None if number else "bold"))
        last = top + 14 + 16 * number
    top = last + 14
    regions = sorted(allocator.regions, key=lambda region: -region.size_bytes)[:_MOST_REGIONS]
    largest = max([region.size_bytes for region in regions], default=0)
    if decision is not None:
        largest = max(largest, decision.rounded_bytes)
    if not largest:
        return top + 10
    scale = _WIDTH / largest
    if decision is not None:
        width = max(1.0, decision.rounded_bytes * scale)
        label = f"the request of {format_size(decision.request_bytes)}"
        asked = decision.request_bytes
        parts.append(_rect(0, top, width, _REQUEST, label, asked))
        parts.append(text(4, top + 15, label, fill="#fff", data_value=asked))
        top += _ROW + 8
    in_the_way = frozenset(decision.obstacle.in_use if decision is not None and decision.obstacle else ())
    for region in sorted(regions, key=lambda region: region.address):
        parts.append(text(0, top + 12, _caption(region), font_size=11, data_value=region.size_bytes))
        top += 16
        parts.extend(_chunks(allocator, region, scale, top, in_the_way))
        top += _GAP + 6
    left_out = len(allocator.regions) - len(regions)
    if left_out:
        parts.append(text(0, top + 12, f"and {plural(left_out, 'smaller region')}"))
        top += 18
    return top + 14


def _caption(region: Region) -> str:
    label = f", {printable(region.label)}" if region.label else ""
    return f"0x{region.address:x}, {format_size(region.size_bytes)}{label}"


def _chunks(
    allocator: Allocator, region: Region, scale: float, top: int, in_the_way: frozenset[int]
) -> Iterator[str]:
    """Yield the rectangles of *region*; adjacent ones that are too small to see are joined."""
    chunks = allocator.chunks
    if not region.count:
        width = region.size_bytes * scale
        yield _rect(0, top, width, "#dddddd", "its chunks are not known", region.size_bytes)
        return
    held: list[int] = []
    begin = at = 0.0
    for index in region.indices:
        width = chunks.size[index] * scale
        if held and (width >= _FINEST or at - begin >= _FINEST or index in in_the_way):
            yield _several(allocator, held, begin, at, top)
            held, begin = [], at
        at += width
        if width >= _FINEST or index in in_the_way:
            color = _IN_THE_WAY if index in in_the_way else _COLORS[chunks.state[index]]
            width = max(width, _FINEST)
            yield _rect(begin, top, width, color, _title(allocator, index), chunks.size[index])
            begin = at
        else:
            held.append(index)
    if held:
        yield _several(allocator, held, begin, at, top)


def _several(allocator: Allocator, held: Sequence[int], begin: float, end: float, top: int) -> str:
    states = {allocator.chunks.state[index] for index in held}
    color = _COLORS[states.pop()] if len(states) == 1 else _MIXED
    size = sum(allocator.chunks.size[index] for index in held)
    title = f"{plural(len(held), 'chunk')}, {format_size(size)}"
    return _rect(begin, top, max(end - begin, _FINEST), color, title, size)


def _title(allocator: Allocator, index: int) -> str:
    chunks = allocator.chunks
    asked = chunks.requested_of(index)
    parts = [f"0x{chunks.address[index]:x}", format_size(chunks.size[index]), _NAMES[chunks.state[index]]]
    parts += [f"{format_size(asked)} asked for"] if asked is not None else []
    parts += [printable(chunks.owner_of(index))[:_LONGEST_TITLE]] if chunks.owner_of(index) else []
    return ", ".join(parts)


def _rect(x: float, y: float, width: float, color: str, tip: str, value: int) -> str:
    edge: dict[str, Attribute] = {"stroke": "#fff", "stroke_width": 0.5} if width > 3 else {}
    return box(x, y, width, _ROW, color, tip=tip, data_value=value, **edge)


def _broken(words: str) -> Sequence[str]:
    import textwrap  # not always needed

    return textwrap.wrap(words, 150) or [""]


# Pools as JSON, ``kind=bfc``.


def pools_json(
    allocators: Sequence[Allocator],
    decisions: Sequence[Optional[Decision]] = (),
    notices: Sequence[Notice] = (),
    *,
    pause_seconds: Optional[float] = None,
) -> str:
    """Return the text of pools_document()."""
    return to_json(pools_document(allocators, decisions, notices, pause_seconds=pause_seconds))


def pools_document(
    allocators: Sequence[Allocator],
    decisions: Sequence[Optional[Decision]],
    notices: Sequence[Notice] = (),
    *,
    pause_seconds: Optional[float] = None,
) -> Document:
    """Return *allocators* as ``kind=bfc``, with the outcome of the request in each; the first's also at the top."""
    each = list(zip_longest(allocators, decisions))
    every = [*notices, *(notice for allocator in allocators for notice in allocator.notices)]
    first = next(((a, d) for a, d in each if d is not None), None)
    return {
        **head("bfc", every),
        "answer": headline(*each[0]) if each else None,
        "pause_seconds": pause_seconds,
        "allocators": [_allocator(*pair) for pair in each],
        "request": None if first is None else decision_document(*first),
    }


def _allocator(allocator: Allocator, decision: Optional[Decision]) -> Document:
    return {
        **as_json(allocator, "name", "class_name", "kind", "address", "source", "layout", "limit_bytes"),
        **sums(allocator, "pool_bytes", "in_use_bytes", "requested_bytes"),
        "reserved_bytes": allocator.counters.reserved_bytes,
        **sums(allocator, "pending_bytes", "free_bytes", "free_count", "in_use_count", "largest_free_bytes"),
        **as_json(allocator, "available_bytes"),
        **sums(allocator, "fragmentation"),
        **as_json(allocator, "options", "counters", "is_locked", "is_complete", "regions_known"),
        **as_json(allocator, "bar", "asked_bytes", "asked_by"),
        "regions": [_region(allocator, region) for region in allocator.regions],
        "bins": [as_json(one) for one in allocator.bins()],
        **as_json(allocator, "violations"),
        "request": None if decision is None else decision_document(allocator, decision),
    }


def sums(allocator: Allocator, *names: str) -> Document:
    """Return *names* of *allocator*; where chunks are missing, what the allocator counts itself, or null."""
    found = as_json(allocator, *names)
    if allocator.is_complete:
        return found
    return {key: getattr(allocator.counters, key, None) for key in found}


def _region(allocator: Allocator, region: Region) -> Document:
    return {
        **as_json(region, "address", "size_bytes"),
        **({"label": region.label} if region.label else {}),
        "chunks": [chunk_document(allocator, index) for index in region.indices],
    }


def chunk_document(allocator: Allocator, index: int) -> Document:
    """Return one chunk; values that its source doesn't have are absent or null."""
    chunks = allocator.chunks
    state = chunks.state[index]
    found: Document = {
        "address": chunks.address[index],
        "size_bytes": chunks.size[index],
        "requested_bytes": chunks.requested_of(index),
        "in_use": state == IN_USE,
    }
    if chunks.allocation_id is not None and state == IN_USE:
        found["id"] = chunks.allocation_id[index]
    if state not in (FREE, IN_USE):
        found["state"] = STATES[state]
    if chunks.owner_of(index):
        found["owner"] = chunks.owner_of(index)
    if chunks.tag is not None:
        found["tag"] = TAGS[chunks.tag[index]]
    for name in ("bin", "freed_at", "stream"):
        column = getattr(chunks, name)
        if column is not None and column[index] not in (0, -1):
            found[name] = column[index]
    return found


def decision_document(allocator: Allocator, decision: Decision) -> Document:
    """Return the outcome of a request."""
    obstacle = decision.obstacle
    return {
        **as_json(decision, "request_bytes", "alignment", "rounded_bytes", "outcome"),
        "fits": decision.outcome == "fits",
        "chunk": None if decision.chunk is None else chunk_document(allocator, decision.chunk),
        **as_json(
            decision, "is_split", "taken_bytes", "extends_bytes", "retries", "gives_back_bytes", "cause"
        ),
        "text": decision_sentence(allocator, decision),
        "obstacle": None
        if obstacle is None
        else {
            **as_json(obstacle, "in_use_bytes", "hole_bytes"),
            "chunks": [chunk_document(allocator, index) for index in obstacle.in_use],
        },
        **as_json(decision, "steps", "advice"),
    }


# Pools that options select, and the outcome of a request in each.


def answer(allocator: Allocator, request: Request) -> Decision:
    """Return the outcome of *request* in *allocator*, and remedies if it fails."""
    if allocator.kind == PYTORCH:
        return decide_torch(allocator, request)
    return with_advice(allocator, decide(allocator, request), request)


def answer_failed(allocator: Allocator, device_bytes: Optional[int] = None) -> Optional[Decision]:
    """Return the reason of the failed request in a log or a snapshot; None if it has none.

    *device_bytes* is all memory of the device, if known.
    """
    if allocator.asked_bytes is None:
        return None
    return answer(allocator, Request(allocator.asked_bytes, has_failed=True, device_bytes=device_bytes))


def request_of(args: argparse.Namespace) -> Optional[Request]:
    """Return the request in the options; None if there is none. Raises UsageError for one that makes no sense."""
    if args.align is not None and (args.align < 1 or args.align & (args.align - 1)):
        raise UsageError("--align takes a power of two", hint="as in --align 4096")
    if args.request is None:
        if args.align is not None:
            raise UsageError("--align needs --request", hint="as in --request 20MiB --align 4096")
        return None
    if args.request < 0:
        raise UsageError("--request takes a size of 0 and more", hint="as in --request 20MiB")
    return Request(args.request, args.align or 256, device_bytes=args.device_memory)


def selected(allocators: Sequence[Allocator], args: argparse.Namespace) -> list[Allocator]:
    """Return the allocators that --allocator selects. Raises UsageError if there is none."""
    found = [one for one in allocators if not args.allocator or args.allocator in one.name]
    if not found and args.allocator:
        names = ", ".join(printable(one.name) for one in allocators)
        raise UsageError(
            f"no allocator has '{printable(args.allocator)}' in its name", hint=f"there are: {names}"
        )
    return found


def decisions_in(
    allocators: Sequence[Allocator], args: argparse.Namespace
) -> tuple[list[Allocator], list[Optional[Decision]]]:
    """Return the selected allocators, under the settings of --what-if, and what becomes of the request in each.

    Without --request it is the one that failed, if one did.
    """
    found, request, device = selected(allocators, args), request_of(args), args.device_memory
    if not args.what_if:
        return found, [
            answer_failed(one, device) if request is None else answer(one, request) for one in found
        ]
    settings = WhatIf.parse(args.what_if, device)
    replayed = [replay(one, settings) for one in found]
    # A request that failed has not failed under other settings.
    requests = [request or _asked_before(one, device) for one in found]
    return replayed, [None if one is None else answer(pool, one) for pool, one in zip(replayed, requests)]


def _asked_before(allocator: Allocator, device_bytes: Optional[int]) -> Optional[Request]:
    asked_bytes = allocator.asked_bytes
    return None if asked_bytes is None else Request(asked_bytes, device_bytes=device_bytes)


def _view(args: argparse.Namespace) -> PoolView:
    listed = args.chunks or any(one is not None for one in (args.state, args.min, args.owner, args.top))
    return PoolView(
        chunks=listed,
        state=args.state or "all",
        at_least_bytes=args.min or 0,
        owner=args.owner or "",
        top=20 if args.top is None else args.top,
    )


def write_pools(
    pools: Sequence[Allocator],
    notices: Sequence[Notice],
    args: argparse.Namespace,
    console_on: Callable[[TextIO], Console],
    stream: TextIO,
    *,
    picture: Optional[TextIO] = None,
    pause_seconds: Optional[float] = None,
) -> None:
    """Write what the options *args* ask for about *pools* to *stream*, and their map to *picture*."""
    allocators, decisions = decisions_in(pools, args)
    if picture is not None:
        picture.write(render_pools(allocators, decisions, picture_kind(args.map, "--map")))
    if args.json:
        stream.write(pools_json(allocators, decisions, notices, pause_seconds=pause_seconds))
    else:
        console = console_on(stream)
        print_pools(allocators, decisions, _view(args), console)
        print_notices(notices, console)
