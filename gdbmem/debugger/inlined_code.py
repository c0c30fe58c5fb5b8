"""The calls of a function that the compiler has inlined into another one: where control enters and leaves their code.

gdb knows which instructions belong to an inlined call (gdb.block_for_pc), but no instruction calls it or returns from
it, its code may lie in pieces between other code, and the address that gdb takes for its entry may never be executed.
The disassembly tells where control goes from each instruction: a call begins where it goes from an instruction outside
to one inside, and ends where it goes out again.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import AbstractSet, Callable, NamedTuple, Optional

import gdb

from gdbmem.debugger.counters import CounterWrite, read_write, width
from gdbmem.debugger.function_source import (
    Effect,
    Reach,
    Step,
    are_calls_known,
    callers_of,
    calls_itself,
    calls_to,
    comes_to,
    declared_at,
    is_only_declared,
    is_reached_once,
    line_text,
    may_use_macro,
    names,
    only_write,
    reach_of,
    source_lines,
    target_name,
    text_at,
)
from gdbmem.debugger.location import BlockKey, block_key, function_blocks, function_symtab
from gdbmem.debugger.memwatch.driving.function_code import FunctionCode, SourceLine
from gdbmem.debugger.operations import (
    BRANCHES,
    CALLS,
    COMPARES,
    COMPUTES,
    WRITES,
    WRITES_STACK,
    Operation,
    Operations,
    is_joined,
    sets_frame,
)
from gdbmem.debugger.statement_marks import Marks, Place, of_file, read_marks, read_places
from gdbmem.debugger.stopping.signals import interruptible
from gdbmem.debugger.terminal import file_name, gdb_text, library_at, symbol_at
from gdbmem.steps.quiet_lines import Instruction
from gdbmem.symbols.function_names import FunctionName, split_function
from gdbmem.symbols.function_text import (
    Loops,
    Side,
    beside,
    find_function,
    functions_at,
    loops_around,
    may_skip,
    mentions,
    name_pattern,
    surely_called,
    surely_calls,
    without_inner,
)
from gdbmem.symbols.line_table import LineRow
from gdbmem.symbols.unwind_tables import find_landing_pads

Calls = tuple[BlockKey, ...]
"""Inlined calls in progress, outermost first."""
_State = tuple[int, Calls, tuple[bool, ...]]
"""An instruction, the calls in progress, and whether each has done its first effect."""

_NEVER_RETURNS = re.compile(
    r"<(_Unwind_Resume|__cxa_(re)?throw|__cxa_bad_cast|__cxa_throw_bad_array_new_length|_ZSt9terminatev|std::terminate\(\)"
    r"|_ZSt\d+__throw_\w+|std::__throw_[^>]*|__clang_call_terminate|abort|exit|_exit|__assert_fail|__stack_chk_fail)(@|>|\+)"
)
_THROWS = re.compile(
    r"<(?:__cxa_(?:re)?throw|__cxa_bad_cast|_ZSt\d+__throw_\w+|std::__throw_[^>]*|_{0,2}(?:sig)?longjmp(?:_chk)?)(?:@|>)"
)
_MAY_THROW = re.compile(r"<_Z(?!S|NK?S[ta]|n[aw]|d[al])|<[^>@]*\(|^call\s+\*")  # not of the standard library
_RETURNS_TWICE = re.compile(r"<(?:_{0,2}(?:sig)?setjmp|getcontext)(?:@|>|\+)")
_CATCHES = re.compile(r"<__cxa_begin_catch(@|>|\+)")
_HANDLES = re.compile(r"<__cxa_(?:begin_catch|end_catch|\w*exception\w*)(@|>|\+)")
_PADDING = re.compile(r"^(?:(?:cs|data16|xchg\s+%ax,%ax|nop\w*|int3)\b)")
_LOADS_ADDRESS = re.compile(r"^lea\s+(?:.*,%(?P<register>\w+)|(?P<other>\w+),.*)\s+# 0x(?P<at>[0-9a-f]+)")
_INDEXES = re.compile(r"\(%(\w+),%\w+,[48]\)|\[(\w+)\+\w+\*[48]")
_TABLE_AT = re.compile(r"^(?:bnd |notrack )*jmpq?\s+(?:\*0x([0-9a-f]+)\(|.*\[.*0x([0-9a-f]+)\])")
_NEAR = 16  # instructions before a jump, among which the one that reads its table is
_LONGEST_TABLE = 4096  # entries
_MOST_INSTRUCTIONS = 75_000  # of a function: about 5 s of CPU
_MOST_STEPS = 5_000_000  # from one instruction to the next, in code with very many branches: about 3 s
_WRITES = re.compile(
    r"^(?:lock |rep\w* )?\w+\s+(?:.*,)?(?:-?0x[0-9a-f]+\(%rip\)\s+# 0x(?P<at>[0-9a-f]+)\b.*|0x(?P<absolute>[0-9a-f]+)"
    r"|(?P<offset>-?0x[0-9a-f]+)?\((?!%[re]sp)%(?P<register>\w+)[^()]*\))$"
)
_ONLY_READS = re.compile(
    r"^(?:lock )?(?:cmp[bwlq]?|test[bwlq]?|u?comis\w+|nop\w*|lea\w?|j\w+|loop\w*|push\w?|prefetch\w*|bt[wlq]?"
    r"|i?div\w?|i?mul\w?)\s"
)
_LOADS_CONSTANT = re.compile(r"^mov\w*\s+\$0x(?P<at>[0-9a-f]+),%(?:e(?P<register>\w+)|(?P<other>r\w+))$")
_MOST_FIRST = 4  # lines of a function on one of which its calls may begin
_FARTHEST = 400  # instructions to one that loads the address of a variable
_MOST_STATES = 10_000  # on the ways from a counter's load to its store
_CALLS = re.compile(r"^(?:bnd |notrack )*(?:call\w*|jmpq?)\s+0x([0-9a-f]+) <([^>+]+)>$")
_CLONE = re.compile(r"\.(?:constprop|isra|specialized)\b")
_PURE = re.compile(  # functions that compilers call once for several calls, or not at all
    r"(?:str(?:n?len|n?(?:case)?cmp|r?chr|str|c?spn|pbrk|coll)|wcs(?:len|cmp|chr)|mem(?:r?chr|cmp|mem)|l{0,2}abs|__errno_location"
    r"|to(?:lower|upper)|is(?:alnum|alpha|digit|space|upper|lower|punct|print|xdigit)|__ctype\w+"
    r"|(?:sqrt|a?sin|a?cos|a?tan2?|exp2?|log(?:10|2|1p)?|pow|floor|ceil|fabs|fmod|l?round|trunc|hypot|cbrt)[fl]?)$"
)
_REPLACED = re.compile(  # which they call another function for, or do themselves, or leave out with what it undoes
    r"(?:(?:m|c|re)alloc|(?:aligned_|mem)alloc|free|_Z(?:n[aw]|d[al])\w+|mem(?:p?cpy|move|set)|b(?:copy|zero)|st[rp]n?cpy|strn?cat"
    r"|v?[fs]?n?printf|f?put(?:s|c|char)|fwrite)(?:_unlocked)?$"
)
_ADDS_ONE_TO_MEMORY = re.compile(
    r"^(?:lock )?(?:inc[bwlq]?\s+|add[bwlq]?\s+\$0x1,|sub[bwlq]?\s+\$0xf{8}(?:f{8})?,)[^%]*\("
)
_STORES = re.compile(r"^mov[bwlq]?\s+%(\w+),[^%]*\(")
_LOADS = re.compile(
    r"^mov[lq]?\s+(?:-?0x[0-9a-f]+\(%rip\),(?P<into>%\w+)\s+# 0x(?P<at>[0-9a-f]+)\b.*"
    r"|(?P<offset>-?0x[0-9a-f]+)?\((?!%[re]sp)%(?P<register>\w+)\),(?P<to>%\w+))$"
)
_ADDS = re.compile(
    r"^(?:mov[lq]?\s+(?P<source>%\w+|(?:0x[0-9a-f]+)?\(%rsp\))|lea[lq]?\s+0x(?P<further>[0-9a-f]+)\((?P<base>%\w+)\)|add[lq]?\s+\$0x(?P<added>[0-9a-f]+)"
    r"|(?P<minus>sub[lq]?)\s+\$0xf{8}(?:f{8})?|(?P<inc>inc[lq]?)\s+(?=%)),?(?P<into>%\w+|(?:0x[0-9a-f]+)?\(%rsp\))$"
)
_COMPARES = re.compile(r"^(?:cmp|test|push|nop|j|xchg\s+%ax,%ax)")
_COMMA = re.compile(r",(?![^(]*\))")
_LOST_BY_CALLS = frozenset(("ax", "cx", "dx", "si", "di", "r8", "r9", "r10", "r11"))
_LOADED = "loaded"  # in the place of a register
_PACKED = re.compile(  # does with one instruction what the source does several times
    r"^v?(?:p(?!ush|op|ause|refetch|xor\s+(%\w+),\1)|cvt\w*p[sd]|(?:add|sub|mul|div|min|max|sqrt|cmp|and|andn|or|shuf|unpck\w)p[sd]"
    r"|mov(?:[au]p[sd]|dq[au])\w*\s+%[xyz]mm\d+,)"
)
_CODE = re.compile(r"^\s*0x([0-9a-f]+) - 0x([0-9a-f]+) is \.text\S*(?: in (.*))?$")
_MOST_BYTES = 1 << 25  # of code that are searched: about 2 s
_REGISTER = re.compile(r"[re]?([a-d]x|[sd]i|[sb]p)$|(r\d+)[dwb]?$")
_LONGEST_GAP = 1024  # instructions that the compiler has moved into an inlined call
_STOPS = re.compile(r"^(?:hlt|ud2|udf|brk|int3)\b")
_PIECE = re.compile(r"^.* \+ (\d+)$")


class LargeFunctionError(Exception):
    """The function is so large that the prompt would be blocked for long."""


class Kind(enum.Enum):
    """The kinds of passage that control makes at an instruction."""

    ARRIVES = "arrives"  # it came here by itself
    LANDS = "lands"  # an exception brought it here, or does its cleanup
    RETURNS = "returns"
    JUMPS_OUT = "jumps out"  # to another function, which returns to this one's caller


class Passage(NamedTuple):
    """An instruction at which inlined calls may begin or end."""

    kind: Kind
    calls: Calls  # in progress as it is executed
    is_middle: bool = False  # of the innermost call, whose code another call of the function may share
    fresh: int = 0  # innermost calls that begin here, whichever way control comes
    is_pad: bool = False  # an exception may come here from anywhere
    follows: bool = (
        False  # a call in progress that is the same has ended as this one begins, and was not left
    )
    times: int = 1  # as many calls begin here, one after the other
    counted: Optional[CounterWrite] = None  # as many calls as the variable is counted up by; None: *times*

    def step(self, calls: Calls) -> tuple[int, Calls]:
        """Return how many of the *calls* in progress go on here, outermost first, and those that begin."""
        shared = _common(calls, self.calls)
        if self.kind is not Kind.LANDS or self.is_pad:
            shared = min(shared, len(self.calls) - self.fresh)
        if self.kind is Kind.LANDS and (not self.fresh or shared != len(self.calls) - self.fresh):
            return shared, ()
        return shared, self.calls[shared:]

    def renames(self, calls: Calls) -> bool:
        """Return whether the innermost of the *calls* in progress only takes another key.

        The compiler has merged the ends of two calls, or what they do with an exception.
        """
        is_shared = (self.is_middle or self.is_pad) and not self.fresh
        return is_shared and len(calls) == len(self.calls) == _common(calls, self.calls) + 1


class InlinedCode(NamedTuple):
    """All calls of one function that are inlined into another."""

    container: str  # the other function
    key: BlockKey  # its block
    passages: Mapping[int, Passage]
    lines: Sequence[tuple[str, int]]  # file and line of each inlined call
    is_proved: bool  # each call is counted once
    counts_own: bool  # the passages count the calls of *container* itself, too
    witness: Optional[Effect]  # what each call of the function does once; None: unknown


def read_inlined_code(
    architecture: gdb.Architecture,
    block: gdb.Block,
    is_wanted: Callable[[gdb.Block], bool],
    name: str,
    *,
    ends: bool = True,
    joined: bool = False,
    witness: Optional[Effect] = None,
) -> Optional[InlinedCode]:
    """Return the calls of the wanted function *name* that are inlined into that of *block*; None if there are none.

    *ends*: where they end is wanted, too. *joined*: several may be counted at one place. *witness*: what a call does
    once, also where nothing describes the call.

    Raises LargeFunctionError, and KeyboardInterrupt for Ctrl-C.
    """
    with interruptible() as check:
        reader = _Reader(architecture, block, is_wanted, check, name, witness)
        return reader.read(ends=ends, joined=joined and not ends)


class _Starts(NamedTuple):
    """Where control enters an inlined call."""

    addresses: AbstractSet[int]
    lines: AbstractSet[SourceLine]  # of which statements begin there


class _Statement(NamedTuple):
    """A statement that control passes."""

    function: Optional[tuple[str, int]]  # that it belongs to; None: a call of the wanted one begins
    line: int = 0  # 0: of several statements
    calls: bool = False  # the wanted function, each time
    follows_call: bool = False  # a statement that calls it each time is directly in front
    name: str = ""  # of the function
    is_inside: bool = False  # of a call that has begun
    is_outside: bool = False  # of no call: of the function around all of them, to which they do not come


class _Reader:
    """Finds the passages of one function."""

    def __init__(
        self,
        architecture: gdb.Architecture,
        block: gdb.Block,
        is_wanted: Callable[[gdb.Block], bool],
        check: Callable[[], None],
        name: str,
        witness: Optional[Effect],
    ) -> None:
        self._architecture = architecture
        self._code = FunctionCode(architecture, block)
        self._name = name
        self._given = witness
        self._witness: Optional[Effect] = None
        self._counts_own = False
        self._effects: dict[int, Effect] = {}
        self._pure: dict[int, bool] = {}  # functions that only compute
        self._check = check
        self._block = block
        self._is_wanted = is_wanted
        self._pads: set[int] = set()
        self._instructions: dict[int, Instruction] = {}
        self._calls: dict[int, Calls] = {}
        self._chains: dict[int, Calls] = {}  # of any function, innermost first
        self._blocks: dict[Calls, gdb.Block] = {}  # of what is inlined, by those around it, innermost first
        self._parts: dict[Calls, bool] = {}  # whether the innermost is the rest of a function that was split
        self._known: dict[BlockKey, bool] = {}  # whether calls of the function are wanted
        self._lines: dict[BlockKey, tuple[str, int]] = {}
        self._successors: dict[int, list[int]] = {}
        self._predecessors: dict[int, list[int]] = {}
        self._root_set: set[int] = set()
        self._ends_gaps: set[int] = set()  # instructions that no gap has
        self._targets: dict[int, set[int]] = {}  # of each jump through a table
        self._members: dict[BlockKey, set[int]] = {}  # the instructions of each inlined call
        self._copies: set[BlockKey] = set()  # calls of an unrolled loop but the first, by where each begins
        self._landing: dict[int, frozenset[int]] = {}  # landing pads by the beginning of their piece
        self._spent = 0
        self._has_marks = False  # of gcc's, which tell more
        self._body: AbstractSet[SourceLine] = frozenset()  # lines of the function, not those of the container
        self._entered: dict[tuple[BlockKey, int], _Starts] = {}

    def read(self, *, ends: bool, joined: bool) -> Optional[InlinedCode]:
        self._sweep()
        for address in self._instructions:
            self._check()
            self._calls[address] = self._calls_at(address)
        is_inlined = any(self._calls.values())
        if not is_inlined and self._given is None and not self._is_wanted(self._block):
            return None
        self._connect()
        self._effects = {at: found for at, one in self._instructions.items() if (found := self._effect(one))}
        self._join_clones()
        if not is_inlined and self._given is None:
            return self._read_looped(ends=ends, joined=joined)
        self._join_parts()
        self._members = {key: set() for key in self._lines}
        for address, calls in self._calls.items():
            for key in calls:
                self._members[key].add(address)
        described = {key: frozenset(members) for key, members in self._members.items() if members}
        for key in self._lines:
            self._fill_gaps(key)
            self._drop_strays(key)
        for key in self._lines:
            self._join_pads(key)
        for key in list(self._lines):
            self._split_copies(key)
        self._body = self._body_lines()
        passages = dict(self._passages())
        proved = self._prove(passages, ends=ends)
        if proved is None and joined:
            proved = self._count_joined()
        if proved is None and not ends:
            proved = self._by_marks(described) or self._by_operations(described)
        if not is_inlined and not self._lines:
            return None
        return self._code_with(passages if proved is None else proved, is_proved=proved is not None)

    def _read_looped(self, *, ends: bool, joined: bool) -> Optional[InlinedCode]:
        """Return the calls of a function by itself of which the compiler has made a loop; None if there are none."""
        effects = self._effects
        for witness, reach, begins in self._witnesses(effects):
            left = self._left_before(reach) if reach.is_once and self._loops_itself(begins) else None
            if left is not None and all(self._is_whole(at, witness) for at in begins):
                passages = {} if ends else self._begins_only(begins | left)
                self._lines.update({self._key_at(at): self._place(at) for at in begins})
                return self._code_with(passages, is_proved=not ends)
        goes_back = any(to <= at for at, successors in self._successors.items() for to in successors)
        counted = None
        if joined and goes_back and calls_itself(self._block):
            counted = self._count_joined()
        return self._code_with(counted, is_proved=True) if counted else None

    def _code_with(self, passages: Mapping[int, Passage], *, is_proved: bool) -> InlinedCode:
        return InlinedCode(
            str(self._block.function.print_name),
            block_key(self._block),
            passages,
            sorted(set(self._lines.values())),
            is_proved,
            self._counts_own,
            self._witness,
        )

    # -- its instructions ---------------------------------------------------------------------------------

    def _sweep(self) -> None:
        found: set[int] = set()
        starts = [self._code.entry]
        while starts:
            start = starts.pop()
            if start in found or self._code.spot(start) is None:
                continue
            swept = set()
            for address in self._code.sweep(start):
                self._check()
                swept.add(address)
                if len(swept) + len(found) > _MOST_INSTRUCTIONS:
                    raise LargeFunctionError
            swept -= found
            found |= swept
            # A part that is seldom run lies elsewhere: its beginning, and what only exceptions reach.
            behind = {self._code.instruction(address).behind for address in swept}
            pieces = {_piece_start(address) for address in swept - behind}
            pads = set().union(*(self._pads_of(one) for one in (start, *pieces)))
            starts += [one for one in (*pads, *pieces) if one not in found]
        self._instructions = {address: self._code.instruction(address) for address in sorted(found)}
        self._pads &= found

    def _pads_of(self, start: int) -> frozenset[int]:
        piece = _piece_start(start)
        if piece not in self._landing:
            self._landing[piece] = landing_pads(start)
            self._pads |= self._landing[piece]
        return self._landing[piece]

    def _calls_at(self, address: int) -> Calls:
        inlined = self._code.blocks(address)[:-1]
        chain = self._chains[address] = tuple(key for key, _ in inlined)
        if chain not in self._blocks:
            self._blocks.update({chain[depth:]: block for depth, (_, block) in enumerate(inlined)})
        calls = []
        for key, block in reversed(inlined):
            if key not in self._known:
                self._known[key] = self._is_wanted(block)
            if self._known[key]:
                calls.append(key)
                if key not in self._lines:
                    self._lines[key] = _file_and_line(block)
        return tuple(calls)

    def _set_calls(self, address: int, calls: Calls) -> None:
        for key in self._calls[address]:
            self._members[key].discard(address)
        for key in calls:
            self._members.setdefault(key, set()).add(address)
        self._calls[address] = calls

    def _join_parts(self) -> None:
        """Count one call where the function was split in two, and its second part inlined into the first."""
        for address, chain in self._chains.items():
            places = [
                at for at, key in enumerate(chain) if self._known[key] and not self._is_part(chain[at:])
            ]
            calls = [chain[at] for at in reversed(places)]
            self._calls[address] = tuple(key for outer, key in zip((None, *calls), calls) if key != outer)

    def _unsplit(self, calls: Calls) -> Calls:
        """Return the functions inlined into each other without the second parts of those that were split."""
        return tuple(key for at, key in enumerate(calls) if not self._is_part(calls[at:]))

    def _is_part(self, calls: Calls) -> bool:
        """Return whether the innermost of the *calls* is the second part of the function around it.

        The compiler gives that the line on which the function is declared.
        """
        if calls not in self._parts:
            part, around = self._blocks[calls].function, self._blocks.get(calls[1:], self._block).function
            self._parts[calls] = str(part) == str(around) and is_only_declared(
                part.symtab, part.line, str(part)
            )
        return self._parts[calls]

    def _connect(self) -> None:
        """Find where control goes from each instruction within the function."""
        self._predecessors = {address: [] for address in self._instructions}
        self._targets = self._table_targets()
        for address, one in self._instructions.items():
            ends = one.is_call and (one.behind in self._pads or _NEVER_RETURNS.search(one.text))
            after = [] if ends else [at for at in one.successors() if at in self._instructions]
            self._successors[address] = sorted(self._targets.get(address, after))
        self._root_set = self._roots()
        for address in self._reachable(self._root_set):
            for successor in self._successors[address]:
                self._predecessors[successor].append(address)
        breaks = {address for address, one in self._instructions.items() if self._breaks(one)}
        self._ends_gaps = self._root_set | breaks

    @staticmethod
    def _is_computed(one: Instruction) -> bool:
        """Return whether it is a jump to an address that is computed."""
        return not (one.is_known or one.returns or one.goes_on)

    def _table_targets(self) -> dict[int, set[int]]:
        """Return where each jump through a table may go.

        A table holds distances to itself, as in code that can be loaded anywhere, or addresses. It ends where an entry
        is not an instruction of the function: the next table may follow, so there may be too many targets.
        """
        found = {}
        order = list(self._instructions.values())
        computed = [number for number, one in enumerate(order) if self._is_computed(one)]
        loads = [m for one in order if (m := _LOADS_ADDRESS.match(one.text))] if computed else []
        loaded = [(m[1] or m[2], int(m[3], 16)) for m in loads]
        entries: dict[int, frozenset[int]] = {}
        for number in computed:
            tables = self._tables_of(order, number, loaded)
            entries.update({table: self._entries_in(table) for table in tables if table not in entries})
            targets = {at for table in tables for at in entries[table]}
            if targets:
                found[order[number].address] = targets
        return found

    @staticmethod
    def _tables_of(order: Sequence[Instruction], number: int, loaded: Sequence[tuple[str, int]]) -> set[int]:
        """Return the addresses at which the table of a jump may be; *loaded*: registers and addresses in them."""
        match = _TABLE_AT.match(order[number].text)
        if match:
            return {int(match[1] or match[2], 16)}
        before = order[max(number - _NEAR, 0) : number + 1]
        index = next((m for one in reversed(before) if (m := _INDEXES.search(one.text))), None)
        base = (index[1] or index[2]) if index else None
        near = [m for one in before if (m := _LOADS_ADDRESS.match(one.text)) and base == (m[1] or m[2])]
        if near:
            return {int(near[-1][3], 16)}
        return {table for register, table in loaded if base in (register, None)}

    def _entries_in(self, table: int) -> frozenset[int]:
        with suppress(gdb.error, gdb.MemoryError):
            return frozenset((*self._entries_of(table, 4, table), *self._entries_of(table, 8, 0)))
        return frozenset()

    def _entries_of(self, table: int, size: int, base: int) -> Iterator[int]:
        for number in range(_LONGEST_TABLE):
            entry = int.from_bytes(_read_memory(table + number * size, size), "little", signed=True)
            if base + entry not in self._instructions:
                return
            yield base + entry

    def _roots(self) -> set[int]:
        """Return where control comes from nowhere in the function: its entry, the targets of tables, landing pads."""
        reached = {after for successors in self._successors.values() for after in successors}
        return {
            address
            for address in self._instructions
            if address == self._code.entry
            or address in self._pads
            or (address not in reached and not self._is_padding(address))
        }

    def _is_padding(self, address: int) -> bool:
        return _PADDING.match(self._instructions[address].text) is not None

    def _reachable(self, starts: Iterable[int], *, until_caught: bool = False) -> set[int]:
        seen: set[int] = set()
        todo = list(starts)
        while todo:
            address = todo.pop()
            if address in seen:
                continue
            seen.add(address)
            if not (until_caught and _CATCHES.search(self._instructions[address].text)):
                todo += self._successors[address]
        return seen

    # -- one inlined call ---------------------------------------------------------------------------------

    def _is_in(self, address: int, key: BlockKey) -> bool:
        return key in self._calls[address]

    def _parts_of(self, key: BlockKey) -> Iterator[set[int]]:
        """Yield the connected areas of the instructions of the call."""
        left = set(self._members[key])
        while left:
            todo, area = [left.pop()], set()
            while todo:
                address = todo.pop()
                area.add(address)
                near = {*self._successors[address], *self._predecessors[address]} & left
                left -= near
                todo += near
            yield area

    def _areas_beside(self, key: BlockKey) -> Iterator[set[int]]:
        """Yield the connected areas outside the call to which it leads and that may be gaps.

        Most lead far away: a search ends at the first instruction that no gap has.
        """
        inside = self._members[key]
        near, far = set[int](), set[int]()
        for start in {after for at in inside for after in self._successors[at]} - inside:
            if start in near or start in far:
                continue
            area, todo = {start}, [start]
            while todo:
                address = todo.pop()
                if address in far or address in self._ends_gaps or len(area) > _LONGEST_GAP:
                    far |= area
                    break
                new = {*self._successors[address], *self._predecessors[address]} - inside - area
                area |= new
                todo += new
            else:
                near |= area
                yield area
            self._spend(len(area))

    def _fill_gaps(self, key: BlockKey) -> None:
        """Count as inside what the compiler has only moved in between: code through which each path goes on inside.

        Code with branches may be the rest of a loop around the call.
        """
        entries = sorted(at for at in self._members[key] if self._is_entry(at, key))
        first = next((line for at in entries if (line := self._begins(at)) is not None), None)
        areas = list(self._areas_beside(key))
        gaps = [area for area in areas if self._may_be_gap(area, key, first)]
        while True:
            moved = set().union(*gaps)
            kept = [area for area in gaps if self._comes_all_from(self._after(area), moved, key)]
            if len(kept) == len(gaps):
                break
            gaps = kept
        for area in gaps:
            shared = next(at for one in area for at in self._predecessors[one] if at not in area)
            calls = self._calls[shared][: self._calls[shared].index(key) + 1]
            for one in area:
                self._set_calls(one, calls)

    def _after(self, area: set[int]) -> set[int]:
        return {at for one in area for at in self._successors[one]} - area

    def _join_pads(self, key: BlockKey) -> None:
        """Count as inside what leads from a landing pad to the handler of an exception in the call itself."""
        if not any(_CATCHES.search(self._instructions[at].text) for at in self._members[key]):
            return
        for pad in self._pads - self._members[key]:
            area, inside = self._before_handler(pad, key)
            for at in area if inside is not None else ():
                calls = self._calls[inside] if inside is not None else ()
                self._set_calls(at, calls[: calls.index(key) + 1])

    def _before_handler(self, pad: int, key: BlockKey) -> tuple[set[int], Optional[int]]:
        """Return the instructions from *pad* on that lead to the call *key*, and the first of it; None if none does."""
        area: set[int] = set()
        todo, ends = [pad], set[int]()
        while todo and len(area) < _NEAR:
            at = todo.pop()
            if self._is_in(at, key):
                ends.add(at)
            elif at not in area and not self._breaks(self._instructions[at]):
                area.add(at)
                todo += self._successors[at]
        leading: set[int] = set()
        new = {at for at in area if ends & set(self._successors[at])}
        while new:
            leading |= new
            new = {at for at in area - leading if leading & set(self._successors[at])}
        return leading, min(ends, default=None)

    def _may_be_gap(self, area: set[int], key: BlockKey, first: Optional[SourceLine]) -> bool:
        after = self._after(area)
        before = {at for one in area for at in self._predecessors[one]} - area
        if not before or not after:
            return False
        if any(len(self._successors[one]) > 1 for one in area):
            return False
        return not any(self._begins_anew(at, key, first) for at in after)

    def _comes_all_from(self, after: set[int], area: set[int], key: BlockKey) -> bool:
        return all(one in area or self._is_in(one, key) for at in after for one in self._predecessors[at])

    @staticmethod
    def _breaks(one: Instruction) -> bool:
        return one.is_call or not one.is_known or (one.target is None and not one.goes_on)

    def _begins_anew(self, at: int, key: BlockKey, first: Optional[SourceLine]) -> bool:
        """Return whether another call of the same description begins at *at*, on its *first* line: an unrolled loop."""
        if first is None or self._begins(at) != first:
            return False
        calls = [one for one in self._members[key] if self._instructions[one].is_call]
        if not calls:
            return True
        inside = self._reach_within(at, key)
        return any(one in inside for one in calls) and any(one not in inside for one in calls)

    def _is_entry(self, at: int, key: BlockKey) -> bool:
        return self._is_in(at, key) and any(not self._is_in(one, key) for one in self._predecessors[at])

    def _reach_within(self, start: int, key: BlockKey, *, others: AbstractSet[int] = frozenset()) -> set[int]:
        seen: set[int] = set()
        todo = [start]
        while todo:
            address = todo.pop()
            if address not in seen and address not in others and self._is_in(address, key):
                seen.add(address)
                todo += self._successors[address]
        self._spend(len(seen))
        return seen

    def _spend(self, steps: int) -> None:
        self._check()
        self._spent += steps
        if self._spent > _MOST_STEPS:
            raise LargeFunctionError

    def _drop_strays(self, key: BlockKey) -> None:
        """Count as outside what was only moved ahead of the call or behind it: no call, no beginning of a statement."""
        areas = list(self._parts_of(key))
        strays = [area for area in areas if not any(self._does_something(one) for one in area)]
        if len(strays) < len(areas):
            for one in (one for area in strays for one in area):
                self._set_calls(one, self._calls[one][: self._calls[one].index(key)])

    def _split_copies(self, key: BlockKey) -> None:
        """Tell the calls of an unrolled loop apart where they follow each other: each begins on the first line.

        So are calls without an effect that is certain, such as those that only free what they have: clang -O3.
        """
        inside = sorted(self._members[key])
        starts = self._root_set - self._pads
        entries = [
            at for at in inside if (self._is_entry(at, key) or at in starts) and self._line(at) is not None
        ]
        if not entries:
            return
        entry = next((at for at in entries if self._begins(at)), entries[0])
        opening, first = self._opening(entry, key), self._first_call(entry, key)
        if first is None:
            return
        own = set(self._up_to_call(entry, key))
        copies = [
            at
            for at in inside
            if at not in own
            and self._begins(at) == opening
            and self._chains[at] == self._chains[entry]
            and self._first_call(at, key) == first
            and not self._is_on_cycle(at, key)
            and not self._goes_on_with(opening, at)
        ]
        self._name_copies(key, copies)

    def _name_copies(self, key: BlockKey, copies: Sequence[int]) -> None:
        """Give each of the *copies* of the call, by where it begins, a key of its own."""
        for at in copies:
            copy = (at, key[1], key[2])
            self._copies.add(copy)
            self._lines[copy] = self._lines[key]
            for one in self._reach_within(at, key, others=set(copies) - {at}):
                self._set_calls(one, tuple(copy if known == key else known for known in self._calls[one]))

    def _opening(self, entry: int, key: BlockKey) -> Optional[SourceLine]:
        """Return the line on which the call begins; the beginning of its statement may have been moved ahead of it."""
        begins = self._begins(entry)
        lines = [line for at in self._up_to_call(entry, key) if (line := self._line(at)) is not None]
        return begins or min(lines, key=lambda line: line.number, default=None)

    def _goes_on_with(self, line: Optional[SourceLine], at: int) -> bool:
        """Return whether the instructions that lead to *at*, up to a call or a branch, belong to *line* already.

        Pool::add in tests/programs/inlined_conditions.cpp, by g++ -O2, would begin twice.
        """
        todo, seen = list(self._predecessors[at]), {at}
        while todo:
            one = todo.pop()
            if self._line(one) == line:
                return True
            if one not in seen and len(self._successors[one]) == 1 and not self._instructions[one].is_call:
                todo += self._predecessors[one]
            seen.add(one)
        return False

    def _line(self, at: int) -> Optional[SourceLine]:
        spot = self._code.spot(at)
        return spot.line if spot is not None else None

    def _begins(self, at: int) -> Optional[SourceLine]:
        """Return the line of which a statement begins at *at*."""
        spot = self._code.spot(at)
        return spot.line if spot is not None and spot.begins_line else None

    def _call_at(self, at: int) -> Optional[tuple[str, Optional[SourceLine]]]:
        one = self._instructions[at]
        return (one.text, self._line(at)) if one.is_call else None

    def _first_call(self, at: int, key: BlockKey) -> Optional[tuple[str, Optional[SourceLine]]]:
        """Return the first call that is made from *at* on, and its line."""
        return next((call for one in self._up_to_call(at, key) if (call := self._call_at(one))), None)

    def _up_to_call(self, at: int, key: BlockKey) -> Iterator[int]:
        """Yield the instructions of the inlined call from *at* on, up to the first one that calls a function."""
        seen: set[int] = set()
        while at in self._instructions and at not in seen and self._is_in(at, key):
            seen.add(at)
            yield at
            one = self._instructions[at]
            if one.is_call:
                return
            at = one.behind if one.goes_on or one.target is None else one.target

    def _is_on_cycle(self, at: int, key: BlockKey) -> bool:
        return any(at in self._reach_within(one, key) for one in self._successors[at])

    def _does_something(self, at: int) -> bool:
        spot = self._code.spot(at)
        return at in self._effects or (spot is not None and spot.begins_line)

    # -- what the compiler has marked ---------------------------------------------------------------------

    def _marked(self, described: Mapping[BlockKey, AbstractSet[int]]) -> Optional[Counter[int]]:
        """Return where calls begin by the compiler's marks, and how many; None if it has not marked each of them.

        *described*: the instructions of each inlined call, as the program describes them.
        """
        if any(map(self._is_of_namesake, self._instructions)) or not self._describes_all():
            return None
        own = [
            (place.symtab, place.line)
            for at, chain in self._chains.items() if chain and self._known[chain[0]]
            for place in [gdb.find_pc_line(at)]
        ] + [
            (block.function.symtab, block.function.line)  # of calls in its code
            for calls, block in self._blocks.items() if len(calls) > 1 and self._known[calls[1]]
        ]  # fmt: skip
        declared = declared_at(own, self._name)
        if declared is None:
            return None
        inlined = set().union(*described.values())
        marks = read_marks(*declared, self._name, self._code.entry, self._instructions.keys(), inlined)
        if marks is None:
            return None
        self._has_marks = True
        is_split = any(
            split_function(str(block.function)).parts == split_function(str(self._blocks[calls[1:]].function)).parts
            for calls, block in self._blocks.items() if calls[1:] in self._blocks and self._known[calls[0]]
        )  # fmt: skip
        entries = marks.begins(marks.declared)
        if marks.first is not None and not self._loop(marks.begins(marks.first)):
            firsts = marks.begins(marks.first)
            is_split = is_split or self._is_wanted(self._block)
            is_sure = (
                self._are_marked(firsts, described)
                and self._take_turns(entries, firsts, is_split=is_split)
                and not self._are_ahead(marks, marks.first)
                and not self._are_passed_again(marks, firsts.keys())
            )
            return firsts if is_sure and not self._are_lost(marks, marks.first) else None
        # A function that calls itself may have become a loop.
        found = find_function(source_lines(declared[0]), self._name, declared[1])
        if is_split or self._loop(entries) or found is None or found.calls_itself:
            return None
        is_sure = (
            self._are_marked(entries, described)
            and not self._are_ahead(marks, marks.declared)
            and not self._are_passed_again(marks, entries.keys())
        )
        return entries if is_sure and not self._are_lost(marks, marks.declared) else None

    def _loop(self, begins: Iterable[int]) -> bool:
        """Return whether one call may pass one of the marks several times."""
        return any(self._is_on_cycle(at, self._calls[at][-1]) for at in begins if self._calls[at])

    def _are_ahead(self, marks: Marks, begin: Place) -> bool:
        """Return whether a mark comes ahead of the branch of an ``if`` that decides whether the function is called.

        Where gcc tests the first condition of a call together with that ``if``, it tests both in the place of the mark.
        """
        around = {
            split_function(key[2]).parts[-1]
            for chain in self._blocks if any(map(self._known.get, chain)) for key in chain
        } - {split_function(self._name).parts[-1]}  # fmt: skip
        deciding = {id(one) for one in self._deciding(marks, around)}
        rows: dict[int, list[LineRow]] = {}
        for one in marks.rows:
            rows.setdefault(one.address, []).append(one)
        for own in (one for one in marks.own if (one.line, one.column) == begin):
            here = rows[own.address]
            in_front, at = here[: here.index(own)], own.address
            while True:
                if any(id(one) in deciding for one in in_front):
                    return True
                before = [one for one in self._predecessors[at] if self._instructions[one].behind == at]
                if not before or self._successors[before[0]] != [at]:
                    break
                at = before[0]
                in_front = rows.get(at, [])
                self._spend(1)
        return False

    def _deciding(self, marks: Marks, around: AbstractSet[str]) -> Iterator[LineRow]:
        """Yield the marks of each ``if``, of the container and the functions *around* calls, that decides on a call."""
        called = [*around, split_function(self._name).parts[-1]]
        others = {split_function(chain[0][2]).parts[-1] for chain in self._blocks} - around
        for symtab in self._symtabs():
            lines = source_lines(symtab)
            rows = [one for one in of_file(marks.rows, symtab) if one.column and 0 < one.line <= len(lines)]
            places = functions_at(lines, {(one.line, one.column) for one in rows})
            decide = {
                place
                for place, (_, function) in places.items()
                if function not in others and may_skip(lines, *place, called)
            }
            yield from (one for one in rows if (one.line, one.column) in decide)

    def _are_lost(self, marks: Marks, begin: Place) -> bool:
        """Return whether a statement that surely calls the function is passed, or gone past, without a mark."""
        passed = self._statements(marks, begin)
        everyone = frozenset(one.function for rows in passed.values() for one in rows if one.follows_call)
        todo = [(at, _Statement(None).function, everyone, False, False) for at in self._root_set]
        seen = set(todo)
        while todo:
            at, calling, left, is_outside, jumped = todo.pop()
            in_front = self._lines_in_front(at) if jumped and at in passed else ()
            for one in passed.get(at, ()):
                if one.function is None:
                    calling, left, is_outside = None, frozenset(), False
                elif (
                    one.function == calling
                    or (one.follows_call and one.function in left and one.line not in in_front)
                    or (one.is_inside and is_outside)
                ):
                    return True
                else:
                    calling = one.function if one.calls else calling
                    left |= {one.function} & everyone
                    is_outside = is_outside or one.is_outside
            behind = self._instructions[at].behind
            new = {
                (after, calling, left, is_outside, after != behind) for after in self._successors[at]
            } - seen
            seen |= new
            todo += new
            self._spend(len(new))
        return False

    def _are_passed_again(self, marks: Marks, begins: AbstractSet[int]) -> bool:
        """Return whether a call comes twice to a statement that is in no loop, at one of the *begins*.

        A jump to the address of a mark may pass it, or come behind it: the compiler puts what it has left of a call in
        front of code that it has joined.
        """
        names = {self._name, *(str(block.function) for block in self._blocks.values())}
        for symtab in self._symtabs():
            lines = source_lines(symtab)
            rows = [one for one in of_file(marks.rows, symtab) if one.column and 0 < one.line <= len(lines)]
            addresses: dict[Place, set[int]] = {}
            for one in rows:
                addresses.setdefault((one.line, one.column), set()).add(one.address)
            places = functions_at(lines, addresses)
            entries: dict[int, Place] = {}
            for place, (number, _) in sorted(places.items()):
                entries.setdefault(number, place)
            for place, (number, function) in places.items():
                passed = addresses[place]
                if len(passed) == 1 or entries[number] == place or not passed & begins:
                    continue
                if not any(loops_around(lines, function, place[0], one) == Loops(0, 0) for one in names):
                    continue
                entered = addresses[entries[number]]
                behind = {after for at in passed for after in self._successors[at]}
                if self._reach(behind, self._successors, entered) & passed & begins:
                    return True
        return False

    def _lines_in_front(self, at: int) -> set[int]:
        """Return the lines of the code that runs into *at*: a jump there does not pass the end of their statements."""
        found = set[int]()
        while True:
            before = [one for one in self._predecessors[at] if self._instructions[one].behind == at]
            if not before or self._instructions[before[0]].target == at:
                return found
            at = before[0]
            line = self._line(at)
            found |= {line.number} if line is not None else set()
            if len(self._predecessors[at]) != 1:
                return found

    def _statements(self, marks: Marks, begin: Place) -> dict[int, list[_Statement]]:
        """Return which statements are passed at each address, in order."""
        body = find_function(source_lines(marks.symtab), self._name, marks.declared[0])
        kinds = dict[int, _Statement]()
        name = name_pattern(self._name)
        around = split_function(str(self._block.function)).parts[-1]
        for symtab in self._symtabs():
            lines = source_lines(symtab)
            rows = [one for one in of_file(marks.rows, symtab) if one.column and 0 < one.line <= len(lines)]
            places = functions_at(lines, {(one.line, one.column) for one in rows})
            statements = {}
            for (line, column), (number, function) in places.items():
                # It may be within the call, too, if that comes to it again.
                is_alone = body is not None and not mentions(re.escape(function), body.body)
                statements[line, column] = _Statement(
                    (file_name(symtab), number),
                    line if not mentions(name, lines[line - 1]) else 0,
                    surely_calls(lines, line, column, self._name),
                    is_alone and surely_called(lines, line, column, self._name),
                    function if (line, column) != marks.declared else "",
                    is_outside=function == around
                    and without_inner(lines[line - 1]) == lines[line - 1]
                    and not comes_to(lines, self._name, around),
                )
            kinds.update(
                {
                    id(one): statements[place]
                    for one in rows
                    if (place := (one.line, one.column)) in statements
                }
            )
        name = split_function(self._name).parts[-1]
        kinds.update({id(one): _Statement(None) for one in marks.own if (one.line, one.column) == begin})
        found: dict[int, list[_Statement]] = {}
        for row in marks.rows:
            if id(row) in kinds:
                found.setdefault(row.address, []).append(self._in_chain(kinds[id(row)], row.address))
        for at in (at for at, effect in self._effects.items() if self._called(effect) == name):
            found.setdefault(at, []).append(_Statement(None))
        return found

    def _in_chain(self, statement: _Statement, at: int) -> _Statement:
        """Return the *statement* with what the functions inlined *at* its address tell of it."""
        chain = self._chains[at]
        depth = max((number for number, key in enumerate(chain, 1) if self._known[key]), default=0)
        names = {split_function(key[2]).parts[-1:] for key in chain[:depth]}
        # Code of others that are inlined elsewhere, too, may be joined.
        names -= {
            split_function(calls[0][2]).parts[-1:]
            for calls in self._blocks
            if not any(map(self._known.get, calls))
        }
        is_lambda = any("lambda" in key[2] for key in chain)  # whose source stands in another function
        return statement._replace(
            is_inside=(statement.name,) in names, is_outside=statement.is_outside and not is_lambda
        )

    def _are_marked(self, begins: Counter[int], described: Mapping[BlockKey, AbstractSet[int]]) -> bool:
        """Return whether each of the calls *described* has one of the marks."""
        return (
            sum(begins.values()) >= len(described)
            and all(self._is_led_to(members, begins.keys()) for members in described.values())
            and not any(map(self._is_packed, begins))
            and not any(self._is_left_of(at, begins) for at in begins)
            and not any(self._is_packed_in_row(at) for at in begins)
        )

    def _is_left_of(self, at: int, begins: Counter[int]) -> bool:
        """Return whether *at* only jumps to another of the marks: to the code from there on, it has been joined."""
        one = self._instructions[at]
        return not (one.goes_on or one.is_call) and any(begins[after] for after in self._successors[at])

    def _take_turns(self, entries: Counter[int], firsts: Counter[int], *, is_split: bool) -> bool:
        """Return whether there is one of the *entries* between any two of the *firsts*, and the reverse.

        Where a function *is_split*, its second part has an entry of its own.
        """
        return any(self._alternates(entries, firsts, is_split, is_entered) for is_entered in (False, True))

    def _alternates(
        self,
        entries: Counter[int],
        firsts: Counter[int],
        is_split: bool,
        is_entered: bool,
        *,
        is_even: bool = False,
    ) -> bool:
        at_first, todo = is_entered, [(at, is_entered) for at in self._root_set]
        seen = set(todo)
        while todo:
            at, is_entered = todo.pop()
            more = entries[at] + is_entered - firsts[at]
            if more < 0 or (more > 1 and not is_split):
                return False
            if is_even and self._ends_function(at) and (more > 0) != at_first:
                return False
            new = {(after, more > 0) for after in self._successors[at]} - seen
            seen |= new
            todo += new
            self._spend(len(new))
        return True

    def _is_led_to(self, members: AbstractSet[int], marks: AbstractSet[int]) -> bool:
        """Return whether one of the *marks* is in an inlined call, or leads straight to it.

        What the call does first may have been moved behind the code of the next one.
        """
        if members & marks:
            return True
        todo = [before for at in members for before in self._predecessors[at] if before not in members]
        seen = set[int]()
        while todo and len(seen) < _NEAR * len(members):
            at = todo.pop()
            if at in seen or len(self._successors[at]) != 1:
                continue
            if at in marks:
                return True
            seen.add(at)
            todo += self._predecessors[at]
        return False

    def _is_packed(self, at: int) -> bool:
        """Return whether the innermost loop around *at* does several of its rounds at once."""
        before: dict[int, Optional[int]] = {}
        todo = [(one, at) for one in self._successors[at]]
        for one, origin in todo:  # grows meanwhile
            if one not in before:
                before[one] = origin
                todo += [(after, one) for after in self._successors[one]]
        self._spend(len(before))
        here = at if at in before else None
        while here is not None:
            if _PACKED.match(self._instructions[here].text):
                return True
            here = before[here]
            if here == at:
                return False
        return False

    def _by_marks(self, described: Mapping[BlockKey, AbstractSet[int]]) -> Optional[dict[int, Passage]]:
        """Return the passages that count the calls that are marked; None if those marks are not certain."""
        begins = self._marked(described)
        if (
            begins is None
            or self._is_loop_lost(begins, or_unknown=False)
            or not self._do_as_their_source(begins)
        ):
            return None
        found = self._begins_only(begins.keys())
        return {at: one._replace(times=begins[at]) for at, one in found.items()}

    # -- what each call tests first -----------------------------------------------------------------------

    def _by_operations(self, described: Mapping[BlockKey, AbstractSet[int]]) -> Optional[dict[int, Passage]]:
        """Return the passages that count one of the things that each call does; None if it may do that less often.

        clang marks no calls, but what it copies keeps its line and column.
        """
        if self._has_marks or any(map(self._is_of_namesake, self._instructions)) or not self._describes_all():
            return None
        operations = self._operations()
        if len(operations) * len(self._instructions) > _MOST_STEPS:
            return None
        for begins in (*self._by_effects(operations), *self._by_conditions(operations)):
            if (
                self._are_marked(begins, described)
                and not self._loop(begins)
                and not self._is_loop_lost(begins, or_unknown=True)
                and self._do_as_their_source(begins)
            ):
                return self._begins_only(begins.keys())
        return None

    def _by_conditions(self, operations: Mapping[Operation, Operations]) -> Iterator[Counter[int]]:
        """Yield where each call tests a condition for certain, and does something behind it.

        Where a compiler knows the condition of a call ahead, or joins calls, some effect of that call is left: without
        a test in front of it, or twice after one.
        """
        firsts = [one for one in operations if one.kind in (COMPARES, BRANCHES)]
        for one in sorted(firsts, key=Operation.order)[:_NEAR]:
            begins = Counter(operations[one].places)
            if (
                is_reached_once(operations[one].steps, one.column)
                and self._have_effects(begins.keys(), operations[one].steps, operations)
                and all(self._is_single(more.places, begins.keys()) for more in operations.values())
            ):
                yield begins

    def _by_effects(self, operations: Mapping[Operation, Operations]) -> Iterator[Counter[int]]:
        """Yield where each call does something for certain, if it does such things, which alternate on each path.

        A compiler may join an effect with that of the next call, undo it, or know ahead what is tested: not all that a
        call does at once, while what the source has beside it stays.
        """
        places = {one: self._without_parts(more.places, operations) for one, more in operations.items()}
        certain = {
            one: Counter(places[one])
            for one, more in operations.items()
            if one.kind in (CALLS, WRITES, COMPARES, BRANCHES) and is_reached_once(more.steps, one.column)
        }
        if (
            len({(one.path, one.column) for one in certain}) < 2
            or not any(self._is_kept(one, places[one]) for one in certain)
            or all(one.kind == WRITES and self._may_be_wide(operations[one].places) for one in certain)
        ):
            return
        begins = certain[min(certain, key=Operation.order)]
        if (
            all(
                self._take_turns(begins, more, is_split=False)
                for more in certain.values()
                if more is not begins
            )
            and all(self._is_single(more, begins.keys()) for more in places.values())
            and not self._are_passed(begins.keys())
        ):
            yield begins

    def _is_kept(self, operation: Operation, places: Sequence[int]) -> bool:
        """Return whether it writes, or calls what compilers neither replace nor call once for several calls."""
        targets = {self._effects[at].target for at in places if at in self._effects}
        return operation.kind == WRITES or (
            operation.kind == CALLS
            and not any(one is None or self._is_replaced(one) or self._is_pure(one) for one in targets)
        )

    def _may_be_wide(self, places: Sequence[int]) -> bool:
        """Return whether one instruction may write what several calls write next to each other."""
        return any(self._instructions[at].text.lstrip("v").startswith("mov") for at in places)

    def _without_parts(self, places: Sequence[int], operations: Mapping[Operation, Operations]) -> list[int]:
        """Return the *places* of an operation without those that only go on with it: a write of several sizes."""
        others = {at for more in operations.values() for at in more.places if more.places is not places}
        found = []
        for at in places:
            before = at
            while True:
                ways = self._predecessors[before]
                before = ways[0] if len(ways) == 1 else at
                if before == at or before in others or len(self._successors[before]) != 1:
                    found.append(at)
                    break
                if before in places:
                    names = {self._instructions[one].text.split()[0] for one in (at, before)}
                    found += [at] if len(names) == 1 else []
                    break
        return found

    def _are_passed(self, begins: AbstractSet[int]) -> bool:
        """Return whether control comes to an effect that the source has beside a call, and goes past that call."""
        places = read_places(
            str(function_symtab(self._block).objfile.filename), self._code.entry, self._instructions
        )
        has_frame = any(map(sets_frame, self._instructions.values()))
        calls = {
            self._chains[at][n:]
            for at in begins
            for n, key in enumerate(self._chains[at])
            if self._known[key]
        }
        for call in calls:
            function = self._blocks[call].function
            lines = source_lines(function.symtab)
            around = [
                at
                for at in places
                if self._chains[at] == call[1:] and self._is_effect(at, has_frame=has_frame)
            ]
            for place in {places[at] for at in around}:
                side = beside(lines, function.line, str(function), *place)
                here = {at for at in around if places[at] == place}
                starts = {after for at in here for after in self._successors[at]}
                starts |= self._root_set - self._pads if side is Side.BEHIND else set()
                if side is not None and here & self._reach(starts, self._successors, begins):
                    return True
        return False

    def _operations(self) -> dict[Operation, Operations]:
        """Return what the wanted calls do that is in their source; nothing if that is not certain."""
        places = read_places(
            str(function_symtab(self._block).objfile.filename), self._code.entry, self._instructions
        )
        has_frame = any(map(sets_frame, self._instructions.values()))
        found: dict[Operation, Operations] = {}
        for at, (line, column) in places.items():
            wanted = sum(self._known[key] for key in self._chains[at])
            if wanted > 1 or (wanted and self._is_wanted(self._block)):
                return {}  # it calls itself
            if not wanted:
                continue
            *around, last = self._steps(at)
            steps = (*around, last._replace(line=line))
            source = text_at(steps[-1], column)
            if is_joined(self._instructions[at].text, source):
                return {}
            is_effect = self._is_effect(at, has_frame=has_frame)
            text = self._instructions[at].text
            kind = Operation.kind_of(text, source, is_effect=is_effect)
            if kind:
                more = {CALLS: text, COMPUTES: text.split()[0]}.get(kind, "")
                path = tuple((one.line, one.function) for one in steps)
                found.setdefault(Operation(kind, path, column, more), Operations(steps, [])).places.append(at)
        return found

    def _is_effect(self, at: int, *, has_frame: bool) -> bool:
        """Return whether *at* calls, or writes memory that is not the stack's; *has_frame*: rbp points to that."""
        text = self._instructions[at].text
        write = None if _ONLY_READS.match(text) else _WRITES.match(text)
        return at in self._effects or (
            write is not None and not (has_frame and str(write["register"]).endswith("bp"))
        )

    def _have_effects(
        self,
        begins: AbstractSet[int],
        first: Sequence[Step],
        operations: Mapping[Operation, Operations],
    ) -> bool:
        """Return whether an effect of each call follows its beginning, and none comes ahead of all beginnings.

        *first*: where in the source it begins.
        """
        has_frame = any(map(sets_frame, self._instructions.values()))
        effects = {
            at
            for at in self._instructions
            if any(map(self._known.get, self._chains[at])) and self._is_effect(at, has_frame=has_frame)
        }
        effects = {at for at in effects if not _is_ahead(self._steps(at), first)}
        stack = {
            at
            for one, more in operations.items()
            if one.kind == WRITES_STACK and is_reached_once(more.steps, one.column)
            for at in more.places
        }
        todo: list[tuple[int, Optional[bool]]] = [
            (at, True if at in self._pads else None) for at in self._root_set
        ]
        seen = set[tuple[int, Optional[bool]]]()
        while todo:
            at, has_effect = todo.pop()
            if (at, has_effect) in seen:
                continue
            seen.add((at, has_effect))
            if (at in begins and has_effect is False) or (at in effects - begins and has_effect is None):
                return False
            if at in begins:
                has_effect = False
            elif at in effects or (at in stack and has_effect is False):
                has_effect = True
            if has_effect is False and self._ends_function(at):
                return False
            todo += [(after, has_effect) for after in self._successors[at]]
        self._spend(len(seen))
        return True

    def _is_single(self, places: Sequence[int], begins: AbstractSet[int]) -> bool:
        """Return whether a call is at one of the *places* once, but for those in a loop of the call itself."""
        others = set(places) - begins
        behind = {after for at in others for after in self._successors[at]}
        again = self._reach(behind, self._successors, begins) & others
        return all(self._calls[at] and self._is_on_cycle(at, self._calls[at][-1]) for at in again)

    def _is_loop_lost(self, begins: Counter[int], *, or_unknown: bool) -> bool:
        """Return whether a call stands in more loops than its code, which is not repeated, *or* that is *unknown*."""
        by_call: dict[Optional[BlockKey], list[int]] = {}
        for at in begins.elements():
            key = next((key for key in self._chains[at] if self._known[key]), None)
            by_call.setdefault(key, []).append(at)
        if None in by_call:  # it may be of any of them
            by_call = {None: list(begins)}
        anyone = [min(members) for key, members in self._members.items() if members and key in self._lines]
        for key, places in by_call.items():
            loops = [self._loops_around(one) for one in (places[:1] if key is not None else anyone)]
            if or_unknown and not all(one.is_known for one in loops):
                return True
            cycles = max(map(self._cycles_around, places))
            # The rounds of a loop of a fixed number may follow each other.
            if any(cycles < (one.number if len(places) == 1 else one.variable) for one in loops):
                return True
        return False

    def _is_packed_in_row(self, at: int) -> bool:
        """Return whether the call at *at*, of a loop that was unrolled, does several rounds at once."""
        key = next((key for key in self._chains[at] if self._known[key]), None)
        packed = key is not None and any(
            _PACKED.match(self._instructions[one].text) for one, chain in self._chains.items() if key in chain
        )
        loops = self._loops_around(at) if packed else Loops(0, 0)
        return not loops.is_known or loops.number > self._cycles_around(at)

    def _loops_around(self, at: int) -> Loops:
        """Return in which loops of the source the wanted call at *at* stands."""
        blocks = [block for _, block in self._code.blocks(at)]
        depth = next((n for n, block in enumerate(blocks) if self._is_wanted(block)), len(blocks))
        found = Loops(0, 0, is_known=depth < len(blocks))
        for inner, outer in zip(blocks[depth:], blocks[depth + 1 :]):
            lines, line = source_lines(inner.function.symtab), inner.function.line
            found = found.further(loops_around(lines, str(outer.function), line, str(inner.function)))
        return found

    def _cycles_around(self, at: int) -> int:
        """Return in how many loops, each within another one, the instruction is."""
        number, outside = 0, set[int]()
        while True:
            behind = self._reach(self._successors[at], self._successors, outside)
            if at not in behind:
                return number
            number += 1
            around = behind & self._reach({at}, self._predecessors, outside)
            entries = {one for one in around if not around.issuperset(self._predecessors[one])}
            if at in entries or not entries:
                return number
            outside = self._instructions.keys() - (around - entries)

    def _do_as_their_source(self, begins: Counter[int]) -> bool:
        """Return whether each of the calls does what its source says that it does once, as far as that is known."""
        for witness, reach, places in self._witnesses(self._effects):
            if reach.is_once and not self._take_turns(begins, Counter(places), is_split=False):
                return False
            if reach.is_once and not all(self._is_whole(at, witness) for at in places):
                return False
        return True

    # -- the proof ----------------------------------------------------------------------------------------

    def _prove(self, passages: dict[int, Passage], *, ends: bool) -> Optional[dict[int, Passage]]:
        """Return the passages that count each call once; None if nothing shows that any do.

        Compilers copy, join, move and lose code, and with it what describes it, but what a program does visibly it
        does as often as its source says. Passages that alternate with such an effect on each path are right. Those that
        do not are replaced by the effect itself, which tells where calls begin, and in simple code where they end.
        """
        effects, is_seen = self._effects, False
        for witness, reach, begins in self._witnesses(effects):
            is_seen = is_seen or bool(reach.is_once)
            inlined = {at for at in begins if self._calls[at]}
            if self._given:
                self._lines.update({self._key_at(at): self._place(at) for at in begins})
            if not begins or not all(self._is_whole(at, witness) for at in begins):
                continue
            self._witness = witness if reach.is_once else None
            is_replaced = witness.is_call and self._is_replaced(witness.target)
            own = begins if self._given or not self._is_wanted(self._block) else inlined
            if (
                own
                and self._lines
                and (
                    not is_replaced
                    or (self._is_in_all(begins) and not any(map(self._is_avoided, self._lines)))
                )
                and self._alternate(passages, own, effects)
                and not self._loops_itself(begins - own)
            ):
                return passages
            left = self._left_before(reach) if reach.is_once else None
            if (
                left is None
                or is_replaced
                or (witness.is_call and not self._given and not self._is_in_all(begins))
            ):
                continue
            counted = None if self._given or left else self._passages_at(begins, effects)
            if counted and self._alternate(counted, begins, effects):
                return counted
            if not ends:
                return self._begins_only(begins | left)
        return passages if not is_seen and self._is_plain() else None

    def _is_plain(self) -> bool:
        """Return whether each inlined call calls a function and has one way in, and the source makes no other call.

        Code that does so is not computed ahead, or once for several calls; writes to memory may be joined. It must be
        on each way: where compilers know that a call does nothing, they leave it out.
        """
        starts = self._root_set - self._pads
        for key, members in self._members.items():
            ways_in = [at for at in members if at in starts or self._is_entry(at, key)]
            calls = any(
                self._effects[at].is_call and self._is_of(key, at) for at in members & self._effects.keys()
            )
            if members and (
                len(ways_in) != 1 or not calls or self._is_unrolled(key) or self._is_avoided(key)
            ):
                return False
        outside = [one for at, one in self._effects.items() if not self._calls[at] and not self._is_own(at)]
        inside = {one.target for at, one in self._effects.items() if self._calls[at]} - {None}
        if any(one.target in inside and (one.line is None or one.line in self._body) for one in outside):
            return False
        return self._describes_all()

    def _is_in_all(self, begins: AbstractSet[int]) -> bool:
        """Return whether each call, as far as is known, has one of the *begins*."""
        is_own = self._is_wanted(self._block)
        return (
            all(members & begins for members in self._members.values() if members)
            and (not is_own or any(not self._calls[at] for at in begins))
            and self._describes_all()
        )

    def _describes_all(self) -> bool:
        """Return whether the program describes as many calls as the sources make.

        They are the sources of the container and of what is inlined into it, and the calls those of the function and
        of others that come to it: nothing may be left of such a call, either.
        """
        made = Counter[tuple[Calls, str]]()
        for calls, block in self._blocks.items():
            is_described = not self._known.get(calls[0]) or self._members[calls[0]]
            if is_described and not self._is_part(calls):
                made[self._unsplit(calls[1:]), split_function(str(block.function)).parts[-1]] += 1
        for at, effect in self._effects.items():
            if called := self._called(effect):
                made[self._unsplit(self._chains[at]), called] += 1
        own = [line.number for at, chain in self._chains.items() if not chain and (line := self._line(at))]
        last = {chain: at for at, chain in self._chains.items()}
        files = {chain: gdb.find_pc_line(at).symtab for chain, at in last.items()}
        files.update({calls[1:]: block.function.symtab for calls, block in self._blocks.items()})
        found = {
            calls: calls_to(block.function, files.get(calls), self._name)
            for calls, block in self._blocks.items() if not self._is_part(calls)
        }  # fmt: skip
        found[()] = calls_to(self._block.function, function_symtab(self._block), self._name, own)
        blocks = {**self._blocks, (): self._block}
        known = {split_function(str(blocks[calls].function)).parts[-1] for calls, one in found.items() if one}
        known |= {function for source in found.values() for function in source or ()}
        return found[()] is not None and all(
            number <= made[self._unsplit(calls), function]
            for calls, source in found.items() if source and not any(map(self._known.get, calls))
            for function, number in source.items()
        ) and are_calls_known(self._symtabs(), self._name, known)  # fmt: skip

    @staticmethod
    def _called(effect: Effect) -> str:
        """Return the plain name of the function that is called, also where it is a part or copy; "" if unknown."""
        return _called_name(effect.target) if effect.is_call and effect.target is not None else ""

    def _is_avoided(self, key: BlockKey) -> bool:
        """Return whether a way through the function, or a round of the loop that the call is in, goes past the call."""
        inside = self._members[key]
        if any(map(self._ends_function, self._reach({self._code.entry}, self._successors, inside))):
            return True
        behind = {after for at in inside for after in self._successors[at]}
        ahead = {before for at in inside for before in self._predecessors[at]}
        around = self._reach(behind, self._successors, inside) & self._reach(
            ahead, self._predecessors, inside
        )
        left = {at: sum(one in around for one in self._successors[at]) for at in around}
        todo = [at for at, number in left.items() if not number]
        while todo:  # all but those of another round
            at = todo.pop()
            del left[at]
            for one in left.keys() & set(self._predecessors[at]):
                left[one] -= self._successors[one].count(at)
                todo += [one] if not left[one] else []
        return bool(left)

    def _ends_function(self, at: int) -> bool:
        one = self._instructions[at]
        return not (one.goes_on or one.is_call or self._successors[at]) and not _STOPS.match(one.text)

    def _reach(
        self, starts: Iterable[int], following: Mapping[int, Iterable[int]], inside: AbstractSet[int]
    ) -> set[int]:
        """Return the instructions that are reached from *starts* by those *following* each, but for those *inside*."""
        seen, todo = set[int](), list(starts)
        while todo:
            at = todo.pop()
            if at not in seen and at not in inside:
                seen.add(at)
                todo += following[at]
        self._spend(len(seen))
        return seen

    def _is_of(self, key: BlockKey, at: int) -> bool:
        """Return whether the effect at *at* is not one of the container's that was moved between the call's code.

        GCC 16 does that at -O3 with a function that only computes, of which it makes one call ahead.
        """
        line, is_deeper = self._effects[at].line, self._chains[at][:1] not in ((), (key,))
        return is_deeper or line is None or not self._body or line in self._body

    def _is_unrolled(self, key: BlockKey) -> bool:
        """Return whether the inlined call does something more often, one after the other, than its source says."""
        places: dict[tuple[Calls, Effect], list[int]] = {}
        for at in self._members[key] & self._effects.keys():
            places.setdefault((self._chains[at], self._effects[at]), []).append(at)
        for repeated in places.values():
            effect = self._effects[repeated[0]]
            if len(repeated) == 1:
                continue
            following = [at for one in repeated for at in repeated if at in self._reach_from(one, key)]
            most = max(map(following.count, following), default=0) + 1
            if most > 1 and most > len(
                mentions(target_name(effect), line_text(gdb.find_pc_line(repeated[0])))
            ):
                return True
        return False

    def _reach_from(self, at: int, key: BlockKey) -> set[int]:
        """Return the instructions of the call to which control goes from *at*, with *at* only if it is in a loop."""
        return set().union(*(self._reach_within(one, key) for one in self._successors[at]))

    def _begins_only(self, begins: AbstractSet[int]) -> dict[int, Passage]:
        self._counts_own = True
        return {at: Passage(Kind.ARRIVES, (self._key_at(at),), fresh=1, follows=True) for at in begins}

    def _left_before(self, reach: Reach) -> Optional[set[int]]:
        """Return where exceptions leave calls that have not come so far; None if that may be elsewhere, too."""
        found, is_c = set[int](), file_name(function_symtab(self._block)).endswith(".c")
        for at, effect in self._effects.items() if reach.in_front else ():
            text = self._instructions[at].text
            throws = _THROWS.search(text) is not None
            if not effect.is_call or not (throws or (_MAY_THROW.search(text) and not is_c)):
                continue
            steps = self._steps(at)
            callee = symbol_at(effect.target, demangled=True) if effect.target is not None else ""
            if steps and effect.target is None and reach.calls_member:
                return None
            others = [str(block.function) for _, block in self._code.blocks(at)[:-1]]
            into = [*(_path(steps)[:1] if steps else others), *([callee] if callee and not throws else [])]
            if any(map(reach.is_behind, into)):
                if not (throws and steps):
                    return None
                found.add(at)
        return found

    def _count_joined(self) -> Optional[dict[int, Passage]]:
        """Return the passages that count calls by a variable; None if there is no such variable.

        Its source counts it up once in each call, and no other code writes it: then all that this code adds to it are
        calls, wherever the compiler has put them.
        """
        if any(map(self._is_of_namesake, self._instructions)):
            return None
        for target in {
            one.target for one in self._effects.values() if not one.is_call and one.target is not None
        }:
            variable = Effect(None, target, is_call=False)
            if self._given and self._given[1:] != variable[1:]:
                continue
            place = only_write(variable, self._symtabs())
            reach = reach_of([Step(self._name, *place)], variable) if place is not None else Reach(False)
            if place is None or not reach.is_once:
                continue
            begins = {at for at, one in self._effects.items() if one[1:] == variable[1:]}
            writes, left = self._writes(begins, variable), self._left_before(reach)
            if writes is None or left is None:
                continue
            self._witness = variable._replace(line=SourceLine(file_name(place[0]), place[1]))
            found = self._begins_only(begins | left)
            for at in (at for at in begins if not self._is_whole(at, variable)):
                write = writes[at]._replace(follows_call=self._follows_call(at, target))
                found[at] = found[at]._replace(counted=write)
            return found
        return None

    def _writes(self, begins: AbstractSet[int], variable: Effect) -> Optional[dict[int, CounterWrite]]:
        """Return how each of the instructions writes the *variable*; None if others may write it, too."""
        target = variable.target or 0
        found = {at: read_write(self._instructions[at].text, target) for at in begins}
        writes = {at: one for at, one in found.items() if one is not None}
        sizes = {one.size for one in writes.values()}
        if len(writes) < len(begins) or len(sizes) != 1:
            return None
        size, is_pointed_to = sizes.pop(), self._has_address(target)
        for at, effect in self._effects.items():
            if effect.is_call or at in begins:
                continue
            text = self._instructions[at].text
            if effect.target is None:
                write = read_write(text, target) if is_pointed_to else None
                may_write = write is not None and write.size == size and names(gdb.find_pc_line(at), variable)
            else:
                may_write = effect.target < target + size and effect.target + width(text) > target
            if may_write:
                return None
        return writes

    def _has_address(self, target: int) -> bool:
        """Return whether the code has an address of the static variable at *target* in a register."""
        variable = symbol_at(target).partition(" + ")[0]
        for one in self._instructions.values():
            load = _LOADS_ADDRESS.match(one.text) or _LOADS_CONSTANT.match(one.text)
            entry = _LOADS.match(one.text)
            with suppress(gdb.error, gdb.MemoryError):
                if load:
                    address = int(load["at"], 16)
                elif entry and entry["at"]:  # of the global offset table, or a pointer
                    address = int.from_bytes(_read_memory(int(entry["at"], 16), 8), "little")
                else:
                    continue
                if symbol_at(address).partition(" + ")[0] == variable:
                    return True
        return False

    def _follows_call(self, at: int, target: int) -> bool:
        """Return whether a call was made since the variable at *target* was last read or written before *at*."""
        seen, todo = set[int](), list(self._predecessors[at])
        while todo:
            before = todo.pop()
            if before in seen or f"0x{target:x} <" in self._instructions[before].text:
                continue
            seen.add(before)
            one = self._instructions[before]
            if one.is_call and not _NEVER_RETURNS.search(one.text):
                return True
            todo += self._predecessors[before]
        return False

    def _symtabs(self) -> list[gdb.Symtab]:
        """Return the source files of which this code has lines."""
        places = {line.file: at for at in self._instructions if (line := self._line(at)) is not None}
        return [symtab for at in places.values() if (symtab := gdb.find_pc_line(at).symtab) is not None]

    def _loops_itself(self, begins: AbstractSet[int]) -> bool:
        """Return whether the function's own code does its first effect several times: it calls itself by a jump."""
        return any(begins & self._reachable(self._successors[at]) for at in begins)

    def _key_at(self, at: int) -> BlockKey:
        """Return the key of a call that is known by its first effect."""
        if self._calls[at]:
            _, end, name = self._calls[at][-1]
        else:
            _, end, name = at, at, self._name
        self._lines.setdefault((at, end, name), self._place(at))
        return at, end, name

    def _place(self, at: int) -> tuple[str, int]:
        line = self._line(at)
        return (line.file, line.number) if line is not None else _file_and_line(self._block)

    def _effect(self, one: Instruction) -> Optional[Effect]:
        line = self._line(one.address)
        called = _CALLS.match(one.text)
        if one.is_call or (called and one.target not in self._instructions):
            return Effect(line, int(called[1], 16) if called else None, is_call=True)
        match = None if _ONLY_READS.match(one.text) else _WRITES.match(one.text)
        if match is None:
            return None
        address = int(match["absolute"], 16) if match["absolute"] else self._address(match, one.address)
        if address is None and match["register"].endswith("bp"):  # a variable on the stack
            return None
        return Effect(line, address, is_call=False)

    def _join_clones(self) -> None:
        """Take calls of copies of a function, which compilers make for some of its arguments, for calls of it."""
        named: dict[str, set[int]] = {}
        for at, effect in self._effects.items():
            found = _CALLS.match(self._instructions[at].text)
            if found and effect.target is not None:
                named.setdefault(found[2], set()).add(effect.target)
        joined = dict[Optional[int], int]()
        for targets in named.values():
            clones = {one for one in targets if len(targets) > 1 and _CLONE.search(symbol_at(one))}
            if len(targets - clones) <= 1:
                joined.update(dict.fromkeys(clones, min(targets - clones or clones, default=0)))
        for at, effect in self._effects.items():
            self._effects[at] = effect._replace(target=joined.get(effect.target, effect.target))

    def _is_pure(self, target: int) -> bool:
        """Return whether the function at *target* only computes: compilers may call it once for several calls."""
        if target not in self._pure:
            blocks = function_blocks(target)
            if blocks:
                code = FunctionCode(self._architecture, blocks[-1])
                self._pure[target] = not any(map(code.is_visible, code.sweep(code.entry)))
            else:
                name = symbol_at(target).partition("@")[0].partition(" ")[0]
                self._pure[target] = _PURE.match(name) is not None
        return self._pure[target]

    @staticmethod
    def _is_replaced(target: Optional[int]) -> bool:
        """Return whether the function at *target* is one of the library that compilers need not call."""
        name = symbol_at(target, demangled=False).partition("@")[0] if target is not None else ""
        return _REPLACED.match(name) is not None

    def _address(self, match: re.Match[str], at: int) -> Optional[int]:
        """Return the address of the operand of the instruction *at*; None if it is unknown."""
        if match["at"]:
            return int(match["at"], 16)
        base = self._address_in(match["register"], at)
        return base + int(match["offset"] or "0", 16) if base is not None else None

    def _address_in(self, register: str, at: int) -> Optional[int]:
        """Return the address that the *register* holds *at* an instruction; None if that depends on the path."""
        found, seen, todo = set[Optional[int]](), {at}, list(self._predecessors[at])
        while todo and len(seen) < _FARTHEST:
            one = todo.pop()
            if one in seen:
                continue
            seen.add(one)
            text = self._instructions[one].text
            load = _LOADS_ADDRESS.match(text) or _LOADS_CONSTANT.match(text)
            if load and register == (load["register"] or load["other"]):
                found.add(int(load["at"], 16))
            elif not self._instructions[one].is_call and text.endswith(f",%{register}"):
                return None
            else:
                todo += self._predecessors[one]
        return found.pop() if len(found) == 1 else None

    def _witnesses(self, effects: Mapping[int, Effect]) -> Iterator[tuple[Effect, Reach, set[int]]]:
        """Yield effects that each call may have once, whether the source says so, and where they are.

        First those of the function's own lines, then those of functions that are inlined into it.
        """
        if self._given is not None:
            begins = self._begins_with(self._given, None, effects)
            yield self._given, Reach(None if self._of_macros(begins) else True), begins
            return
        places: dict[tuple[Effect, tuple[str, ...]], list[Step]] = {}
        for at in sorted(effects):
            steps = self._steps(at)
            target = effects[at].target
            if not steps or target is None or not effects[at].line:
                continue
            if not effects[at].is_call or not self._is_pure(target):
                places.setdefault((effects[at], _path(steps)), steps)
        for is_deeper in (False, True):
            known = [(*one, steps) for one, steps in places.items() if is_deeper == (len(steps) > 1)]
            first = sorted({steps[0].line for _, _, steps in known})[:_MOST_FIRST]
            for effect, path, steps in sorted(known, key=lambda one: one[2][0].line):
                reach = reach_of(steps, effect) if steps[0].line in first else Reach(False)
                if not effect.is_call and only_write(effect, self._symtabs()) is None:
                    reach = Reach(
                        False
                    )  # compilers drop an increase before another write, and join equal ones
                if reach.is_once or (reach.is_once is None and not is_deeper):
                    begins = self._begins_with(effect, path, effects)
                    macros = self._of_macros(begins)
                    if not macros or self._is_in_all(begins - macros):
                        yield effect, reach, begins - macros

    def _begins_with(
        self, witness: Effect, path: Optional[tuple[str, ...]], effects: Mapping[int, Effect]
    ) -> set[int]:
        """Return where calls do what the *witness* does, on this *path* of functions inlined into each other.

        What no other line names is a call's: the compiler has merged its code with that of another one, and says no
        longer whose it is.
        """
        begins = set[int]()
        for at, effect in effects.items():
            if effect[1:] != witness[1:] or self._is_of_namesake(at):
                continue
            steps = self._steps(at)
            if (
                (steps and path in (None, _path(steps)))
                or effect.line in self._body
                or not names(gdb.find_pc_line(at), witness, is_inlined=bool(self._chains[at]))
            ):
                begins.add(at)
        return begins

    def _of_macros(self, begins: Iterable[int]) -> set[int]:
        """Return those of the *begins* that nothing describes, and that may be what a macro on their line does."""
        return {
            at
            for at in begins
            if not self._steps(at)
            and self._effects[at].line not in self._body
            and may_use_macro(gdb.find_pc_line(at))
        }

    def _steps(self, at: int) -> list[Step]:
        """Return the function, if *at* is of it, and those inlined into it there, with the lines that are reached."""
        blocks = [block for _, block in self._code.blocks(at)]
        depth = next((n for n, block in enumerate(blocks) if self._is_wanted(block)), -1)
        found, place = list[Step](), gdb.find_pc_line(at)
        symtab, line = place.symtab, place.line
        for block in blocks[: depth + 1]:
            found.insert(0, Step(str(block.function), symtab, line))
            symtab, line = block.function.symtab, block.function.line  # of the call
        return found

    def _is_own(self, at: int) -> bool:
        """Return whether *at* is of the function itself, and not of one that is inlined into it."""
        calls, chain = self._calls[at], self._chains[at]
        return (
            chain[0][1:] == calls[-1][1:] if chain and calls else not chain and self._is_wanted(self._block)
        )

    def _is_of_namesake(self, at: int) -> bool:
        """Return whether *at* is of another function of the same name: of other parameters, or template arguments."""
        parts = split_function(self._name).parts
        return any(
            split_function(str(block.function)).parts[-len(parts) :] == parts and not self._is_wanted(block)
            for _, block in self._code.blocks(at)
        )

    def _is_whole(self, at: int, witness: Effect) -> bool:
        """Return whether the instruction stands for one *witness*, and not for those of several calls."""
        if witness.is_call:
            return True
        text = self._instructions[at].text
        if _ADDS_ONE_TO_MEMORY.match(text):
            return True
        stored = _STORES.match(text)
        todo = [(at, _register(stored[1]), 1)] if stored else []
        seen = set(todo)
        loaded = False
        while todo:
            here, register, missing = todo.pop()
            for before in self._predecessors[here]:
                state = self._before(before, register, missing, witness)
                if state is None or len(seen) > _MOST_STATES:
                    return False
                if state[1] == _LOADED:
                    loaded = True
                elif state not in seen:
                    seen.add(state)
                    todo.append(state)
            if not self._predecessors[here]:
                return False
        return loaded

    def _before(
        self, at: int, register: str, missing: int, witness: Effect
    ) -> Optional[tuple[int, str, int]]:
        """Return what holds the counter before *at*, and how much is to be added to it; None if unknown."""
        one = self._instructions[at]
        effect = self._effects.get(at)
        if effect is not None and effect[1:] == witness[1:]:
            return (at, register, missing + 1) if _STORES.match(one.text) else None
        loads = _LOADS.match(one.text)
        if loads and _register(loads["into"] or loads["to"]) == register:
            return (at, _LOADED, 0) if missing == 0 and self._address(loads, at) == witness.target else None
        adds = _ADDS.match(one.text)
        if adds is not None and _register(adds["into"]) == register:
            added = int(adds["further"] or adds["added"] or "0", 16) + bool(adds["minus"] or adds["inc"])
            return at, _register(adds["source"] or adds["base"] or adds["into"]), missing - added
        changes = _COMMA.split(one.text)[-1].split()[-1]  # its last operand
        is_changed = _register(changes) == register and not _COMPARES.match(one.text)
        if is_changed or (one.is_call and register in _LOST_BY_CALLS):
            return None
        return at, register, missing

    def _alternate(
        self, passages: Mapping[int, Passage], begins: AbstractSet[int], effects: Mapping[int, Effect]
    ) -> bool:
        """Return whether each call that the passages count does its first effect once, and nothing else does."""
        # Whatever throws an exception comes after the first effect.
        landing = [(at, passages[at].calls) for at in self._pads if at in passages]
        todo: list[_State] = [
            (self._code.entry, (), ()),
            *((at, calls, (True,) * len(calls)) for at, calls in landing),
        ]
        seen = set(todo)
        done = set[int]()
        while todo:
            at, calls, has_done = todo.pop()
            passage = passages.get(at)
            if passage is not None and passage.renames(calls):
                calls = passage.calls
            elif passage is not None:
                kept, new_calls = passage.step(calls)
                if passage.kind is not Kind.LANDS and not all(has_done[kept:]):
                    return False
                calls = calls[:kept] + new_calls
                has_done = has_done[:kept] + (False,) * len(new_calls)
            if at in begins:
                done.add(at)
                if not calls or has_done[-1]:
                    return False
                has_done = (*has_done[:-1], True)
            elif at in effects and not self._belongs(at, effects[at], calls):
                return False
            if passage is not None and passage.kind in (Kind.RETURNS, Kind.JUMPS_OUT) and not all(has_done):
                return False
            one = self._instructions[at]
            if calls and one.goes_on and one.target is not None and one.target not in self._calls:
                return False  # it may leave the function here, unseen
            new = {(one, calls, has_done) for one in self._successors[at]} - seen
            seen |= new
            todo += new
            self._spend(len(new))
        return done >= begins

    def _belongs(self, at: int, effect: Effect, calls: Calls) -> bool:
        """Return whether an *effect* is of the innermost call in progress, or of no call if there is none."""
        text = self._instructions[at].text
        if not effect.is_call or effect.line is None or _NEVER_RETURNS.search(text) or _HANDLES.search(text):
            return True
        return bool(calls) == bool(self._calls[at] or effect.line in self._body)

    def _passages_at(
        self, begins: AbstractSet[int], effects: Mapping[int, Effect]
    ) -> Optional[dict[int, Passage]]:
        """Return the passages of calls that begin with these effects; None if one of them may be within another."""
        if any(len(calls) > 1 for calls in self._calls.values()) or self._is_wanted(self._block):
            return None
        inside = self._until_last_effect(begins, effects)
        if any(at in inside for at in self._pads - begins):
            return None
        again = {one.behind for one in self._instructions.values() if _RETURNS_TWICE.search(one.text)}
        lands = self._pads | again  # an exception or longjmp brings control here
        passages = {}
        keys = {}
        for at in begins:
            keys[at] = self._key_at(at)
            kind = Kind.LANDS if at in lands else Kind.ARRIVES
            passages[at] = Passage(kind, (keys[at],), fresh=1, is_pad=at in lands, follows=True)
        anyone = (next(iter(keys.values())),)
        for at, one in self._instructions.items():
            if at in begins:
                continue
            leaves = self._leaves(one, anyone) if at in inside else None
            if leaves is not None:
                passages[at] = Passage(leaves, anyone, is_middle=True)
            elif at not in inside and (
                at in lands or any(before in inside for before in self._predecessors[at])
            ):
                passages[at] = Passage(Kind.LANDS if at in lands else Kind.ARRIVES, (), is_pad=at in lands)
        return passages

    def _until_last_effect(self, begins: AbstractSet[int], effects: Mapping[int, Effect]) -> AbstractSet[int]:
        """Return the instructions from the first effect of a call on: its own ones, and those that lead to another."""
        own = {at for at, one in effects.items() if self._calls[at] or one.line in self._body}
        leads, todo = set[int](), list(own - begins)
        while todo:
            at = todo.pop()
            if at not in leads:
                leads.add(at)
                todo += [one for one in self._predecessors[at] if at not in begins]
        inside, todo = set[int](), list(begins)
        while todo:
            at = todo.pop()
            if at not in inside:
                inside.add(at)
                todo += [one for one in self._successors[at] if one in leads or self._calls[one]]
        return inside

    # -- where it begins and ends -------------------------------------------------------------------------

    def _passages(self) -> Iterator[tuple[int, Passage]]:
        roots = self._root_set
        normal = self._reachable(roots - self._pads)
        unwinding = self._reachable(self._pads, until_caught=True) - normal
        known = self._reachable({self._code.entry})
        cleanup = {key for key, members in self._members.items() if members and members <= unwinding}
        again = {one.behind for one in self._instructions.values() if _RETURNS_TWICE.search(one.text)}
        for address, one in self._instructions.items():
            calls = self._calls[address]
            is_pad = address in self._pads
            is_landing = is_pad or address in unwinding
            kind = Kind.LANDS if is_landing else Kind.ARRIVES
            fresh = self._fresh(address, unwinding, cleanup) if is_landing else self._fresh(address, known)
            jumps = self._leaves(one, calls)
            if jumps is not None:
                yield address, Passage(jumps, calls, fresh=fresh)
            elif is_pad or any(self._calls[at] != calls for at in self._predecessors[address]):
                is_middle = bool(calls) and not self._is_start(address)
                yield address, Passage(kind, calls, is_middle, fresh, is_pad)
            elif address in roots and calls:
                yield address, Passage(kind, calls, fresh=fresh)
            elif address in again:  # by longjmp, too
                yield address, Passage(Kind.LANDS, calls)

    def _fresh(
        self, address: int, known: AbstractSet[int], among: Optional[AbstractSet[BlockKey]] = None
    ) -> int:
        """Return how many of the innermost calls begin at *address*, whichever way control comes; only those *among*.

        0 if it comes from elsewhere than the *known* code.
        """
        calls, before = self._calls[address], self._predecessors[address]
        if not all(at in known for at in (address, *before)):
            return 0
        kept = max((_common(self._calls[at], calls) for at in before), default=0)
        begun = calls[kept:]
        return len(begun) if among is None else sum(key in among for key in begun)

    def _body_lines(self) -> set[SourceLine]:
        """Return the lines of the inlined function, as far as they are not between those of the container."""
        first = file_name(function_symtab(self._block)), int(self._block.function.line)
        inside, last = set[SourceLine](), first[1]
        for at, calls in self._calls.items():
            line, chain = self._line(at), self._chains[at]
            if line is not None and not chain and line.file == first[0]:
                last = max(last, line.number)
            elif line is not None and calls and chain and chain[0][1:] == calls[-1][1:]:
                inside.add(line)
        return {line for line in inside if line.file != first[0] or not first[1] <= line.number <= last}

    def _is_start(self, address: int) -> bool:
        """Return whether the innermost call begins at *address* rather than shares what follows with another one.

        Calls do that where the compiler has merged what they do as they are left by an exception.
        """
        starts = self._starts_of(self._calls[address][-1], len(self._calls[address]))
        return not starts.addresses or address in starts.addresses or self._begins(address) in starts.lines

    def _starts_of(self, key: BlockKey, depth: int) -> _Starts:
        """Return where control enters the call, at this *depth* among those in progress."""
        if (key, depth) not in self._entered:
            addresses = {
                at
                for at in self._members[key]
                if self._calls[at][depth - 1 : depth] == (key,)
                and (
                    at in self._root_set
                    or (at == key[0] and key in self._copies)
                    or any(len(self._calls[one]) < depth for one in self._predecessors[at])
                )
            }
            lines = {line for at in addresses if (line := self._begins(at)) is not None}
            self._entered[key, depth] = _Starts(addresses, lines)
        return self._entered[key, depth]

    def _leaves(self, one: Instruction, calls: Calls) -> Optional[Kind]:
        """Return how the instruction itself leaves inlined calls; None if the next one tells."""
        if not calls or one.goes_on or one.is_call:
            return None
        if one.returns:
            return None if _STOPS.match(one.text) else Kind.RETURNS
        if self._is_computed(one):
            return None if one.address in self._targets else Kind.JUMPS_OUT
        return Kind.JUMPS_OUT if one.target is not None and one.target not in self._calls else None


def _path(steps: Sequence[Step]) -> tuple[str, ...]:
    return tuple(one.function for one in steps[1:])


def _common(calls: Calls, others: Calls) -> int:
    """Return how many of the outermost calls are the same."""
    pairs = enumerate(zip(calls, others))
    return next((n for n, (one, other) in pairs if one != other), min(len(calls), len(others)))


def landing_pads(address: int) -> frozenset[int]:
    """Return the landing pads of the function at *address*, or of its piece there; none if they are unknown."""
    library = library_at(address)
    for line in gdb_text("info files").splitlines():
        where, _, file = line.partition(" is .eh_frame_hdr")
        if not _ or file.strip().partition("in ")[2] != (library or ""):
            continue
        with suppress(Exception):  # whatever a damaged file makes of it, no pad is known then
            return find_landing_pads(_read_memory, int(where.split()[0], 16), address) or frozenset()
    return frozenset()


def functions_with(
    witness: Effect, is_wanted: Callable[[gdb.Block], bool], name: str, known: AbstractSet[BlockKey]
) -> Optional[dict[BlockKey, gdb.Block]]:
    """Return functions with code that does what the *witness* does, and whose source does not say so.

    They have calls of the wanted function *name* which nothing describes, unless their source shows that they make
    none. Those *known* are left out. None: the code is too large to be searched.
    """
    found: dict[BlockKey, gdb.Block] = {}
    references = _references(witness) if witness.target is not None else []
    if references is None:
        return None
    for at in references:
        blocks = function_blocks(at)
        if not blocks or any(map(is_wanted, blocks)) or block_key(blocks[-1]) in known:
            continue
        place = gdb.find_pc_line(at)
        is_line = place.symtab is not None and (file_name(place.symtab), place.line) == witness.line
        calls = calls_to(blocks[-1].function, function_symtab(blocks[-1]), name)
        if calls is not None and not any(calls.values()):
            continue
        if is_line or not names(place, witness, is_inlined=len(blocks) > 1):
            found[block_key(blocks[-1])] = blocks[-1]
    return found


def undescribed_callers(
    name: FunctionName, codes: Sequence[InlinedCode], is_known: Callable[[BlockKey], bool]
) -> list[tuple[str, int]]:
    """Return where the sources call the function in others that have code, their own or where they are inlined, too,
    but nothing in it is known of the call.

    Of a call of which compilers leave no instruction, or one that belongs to something else, nothing describes it.
    """
    found = []
    can_vanish = all(code.witness is None for code in codes)  # it does nothing visible
    lines: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for place, function in callers_of(name, {place for code in codes for place in code.lines}):
        lines.setdefault((place[0], function), []).append(place)
    for (file, function), calls in lines.items():
        with suppress(gdb.error):
            places = [one.pc for one in gdb.decode_line(function)[1] or () if one.pc is not None]
            for block in _blocks_with(function, places, file, inlined=can_vanish):
                if not is_known(block_key(block)) and not _calls_by_name(block, name):
                    found += calls
                    break
    return found


def _blocks_with(function: str, places: Iterable[int], file: str, *, inlined: bool) -> Iterator[gdb.Block]:
    """Yield the functions at *places* that have the code of this *function* of the *file*, their own or *inlined*."""
    for blocks in map(function_blocks, places):
        names = [str(one.function) for one in blocks]
        if function not in names:
            continue
        is_own = names.index(function) == len(names) - 1
        # Of what is inlined gdb knows the file of the call only.
        if file_name(function_symtab(blocks[-1])) == file if is_own else inlined:
            yield blocks[-1]


def _calls_by_name(block: gdb.Block, name: FunctionName) -> bool:
    """Return whether the function of *block* calls that of the *name*, or a part or copy of it."""
    code = FunctionCode(gdb.selected_frame().architecture(), block)
    calls = (_CALLS.match(code.instruction(at).text) for at in code.sweep(code.entry))
    return any(one and _called_name(int(one[1], 16)) == name.parts[-1] for one in calls)


def _called_name(target: int) -> str:
    """Return the plain name of the function at *target*, also where it is a part or copy; "" if unknown."""
    called = split_function(symbol_at(target, demangled=True).partition("@")[0]).parts
    return next(reversed(called), "").partition(".")[0]


def _references(witness: Effect) -> Optional[list[int]]:
    """Return addresses within all instructions that use the target of the *witness*; None if the code is too large.

    x86-64 has the distance from the end of the instruction, behind which a value of up to four bytes may stand.
    """
    target = witness.target or 0
    library, found = library_at(target), list[int]()
    for line in gdb_text("info files").splitlines():
        section = _CODE.match(line)
        if section is None or section[3] != library:
            continue
        start, end = int(section[1], 16), int(section[2], 16)
        if end - start > _MOST_BYTES:
            return None
        code = memoryview(_read_memory(start, end - start))
        for shift in range(4):
            words = code[shift : shift + (len(code) - shift) // 4 * 4].cast("i")
            wanted = {
                target - start - shift - 4 - more for more in ((0,) if witness.is_call else (0, 1, 2, 4))
            }
            places = [4 * at for at, word in enumerate(words) if word + 4 * at in wanted]
            found += [start + shift + one for one in places]
    return found


def _is_ahead(steps: Sequence[Step], others: Sequence[Step]) -> bool:
    """Return whether the source has the first place in front of the second."""
    pairs = zip(steps, others)
    return next((one.line < other.line for one, other in pairs if one.line != other.line), False)


def _register(name: str) -> str:
    """Return the register of which *name* is a part: "ax" for "eax" and "rax"."""
    found = _REGISTER.match(name.lstrip("%"))
    return (found[1] or found[2]) if found else name


def _read_memory(address: int, size: int) -> bytes:
    return bytes(gdb.selected_inferior().read_memory(address, size))


def _piece_start(address: int) -> int:
    match = _PIECE.match(symbol_at(address))
    return address - int(match[1]) if match else address


def _file_and_line(block: gdb.Block) -> tuple[str, int]:
    return file_name(block.function.symtab), int(block.function.line)
