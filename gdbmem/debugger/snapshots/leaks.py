"""memleaks: unreachable memory, its blocks, and the holders of a block."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Optional

import gdb

from gdbmem.debugger.command import Command, warn
from gdbmem.debugger.location import frame_variables, memory_address, real_pid
from gdbmem.debugger.program import register, selection_kept
from gdbmem.debugger.session import monitor, monitor_text, require_program, session
from gdbmem.debugger.snapshots.snapshots import Captured, not_written, refuse_killed
from gdbmem.debugger.terminal import console_on, symbol_at
from gdbmem.engines import memcheck
from gdbmem.errors import InputError, TargetError, UsageError, sentence_of
from gdbmem.formats.opening import open_profile
from gdbmem.formats.valgrind.memcheck import (
    AddressOwner,
    MemcheckPointer,
    is_addressable,
    read_blocks,
    read_leak_search,
    read_place,
    read_pointers,
)
from gdbmem.heap import leaks
from gdbmem.linux.memory.maps import read_maps
from gdbmem.model.calltree import DEFINITELY, INDIRECTLY
from gdbmem.model.leaks import Block, BlockHolders, Holder, LeakSearch
from gdbmem.profiles.own_code import stack_sites
from gdbmem.runs.operand import leaks_file
from gdbmem.terminal.console import open_output
from gdbmem.text import format_delta, format_size, printable

# Pointers that keep a block alive, found by memcheck, named by gdb, followed to a place outside the heap.


_LAST_FRAME_BYTES = 1 << 20
_LOOKED_AT = 200  # blocks at most: each is a search through all memory


def show_holders(args: argparse.Namespace) -> None:
    """Print the holders of the block at the address in *args*."""
    with open_output(args.output, force=args.force) as stream:
        found = find_holding(_address(args.holder))
        if args.json:
            stream.write(leaks.holding_json(found))
        else:
            leaks.print_holding(found, console_on(stream))


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
    for symbol, block in frame_variables(frame):
        try:
            value = frame.read_var(symbol, block)
            at = memory_address(value)
        except (gdb.error, RuntimeError):
            continue
        if at is not None and at <= address < at + int(value.type.sizeof):
            return str(symbol.name)
    return ""


class LeaksCommand(Command):
    """Show unreachable blocks, by path."""

    def run(self, args: argparse.Namespace) -> None:
        if args.blocks is not None and args.holder is not None:
            raise UsageError("--blocks and --holder exclude each other", hint="type one after the other")
        for name in ("limit", "blocks"):
            if getattr(args, name) is not None and getattr(args, name) < 1:
                raise UsageError(f"--{name} takes a number from 1", hint="see 'help memleaks'")
        _require_memcheck()
        if args.blocks is not None:
            _blocks(args)
        elif args.holder is not None:
            show_holders(args)
        else:
            _search(args)


def _require_memcheck() -> None:
    require_program()
    engine = session.engine
    if engine == memcheck.NAME:
        return
    under = f"runs under {engine}" if engine not in ("", "none") else "does not run under memcheck"
    raise TargetError(
        f"only memcheck finds the blocks that no pointer reaches, and this program {under}",
        slug="not-memcheck",
        hint="quit gdb and type: gdbmem launch --engine memcheck PROGRAM",
    )


def _search(args: argparse.Namespace) -> None:
    with open_output(args.output, force=args.force) as stream:
        search = search_leaks()
        for notice in search.notices:
            warn(notice.sentence)
        if args.json:
            stream.write(leaks.leaks_json(search))
        else:
            leaks.print_leaks(search, console_on(stream), top=args.top)


def search_leaks() -> LeakSearch:
    """Make memcheck search for leaks; return the result, with the change since its previous search.

    Two searches: the first reports the changes, the second everything; the record numbers are those of the second.
    """
    since = session.last_leak_search
    changed, found = (_ask(changed=flag) for flag in (True, False))
    session.last_leak_search = "the last memleaks"
    return leaks.with_changes(found, changed, since=since)


def _ask(*, changed: bool) -> LeakSearch:
    said = monitor_text(memcheck.leaks_command(changed=changed)) + "\n"
    if not said.strip():  # under valgrind -q it prints no sums, and here nothing is lost
        return LeakSearch([], {})
    return read_leak_search(said.encode("utf-8", "surrogateescape"))


def _blocks(args: argparse.Namespace) -> None:
    with open_output(args.output, force=args.force) as stream:
        said = monitor_text(memcheck.blocks_command(args.blocks, args.limit))
        blocks = read_blocks(said)
        if not blocks:
            raise TargetError(
                f"there is no loss record {args.blocks} in memcheck's last leak search",
                slug="no-loss-record",
                hint="'memleaks' searches again, and lists the records by number",
            )
        if args.json:
            stream.write(leaks.blocks_json(args.blocks, blocks, is_whole=len(blocks) < args.limit))
        else:
            leaks.print_blocks(args.blocks, blocks, console_on(stream), is_whole=len(blocks) < args.limit)


# All blocks, for the graph of the heap.


def blocks_under_memcheck() -> tuple[int, dict[str, object]]:
    """Return the pid, and what a worker needs to know of it: all blocks, and which memory is valgrind's own."""
    require_program()
    pid = real_pid()
    if pid is None:
        raise TargetError("this program runs on another machine", slug="not-local", hint="run gdb there")
    text = monitor_text(memcheck.search_command())
    session.last_leak_search = "the last memheap"
    search = read_leak_search(f"{text}\n".encode("utf-8", "surrogateescape"))
    records = max((record.number for record in search.records), default=0)
    said = monitor_text(memcheck.all_blocks_command(records)) if records else ""
    counted = sum(one.blocks for one in search.sums.values())
    stacks = [register("$sp")]
    with selection_kept():
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            stacks.append(register("$sp"))
    beside = [
        (one.start, one.end)
        for one in read_maps(pid)
        if "w" in one.permissions
        and not any(one.start <= at < one.end for at in stacks)
        and not is_addressable(monitor_text(memcheck.addressable_command(one.start, 8)))
    ]
    return pid, {"listed": [said, counted], "beside": beside}


# A snapshot under memcheck: the heap by path, and a leak search for its unreachable part.


def capture_leaks() -> Captured:
    """Make memcheck write the heap by path and search for leaks; return the new files in the run folder."""
    run = session.run
    refuse_killed()
    file = run.next_file(memcheck.NAME)
    path, written = run.folder / file, run.folder / "xtmemory.ms"
    said = monitor(memcheck.heap_command(f"{session.link}/{written.name}"))
    try:
        written.replace(path)
    except FileNotFoundError:
        reason = said.splitlines()[-1] if said else "it reported no reason"
        raise not_written(f"memcheck wrote no snapshot: {reason}", path) from None
    remark = _search_leaks(run.folder / leaks_file(file))
    try:
        return _read(file, path, remark)
    except InputError as error:
        warn(f"{error}; the incomplete file is kept [{error.slug}]")
        return Captured(file, None)


def _search_leaks(path: Path) -> str:
    """Make memcheck search for leaks, save its output in *path*, and return the lost bytes for the snapshot's line."""
    answer = monitor_text(memcheck.leaks_command(changed=False)) + "\n"
    session.last_leak_search = "the last snapshot"
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(answer.encode("utf-8", "surrogateescape"))
        sums = read_leak_search(path.read_bytes()).sums
        lost = sums[DEFINITELY].bytes + sums[INDIRECTLY].bytes
    except (OSError, InputError, KeyError) as error:
        warn(f"the leaked bytes are unknown: {sentence_of(error)}")
        return ""
    before, session.last_leaked_bytes = session.last_leaked_bytes, lost
    changed = f" ({format_delta(lost - before)})" if before is not None and before != lost else ""
    return f"; leaked {format_size(lost)}{changed}" if lost or changed else "; nothing leaked"


def _read(file: str, path: Path, remark: str) -> Captured:
    profile: Any = open_profile(path)
    for notice in profile.notices:
        warn(notice.sentence)
    content = profile.load(profile)
    return Captured(file, profile.total_bytes, stack_sites(content.stacks, content.chains), remark)
