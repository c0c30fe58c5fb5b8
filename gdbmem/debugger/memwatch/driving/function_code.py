"""The machine code of one function, with gdb's view of each address: its line, and the function inlined there."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple, Optional

import gdb

from gdbmem.debugger.command import warn
from gdbmem.debugger.function_source import source_lines
from gdbmem.debugger.location import (
    BlockKey,
    block_key,
    function_blocks,
    function_symtab,
    inlined_entries,
    real_pid,
)
from gdbmem.debugger.program import GdbMemory
from gdbmem.debugger.terminal import file_name, source_file, symbol_at
from gdbmem.errors import TargetError, UsageError
from gdbmem.linux.elf.objects import chosen_code, folded_with, images, plain_name, same_code
from gdbmem.linux.memory.maps import mappings_of
from gdbmem.steps.quiet_lines import Instruction, QuietLines, decode, quiet_lines
from gdbmem.symbols.function_names import is_named, named_function, split_function
from gdbmem.symbols.function_text import definition
from gdbmem.text import plural, printable

_TO_MEMORY = re.compile(
    r"^(?:lock |rep\w* )?(?!lea|cmp|test|nop|push|j|call)\w+\s+(?:.*,)?(?:%\w+:)?(?:-?0x[0-9a-f]+)?"
    r"\((?!%rsp)[^()]*\)(?:\s+#.*)?$"
)
_WIDEST_ROW = 1 << 16  # bytes that are disassembled at once


class SourceLine(NamedTuple):
    """A line of a source file, named as gdb's symbol tables name it."""

    file: str
    number: int


class Spot(NamedTuple):
    """One address of a function."""

    line: Optional[SourceLine]  # from the line table, whichever the function; None: line 0, or no known line
    begins_line: bool  # gdb considers it the beginning of a statement of that line
    call_line: Optional[SourceLine]  # the line where the function calls the outermost function inlined here
    begins_call: bool  # the inlined code begins here, for gdb

    @property
    def is_own(self) -> bool:
        """True if it is the function's own code, and not that of one inlined into it."""
        return self.call_line is None


class FunctionCode:
    """One function, without those inlined into it; reads on demand and caches."""

    def __init__(self, architecture: gdb.Architecture, block: gdb.Block) -> None:
        self.entry = int(block.function.value().address)
        self._key = block_key(block)
        self._architecture = architecture
        self._spots: dict[int, Optional[Spot]] = {}
        self._blocks: dict[int, list[tuple[BlockKey, gdb.Block]]] = {}
        self._names: dict[int, str] = {}  # of addresses at which blocks begin
        self._instructions: dict[int, Instruction] = {}
        self._statements: dict[SourceLine, frozenset[int]] = {}
        self._entries: dict[BlockKey, Optional[int]] = {}  # of inlined functions; None: unknown
        self._own_statements: Optional[list[tuple[int, SourceLine]]] = None

    def spot(self, address: int) -> Optional[Spot]:
        """Return the spot at *address*; None outside the function."""
        if address not in self._spots:
            self._spots[address] = self._look(address)
        return self._spots[address]

    def blocks(self, address: int) -> Sequence[tuple[BlockKey, gdb.Block]]:
        """Return the blocks of the functions at *address*, innermost first, as `function_blocks` does."""
        if address not in self._blocks:
            found = function_blocks(address, self._names)
            self._blocks[address] = [(block_key(block), block) for block in found]
        return self._blocks[address]

    def instruction(self, address: int) -> Instruction:
        """Return the instruction that begins at *address*."""
        if address not in self._instructions:
            self._disassemble(address)
        return self._instructions[address]

    def is_visible(self, address: int) -> bool:
        """Return whether the instruction at *address* writes memory that is not the stack's, or runs other code."""
        one = self.instruction(address)
        if one.is_call and f" {self.entry:#x} " in one.text:
            return False  # it calls itself
        leaves = one.is_call or not (one.is_known or one.returns)
        return leaves or (one.target and self.spot(one.target) is None) or bool(_TO_MEMORY.match(one.text))

    def sweep(self, start: int) -> Iterator[int]:
        """Yield the addresses of all instructions reachable from *start*, in contiguous pieces."""
        todo, seen = [start], set()
        while todo:
            address = todo.pop()
            while address not in seen and self.spot(address) is not None:
                seen.add(address)
                yield address
                one = self.instruction(address)
                if one.target is not None:
                    todo.append(one.target)
                address = one.behind

    def statements(self) -> list[tuple[int, SourceLine]]:
        """Return the addresses where the statements of the function's own lines begin."""
        if self._own_statements is None:
            spots = [(address, self.spot(address)) for address in self.sweep(self.entry)]
            self._own_statements = [
                (address, spot.line)
                for address, spot in spots
                if spot is not None and spot.is_own and spot.begins_line and spot.line is not None
            ]
        return self._own_statements

    def _look(self, address: int) -> Optional[Spot]:
        blocks = self.blocks(address)
        if not blocks or blocks[-1][0] != self._key:
            return None
        position = gdb.find_pc_line(address)
        line = _source_line(position.symtab, position.line)
        begins = line is not None and position.pc == address and address in self._pcs(position, line)
        if len(blocks) == 1:
            return Spot(line, begins, None, begins_call=False)
        symbol = blocks[-2][1].function
        call = _source_line(symbol.symtab, symbol.line) or SourceLine("", 0)
        return Spot(line, begins, call, begins_call=self._begins(address, [key for key, _ in blocks[:-1]]))

    def begins_calls(self, address: int, inlined: Sequence[gdb.Block]) -> bool:
        """Return whether for gdb all of *inlined*, the functions inlined at *address*, begin there."""
        return self._begins(address, list(map(block_key, inlined)))

    def _begins(self, address: int, inlined: Sequence[BlockKey]) -> bool:
        before = {key for key, _ in self.blocks(address - 1)}
        inside = [key for key in inlined if key in before]  # the code in front of it is theirs, too
        if not all(key in self._entries for key in inside):
            self._entries.update({**dict.fromkeys(inside), **inlined_entries(address)})
        return all(self._entries[key] == address for key in inside)

    def _pcs(self, position: gdb.Symtab_and_line, line: SourceLine) -> frozenset[int]:
        """Return the addresses where statements of *line* begin; gdb omits other rows of its table."""
        if line not in self._statements:
            found = position.symtab.linetable().line(line.number)
            self._statements[line] = frozenset(row.pc for row in found or ())
        return self._statements[line]

    def _disassemble(self, address: int) -> None:
        last = gdb.find_pc_line(address).last
        if last is None or not address <= last < address + _WIDEST_ROW:
            last = address
        for one in self._architecture.disassemble(address, last):
            self._instructions[one["addr"]] = decode(one["addr"], one["length"], one["asm"])


def _source_line(symtab: Optional[gdb.Symtab], number: int) -> Optional[SourceLine]:
    return SourceLine(file_name(symtab), number) if symtab is not None and number else None


# The function that `memwatch function` watches: the addresses where its lines begin, according to gdb.


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
    loops_to_start: bool  # a jump of its own leads to its first instruction
    may_tail_call: bool  # a jump leads, or may lead, out of it

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
    code = code_chosen_for(location)
    if code != location:
        warn(
            f"{printable(location)} is an indirect function (IFUNC): the program has chosen"
            f" {printable(symbol_at(int(code[1:], 16)))}, which is watched",
            slug="inlined-unclear",
        )
    found = [sal for sal in gdb.decode_line(code)[1] or () if sal.symtab is not None]
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
    others = {_entry(one): one for one in real if _entry(one) != _entry(block)}
    if others:
        warn(
            f"{printable(location)} matches several functions: this is {_function_place(block)}; calls of"
            f" {_named_functions(others.values())} are not counted: 'memwatch function *{min(others):#x}' counts them",
            slug="several-functions",
        )
    _warn_of_shared(location, block)
    # Its first lines may be inlined into callers, and the rest be called, also by itself.
    inlined_into = [one for one in inlined_into if one.caller != printable(block.function.print_name)]
    if inlined_into:
        warn(
            f"calls of {printable(location)} that are inlined are not counted: those at {_named_places(inlined_into)};"
            f" 'memwatch function {inlined_into[0].caller}' counts them for that line",
            slug="inlined-calls",
        )
    return _read(block)


def _entry(block: gdb.Block) -> int:
    return int(block.function.value().address)


def _function_place(block: gdb.Block) -> str:
    function = block.function
    file = printable(PurePath(file_name(function_symtab(block))).name)
    return f"{printable(function.print_name)} ({file}:{function.line}, *{_entry(block):#x})"


def _named_functions(blocks: Iterable[gdb.Block]) -> str:
    named = [_function_place(block) for block in sorted(blocks, key=_entry)]
    rest = [plural(len(named) - _NAMED_CALLS, "more function")] if len(named) > _NAMED_CALLS else []
    return ", ".join(named[:_NAMED_CALLS] + rest)


def _warn_of_shared(location: str, block: gdb.Block) -> None:
    """Say which other functions have the code of *block*, folded into one: their calls are watched, too."""
    name = named_function(location)
    others = sorted(one for one in names_of_code(block) if name is not None and not is_named(name, one))
    if others:
        named = printable(", ".join(others[:_NAMED_CALLS]))
        warn(
            f"{printable(location)} has the code of {named} in this program (folded by the compiler or the"
            " linker), so calls of either are watched",
            slug="inlined-unclear",
        )


def _is_coroutine_body(block: gdb.Block) -> bool:
    """Return whether *block* is the resume function of a coroutine; its start and destruction are other functions."""
    return _BODY.search(symbol_at(int(block.function.value().address))) is not None


def _named(blocks: Sequence[gdb.Block], location: str) -> gdb.Block:
    """Return the block of the function that *location* names: one inlined there, or the outermost one."""
    name = named_function(location)
    found = (one for one in blocks if name is not None and is_named(name, str(one.function)))
    return next(found, blocks[-1])


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
    symtab = function_symtab(block)
    code = FunctionCode(gdb.selected_frame().architecture(), block)
    addresses = sorted(code.sweep(start))
    spots = {address: spot for address in addresses if (spot := code.spot(address)) is not None}
    lines = {address: _line_in(file_name(symtab), spot) for address, spot in spots.items()}
    calls = [one for one in map(code.instruction, addresses) if one.is_call]
    jumps = [one for one in map(code.instruction, addresses) if not one.is_call]
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
        any(one.target == start for one in jumps),
        any(not one.is_known or (one.target is not None and one.target not in spots) for one in jumps),
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


# Code behind the names of functions: chosen when the program is loaded (IFUNC), or shared by several (folded).


_RESOLVER = ".resolver"  # gcc's and clang's name of the function that chooses among clones


def code_chosen_for(location: str) -> str:
    """Return where the breakpoint goes: *location*, or the code that was chosen if it is an indirect function (IFUNC).

    Raises NotChosenError if the program has not chosen it: gdb would stop in the function that does.
    """
    try:
        function = gdb.parse_and_eval(f"&{location}")
        places = {place.pc for place in gdb.decode_line(location)[1] or ()}
    except (gdb.error, ValueError):
        return location
    # Of clones for several processors gdb names one, and the function that chooses among them beside all others.
    is_indirect = "gnu-indirect-function" in str(function.type)
    resolvers = [
        place
        for place in places
        if (place == int(function) if is_indirect else symbol_at(place, demangled=False).endswith(_RESOLVER))
    ]
    if not resolvers:
        return location
    code = _code_of(resolvers[0])
    name = symbol_at(code) if code is not None else ""
    if not name or " + " in name or "@plt" in name:
        raise NotChosenError(
            f"'{location}' is an indirect function (IFUNC): the program chooses its code when it is loaded",
            hint="type 'break main' and 'continue' first, or put the point on the function that is chosen",
        )
    return f"*{code:#x}"


def has_loop_at(location: str) -> bool:
    """Return whether a jump of the function at *location* leads to where gdb stops for its calls."""
    try:
        places = [place.pc for place in gdb.decode_line(location)[1] or ()]
        architecture = gdb.selected_frame().architecture()
        return any(_is_jumped_to(architecture, address) for address in places)
    except gdb.error:
        return False  # not started, or in a library that is loaded later


def _is_jumped_to(architecture: gdb.Architecture, address: int) -> bool:
    blocks = function_blocks(address)
    if len(blocks) != 1 or not blocks[0].start <= address < blocks[0].end:
        return False  # unknown, or in an inlined call
    last = min(blocks[0].end, address + _WIDEST_ROW) - 1
    code = (decode(one["addr"], one["length"], one["asm"]) for one in architecture.disassemble(address, last))
    return any(one.target == address and not one.is_call for one in code)


class NotChosenError(UsageError):
    """An indirect function has no code yet."""


def _code_of(resolver: int) -> Optional[int]:
    pid = real_pid()
    if pid is None:
        return None
    memory, mappings = GdbMemory(), mappings_of(pid)
    mapped = next((one for one in mappings if one.start <= resolver < one.end), None)
    for image in images(memory, mappings) if mapped is not None else ():
        if mapped is not None and image.name == mapped.name:
            return chosen_code(memory, image.start, image.bias, resolver)
    return None


def names_of_code(block: gdb.Block) -> set[str]:
    """Return the names of all functions with the code of *block*, if the compiler or the linker may have folded some.

    The compiler folds functions of one source file, which has a body of each; an alias has none.
    """
    symtab, address = function_symtab(block), int(block.function.value().address)
    symbol = symbol_at(address, demangled=False)
    try:
        path = Path(symtab.objfile.filename)
        names = folded_with(path, symbol)
        folded = {plain_name(one) for one in (symbol, *same_code(path, symbol))} if names is None else set()
    except (OSError, ValueError, struct.error, AttributeError):
        return set()
    if names is None:
        folded = {
            "::".join(split_function(one).parts) for one in folded if definition(source_lines(symtab), one)
        }
        return folded if len(folded) > 1 else set()
    # Some linkers leave out the symbols of folded functions that are static, but not what describes them.
    described = [
        one for part in (symtab.static_block(), symtab.global_block()) for one in part if one.is_function
    ]
    here = {str(one) for one in described if int(one.value().address) == address}
    found = {"::".join(split_function(name).parts) for name in (*map(plain_name, [symbol, *names]), *here)}
    return found if len(found) > 1 else set()
