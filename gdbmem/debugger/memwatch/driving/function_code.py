"""The machine code of one function, with gdb's view of each address: its line, and the function inlined there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

import gdb

from gdbmem.debugger.location import BlockKey, block_key, function_blocks, inlined_entries
from gdbmem.debugger.terminal import file_name

# x86: jumps and loop; ARM: branches. The address is that of a direct one. Calls are stepped over at full speed by gdb.
_BRANCH = re.compile(
    r"^(?:bnd |notrack )*(j\w+|loop\w*|b(?:\.\w+)?|cbn?z|tbn?z|br)(?![\w.])"
    r"(?:\S*\s+(?:[\w#]+,\s*)*0x([0-9a-f]+)(?: <.*>)?(?:\s*//.*)?$)?"
)
_CALL = re.compile(r"^(?:bnd |notrack )*(?:call\w*|blr?)\b")
_RETURN = re.compile(r"^(?:bnd |repz )*(?:ret\w*|eret|hlt|ud2)\b")
_REPEATED = re.compile(r"^(?:rep\w*|repz|repnz) ")
_ALWAYS = ("jmp", "jmpq", "b", "br")  # branches that don't fall through to the next instruction
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


class Instruction(NamedTuple):
    """One instruction and its successors."""

    address: int
    behind: int  # the address of the next one
    target: Optional[int] = None  # of a direct branch
    goes_on: bool = True  # execution may continue with the next one
    is_call: bool = False
    is_known: bool = True  # False: a jump to an address that is computed
    repeats: bool = False
    returns: bool = False
    text: str = ""  # as gdb disassembles it

    def successors(self) -> Iterator[int]:
        """Yield the addresses that may follow in the same call of the function."""
        if self.target is not None:
            yield self.target
        if self.goes_on:
            yield self.behind


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
            self._instructions[one["addr"]] = _decode(one["addr"], one["length"], one["asm"])


def _source_line(symtab: Optional[gdb.Symtab], number: int) -> Optional[SourceLine]:
    return SourceLine(file_name(symtab), number) if symtab is not None and number else None


def _decode(address: int, length: int, text: str) -> Instruction:
    behind = address + length
    match = _BRANCH.match(text)
    if match is not None:
        target = int(match[2], 16) if match[2] else None
        return Instruction(
            address, behind, target, goes_on=match[1] not in _ALWAYS, is_known=target is not None, text=text
        )
    if _CALL.match(text):
        return Instruction(address, behind, is_call=True, text=text)
    if _RETURN.match(text):
        return Instruction(address, behind, goes_on=False, is_known=False, returns=True, text=text)
    return Instruction(address, behind, repeats=_REPEATED.match(text) is not None, text=text)
