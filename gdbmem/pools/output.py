"""Writing the result of `gdbmem bfc` and membfc: pools that options select, and the outcome of a request in each."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Callable, Optional, TextIO

from gdbmem.errors import Notice, UsageError
from gdbmem.model.bfc import PYTORCH, Allocator, Decision
from gdbmem.pools.decision import Request, decide
from gdbmem.pools.document import pools_json
from gdbmem.pools.explanation import with_advice
from gdbmem.pools.map import render_pools
from gdbmem.pools.replay import WhatIf, replay
from gdbmem.pools.text import PoolView, print_pools
from gdbmem.pools.torch import decide_torch
from gdbmem.terminal.console import Console, picture_kind, print_notices
from gdbmem.text import printable


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
