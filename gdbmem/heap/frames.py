"""The frames of functions on stacks, and their variables, as places of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from gdbmem.arrays import distinct, import_numpy, places_of
from gdbmem.heap.graph import Place
from gdbmem.heap.places import MOST_REGISTERS, Outside
from gdbmem.model.heap_graph import STACK

# What words of a frame count for: variables with a value of their own come before those that lead to one, these before
# other memory, and registers are last.
_VALUE, _POINTER, _NAMELESS, _REGISTER = 0, 1, 2, 3
_RANKS = 4


class FrameVariable(NamedTuple):
    """A variable of a function."""

    function: str
    name: str
    type: str  # in words
    start: int  # of its memory, or the number of the register that it is in
    size: int
    element_size: int = 0

    @property
    def leads_elsewhere(self) -> bool:
        """Whether it is a pointer, a reference or an iterator."""
        return self.type.endswith(("*", "&", "* const")) or self.type.partition("<")[0].endswith("iterator")


class Frame(NamedTuple):
    """The frame of a function that is being executed."""

    function: str
    file: str  # name of the program or library; ""
    start: int
    end: Optional[int]  # None: unknown
    variables: Sequence[FrameVariable] = ()
    # Registers whose value is this function's: where a callee has saved each, or its number if none has; and its name.
    registers: Sequence[tuple[int, str]] = ()


class ThreadFrames(NamedTuple):
    """The frames of a thread, innermost first."""

    thread: str  # as it is shown
    start: int  # of its stack
    frames: Sequence[Frame]
    is_whole: bool
    stack: bytes  # from the stack pointer on
    registers: Sequence[str]  # the names of all registers


def split_stacks(outside: Outside, threads: Sequence[ThreadFrames]) -> Outside:
    """Return *outside*, in which each variable of a frame, each other frame and each register is a place."""
    np = import_numpy()
    of_thread = {one.thread: one for one in threads if one.frames}
    places, numbers = list(outside.places), outside.numbers.copy()
    for number, place in enumerate(outside.places):
        one = of_thread.get(place.thread)
        if place.kind != STACK or one is None:
            continue
        words = np.flatnonzero(outside.numbers == number)
        parts = _Parts(one, place)
        found, which = places_of(parts.of(outside.addresses[words]) + 1)
        mine = [parts.places[part - 1] if part else place for part in found.tolist()]
        numbers[words] = len(places) + which
        places += mine
    used, numbers = places_of(numbers)
    return outside._replace(places=[places[n] for n in used.tolist()], numbers=numbers)


class _Parts:
    """The parts of one stack and the registers of its thread."""

    def __init__(self, thread: ThreadFrames, whole: Place) -> None:
        np = import_numpy()
        self.places: list[Place] = []
        self._thread, self._whole = thread, whole
        areas: list[
            tuple[int, int, int]
        ] = []  # start, end, number of the place; later ones cover earlier ones
        self._of_register: dict[int, int] = {}
        for number, frame in enumerate(thread.frames):
            end = frame.end
            if end is None and thread.is_whole:
                end = 1 << 62
            below = whole.address if not number else frame.start  # with the red zone
            if end is not None:
                areas.append(
                    (below, end, self._add(frame, number, f"{frame.function}: frame {number}", _NAMELESS))
                )
        for number, frame in enumerate(thread.frames):
            for at, name in frame.registers:
                place = self._add(frame, number, f"{frame.function}: register {name}", _REGISTER)
                self._cover(areas, at, 8, place)
            for variable in frame.variables:
                of = frame._replace(function=variable.function)
                what = _POINTER if variable.leads_elsewhere else _VALUE
                place = self._add(of, number, f"{variable.function}: {variable.name}", what, variable)
                self._cover(areas, variable.start, variable.size, place)
        self._bounds = distinct(np.array([at for start, end, _ in areas for at in (start, end)], np.int64))
        self._parts = np.full(len(self._bounds), -1, np.int32)
        for start, end, place in areas:
            low, high = np.searchsorted(self._bounds, (start, end))
            self._parts[low:high] = place

    def of(self, addresses: Any) -> Any:
        """Return for each of *addresses* the number of its part in `places`; -1: it is in none."""
        np = import_numpy()
        at = np.searchsorted(self._bounds, addresses, "right") - 1
        found = np.where(at >= 0, self._parts[at] if len(self._parts) else -1, -1)
        for place in np.flatnonzero(addresses < MOST_REGISTERS).tolist():
            found[place] = self._register(int(addresses[place]))
        return found

    def _register(self, number: int) -> int:
        """Return the number of the part of a register; of one without an owner among the callers: the innermost's."""
        if number not in self._of_register:
            innermost = self._thread.frames[0]
            name = f"{innermost.function}: register {self._thread.registers[number]}"
            self._of_register[number] = self._add(innermost, 0, name, _REGISTER)
        return self._of_register[number]

    def _cover(self, areas: list[tuple[int, int, int]], at: int, size: int, place: int) -> None:
        if at < MOST_REGISTERS:
            self._of_register[at] = place
        else:
            areas.append((at, at + size, place))

    def _add(
        self, frame: Frame, number: int, name: str, what: int, variable: Optional[FrameVariable] = None
    ) -> int:
        thread = self._thread
        caller_first = len(thread.frames) - number - thread.is_whole  # what is above the frames counts first
        file = f"{frame.file}, {thread.thread}" if frame.file else thread.thread
        rank = _RANKS * caller_first + what
        place = Place(name, STACK, frame.start, file, thread.thread, number, rank)
        if variable is not None:
            begin = variable.start - thread.start
            contents = thread.stack[begin : begin + variable.size] if begin >= 0 else b""
            at = variable.start if begin >= 0 else frame.start
            place = place._replace(
                address=at, type=variable.type, element_size=variable.element_size, contents=contents
            )
        self.places.append(place)
        return len(self.places) - 1
