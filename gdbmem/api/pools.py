"""Pools of best-fit allocators in a process, a core, or a file that a program with such a pool wrote."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Optional, Union

from gdbmem.errors import UsageError
from gdbmem.formats.spooling import location
from gdbmem.inspection.pool_files import is_pool_file, read_pool_file
from gdbmem.inspection.pools import Pools, follow_pools, read_core_pools
from gdbmem.inspection.pools import read_pools as read_process_pools
from gdbmem.model.bfc import PYTORCH, Allocator, Decision
from gdbmem.pools.changes import compare_pools
from gdbmem.pools.decision import Request, decide
from gdbmem.pools.explanation import with_advice
from gdbmem.pools.replay import WhatIf, replay
from gdbmem.pools.text import PoolView
from gdbmem.pools.torch import decide_torch
from gdbmem.text import printable

if TYPE_CHECKING:
    import argparse


__all__ = [
    "Allocator",
    "Decision",
    "Pools",
    "Request",
    "WhatIf",
    "answer",
    "answer_failed",
    "compare_pools",
    "follow_pools",
    "read_pools",
    "replay",
]

Operand = Union[str, int, "os.PathLike[str]"]


def read_pools(
    operand: Operand, program: Optional[Path] = None, progress: Callable[[str], None] = lambda _: None
) -> Pools:
    """Return the pools of *operand*: a log, a memory dump, a snapshot, a run, a core, or a process id.

    An existing file takes precedence. The process stops for milliseconds, longer only after *progress*; *program* is
    the program's file, if it has moved. Raises UsageError, InputError or TargetError if there are no pools.
    """
    text = os.fspath(operand) if not isinstance(operand, int) else str(operand)
    if not isinstance(operand, int) and location(text).exists():
        if program is None and is_pool_file(text):
            return read_pool_file(text)
        return read_core_pools(Path(text), program)
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(f"{printable(text)} is neither a file nor a process id", hint="'ps' lists processes")
    if program is not None:
        raise UsageError("a program can be given with a core only", hint="gdbmem bfc CORE PROGRAM")
    return read_process_pools(int(text), progress)


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


# The questions that `gdbmem bfc` and gdb's membfc take as options, and their answers.


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
