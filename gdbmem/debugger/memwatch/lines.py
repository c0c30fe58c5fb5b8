"""Lines that loop: gdb's `next` single-steps each of their instructions; breakpoints get over them at once."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from typing import Callable, NamedTuple, Optional

import gdb

# x86: jumps and loop; ARM: branches. Calls are stepped over at full speed by gdb itself.
_BRANCH = re.compile(r"^(?:bnd )?(?:j\w+|loop\w*|b(?:\.\w+)?|cbn?z|tbn?z)\b.*?\b0x([0-9a-f]+)(?: <.*>)?$")
_CALL = re.compile(r"^(?:call\w*|bnd call\w*|blr?)\b")
_REPEATED = re.compile(r"^(?:rep\w*|repz|repnz) ")
_TABLE_ROW = re.compile(r"^\d+\s+(\d+|END)\s+(0x[0-9a-f]+)\s+(?:0x[0-9a-f]+\s+)?(Y)?", re.M)
_LONGEST_FUNCTION = 1 << 16  # bytes that are disassembled


class Function(NamedTuple):
    """The machine code of one function: where its lines begin, and its jumps backwards."""

    starts: Sequence[tuple[int, int]]  # (address, line) where gdb may stop, sorted
    loops: Sequence[tuple[int, int]]  # from … to, addresses
    calls: Sequence[int] = ()  # addresses of call instructions

    def stops(self, line: int) -> list[int]:
        """Return where another line than *line* begins."""
        return [address for address, other in self.starts if other != line]

    def loops_on(self, line: int) -> bool:
        """Tell whether *line* holds a loop that no other line is part of."""
        for first, last in self.loops:
            inside = [other for address, other in self.starts if first <= address <= last]
            if all(other == line for other in inside) and self._line_at(first) == line:
                return True
        return False

    def calls_on(self, line: int) -> bool:
        """Tell whether *line* calls anything, which `step` may have to enter."""
        return any(self._line_at(address) == line for address in self.calls)

    def _line_at(self, address: int) -> Optional[int]:
        line = None
        for start, other in self.starts:
            if start > address:
                break
            line = other
        return line


class LoopLines:
    """Knows, per place in the code, where a step over a looping line may end."""

    def __init__(self) -> None:
        self._stops: dict[int, Optional[list[int]]] = {}  # by the address where the step starts
        self._callers: set[int] = set()  # of those, where the line calls something
        self._functions: dict[int, Optional[Function]] = {}
        self._listens = False

    def stops(self, frame: gdb.Frame) -> Optional[list[int]]:
        """Return the addresses at which a `next` over the looping line of *frame* ends; None: it doesn't loop."""
        self.listen()
        pc = frame.pc()
        if pc not in self._stops:
            self._stops[pc] = self._find(frame, pc)
        return self._stops[pc]

    def stops_without_calls(self, frame: gdb.Frame) -> Optional[list[int]]:
        """Return the same for a `step`, which is a `next` where the line calls nothing."""
        stops = self.stops(frame)
        return None if stops is None or frame.pc() in self._callers else stops

    def for_command(self, command: str) -> Optional[Callable[[gdb.Frame], Optional[list[int]]]]:
        """Return which of these is meant by gdb's *command*; None: loops are nothing to it."""
        return {"next": self.stops, "step": self.stops_without_calls}.get(command)

    def listen(self) -> None:
        """Forget everything when code is loaded: addresses change from one run to the next."""
        if not self._listens:
            self._listens = True
            gdb.events.new_objfile.connect(self._forget)
            gdb.events.clear_objfiles.connect(self._forget)

    def _forget(self, event: object) -> None:
        self._stops.clear()
        self._callers.clear()
        self._functions.clear()
        _tables.clear()

    def _find(self, frame: gdb.Frame, pc: int) -> Optional[list[int]]:
        position = frame.find_sal()
        if position.symtab is None or not position.line or frame.type() != gdb.NORMAL_FRAME:
            return None
        try:
            block = _function_block(frame.block())
        except RuntimeError:  # no debug information here
            return None
        if block is None:
            return None
        if block.start not in self._functions:
            self._functions[block.start] = _read_function(frame.architecture(), block, position.symtab)
        function = self._functions[block.start]
        if function is None or not function.loops_on(position.line):
            return None
        if function.calls_on(position.line):
            self._callers.add(pc)
        return function.stops(position.line) or None


loop_lines = LoopLines()


def _function_block(block: Optional[gdb.Block]) -> Optional[gdb.Block]:
    while block is not None and block.function is None:
        block = block.superblock
    return block


def _read_function(
    architecture: gdb.Architecture, block: gdb.Block, symtab: gdb.Symtab
) -> Optional[Function]:
    start, end = block.start, block.end
    if end - start > _LONGEST_FUNCTION:
        return None
    loops, calls = [], []
    for instruction in architecture.disassemble(start, end - 1):
        text, address = instruction["asm"], instruction["addr"]
        match = _BRANCH.match(text)
        if match is not None:
            target = int(match[1], 16)
            if start <= target <= address:
                loops.append((target, address))
        elif _REPEATED.match(text):
            loops.append((address, address))
        elif _CALL.match(text):
            calls.append(address)
    if not loops:
        return None
    starts = _within(_line_starts(symtab), start, end)
    # Where functions are inlined, where gdb stops depends on more than the line table: leave it to gdb.
    symbol = str(block.function)
    return Function(starts, loops, calls) if all(_is_in(a, start, symbol) for a, _ in starts) else None


def _within(table: Sequence[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    return list(table[bisect.bisect_left(table, (start, 0)) : bisect.bisect_left(table, (end, 0))])


def _is_in(address: int, start: int, symbol: str) -> bool:
    """Tell whether *address* is the function's own code, and not that of one inlined into it."""
    block = _function_block(gdb.block_for_pc(address))
    return block is not None and block.start == start and str(block.function) == symbol


_tables: dict[tuple[str, str], list[tuple[int, int]]] = {}  # by object file and source file


def _line_starts(symtab: gdb.Symtab) -> list[tuple[int, int]]:
    """Return where gdb may stop at a line of *symtab*: (address, line), sorted."""
    loop_lines.listen()
    key = (symtab.objfile.filename, symtab.fullname())
    if key not in _tables:
        rows = [(entry.pc, entry.line) for entry in symtab.linetable() if entry.line]
        hidden = _no_statements(symtab)
        _tables[key] = sorted({row for row in rows if row not in hidden})
    return _tables[key]


def _no_statements(symtab: gdb.Symtab) -> set[tuple[int, int]]:
    """Return the entries at which gdb does not stop; Python's line table doesn't tell them apart."""
    name = re.escape(symtab.filename.rpartition("/")[2])
    try:
        table = str(gdb.execute(f"maint info line-table {name}$", to_string=True))
    except gdb.error:
        return set()
    seen: dict[tuple[int, int], bool] = {}
    for line, address, statement in _TABLE_ROW.findall(table):
        if line != "END":
            row = (int(address, 16), int(line))
            seen[row] = seen.get(row, False) or bool(statement)
    return {row for row, statement in seen.items() if not statement}


def own_line_starts(block: gdb.Block, symtab: gdb.Symtab) -> tuple[list[tuple[int, int]], bool]:
    """Return where the lines of the function *block* begin: (address, line), and whether functions are inlined into it.

    The lines of those are left out.
    """
    symbol = str(block.function)
    starts = _within(_line_starts(symtab), block.start, block.end)
    own = [(address, line) for address, line in starts if _is_in(address, block.start, symbol)]
    # Of several lines at one address gdb shows the last.
    return sorted(dict(own).items()), len(own) < len(starts)


def calls_in(frame: gdb.Frame, block: gdb.Block) -> list[tuple[int, int]]:
    """Return the function's call instructions: (address, address of the next instruction)."""
    found = frame.architecture().disassemble(block.start, block.end - 1)
    return [(one["addr"], one["addr"] + one["length"]) for one in found if _CALL.match(one["asm"])]


class _StopHere(gdb.Breakpoint):  # type: ignore[misc]  # gdb's module has no types
    def __init__(self, address: int, frame: gdb.Frame, thread: int) -> None:
        super().__init__(f"*{address:#x}", internal=True)
        self.silent = True
        self.thread = thread
        self._frame = frame

    def stop(self) -> bool:
        # A deeper call of the same function passes here too.
        return bool(gdb.newest_frame() == self._frame)


class Barrier:
    """Breakpoints at which a step over a looping line ends; gone with the `with`."""

    def __init__(self, frame: gdb.Frame, stops: Sequence[int], thread: int) -> None:
        self._stops = stops
        self._frame, self._thread = frame, thread
        self._breakpoints: list[_StopHere] = []

    def __enter__(self) -> Barrier:
        try:
            for address in self._stops:
                self._breakpoints.append(_StopHere(address, self._frame, self._thread))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for one in self._breakpoints:
            if one.is_valid():
                one.delete()
        self._breakpoints = []

    @property
    def numbers(self) -> set[int]:
        return {one.number for one in self._breakpoints if one.is_valid()}

    @property
    def command(self) -> str:
        """gdb's command that runs to the breakpoints, or out of the function, or into a handler."""
        return f"until *{self._stops[-1]:#x}"
