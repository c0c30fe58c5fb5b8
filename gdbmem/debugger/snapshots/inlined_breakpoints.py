"""Breakpoints where the inlined calls of a function begin and end, and expressions in the scope of such a call."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Optional, Protocol

import gdb

from gdbmem.debugger import inlined_code
from gdbmem.debugger.command import warn
from gdbmem.debugger.counters import CounterWrite
from gdbmem.debugger.function_source import Effect, called_instead
from gdbmem.debugger.location import (
    BlockKey,
    block_key,
    block_of,
    function_blocks,
    function_frame,
    function_key,
    memory_address,
)
from gdbmem.debugger.memwatch.driving.function_code import names_of_code
from gdbmem.debugger.native.calls_in_passing import makes_call
from gdbmem.debugger.program import delete_breakpoints, executions
from gdbmem.debugger.snapshots.return_breakpoints import OwnedBreakpoint, return_place
from gdbmem.debugger.stopping.stops import is_step_postponed
from gdbmem.debugger.terminal import file_name, symbol_at
from gdbmem.errors import GdbmemError, UsageError, internal_error, sentence_of
from gdbmem.symbols.function_names import (
    FunctionName,
    is_named,
    named_function,
    names_in,
    replace_names,
    split_function,
)
from gdbmem.text import plural

Thread = tuple[int, int, int]

_LINE = re.compile(r"(?:^|:)\s*(\d+)\s*$")
_NAMED_LINES = 5  # in a message


class Listener(Protocol):
    """Is told of inlined calls; each method returns whether the program is to stop."""

    def begin_call(self, call: BlockKey) -> tuple[Optional[int], bool]:
        """Note a call; return its hit if its end matters."""

    def end_call(self, hit: int) -> bool:
        """Act at the end of the call of this *hit*."""

    def follow_call(self, hit: int) -> None:
        """Wait for the return of the function whose frame is about to be replaced, which ends the call of *hit*."""

    def leave_calls(self, number: int) -> None:
        """Note that calls were left by an exception or longjmp."""

    def note(self, sentence: str) -> None:
        """Pass on what the user has to know before the program runs."""

    @property
    def is_spent(self) -> bool:
        """True if it wants to be told of no further call."""

    @property
    def wants_ends(self) -> bool:
        """True if the ends of calls matter."""

    @property
    def may_join(self) -> bool:
        """True if several calls may be told of at one place."""


class InlinedCalls:
    """Follows the inlined calls of the function that a location names, thread by thread."""

    def __init__(self, location: str, listener: Listener, *, commands: Optional[str]) -> None:
        self._location = location
        self.listener = listener  # owns its breakpoints
        self._commands = commands
        self._name = named_function(location)
        self._codes: dict[BlockKey, inlined_code.InlinedCode] = {}
        self._too_large: set[BlockKey] = set()
        self._others: set[str] = set()  # functions whose code has the name, too
        self._points: list[OwnedBreakpoint] = []
        self._threads: dict[tuple[Thread, bool], list[_Frame]] = {}  # True: on the stack of a call of ours
        self._covered: dict[int, bool] = {}
        self._counting: set[Thread] = set()  # threads that count calls in a variable
        self._noted: set[str] = set()
        if self._name is None:
            self._note_line()
        else:
            self.resolve()
            gdb.events.new_objfile.connect(self._code_loaded)
            executions.tell(self._leave_program)

    @property
    def codes(self) -> list[inlined_code.InlinedCode]:
        """The functions into which calls are inlined."""
        return list(self._codes.values())

    @property
    def places(self) -> list[tuple[int, BlockKey]]:
        """An address in each of the inlined calls."""
        passages = (item for code in self._codes.values() for item in code.passages.items())
        return [(at, key) for key, at in {key: at for at, one in passages for key in one.calls}.items()]

    @property
    def under_way(self) -> int:
        """The number of calls whose end matters and has not come."""
        return sum(
            call.hit is not None for frames in self._threads.values() for f in frames for call in f.calls
        )

    def resolve(self) -> None:
        """Find the inlined calls in the code that is loaded now."""
        assert self._name is not None
        name, known, elsewhere = self._name, set(self._codes), list[tuple[str, int]]()
        with suppress(gdb.error):  # no such function yet
            for place in gdb.decode_line(self._location)[1] or ():
                blocks = function_blocks(place.pc) if place.pc is not None else []
                if not blocks:
                    continue
                if len(blocks) > 1 or block_key(blocks[-1]) not in self._codes:
                    self._add(blocks[-1], name)
                if block_key(blocks[-1]) not in (self._codes.keys() | self._too_large):
                    self._note_others(blocks[-1])
                    if self._is_others(blocks) and _symbol_address(self._location) is None:
                        elsewhere.append((file_name(place.symtab), place.line))
        found = [code for key, code in self._codes.items() if key not in known]
        found += self._add_undescribed(name, found)
        self._covered.clear()
        # Without any call that is described, gdb's place is all that is left of one.
        unclear = sorted({one for code in found if not code.is_proved for one in code.lines}) or (
            elsewhere if not self._codes else self._without_code(name, found)
        )
        if unclear:
            self.listener.note(_unclear(self._location, unclear, ends=self.listener.wants_ends))
        self._note_twins(found)

    def _add_undescribed(
        self, name: FunctionName, codes: Sequence[inlined_code.InlinedCode]
    ) -> list[inlined_code.InlinedCode]:
        """Find the calls that nothing describes: code of other functions that does what each call does once."""
        known = set(self._codes)
        for witness in {code.witness for code in codes if code.witness is not None}:
            others = inlined_code.functions_with(
                witness, lambda block: is_named(name, str(block.function)), "::".join(name.parts), known
            )
            for block in (others or {}).values():
                self._add(block, name, witness)
        return [code for key, code in self._codes.items() if key not in known]

    def _without_code(
        self, name: FunctionName, codes: Sequence[inlined_code.InlinedCode]
    ) -> list[tuple[str, int]]:
        """Return lines that call the function, but of which no code is known."""
        known = self._codes.keys() | self._too_large
        return sorted(set(inlined_code.undescribed_callers(name, codes, known.__contains__)))

    def _note_line(self) -> None:
        """Say that gdb decides how often a line of inlined code is reached, or that it has taken another line."""
        wanted = _LINE.search(self._location)
        if wanted is None:
            return
        with suppress(gdb.error):
            places = [one.pc for one in gdb.decode_line(self._location)[1] or () if one.pc is not None]
            lines = {gdb.find_pc_line(at).line for at in places}
            found = [blocks for at in places if len(blocks := function_blocks(at)) > 1]
            if places and int(wanted[1]) not in lines:
                into = function_blocks(places[0])
                where = f" in {into[-1].function.print_name}" if into else ""
                self.listener.note(
                    f"line {wanted[1]} of '{self._location}' begins no statement in this program, so gdb puts the point"
                    f" elsewhere{where}; if it is code that is inlined elsewhere, put the point on its"
                    " function"
                )
            elif found:
                callers = sorted({str(blocks[-1].function.print_name) for blocks in found})[:_NAMED_LINES]
                inner = "::".join(split_function(str(found[0][0].function)).parts)
                self.listener.note(
                    f"'{self._location}' is code that is inlined into {', '.join(callers)}: a hit is where gdb takes a"
                    " statement of this line to begin, which may be more or less often than it is executed; a point on"
                    f" {inner} counts its calls, or says that they can't be counted"
                )

    def _note_others(self, block: gdb.Block) -> None:
        """Say that calls of other functions count, too: their code is that of *block*, folded by the linker or chosen.

        An alias has another name, but there is no other function.
        """
        assert self._name is not None
        others = names_of_code(block)
        function = str(block.function)
        if not is_named(self._name, function) and _is_indirect(self._location):
            others.add(function)
        others = {one for one in others if not is_named(self._name, one)} - self._others
        self._others |= others
        if others:
            named = ", ".join(sorted(others)[:_NAMED_LINES])
            self.listener.note(
                f"'{self._location}' has the code of {named} in this program (folded by the compiler or the linker,"
                " or chosen when the program is loaded), so calls of either are counted"
            )

    def _note_twins(self, codes: Sequence[inlined_code.InlinedCode]) -> None:
        """Say that a call of another function counts, too: the compiler has folded both, and calls this one."""
        assert self._name is not None
        others = set().union(*(called_instead(self._name, one.lines, one.witness) for one in codes))
        if others - self._others:
            self._others |= others
            named = ", ".join(sorted(others)[:_NAMED_LINES])
            self.listener.note(
                f"'{self._location}' has the code of {named} in this program (folded by the compiler), so calls of"
                " either are counted; compile with -fno-ipa-icf"
            )

    def _add(self, block: gdb.Block, name: FunctionName, witness: Optional[Effect] = None) -> None:
        key = block_key(block)
        if key in self._codes or key in self._too_large:
            return
        try:
            code = inlined_code.read_inlined_code(
                gdb.selected_frame().architecture(),
                block,
                lambda inlined: is_named(name, str(inlined.function)),
                "::".join(name.parts),
                ends=self.listener.wants_ends,
                joined=self.listener.may_join,
                witness=witness,
            )
        except inlined_code.LargeFunctionError:
            self._too_large.add(key)
            self.listener.note(
                f"'{self._location}' is inlined into {block.function.print_name}, which is too large for its inlined"
                " calls to be found, so those are counted where gdb's own breakpoint stops, which may be too few or too"
                f" many; put a point at a line of {block.function.print_name}, or compile with -fno-inline"
            )
            return
        if code is None:
            return
        self._codes[key] = code
        for address, passage in code.passages.items():
            act = functools.partial(self.passed, passage)
            self._points.append(OwnedBreakpoint(address, act, self.listener, commands=self._commands))

    def _code_loaded(self, event: object) -> None:
        # No command may fail here: gdb would take the program for stopped.
        try:
            self.resolve()
        except KeyboardInterrupt:
            warn(
                f"interrupted: inlined calls of '{self._location}' in the code that was just loaded are counted where"
                " gdb's own breakpoint stops",
                slug="inlined-unclear",
            )
        except (GdbmemError, gdb.error, gdb.MemoryError) as error:
            warn(sentence_of(error))
        except Exception as error:  # noqa: BLE001  (a host: gdb calls this)
            warn(internal_error(error))

    def _leave_program(self) -> None:
        self.forget()
        self._codes.clear()
        self._too_large.clear()
        delete_breakpoints(self._points)
        self._points.clear()

    def delete(self) -> None:
        """Delete all breakpoints: the visible one was deleted."""
        self._leave_program()
        with suppress(ValueError):
            gdb.events.new_objfile.disconnect(self._code_loaded)

    def forget(self) -> None:
        """Forget the calls in progress, and watch for all that follow."""
        self._counting.clear()
        self._threads.clear()
        self._enable(True)

    def _enable(self, enabled: bool) -> None:
        for point in self._points:
            if point.is_valid() and point.enabled != enabled:
                point.enabled = enabled

    def covers(self, address: int) -> bool:
        """Return whether a hit of gdb's own breakpoint at *address* is no call, or one that is seen here.

        gdb's address for an inlined call need not be where it begins. A function that was split in two has a part of
        its own, called or jumped to in the middle of a call of it.
        """
        if not self._codes:
            return False
        assert self._name is not None
        if address not in self._covered:
            blocks = function_blocks(address)
            key = block_key(blocks[-1]) if blocks else None
            is_own = bool(blocks) and is_named(self._name, str(blocks[-1].function))
            is_counted = key in self._codes and (len(blocks) > 1 or not is_own or self._codes[key].counts_own)
            is_part = is_own and ".part." in symbol_at(int(blocks[-1].function.value().address))
            is_others = bool(blocks) and not is_counted and self._is_others(blocks)
            self._covered[address] = is_part or is_counted or is_others
        return self._covered[address]

    def _is_others(self, blocks: Sequence[gdb.Block]) -> bool:
        """Return whether code is another function's only: gdb may put a point behind that of an inlined call."""
        assert self._name is not None
        function = blocks[-1]
        return not (
            any(is_named(self._name, name) for name in (*map(_name_of, blocks), *names_of_code(function)))
            or _is_indirect(self._location)
            or _symbol_address(self._location) == int(function.function.value().address)
        )

    # -- a thread passes ----------------------------------------------------------------------------------

    def passed(self, passage: inlined_code.Passage) -> bool:
        """Note that the selected thread is at *passage*; return whether to stop it."""
        times = passage.times if passage.counted is None else self._increase(passage.counted)
        if times != 1:
            one = passage._replace(counted=None, times=1)
            return sum(self.passed(one) for _ in range(times)) > 0  # each of them
        frame = function_frame(gdb.newest_frame())
        pointer = int(frame.read_register("sp"))
        frames = self._threads.setdefault((gdb.selected_thread().ptid, makes_call()), [])
        here = self._frame_here(frames, frame, pointer)
        stops = self._pass(here, passage)
        if not here.calls:
            frames.remove(here)
        if self.listener.is_spent and not self.under_way:
            self._enable(False)
        return stops

    def _frame_here(self, frames: list[_Frame], frame: gdb.Frame, pointer: int) -> _Frame:
        """Return which of the thread's *frames* is *frame*, or a new one, and drop those that have been left.

        They are below it; but a signal's handler or another coroutine may run on a stack that lies above.
        """
        if frames and frames[-1].frame == frame:
            return frames[-1]
        known = next((one for one in reversed(frames) if one.frame == frame), None)
        later = frames.index(known) + 1 if known is not None else len(frames)
        for at, one in reversed(list(enumerate(frames))):
            if (at >= later or one.pointer < pointer) and one is not known and one.is_left():
                self._leave(frames.pop(at).calls)
        if known is None:
            frames.append(known := _Frame(frame, pointer))
        return known

    def _increase(self, counted: CounterWrite) -> int:
        """Return how many calls the selected thread counts here."""
        if is_step_postponed(self):
            return 0
        number = counted.increase(gdb.newest_frame())
        if number > 1 and counted.follows_call:
            self._note_once(
                f"the compiler has joined calls of '{self._location}': several are hits where it counts them at once,"
                " after what the first of them call; compile with -fno-inline to see each begin"
            )
        self._counting.add(gdb.selected_thread().ptid)
        if len(self._counting) > 1:
            self._note_once(
                f"several threads count calls of '{self._location}' in a variable, by which they are counted here;"
                " without a lock around it some may be missing"
            )
        return number

    def _note_once(self, sentence: str) -> None:
        if sentence not in self._noted:
            self._noted.add(sentence)
            self.listener.note(sentence)

    def _pass(self, here: _Frame, passage: inlined_code.Passage) -> bool:
        if passage.renames(tuple(call.key for call in here.calls)):
            here.calls[-1].key = passage.calls[-1]
        if passage.kind is inlined_code.Kind.LANDS:
            return self._land(here, passage)
        stops = self._go_on(here, passage)
        if passage.kind is inlined_code.Kind.ARRIVES:
            return stops
        # The whole call may have been this instruction.
        ends = self._end(here, 0) if passage.kind is inlined_code.Kind.RETURNS else self._jump_out(here)
        return stops or ends

    def _land(self, here: _Frame, passage: inlined_code.Passage) -> bool:
        calls = passage.calls
        shared = _shared(here, calls)
        if passage.is_pad and shared > len(calls) - passage.fresh and not is_step_postponed(self):
            shared = len(calls) - passage.fresh  # what has begun here before was left, too
        stops = False
        # The cleanup of an exception may call the function, and such a call ends as others do.
        while not passage.is_pad and len(here.calls) > shared and here.calls[-1].in_cleanup:
            stops = self._end(here, len(here.calls) - 1) or stops
        self._leave(here.calls[shared:])
        del here.calls[shared:]
        if passage.fresh and shared == len(calls) - passage.fresh:
            stops = self._begin(here, calls[shared:], in_cleanup=True) or stops
        return stops

    def _go_on(self, here: _Frame, passage: inlined_code.Passage) -> bool:
        calls = passage.calls
        shared = _shared(here, calls)
        begun = len(calls) - passage.fresh
        if shared > begun and not is_step_postponed(self):
            if not passage.follows:
                # The function around it, or part of that, was left by an exception or longjmp, and called again.
                self._leave(here.calls[begun:])
                del here.calls[begun:]
            shared = begun
        stops = self._end(here, shared)
        return self._begin(here, calls[shared:]) or stops

    def _begin(self, here: _Frame, calls: Sequence[BlockKey], *, in_cleanup: bool = False) -> bool:
        stops = False
        for key in calls:
            hit, stop = self.listener.begin_call(key)
            here.calls.append(_Call(key, hit, in_cleanup))
            stops = stops or stop
        return stops

    def _end(self, here: _Frame, shared: int) -> bool:
        stops = False
        while len(here.calls) > shared:
            call = here.calls.pop()
            if call.hit is not None:
                stops = self.listener.end_call(call.hit) or stops
        return stops

    def _jump_out(self, here: _Frame) -> bool:
        for call in here.calls:
            if call.hit is not None:
                self.listener.follow_call(call.hit)
        here.calls.clear()
        return False

    def _leave(self, calls: list[_Call]) -> None:
        number = sum(call.hit is not None for call in calls)
        if number:
            self.listener.leave_calls(number)


class _Call:
    """An inlined call in progress."""

    def __init__(self, key: BlockKey, hit: Optional[int], in_cleanup: bool) -> None:
        self.key = key
        self.hit = hit  # None: nothing is to be done at its end
        self.in_cleanup = in_cleanup  # of an exception


class _Frame:
    """A frame with inlined calls in progress, outermost first."""

    def __init__(self, frame: gdb.Frame, pointer: int) -> None:
        self.frame = frame
        self.pointer = pointer  # the stack pointer as the first of them began
        self.calls: list[_Call] = []
        self._returns_to = return_place(frame)

    def is_left(self) -> bool:
        """Return whether neither the present stack nor that of a coroutine that does not run now has it."""
        return not self.frame.is_valid() and (self._returns_to is None or not self._returns_to.is_on_stack())


def _shared(here: _Frame, calls: inlined_code.Calls) -> int:
    """Return how many of the frame's calls in progress are among *calls*."""
    number = 0
    while number < min(len(here.calls), len(calls)) and here.calls[number].key == calls[number]:
        number += 1
    return number


def _unclear(location: str, places: Sequence[tuple[str, int]], *, ends: bool) -> str:
    named = ", ".join(f"{PurePath(file).name}:{line}" for file, line in places[:_NAMED_LINES])
    more = f" and {plural(len(places) - _NAMED_LINES, 'more line')}" if len(places) > _NAMED_LINES else ""
    what = "calls and their ends" if ends else "calls"
    return (
        f"'{location}' is inlined at {plural(len(places), 'line')} ({named}{more}) so that its {what} can't be counted:"
        " the compiler may have joined, copied or moved them, and what is on those lines as well; compile with"
        " -fno-inline"
    )


def _name_of(block: gdb.Block) -> str:
    return str(block.function)


def _is_indirect(location: str) -> bool:
    try:
        return "gnu-indirect-function" in str(gdb.parse_and_eval(f"&{location}").type)
    except gdb.error:
        return False


# Expressions in the scope of an inlined call that begins where a thread is stopped.
#
# There gdb shows the caller's frame, as if the call were still to come, and takes a name for the caller's variable.


_PREFIX = "gdbmem_"  # of the convenience variables that stand for variables of the call


def holds_inlined(condition: str, call: BlockKey) -> bool:
    """Return whether *condition* is true in the inlined *call* that begins at the newest frame's address.

    Raises UsageError if gdb can't tell: it knows no such variable, or has no value of it there.
    """
    frame = gdb.selected_frame()  # which makes its language the current one
    try:
        block = _block_of(call, frame.pc())
        if block is None:
            raise gdb.error("gdb does not know its variables there")
        is_shown = block_key(block) == function_key(frame)
        return bool(
            gdb.parse_and_eval(
                condition if is_shown else replace_names(condition, _Scope(frame, block).replacement)
            )
        )
    except gdb.error as error:
        position = gdb.find_pc_line(frame.pc())
        first = f" ({PurePath(file_name(position.symtab)).name}:{position.line})" if position.symtab else ""
        raise UsageError(
            f"'{condition}' can't be evaluated where {call[2]}, which is inlined, begins{first}:"
            f" {str(error).rstrip('.')}; put the point at a later line of it, with the same condition"
        ) from None


def check_inlined(condition: str, call: BlockKey, address: int) -> None:
    """Raise UsageError if the compiler keeps no value of a variable of *condition* in *call*, which *address* is in."""
    block = _block_of(call, address)
    if block is None:
        return
    for name in names_in(condition):
        symbol, _ = gdb.lookup_symbol(name.text, block)
        if symbol is not None and symbol.addr_class == gdb.SYMBOL_LOC_OPTIMIZED_OUT:
            into = function_blocks(address)[-1].function
            raise UsageError(
                f"'{condition}' can't be evaluated for calls that are inlined into {into}: the compiler has optimized"
                f" out '{name.text}' there; put the point at a line that calls {call[2]}, or compile with -fno-inline"
            )


def _block_of(call: BlockKey, address: int) -> Optional[gdb.Block]:
    """Return the block of the inlined *call* at *address*; a copy of a call has another start than its block."""
    found, block = None, gdb.block_for_pc(address)
    while block is not None and not block.is_static:
        if block.function is not None and block_key(block)[1:] == call[1:]:
            found = block
        block = block.superblock
    return found


class _Scope:
    """The variables of one inlined call."""

    def __init__(self, frame: gdb.Frame, block: gdb.Block) -> None:
        self._frame = frame
        self._block = block
        self._callers = block_of(frame)

    def replacement(self, name: str) -> Optional[str]:
        """Return what stands for *name* in an expression that is evaluated in the caller; None for the name itself."""
        symbol, is_member = gdb.lookup_symbol(name, self._block)
        if is_member:
            return f"({self.replacement('this')}->{name})"
        if symbol is None:
            if name == "this" or self._is_callers(name):
                raise gdb.error(f'No symbol "{name}" in current context.')
            return None
        is_value = symbol.is_variable or symbol.is_argument or symbol.is_constant
        return self._stand_in(name, symbol) if is_value else None

    def _is_callers(self, name: str) -> bool:
        if self._callers is None:
            return False
        symbol, is_member = gdb.lookup_symbol(name, self._callers)
        return is_member or (symbol is not None and (symbol.needs_frame or symbol.is_argument))

    def _stand_in(self, name: str, symbol: gdb.Symbol) -> str:
        value = symbol.value(self._frame)
        address = None if memory_address(value) is None else value.address
        gdb.set_convenience_variable(_PREFIX + name, value if address is None else address)
        return f"${_PREFIX}{name}" if address is None else f"(*${_PREFIX}{name})"


def _symbol_address(location: str) -> Optional[int]:
    """Return the address of the symbol of that name; None if *location* is no plain name, or there is none."""
    if not location.isidentifier():
        return None
    try:
        return int(gdb.parse_and_eval(f"&{location}"))
    except (gdb.error, OverflowError):
        return None
