"""The variables that lead to a heap: the frames on the stacks of a process or core, and types by debug information."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import NamedTuple, Optional

from gdbmem.containers.containers import short_type
from gdbmem.formats.addresses import Binary
from gdbmem.heap.frames import Frame, FrameVariable, ThreadFrames
from gdbmem.heap.graph import Place
from gdbmem.heap.types import hidden_in_symbols
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.elf.objects import FunctionSymbols, Image, elf_in, plain_name, symbol_tables
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.memory.maps import mapping_at
from gdbmem.model.heap_graph import DATA, THREAD_LOCAL, HiddenPointers
from gdbmem.model.memory import Memory, MemoryUnreadable, ThreadPointers
from gdbmem.symbols.function_names import split_function
from gdbmem.symbols.unwind_tables import UnwindTable, can_unwind
from gdbmem.symbols.unwinder import (
    MACHINES,
    AddressSpace,
    CodeRegion,
    CodeSpot,
    Unwinder,
    sampled_registers,
)
from gdbmem.symbols.variables import Answer, FunctionVariables, LocalVariable, Variable, find_variables

_STACK_BYTES, _ALL_BYTES = 256 << 10, 64 << 20  # of one thread, of all
_RED_ZONE, _WORD, _HIGHEST = 128, 8, 1 << 62
_SYMBOL_BYTES = 64 << 20
_MACHINE_AT = 18  # in an ELF header
_OF_SYSTEM = ("/usr/lib", "/lib", "[")
_DELETED = " (deleted)"
_MACHINES = {62: "x86_64", 183: "aarch64"}  # by the number in an ELF header

Value = Callable[[str], Optional[int]]  # of a register in a function


class StackCopy(NamedTuple):
    """A copy of the stack of a thread."""

    thread: ThreadPointers
    stack: bytes  # from the stack pointer on
    machine: str


def copy_stacks(reading: ProcessImage, memory: Memory) -> list[StackCopy]:
    """Return the stacks of the threads whose registers are known."""
    left = _ALL_BYTES
    machine = _machine_of(reading, memory)
    found = []
    for thread in reading.threads:
        mapping = mapping_at(reading.mappings, thread.stack_pointer)
        if mapping is None or not thread.registers or machine not in MACHINES:
            continue
        size = min(reading.stack_of(thread, mapping)[1] - thread.stack_pointer, _STACK_BYTES, left)
        try:
            found.append(StackCopy(thread, memory.read(thread.stack_pointer, max(size, 0)), machine))
        except MemoryUnreadable:
            continue
        left -= size
    return found


def _machine_of(reading: ProcessImage, memory: Memory) -> str:
    """Return the architecture of a process or core."""
    if reading.pid is None and reading.images:
        with suppress(MemoryUnreadable):
            number = int.from_bytes(memory.read(reading.images[0].start + _MACHINE_AT, 2), "little")
            return _MACHINES.get(number, "")
    return os.uname().machine


class _Registers:
    """The registers of an architecture, by their DWARF numbers."""

    def __init__(self, machine: str) -> None:
        self.machine = MACHINES[machine]
        # The place of each in the kernel's register set, and its name.
        self.places = dict(zip(self.machine.sampled, self.machine.places))
        self.names = {number: self.machine.names[at] for number, at in self.places.items()}
        self.numbers = {name: number for number, name in self.names.items()}


class DebugInformation:
    """Looks up code and variables in the files that a process or core has loaded."""

    def __init__(self, reading: ProcessImage, files: TargetFiles) -> None:
        self._files = files
        self._images = {image.name: image for image in reading.images}
        self._code = [
            CodeRegion(m.start, m.end, m.offset, Binary(m.name))
            for m in reading.mappings
            if "x" in m.permissions and m.name in self._images and not m.name.endswith(_DELETED)
        ]
        self._functions = FunctionSymbols(reading.images, files.open)
        self.hidden = self._hidden()

    def frames(self, stacks: Sequence[StackCopy], names: Mapping[int, str]) -> list[ThreadFrames]:
        """Return the frames of the threads, which are shown as in *names*; none of one that can't be unwound."""
        if not stacks or not can_unwind():
            return []
        machine = stacks[0].machine
        space, unwinder, registers = (
            AddressSpace(self._code),
            Unwinder(self._table, machine),
            _Registers(machine),
        )
        found = []
        try:
            for one in stacks:
                pointers: list[int] = []
                path = unwinder.path(space, sampled_registers(one.thread, machine), one.stack, (), pointers)
                found.append((one, path, pointers))
        finally:
            unwinder.close()
        known = self._variables_at(spot for _, path, _ in found for spot in path.spots)
        return [
            ThreadFrames(
                names[one.thread.tid],
                one.thread.stack_pointer,
                self._frames_of(one, path.spots, pointers, known, registers),
                path.is_whole,
                one.stack,
                registers.machine.names,
            )
            for one, path, pointers in found
        ]

    def _hidden(self) -> list[HiddenPointers]:
        """Return the types that hide pointers, by the symbols of the program and of its own libraries."""
        found, left = [], _SYMBOL_BYTES
        for number, name in enumerate(self._images):
            if number and name.startswith(_OF_SYSTEM):
                continue
            for table, texts in symbol_tables(lambda name=name: self._files.open(name), max(left, 0)):  # type: ignore[misc]
                left -= len(table) + len(texts)
                found += hidden_in_symbols(texts)
        return found

    def _table(self, binary: Binary) -> Optional[UnwindTable]:
        """Return the unwind table of *binary*; None if it has none, or the file is another one."""
        try:
            with self._files.open(binary.path) as stream:
                elf = elf_in(stream, Path(binary.path))
                if elf is None or elf.build_id != self._images[binary.path].build_id:
                    return None

                def read(offset: int, size: int) -> bytes:
                    stream.seek(offset)
                    return stream.read(size)

                return UnwindTable(read)
        except (OSError, ValueError, OverflowError):
            return None

    def _image(self, spot: CodeSpot) -> Optional[Image]:
        return self._images.get(spot.region.binary.path) if spot.region.binary is not None else None

    def _variables_at(self, spots: Iterable[CodeSpot]) -> dict[int, FunctionVariables]:
        """Return the functions and variables at addresses of code, for those that have debug information."""
        asked: dict[str, set[int]] = defaultdict(set)
        for spot in spots:
            image = self._image(spot)
            if image is not None:
                asked[image.name].add(spot.address)
        found = {}
        for name, addresses in asked.items():
            bias = self._images[name].bias
            functions, _ = self._ask(name, sorted(at - bias for at in addresses), ())
            found.update({at + bias: function for at, function in functions.items()})
        return found

    def _ask(self, name: str, code: Sequence[int], variables: Sequence[Variable]) -> Answer:
        if self._files.rights is not None and not self._files.is_trusted(name):
            return {}, {}
        return find_variables(Path(name), self._images[name].build_id, code, variables)

    def _frames_of(
        self,
        copied: StackCopy,
        spots: Sequence[CodeSpot],
        pointers: Sequence[int],
        known: Mapping[int, FunctionVariables],
        of: _Registers,
    ) -> list[Frame]:
        registers = copied.thread.registers
        # Where the registers that functions save are: in a stack's slot, or still there.
        places = {number: of.places[number] for number in of.machine.kept}
        frames = []
        for number, (spot, start) in enumerate(zip(spots, pointers)):
            end = pointers[number + 1] if number + 1 < len(pointers) else None
            there = known.get(spot.address)
            image = self._image(spot)
            file = PurePath(image.name).name if image is not None else ""
            variables = []
            in_registers = places if number else {**of.places, **places}

            def value(
                register: str, start: int = start, places: Mapping[int, int] = in_registers
            ) -> Optional[int]:
                if of.numbers.get(register) == of.machine.sp:
                    return start
                at = places.get(of.numbers.get(register, -1))
                if at is None or at < len(registers):
                    return registers[at] if at is not None else None
                return int.from_bytes(copied.stack[at - copied.thread.stack_pointer :][:8], "little")

            low = start - (0 if number else _RED_ZONE)
            for one in there.variables if there is not None else ():
                at, kind = _place(one, end, in_registers, of.numbers, value), one.type
                if (
                    at is None
                    or kind.size < _WORD
                    or not (one.is_in_register or low <= at < (end or _HIGHEST))
                ):
                    continue
                size = _WORD if one.is_in_register else kind.size
                variables.append(
                    FrameVariable(
                        _plain(one.function), one.name, short_type(kind.name), at, size, kind.element_size
                    )
                )
            owned = []
            if end is not None:
                for register, below in spot.saved:
                    # What changes a register saves it before: its present value is this function's.
                    owned.append((places[register], of.names[register]))
                    places[register] = end + below
            function = _plain(there.function) if there is not None else ""
            frames.append(Frame(function or self._function(spot, image), file, start, end, variables, owned))
        return frames

    def _function(self, spot: CodeSpot, image: Optional[Image]) -> str:
        if image is None:
            return f"0x{spot.address:x}"
        name = self._functions.name(spot.address)
        return plain_name(name) if name else f"{PurePath(image.name).name}+0x{spot.address - image.bias:x}"

    def types(self, places: Iterable[Place]) -> dict[Place, tuple[str, int]]:
        """Return the types of the variables at *places*, in words, and the sizes of their elements."""
        asked: dict[str, list[Place]] = defaultdict(list)
        for place in places:
            if place.kind == DATA:
                holds = (
                    one
                    for one in self._images.values()
                    if any(a <= place.address < b for a, b in one.writable)
                )
                image = next(holds, None)
            else:
                file = place.object.removesuffix(f", {place.thread}")
                image = next((one for one in self._images.values() if PurePath(one.name).name == file), None)
            if image is not None and place.kind in (DATA, THREAD_LOCAL) and not place.type:
                asked[image.name].append(place)
        found = {}
        for name, mine in asked.items():
            bias = self._images[name].bias
            names = [(one.name, one.address - bias if one.kind == DATA else None) for one in mine]
            _, types = self._ask(name, (), names)
            for place in mine:
                if place.name in types:
                    of = types[place.name]
                    found[place] = short_type(of.name), of.element_size
        return found


def _place(
    one: LocalVariable,
    end: Optional[int],
    places: Mapping[int, int],
    numbers: Mapping[str, int],
    value: Value,
) -> Optional[int]:
    """Return the address of a variable, or the number of its register."""
    if one.base == "cfa":
        return None if end is None else end + one.offset
    if one.is_in_register:
        return places.get(numbers.get(one.base[1:], -1))
    base = value(one.base)
    return None if base is None else base + one.offset


def _plain(function: str) -> str:
    return "::".join(split_function(function).parts)
