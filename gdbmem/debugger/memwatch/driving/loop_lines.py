"""Lines that loop: gdb's `next` single-steps each of their instructions; breakpoints run through them at full speed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import AbstractSet, Callable, NamedTuple, Optional

import gdb

from gdbmem.debugger.inlined_code import Kind, LargeFunctionError, read_inlined_code
from gdbmem.debugger.location import (
    BlockKey,
    block_key,
    c_value,
    function_blocks,
    function_frame,
    function_key,
    is_behind_inlined,
)
from gdbmem.debugger.memwatch.driving.function_code import FunctionCode, SourceLine, Spot
from gdbmem.debugger.program import InternalBreakpoint, delete_breakpoints, numbers_of
from gdbmem.debugger.terminal import file_name, source_file

_MOST_INSTRUCTIONS = 4096  # of one line that are examined


class Ends(NamedTuple):
    """The places where a step over a line that loops may end."""

    addresses: Sequence[int]
    until: int  # an address for gdb's `until`, which the step reaches at its end or never


class LoopLines:
    """Knows, per place in the code, where a step over a looping line may end."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, int], Optional[Ends]] = {}  # by command and where the step starts
        self._functions: dict[tuple[int, int], FunctionCode] = {}
        self._listens = False

    def ends(self, frame: gdb.Frame, command: str = "next") -> Optional[Ends]:
        """Return where a `next` (or `step`) over the looping line of *frame* ends.

        None if it doesn't loop, or if only gdb's stepping finds its end.
        """
        if frame.type() != gdb.NORMAL_FRAME:
            return None
        self.listen()
        key = command, frame.pc()
        if key not in self._ends:
            self._ends[key] = self._find(frame, command)
        return self._ends[key]

    def for_command(self, command: str) -> Optional[Callable[[gdb.Frame], Optional[Ends]]]:
        """Return `ends` for gdb's *command*; None: loops do not affect it."""
        if command not in ("next", "step"):
            return None
        return lambda frame: self.ends(frame, command)

    def listen(self) -> None:
        """Clear the cache when code is loaded: addresses change from one run to the next."""
        if not self._listens:
            self._listens = True
            gdb.events.new_objfile.connect(self._forget)
            gdb.events.clear_objfiles.connect(self._forget)

    def _forget(self, event: object) -> None:
        self._ends.clear()
        self._functions.clear()

    def _find(self, frame: gdb.Frame, command: str) -> Optional[Ends]:
        position = frame.find_sal()
        if position.symtab is None or not position.line:
            return None
        blocks = function_blocks(frame.pc())
        if not blocks:  # no debug information here
            return None
        key = blocks[-1].start, blocks[-1].end
        code = self._functions.get(key)
        if code is None:
            code = self._functions[key] = FunctionCode(frame.architecture(), blocks[-1])
        line = SourceLine(file_name(position.symtab), position.line)
        return find_ends(code, frame.pc(), line, enters=command == "step")


loop_lines = LoopLines()


def find_ends(code: FunctionCode, start: int, line: SourceLine, *, enters: bool) -> Optional[Ends]:
    """Return where gdb's `next` from *start*, on *line*, may stop, if it executes instructions repeatedly.

    `next` continues while an instruction belongs to its line, or to a function inlined into that line; *enters*
    is for `step`, which enters such functions and calls. None: the line does not loop, or the place of the stop depends
    on the path through it.
    """
    seen, todo, exits = {start}, [start], set()
    loops = calls = False
    while todo:
        one = code.instruction(todo.pop())
        if not one.is_known or (enters and one.is_call) or len(seen) > _MOST_INSTRUCTIONS:
            return None
        loops, calls = loops or one.repeats, calls or one.is_call
        for address in one.successors():
            goes_on = _goes_on(code.spot(address), line, enters=enters)
            if goes_on is None:
                return None
            if not goes_on:
                if is_behind_inlined(address):  # gdb takes it for the inlined function's code, and steps on
                    return None
                exits.add(address)
                continue
            loops = loops or address <= one.address
            if address not in seen:
                seen.add(address)
                todo.append(address)
    if not loops or not exits:
        return None
    # Only an exception leads to any other line; gdb doesn't always notice where it is caught.
    handlers = {at for at, other in code.statements() if other != line} if calls else set()
    return Ends(sorted(exits | handlers), _never_passed(code, exits))


def _never_passed(code: FunctionCode, exits: AbstractSet[int]) -> int:
    own = [address for address in exits if (spot := code.spot(address)) is not None and spot.is_own]
    # Where an inlined function begins, a stop of `until` is in that one, and a stop of `next` before it.
    # Not where the block starts: a function's parts that are seldom run may lie before its first instruction.
    return max(own, default=code.entry)


def _goes_on(spot: Optional[Spot], line: SourceLine, *, enters: bool) -> Optional[bool]:
    """Return whether a step over *line* continues at *spot*; None: undetermined."""
    if spot is None:  # it leaves the function
        return None
    if spot.is_own:
        if spot.line == line:
            return True
        # In the middle of another line gdb continues to the end of that line.
        return False if spot.begins_line else None
    if enters:
        return None
    return spot.call_line == line if spot.begins_call else True


class _StopHere(InternalBreakpoint):
    def __init__(self, address: int, frame: gdb.Frame, thread: int) -> None:
        super().__init__(address)
        self.thread = thread
        self._frame = function_frame(frame)

    def stop(self) -> bool:
        # A deeper call of the same function passes here too.
        return bool(function_frame(gdb.newest_frame()) == self._frame)


class Barrier:
    """Breakpoints at which a step over a looping line ends; deleted at the end of the `with`."""

    def __init__(self, frame: gdb.Frame, ends: Ends, thread: int) -> None:
        self._ends = ends
        self._frame, self._thread = frame, thread
        self._breakpoints: list[_StopHere] = []

    def __enter__(self) -> Barrier:
        try:
            for address in self._ends.addresses:
                self._breakpoints.append(_StopHere(address, self._frame, self._thread))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        delete_breakpoints(self._breakpoints)
        self._breakpoints = []

    @property
    def numbers(self) -> set[int]:
        return numbers_of(self._breakpoints)

    @property
    def command(self) -> str:
        """gdb's command that runs to the breakpoints, or out of the function, or into a handler."""
        return f"until *{self._ends.until:#x}"


# Where a step that was interrupted in a call, or in an inlined function, comes back to the code of its own frame.
#
# gdb's `next` would now step through the inlined function, line by line; the step that was interrupted runs over it.


Line = tuple[Optional[str], Optional[int]]  # file, number

_MOST_INLINED_INSTRUCTIONS = 1 << 14  # of inlined functions


def return_ends(frame: gdb.Frame, call: gdb.Frame) -> Optional[Ends]:
    """Return where *call*, which *frame* has made, comes back; None without debug information.

    A stop of `until` would be inside a function that is inlined from there on; a step ends in front of it.
    """
    back = call.older().pc()
    blocks = function_blocks(back)
    return _ends(FunctionCode(frame.architecture(), blocks[-1]), {back}, calls=True) if blocks else None


def inlined_ends(frame: gdb.Frame, line: Line) -> Optional[Ends]:
    """Return where a step of *frame* from *line* may end, the selected thread being in a function inlined into it.

    That is where control leaves these functions, or begins one that another line calls. None if the thread is in
    none, or if a jump there goes to a computed address.
    """
    here = gdb.newest_frame().pc()
    key, blocks = function_key(frame), function_blocks(here)
    if key is None or key not in map(block_key, blocks[1:]):
        return None
    code = FunctionCode(frame.architecture(), blocks[-1])
    seen, todo, exits = {here}, [here], set()
    calls = False
    while todo:
        one = code.instruction(todo.pop())
        calls = calls or one.is_call
        if not (one.is_known or one.returns) or len(seen) > _MOST_INLINED_INSTRUCTIONS:
            return None
        for address in one.successors():
            if address in seen:
                continue
            seen.add(address)
            if _continues(code, address, key, line):
                todo.append(address)
            else:
                exits.add(address)
    return _ends(code, exits, calls=calls)


def finish_ends(frame: gdb.Frame) -> Optional[Ends]:
    """Return where the inlined call that *frame* shows is left; None if it shows none, or that can't be seen.

    gdb's own `finish` stops where another piece of its code begins, too.
    """
    key = function_key(frame) if frame.type() == gdb.INLINE_FRAME else None
    is_newest = function_frame(frame) == function_frame(gdb.newest_frame())
    # The call is in front of where it returns.
    blocks = function_blocks(frame.pc() if is_newest else frame.pc() - 1)
    if key is None or key not in map(block_key, blocks[:-1]):
        return None
    try:
        code = read_inlined_code(
            frame.architecture(), blocks[-1], lambda block: block_key(block) == key, key[2]
        )
    except LargeFunctionError:
        return None
    if code is None or not code.is_proved:
        return None
    exits = [at for at, one in code.passages.items() if one.kind is Kind.ARRIVES and not one.is_middle]
    return Ends(sorted(exits), int(blocks[-1].function.value().address))


def _continues(code: FunctionCode, address: int, key: BlockKey, line: Line) -> bool:
    """Return whether a step from *line* of the function with *key* continues in a function inlined at *address*."""
    blocks = function_blocks(address)
    inlined = list(itertools.takewhile(lambda block: block_key(block) != key, blocks))
    if not inlined or len(inlined) == len(blocks):
        return False
    symbol = inlined[-1].function
    is_called_there = (source_file(symbol.symtab), symbol.line) == line
    return is_called_there or not code.begins_calls(address, inlined)


def _ends(code: FunctionCode, addresses: set[int], *, calls: bool) -> Ends:
    # A caught exception continues at another statement.
    handlers = {address for address, _ in code.statements()} if calls and _has_exceptions() else set()
    return Ends(sorted(addresses | handlers), code.entry)


def _has_exceptions() -> bool:
    try:
        return bool(c_value("&__cxa_begin_catch"))
    except gdb.error:
        return False
