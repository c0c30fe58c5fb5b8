"""The function that `memwatch function` watches: the addresses where its lines begin, according to gdb."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple, Optional

import gdb

from gdbmem.debugger.command import warn
from gdbmem.debugger.location import function_blocks
from gdbmem.debugger.memwatch.driving.function_code import FunctionCode, Spot
from gdbmem.debugger.terminal import file_name, source_file, symbol_at
from gdbmem.errors import TargetError
from gdbmem.steps.quiet_lines import QuietLines, quiet_lines
from gdbmem.text import plural, printable

_NAMED_CALLS = 3  # in a message
# Names by g++ and clang: "tick(tick()::_Z4tickv.Frame*) [clone .actor]", "tick() [clone .resume]"; not a cold part
_BODY = re.compile(r"\.(?:actor|resume)\]?$")


class LineStart(NamedTuple):
    """An address that the function reaches from another of its lines."""

    address: int
    line: int
    is_statement: bool  # gdb would stop there, too


class WatchedPlace(NamedTuple):
    """A function in the program."""

    name: str
    file: str
    start: int  # address of its first instruction
    lines: Sequence[LineStart]
    calls: Sequence[tuple[int, int]]  # (address of a call, address after it)
    has_inlined: bool
    by_address: Mapping[int, Optional[int]]  # the line of each instruction, in order; None: of another file
    quiet: QuietLines

    def line_at(self, where: tuple[int, bool]) -> Optional[int]:
        """Return the line of an address; with True that of the call before it."""
        address, is_behind = where
        if not is_behind:
            return self.by_address.get(address)
        return next((line for at, line in reversed(list(self.by_address.items())) if at < address), None)


class _CallPlace(NamedTuple):
    """The line of a function into which another one is inlined."""

    file: str
    line: int
    caller: str


def find_place(location: str) -> WatchedPlace:
    """Return the function that contains *location*; raises TargetError, or gdb.error from gdb."""
    found = [sal for sal in gdb.decode_line(location)[1] or () if sal.symtab is not None]
    candidates = [blocks for sal in found if (blocks := function_blocks(sal.pc))]
    if not candidates:
        raise TargetError(
            f"{printable(location)} is not in a function with line information",
            slug="no-line-information",
            hint="compile it with -g",
        )
    chosen = [_named(blocks, location) for blocks in candidates]
    real = [block for block, blocks in zip(chosen, candidates) if block is blocks[-1]]
    inlined_into = sorted({_call_place(blocks) for blocks in candidates if blocks[-1] not in real})
    if not real:
        raise _inlined_everywhere(chosen[0], candidates)
    body = next((one for one in real if _is_coroutine_body(one)), None)
    if body is not None:
        warn(
            f"{printable(location)} is a coroutine: its body is watched, and each time it is resumed is a call",
            slug="coroutine",
        )
        return _read(body)
    block = real[0]
    others = {str(one.function) for one in real} - {str(block.function)}
    if others:
        warn(
            f"{printable(location)} matches several functions; this is {printable(block.function.print_name)}",
            slug="several-functions",
        )
    if inlined_into:
        warn(
            f"calls of {printable(location)} that are inlined are not counted: those at {_named_places(inlined_into)};"
            f" 'memwatch function {inlined_into[0].caller}' counts them for that line",
            slug="inlined-calls",
        )
    return _read(block)


def _is_coroutine_body(block: gdb.Block) -> bool:
    """Return whether *block* is the resume function of a coroutine; its start and destruction are other functions."""
    return _BODY.search(symbol_at(int(block.function.value().address))) is not None


def _named(blocks: Sequence[gdb.Block], location: str) -> gdb.Block:
    """Return the block of the function that *location* names: one inlined there, or the outermost one."""
    name = _bare(location)
    return next((block for block in blocks if _bare(str(block.function)).endswith(name)), blocks[-1])


def _bare(name: str) -> str:
    return name.partition("(")[0].rpartition("::")[2].strip()


def _inlined_everywhere(block: gdb.Block, calls: Sequence[Sequence[gdb.Block]]) -> TargetError:
    """Return the error of a function that has only inlined copies; *calls* are the blocks around each of them."""
    name = printable(block.function.name)
    places = sorted({_call_place(blocks) for blocks in calls})
    return TargetError(
        f"{name} has no separate code: it is inlined into {_named_places(places)}",
        slug="inlined-everywhere",
        hint=f"'memwatch function {places[0].caller}' counts it for the line that it is inlined into; or compile with"
        " -fno-inline",
    )


def _named_places(places: Sequence[_CallPlace]) -> str:
    named = [f"{file}:{line} ({caller})" for file, line, caller in places[:_NAMED_CALLS]]
    if len(places) > _NAMED_CALLS:
        named.append(plural(len(places) - _NAMED_CALLS, "more line"))
    return ", ".join(named)


def _call_place(blocks: Sequence[gdb.Block]) -> _CallPlace:
    """Return the place where the outermost of the inlined *blocks* is inlined."""
    inlined = blocks[-2].function  # gdb gives it the line of the call
    caller = printable(blocks[-1].function.print_name)
    return _CallPlace(printable(PurePath(file_name(inlined.symtab)).name), inlined.line, caller)


def _read(block: gdb.Block) -> WatchedPlace:
    # A function in several parts may have a cold one in front.
    start = int(block.function.value().address)
    # Linked at link time, its own table is "<artificial>".
    symtab = gdb.find_pc_line(start).symtab or block.function.symtab
    code = FunctionCode(gdb.selected_frame().architecture(), block)
    addresses = sorted(code.sweep(start))
    spots = {address: spot for address in addresses if (spot := code.spot(address)) is not None}
    lines = {address: _line_in(file_name(symtab), spot) for address, spot in spots.items()}
    calls = [one for one in map(code.instruction, addresses) if one.is_call]
    starts = _line_starts(code, spots, lines, start)
    return WatchedPlace(
        block.function.print_name,
        source_file(symtab) or "?",
        start,
        starts,
        [(one.address, one.behind) for one in calls],
        any(not spot.is_own for spot in spots.values()),
        lines,
        quiet_lines(start, [one.address for one in starts], list(spots), code.instruction),
    )


def _line_starts(
    code: FunctionCode, spots: Mapping[int, Spot], lines: Mapping[int, Optional[int]], start: int
) -> list[LineStart]:
    """Return where the function's own lines begin, and where it goes from one to the middle of another."""
    entered = {start}
    for address in spots:
        for after in code.instruction(address).successors():
            if lines.get(after) != lines[address]:
                entered.add(after)
    found = []
    for address, spot in spots.items():
        line = lines[address]
        is_statement = spot.begins_line if spot.is_own else spot.begins_call
        if line is not None and (is_statement or address in entered):
            found.append(LineStart(address, line, is_statement))
    return found


def _line_in(file: str, spot: Spot) -> Optional[int]:
    line = spot.line if spot.is_own else spot.call_line
    return line.number if line is not None and line.file == file else None
