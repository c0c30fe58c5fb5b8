"""Pointers that keep a block alive, found by memcheck, named by gdb, followed to a place outside the heap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional

import gdb

from gdbmem.debugger.gdb_text import symbol_at
from gdbmem.debugger.launched.valgrind_monitor import monitor_text
from gdbmem.debugger.selection import selection_kept
from gdbmem.debugger.terminal import console_on
from gdbmem.engines import memcheck
from gdbmem.errors import TargetError
from gdbmem.formats.valgrind.memcheck_answers import AddressOwner, MemcheckPointer, read_place, read_pointers
from gdbmem.model.leaks import Block, BlockHolders, Holder
from gdbmem.report.leaks.holders import holding_json, print_holding
from gdbmem.report.output import open_output
from gdbmem.text import printable

if TYPE_CHECKING:
    import argparse

_LAST_FRAME_BYTES = 1 << 20
_LOOKED_AT = 200  # blocks at most: each is a search through all memory


def show_holders(args: argparse.Namespace) -> None:
    """Print the holders of the block at the address in *args*."""
    with open_output(args.output, force=args.force) as stream:
        found = find_holding(_address(args.holder))
        if args.json:
            stream.write(holding_json(found))
        else:
            print_holding(found, console_on(stream))


def _address(text: str) -> int:
    value = gdb.parse_and_eval(text)
    try:
        return int(value)
    except (gdb.error, TypeError, ValueError):
        raise TargetError(
            f"'{printable(text)}' is not an address",
            slug="no-address",
            hint="give a pointer of the program's, or a number: memleaks --holder 'node->next'",
        ) from None


def find_holding(address: int) -> BlockHolders:
    """Return the holders of the block that contains *address*; raises TargetError if there is none."""
    place = read_place(monitor_text(memcheck.location_command(address)))
    if place is None or place.block is None:
        said = f": it {place.text}" if place is not None else ""
        raise TargetError(
            f"{address:#x} is in no live block of the heap{printable(said)}",
            slug="no-live-block",
            hint="'memleaks --blocks N' lists the addresses of lost blocks",
        )
    direct: list[Holder] = []
    came: dict[int, Optional[tuple[Holder, int]]] = {place.block.address: None}
    queue = [place.block]
    while queue and len(came) <= _LOOKED_AT:
        block = queue.pop(0)
        for holder in _holders(block):
            if block is place.block:
                direct.append(holder)
            if holder.block is None:
                return BlockHolders(
                    place.block, place.frames, direct or [holder], _chain(holder, block.address, came)
                )
            if holder.block.address not in came:
                came[holder.block.address] = holder, block.address
                queue.append(holder.block)
    return BlockHolders(place.block, place.frames, direct, (), is_whole=not queue)


def _chain(root: Holder, at: int, came: dict[int, Optional[tuple[Holder, int]]]) -> list[Holder]:
    """Return the holders from the queried block to *root*, which points into the block *at*."""
    chain = [root]
    while (step := came[at]) is not None:
        holder, at = step
        chain.append(holder)
    chain.reverse()
    return chain


def _holders(block: Block) -> list[Holder]:
    """Return the places that point into *block*, those outside the heap first."""
    pointers = read_pointers(monitor_text(memcheck.pointers_command(block.address, max(block.bytes, 1))))
    found = [_named(pointer) for pointer in pointers]
    return sorted(found, key=lambda holder: (holder.block is not None, holder.inside_bytes))


def _named(pointer: MemcheckPointer) -> Holder:
    place = pointer.place
    if place is None:
        text = f"register {pointer.register.lower()} of thread {pointer.thread}"
        return Holder("register", None, pointer.inside_bytes, text, pointer.thread)
    if place.block is not None:
        return Holder(
            "block", place.address, pointer.inside_bytes, place.text, block=place.block, frames=place.frames
        )
    local = _local(place.address)
    if local is not None:
        text, thread = local
        return Holder("local", place.address, pointer.inside_bytes, text, thread)
    name = symbol_at(place.address)
    if name:
        return Holder("global", place.address, pointer.inside_bytes, name)
    return Holder("other", place.address, pointer.inside_bytes, _plain(place))


def _plain(place: AddressOwner) -> str:
    return f"memory that {place.text}" if place.text else "memory unknown to memcheck"


def _local(address: int) -> Optional[tuple[str, int]]:
    """Return the variable at *address*, with its frame and thread; None if there is none."""
    with selection_kept():
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            holding = _frame_around(address)
            if holding is not None:
                level, holder = holding
                name = _variable(holder, address)
                what = f"'{name}'" if name else "a place on the stack"
                return f"{what} in frame #{level}, {holder.name() or '???'}", thread.num
    return None


def _frame_around(address: int) -> Optional[tuple[int, gdb.Frame]]:
    level, frame = 0, gdb.newest_frame()
    try:
        if address < int(frame.read_register("sp")):
            return None
        while (older := frame.older()) is not None:
            # An inlined function shares the frame of its caller, which is searched for the variables of both.
            if frame.type() != gdb.INLINE_FRAME and address < int(older.read_register("sp")):
                break
            level, frame = level + 1, older
    except gdb.error:
        return None
    # gdb's unwinding ends at main, and at a thread's start: beyond that is another thread, or the kernel's data.
    return (level, frame) if address < int(frame.read_register("sp")) + _LAST_FRAME_BYTES else None


def _variable(frame: gdb.Frame, address: int) -> str:
    for symbol, block in _variables(frame):
        try:
            value = frame.read_var(symbol, block)
            at = int(value.address) if value.address is not None else None
        except (gdb.error, RuntimeError):
            continue
        if at is not None and at <= address < at + int(value.type.sizeof):
            return str(symbol.name)
    return ""


def _variables(frame: gdb.Frame) -> Iterator[tuple[Any, Any]]:
    try:
        block = frame.block()
    except RuntimeError:  # no debug information
        return
    while block is not None and not block.is_static and not block.is_global:
        for symbol in block:
            if symbol.is_variable or symbol.is_argument:
                yield symbol, block
        if block.function is not None:
            return
        block = block.superblock
