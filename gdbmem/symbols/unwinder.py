"""Callers found in a copied stack: by unwind tables where the code has them, else by frame pointers."""

import os
import struct
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from typing import Any, Callable, NamedTuple, Optional, Protocol

from gdbmem.formats.addresses import Binary
from gdbmem.linux.memory.maps import parse_smaps
from gdbmem.model.memory import AARCH64_REGISTERS, X86_64_REGISTERS
from gdbmem.symbols.unwind_tables import Expression, UnwindRule, UnwindTable, evaluate

# The code mapped in the processes of a recording, and its changes.


_DELETED = " (deleted)"


class CodeRegion:
    """Executable memory; forked processes share their parent's."""

    def __init__(self, start: int, end: int, offset: int, binary: Optional[Binary]) -> None:
        self.start = start
        self.end = end
        self.offset = offset  # of start in the file
        self.binary = binary  # None: of no file, as a JIT compiler's
        self.steps: dict[int, object] = {}  # by address: what an unwinder knows of it
        self.places: dict[int, int] = {}  # by address: the number of its place

    def offset_of(self, address: int) -> int:
        """Return where in its file *address* lies."""
        return address - self.start + self.offset


class AddressSpace:
    """The code of one process at the moment that was reached."""

    def __init__(self, regions: Iterable[CodeRegion] = ()) -> None:
        self._regions = sorted(regions, key=lambda region: region.start)
        self._starts = [region.start for region in self._regions]
        # Results by address; forgotten when the code changes.
        self.spots: dict[int, Any] = {}  # the unwinder's
        self.paths: dict[tuple[int, ...], int] = {}  # numbers of paths, by the addresses that they go through
        self.alone: dict[int, int] = {}  # and of those that are known to one address only

    def find(self, address: int) -> Optional[CodeRegion]:
        """Return the code that *address* lies in."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._regions[at].end:
            return None
        return self._regions[at]

    def add(self, region: CodeRegion) -> None:
        """Put *region* in the place of what it covers."""
        self.spots, self.paths, self.alone = {}, {}, {}
        covered = [one for one in self._regions if one.start < region.end and region.start < one.end]
        for one in covered:
            at = self._regions.index(one)
            del self._regions[at], self._starts[at]
            for start, end in ((one.start, region.start), (region.end, one.end)):
                if start < end:
                    self._insert(CodeRegion(start, end, one.offset_of(start), one.binary))
        self._insert(region)

    def _insert(self, region: CodeRegion) -> None:
        at = bisect_right(self._starts, region.start)
        self._regions.insert(at, region)
        insort(self._starts, region.start)

    def copy(self) -> "AddressSpace":
        """Return that of a forked child."""
        return AddressSpace(self._regions)


def code_in(maps: bytes) -> AddressSpace:
    """Return the code that *maps*, the text of /proc/PID/maps, lists."""
    regions = []
    for mapping in parse_smaps(maps):
        if "x" in mapping.permissions:
            region = code_region(mapping.start, mapping.end, mapping.offset, mapping.name, mapping.inode)
            regions.append(region)
    return AddressSpace(regions)


def code_region(start: int, end: int, offset: int, name: str, inode: int) -> CodeRegion:
    """Return the region of code that was mapped from the file *name*, or from none."""
    if not name.startswith("/") or not inode:
        return CodeRegion(start, end, offset, Binary(name) if name.startswith("[") else None)
    path = name[: -len(_DELETED)] if name.endswith(_DELETED) else name
    return CodeRegion(start, end, offset, Binary(path, inode=inode, was_deleted=path != name))


DEEPEST = 1024
_STUB_WORDS = 4
_CFA, _PLUS_UCONST, _BREG0, _BREGX = 0x9C, 0x23, 0x70, 0x92
_WORD = struct.Struct("<Q")


class Machine(NamedTuple):
    """The registers of an architecture, by their DWARF numbers."""

    sampled: tuple[int, ...]  # in the order in which samples have them
    kept: tuple[int, ...]  # that a function leaves as they were
    pc: int
    sp: int
    frame_pointer: int
    code_bits: int  # of a return address: aarch64 signs them in the others
    names: Sequence[str]  # of the registers in the kernel's set
    places: Sequence[int]  # in that set of what a sample has


# Source: x86's user_regs_struct, perf_regs.h.
MACHINES = {
    "x86_64": Machine(
        (0, 3, 2, 1, 4, 5, 6, 7, 16, 8, 9, 10, 11, 12, 13, 14, 15),
        (3, 6, 12, 13, 14, 15),
        16,
        7,
        6,
        64,
        X86_64_REGISTERS,
        (10, 5, 11, 12, 13, 14, 4, 19, 16, 9, 8, 7, 6, 3, 2, 1, 0),
    ),
    "aarch64": Machine(
        tuple(range(33)), tuple(range(19, 31)), 32, 31, 29, 48, AARCH64_REGISTERS, tuple(range(33))
    ),
}


class _Thread(Protocol):
    @property
    def registers(self) -> Sequence[int]: ...

    @property
    def stack_pointer(self) -> int: ...

    @property
    def program_counter(self) -> int: ...


def sampled_registers(held: _Thread, machine: str = os.uname().machine) -> Sequence[int]:
    """Return the registers of a thread in the order of a sample; those that are unknown are 0."""
    known = MACHINES.get(machine)
    if known is None:
        return ()
    values = {
        number: held.registers[at]
        for number, at in zip(known.sampled, known.places)
        if at < len(held.registers)
    }
    values = {known.sp: held.stack_pointer, known.pc: held.program_counter, **values}
    return [values.get(number, 0) for number in known.sampled]


class _Step(NamedTuple):
    """A rule, made ready: most are the sum of a register and a number, and slots of the stack."""

    rule: UnwindRule
    cfa: Optional[tuple[int, int]]  # register, offset; None: an expression
    slots: tuple[tuple[int, int], ...]  # register, offset from the CFA
    lost: tuple[int, ...]  # registers whose value in the caller is not known
    odd: tuple[tuple[int, Expression], ...]  # register, its value
    return_slot: Optional[int]
    moved: dict[int, Optional[int]]  # slots and lost ones (None) together
    loses_frame: bool  # the frame pointer is not what it was in the function
    is_plain: bool  # the CFA counts from the stack or frame pointer, and all else is in slots
    is_last: bool  # has no caller


class CodeSpot(NamedTuple):
    """A place in the code of an address space."""

    region: CodeRegion
    address: int  # of a caller within the call
    step: Optional[_Step]

    @property
    def saved(self) -> Sequence[tuple[int, int]]:
        """The registers that the function has saved, by DWARF numbers, and how far from its frame's end."""
        return self.step.slots if self.step is not None else ()


class CallPath(NamedTuple):
    """The call path of one sample."""

    spots: Sequence[CodeSpot]  # innermost first
    is_whole: bool  # it goes down to the thread's first function


OpenTable = Callable[[Binary], Optional[UnwindTable]]


class Unwinder:
    """Finds call paths; remembers what it found out about each address."""

    def __init__(self, open_table: OpenTable, machine: str = os.uname().machine) -> None:
        """*open_table* is asked once for each file."""
        self._machine = MACHINES.get(machine)
        self._open = open_table
        self._tables: dict[Binary, Optional[UnwindTable]] = {}

    def close(self) -> None:
        """Release the tables."""
        for table in self._tables.values():
            if table is not None:
                table.close()
        self._tables = {}

    def path(
        self,
        space: AddressSpace,
        registers: Sequence[int],
        stack: bytes,
        by_frame_pointers: Sequence[int],
        pointers: Optional[list[int]] = None,
    ) -> CallPath:
        """Return the call path of a thread with *registers* and a copy of its *stack* from the stack pointer on.

        *pointers* gets the stack pointer in each of its functions; the next one is where a function's frame ends.
        """
        machine = self._machine
        if machine is None or len(registers) != len(machine.sampled):
            return CallPath(self._plain(space, by_frame_pointers), False)
        walk = _StackWalk(machine, registers, stack)
        spots: list[CodeSpot] = []
        pc, is_call = walk.pc, False
        known = space.spots
        while len(spots) < DEEPEST:
            spot = known.get(pc - is_call) or self._spot(space, pc - is_call)
            if spot is None:
                break
            spots.append(spot)
            if pointers is not None:
                pointers.append(walk.stack_pointer)
            step = spot.step
            if step is None:
                caller = walk.by_frame_pointer(space)
                if caller is None and spot.region.binary is None:
                    caller = walk.by_search(space)
                is_call = True
            elif step.is_last:
                return CallPath(spots, True)
            elif step.is_plain:
                caller = walk.by_slots(step)
                is_call = True
            else:
                caller = walk.by_rule(step)
                is_call = not step.rule.is_signal
            if not caller:
                break
            pc = caller
        return CallPath(self._continued(space, spots, by_frame_pointers), False)

    def _spot(self, space: AddressSpace, address: int) -> Optional[CodeSpot]:
        region = space.find(address)
        if region is None:
            return None
        known = space.spots[address] = CodeSpot(region, address, self._step(region, address))
        return known

    def _step(self, region: CodeRegion, address: int) -> Optional[_Step]:
        known = region.steps
        if address not in known:
            known[address] = self._find(region, address)
        step = known[address]
        return step if isinstance(step, _Step) else None

    def _find(self, region: CodeRegion, address: int) -> Optional[_Step]:
        if region.binary is None or self._machine is None:
            return None
        if region.binary not in self._tables:
            self._tables[region.binary] = self._open(region.binary)
        table = self._tables[region.binary]
        inside = table.address(region.offset_of(address)) if table is not None else None
        if table is None or inside is None:
            return None
        rule = table.rule(inside, (*self._machine.kept, self._machine.sp))
        return None if rule is None else _ready(rule, self._machine)

    def _plain(self, space: AddressSpace, addresses: Sequence[int]) -> list[CodeSpot]:
        found = (self._spot(space, address - (number > 0)) for number, address in enumerate(addresses))
        return [spot for spot in found if spot is not None]

    def _continued(
        self, space: AddressSpace, spots: list[CodeSpot], by_frame_pointers: Sequence[int]
    ) -> Sequence[CodeSpot]:
        """Return *spots*, and behind them what the kernel found by frame pointers beyond the copied stack."""
        if not spots:
            return self._plain(space, by_frame_pointers)
        last = spots[-1].address
        for number, address in enumerate(by_frame_pointers):
            if address - (number > 0) == last:
                return [*spots, *self._plain(space, (0, *by_frame_pointers[number + 1 :]))]
        return spots


def _ready(rule: UnwindRule, machine: Machine) -> _Step:
    cfa: Optional[tuple[int, int]] = None
    if len(rule.cfa) == 1:
        one = rule.cfa[0]
        if one.atom == _BREGX and one.number in machine.sampled:
            cfa = one.number, one.number2
        elif _BREG0 <= one.atom < _BREG0 + 32 and one.atom - _BREG0 in machine.sampled:
            cfa = one.atom - _BREG0, one.number
    slots, lost, odd = [], [], []
    for number in machine.kept:
        expression = rule.registers.get(number)
        slot = _slot(expression)
        if slot is not None:
            slots.append((number, slot))
        elif expression:
            odd.append((number, expression))
        elif expression is None:
            lost.append(number)
    return_rule = rule.registers[rule.return_column]
    return_slot = _slot(return_rule)
    is_plain = cfa is not None and cfa[0] in (machine.sp, machine.frame_pointer) and return_slot is not None
    is_plain = is_plain and not odd and not rule.is_signal
    moved = {**dict.fromkeys(lost), **dict(slots)}
    return _Step(
        rule, cfa, tuple(slots), tuple(lost), tuple(odd), return_slot, moved, machine.frame_pointer in moved,
        is_plain, return_rule is None,
    )  # fmt: skip


def _slot(expression: Optional[Expression]) -> Optional[int]:
    """Return the offset from the CFA at which a register was saved; None if it was saved in no such way."""
    if (
        expression
        and len(expression) == 2
        and expression[0].atom == _CFA
        and expression[1].atom == _PLUS_UCONST
    ):
        return expression[1].number
    return 0 if expression and len(expression) == 1 and expression[0].atom == _CFA else None


class _StackWalk:
    """A thread's registers, as they were in one function after the other."""

    def __init__(self, machine: Machine, registers: Sequence[int], stack: bytes) -> None:
        self._machine, self._stack = machine, stack
        values: list[Optional[int]] = [None] * (max(machine.sampled) + 1)
        for number, value in zip(machine.sampled, registers):
            values[number] = value
        self._values = values  # by DWARF number; None: not known
        self.pc, self._base = values[machine.pc] or 0, values[machine.sp] or 0
        self._words = memoryview(stack)[: len(stack) & ~7].cast("Q")
        self._mask = (1 << machine.code_bits) - 1
        self._saved: list[
            tuple[int, _Step]
        ] = []  # by functions left: the CFA, and where they saved registers
        self._kept = {*machine.kept, machine.sp}

    @property
    def stack_pointer(self) -> int:
        """The stack pointer in the function that was reached."""
        return self._values[self._machine.sp] or 0

    def word(self, address: int) -> Optional[int]:
        """Return the word at *address* of the stack; None if that was not copied."""
        at = address - self._base
        if 0 <= at <= len(self._stack) - 8:
            return int(_WORD.unpack_from(self._stack, at)[0])
        return None

    def by_slots(self, step: _Step) -> Optional[int]:
        """Move on to the caller by a plain rule; return the address of its call; None if unknown.

        Only the two registers that plain rules use are read at first; the others on request.
        """
        assert step.cfa is not None and step.return_slot is not None
        machine, values, words = self._machine, self._values, self._words
        register, offset = step.cfa
        start = values[register]
        if start is None:
            return None
        cfa = start + offset
        at = cfa + step.return_slot - self._base
        if at & 7 or not 0 <= at >> 3 < len(words):
            return None
        pc: int = words[at >> 3]
        if step.loses_frame:
            slot = step.moved[machine.frame_pointer]
            values[machine.frame_pointer] = None if slot is None else self.word(cfa + slot)
        values[machine.sp] = cfa
        self._saved.append((cfa, step))
        return pc & self._mask

    def by_rule(self, step: _Step) -> Optional[int]:
        """Move on to the caller by any rule; return the address of its call; None if unknown."""
        self._restore()
        values, rule, machine = self._values, step.rule, self._machine
        cfa = self._cfa(step)
        if cfa is None:
            return None
        if step.return_slot is not None:
            pc = self.word(cfa + step.return_slot)
        else:
            pc = self._value(rule.registers[rule.return_column], rule.return_column, cfa)
        if pc is None:
            return None
        after = [value if number in self._kept else None for number, value in enumerate(values)]
        for number in step.lost:
            after[number] = None
        for number, offset in step.slots:
            after[number] = self.word(cfa + offset)
        for number, expression in step.odd:
            after[number] = self._value(expression, number, cfa)
        sp = self._value(rule.registers.get(machine.sp), machine.sp, cfa) if rule.is_signal else cfa
        if sp is None:
            return None
        after[machine.sp] = sp
        if machine.pc != rule.return_column:  # aarch64 returns to what is in x30
            after[rule.return_column] = pc
        self._values = after
        return pc & self._mask

    def _restore(self) -> None:
        """Read the registers that functions saved which were left by plain rules."""
        if not self._saved:
            return
        machine, values = self._machine, self._values
        for number in range(len(values)):
            if number in (machine.sp, machine.frame_pointer):
                continue  # by_slots() has kept them
            if number not in self._kept:
                values[number] = None
                continue
            for cfa, step in reversed(self._saved):
                if number in step.moved:
                    slot = step.moved[number]
                    values[number] = None if slot is None else self.word(cfa + slot)
                    break
        self._saved = []

    def _cfa(self, step: _Step) -> Optional[int]:
        if step.cfa is not None:
            base = self._values[step.cfa[0]]
            return None if base is None else base + step.cfa[1]
        found = evaluate(step.rule.cfa, self._values, 0, self.word)
        return None if found is None else found[0]

    def _value(self, expression: Optional[Expression], number: int, cfa: int) -> Optional[int]:
        if expression is None:
            return None
        if not expression:
            return self._values[number]
        found = evaluate(expression, self._values, cfa, self.word)
        if found is None:
            return None
        return found[0] if found[1] else self.word(found[0])

    def by_frame_pointer(self, space: AddressSpace) -> Optional[int]:
        """Continue to the caller of code without an unwind table: the frame pointer's word, then the address."""
        machine, values = self._machine, self._values
        frame, sp = values[machine.frame_pointer], values[machine.sp]
        if frame is None or sp is None or frame < sp:
            return None
        before, pc = self.word(frame), self.word(frame + 8)
        if before is None or pc is None or space.find((pc & self._mask) - 1) is None:
            return None
        values[machine.frame_pointer], values[machine.sp] = before, frame + 16
        return pc & self._mask

    def by_search(self, space: AddressSpace) -> Optional[int]:
        """Continue to the caller of a stub that a JIT compiler made, which keeps next to nothing on the stack."""
        machine, values = self._machine, self._values
        sp = values[machine.sp]
        if sp is None:
            return None
        for number in range(_STUB_WORDS):
            word = self.word(sp + 8 * number)
            if word is not None and space.find((word & self._mask) - 1) is not None:
                values[machine.sp] = sp + 8 * (number + 1)
                return word & self._mask
        return None
