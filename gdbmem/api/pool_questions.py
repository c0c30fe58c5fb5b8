"""The questions that `gdbmem bfc` and gdb's membfc take as options, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from gdbmem.api.pools import Request, WhatIf, answer, answer_failed, replay
from gdbmem.arguments import ArgumentParser, value
from gdbmem.errors import UsageError
from gdbmem.report.bfc.bfc_text import PoolView
from gdbmem.text import printable
from gdbmem.units import parse_size

if TYPE_CHECKING:
    import argparse

    from gdbmem.api.pools import Allocator, Decision


def add_pool_options(parser: ArgumentParser) -> None:
    """Add the options of `gdbmem bfc` and membfc: the questions to a pool, and the selection of its chunks."""
    size = value(parse_size, "size")
    parser.add_argument("--allocator", metavar="NAME", help="only allocators whose name contains NAME")
    parser.add_argument(
        "--request", metavar="SIZE", type=size, help="the outcome of a request of SIZE, with the reason"
    )
    parser.add_argument("--align", metavar="N", type=int, help="… aligned to N bytes (default 256)")
    parser.add_argument(
        "--what-if",
        metavar="SETTING",
        action="append",
        help="simulate allow_growth=on, allow_growth=off, limit=SIZE or fraction=F (may be repeated)",
    )
    parser.add_argument(
        "--device-memory",
        metavar="SIZE",
        type=size,
        help="total memory of the device, to which fraction=F refers",
    )
    parser.add_argument("--chunks", action="store_true", help="list chunks")
    parser.add_argument("--state", choices=("all", "free", "used"), help="… only free or only used ones")
    parser.add_argument("--min", metavar="SIZE", type=size, help="… only those of at least SIZE")
    parser.add_argument("--owner", metavar="TEXT", help="… only those whose owner's name contains TEXT")
    parser.add_argument("--top", metavar="N", type=int, help="… at most N (default 20)")


def asked(args: argparse.Namespace) -> Optional[Request]:
    """Return the request in the options; None if there is none."""
    if args.align is not None and (args.align < 1 or args.align & (args.align - 1)):
        raise UsageError("--align takes a power of two", hint="as in --align 4096")
    if args.request is None:
        if args.align is not None:
            raise UsageError("--align needs --request", hint="as in --request 20MiB --align 4096")
        return None
    if args.request < 0:
        raise UsageError("--request takes a size of 0 and more", hint="as in --request 20MiB")
    return Request(args.request, args.align or 256, device_bytes=args.device_memory)


def chosen(allocators: Sequence[Allocator], args: argparse.Namespace) -> list[Allocator]:
    """Return the selected allocators."""
    found = [one for one in allocators if not args.allocator or args.allocator in one.name]
    if not found and args.allocator:
        names = ", ".join(printable(one.name) for one in allocators)
        raise UsageError(
            f"no allocator has '{printable(args.allocator)}' in its name", hint=f"there are: {names}"
        )
    return found


def answered(
    allocators: Sequence[Allocator], args: argparse.Namespace
) -> tuple[list[Allocator], list[Optional[Decision]]]:
    """Return the selected allocators, under the settings of --what-if, and what becomes of the request in each.

    Without --request it is the one that failed, if one did.
    """
    found, request, device = chosen(allocators, args), asked(args), args.device_memory
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


def view(args: argparse.Namespace) -> PoolView:
    listed = args.chunks or any(one is not None for one in (args.state, args.min, args.owner, args.top))
    return PoolView(
        chunks=listed,
        state=args.state or "all",
        at_least_bytes=args.min or 0,
        owner=args.owner or "",
        top=20 if args.top is None else args.top,
    )
