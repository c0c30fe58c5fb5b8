"""The places outside of malloc's blocks whose words lead to blocks, with the names that they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from gdbmem.arrays import import_numpy
from gdbmem.heap.blocks import Blocks
from gdbmem.heap.graph import Place
from gdbmem.heap.thread_local import ThreadLocals
from gdbmem.heap.unused import Containers
from gdbmem.heap.words import Edges, Reader, Words, find_single_words, find_words
from gdbmem.linux.elf.objects import Image, ObjectSymbols, ThreadLocalSymbols
from gdbmem.linux.memory.maps import Ranges, mapping_at
from gdbmem.model.heap_graph import BY_THREAD, DATA, MEMORY, STACK, THREAD_LOCAL
from gdbmem.model.memory import Memory, MemoryUnreadable, words_at

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.heap import HeapReading
    from gdbmem.ledger.ledger import ProcessImage
    from gdbmem.model.memory import ThreadPointers

_RED_ZONE = 128  # bytes below the stack pointer that a function without calls may use
_TID_AFTER, _TID_BEFORE = 0x200, 0x400  # bytes from the thread pointer to the number of the thread
_DESCRIPTOR = 0xA00  # bytes of struct pthread behind the thread pointer that may have pointers
_ALIGNED = 16  # thread-local memory of an object
_SURPLUS = 0x1000  # of static thread-local memory, for libraries that are loaded later
# Most bytes between words of one variable without a symbol: if their blocks are alike; if one leads to the other.
_JOINED, _REACH = 8, 48
_MOST_READ = 1 << 24  # bytes of a block that may lead to a variable
MOST_REGISTERS = 64  # numbers below are "addresses" of registers
_CONTENTS = 80  # bytes of a variable that its number of elements can be read from
# Groups of places.
_BY_THREAD = {DATA: "variables of the program and its libraries", MEMORY: "memory that is not malloc's"}
_BY_OBJECT = {STACK: "stacks", THREAD_LOCAL: "thread-local memory"}


class Outside(NamedTuple):
    """The places, and the words of each: *numbers* of places, the *blocks* that they lead to, their *addresses*."""

    places: Sequence[Place]
    numbers: Any
    blocks: Any
    addresses: Any
    unread_bytes: int
    memory_bytes: int  # that is resident and neither malloc's, nor variables', nor stacks'

    def with_place(self, place: Place, blocks: Any) -> Outside:
        """Return the same with one more *place*, which leads to *blocks* from unknown addresses."""
        np = import_numpy()
        columns = (np.full(len(blocks), len(self.places)), blocks, np.zeros(len(blocks), np.int64))
        numbers, to, at = (np.concatenate(pair) for pair in zip(self[1:4], columns))
        return self._replace(places=[*self.places, place], numbers=numbers, blocks=to, addresses=at)


class _Area(NamedTuple):
    kind: str
    start: int
    end: int
    thread: int = 0
    pointer: int = 0  # of the thread


def find_places(
    reading: ProcessImage,
    memory: Memory,
    blocks: Blocks,
    inner: Optional[tuple[Edges, Containers, Sequence[Containers]]],
    data: Sequence[tuple[int, int]],
    mallocs: Sequence[tuple[int, int]],
    small: Any = (),
) -> Outside:
    """Return what leads to *blocks* from outside; *data* is the memory of the variables of programs and libraries.

    *inner* are the edges between the blocks, what gets the containers outside, and those of the blocks if these wait:
    what they don't use of their memory becomes weak. None: places of a kind are one, as only what is reached is asked
    for. The words of *mallocs*, the memory of the blocks and the allocator's own, hold nothing, but for blocks of one
    word at *small*.
    """
    edges, containers, of_blocks = inner or (None, None, ())
    taken = list(mallocs)
    found: list[tuple[_Area, Words]] = []
    unread_bytes = memory_bytes = 0
    variables = Ranges(data)
    kept = (
        Ranges([*reading.resident.items, *reading.swapped.items])
        if reading.swapped.items
        else reading.resident
    )
    for areas in (_thread_local(reading), _stacks(reading), _data(reading), _memory(reading)):
        # Memory of several kinds counts as the first of them.
        known, here = Ranges(taken), list(areas)
        for area in here:
            pieces = [(area.start, area.end)]
            if area.kind in (DATA, MEMORY):
                inside = variables if area.kind == DATA else kept
                pieces = list(inside.overlaps(area.start, area.end))
            free = [gap for start, end in pieces for gap in known.gaps(start, end)]
            if area.kind == MEMORY:
                memory_bytes += sum(reading.resident.within(*piece) for piece in free)
            words, unread = find_words(memory, blocks, free, containers)
            found.append((area, words))
            # An untouched page that can't be read is a guard: glibc 2.42's are in the mapping of the stacks.
            unread_bytes += sum(
                end - start for start, end in unread if reading.pid is None or kept.within(start, end)
            )
        of_data = bool(here) and here[0].kind == DATA
        taken += list(data) if of_data else [(area.start, area.end) for area in here]
        if here and here[0].kind == STACK:
            taken += _ended(reading)
    found += _in_registers(reading.threads, blocks)
    if len(small):
        found.append((_Area(MEMORY, 0, 0), find_single_words(memory, blocks, small)))
    namers = None
    if edges is not None and containers is not None:
        edges.weaken_unused([*of_blocks, containers], memory)
        edges.far, edges.of_strings = None, ()  # they are no longer needed
        thread_locals = ThreadLocals(reading, memory)
        for area, block in _thread_local_blocks(reading, thread_locals, blocks):
            found.append((area, find_words(memory, blocks, [(area.start, area.end)], None)[0]))
            edges.weaken_block(block)  # its words are those of the variables
        namers = _Namers(reading, memory, blocks, edges, thread_locals)
    outside = _named(found, namers)
    return outside._replace(unread_bytes=unread_bytes, memory_bytes=memory_bytes)


def _named(found: Sequence[tuple[_Area, Words]], namers: Optional[_Namers]) -> Outside:
    np = import_numpy()
    places: list[Place] = []
    known: dict[str, int] = {}  # memory in several mappings, or a stack and registers, that have one name
    columns: list[tuple[Any, Any, Any]] = []
    for area, words in found:
        if len(words.blocks):
            numbers, named = (
                namers.name(area, words)
                if namers is not None
                else (np.zeros(len(words.blocks), np.int64), [Place(area.kind, area.kind, area.start)])
            )
            if named[0].name in known and (area.kind in (MEMORY, STACK) or not area.thread):
                columns.append((numbers + known[named[0].name], words.blocks, words.addresses))
                continue
            known.setdefault(named[0].name, len(places))
            columns.append((numbers + len(places), words.blocks, words.addresses))
            places += named
    none = np.zeros(0, np.int64)
    numbers, to, at = (np.concatenate(column) for column in zip(*columns)) if columns else (none, none, none)
    return Outside(places, numbers, to, at, 0, 0)


def memory_of_glibc(heap: HeapReading) -> Iterator[tuple[int, int]]:
    """Yield the memory that is malloc's: its chunks, which are read as edges, its arenas, and what is behind a top."""
    for arena in heap.arenas:
        yield arena.state.address, arena.state.address + heap.found.layout.state.size
        for region in arena.state.regions:
            yield region.overhead_start, region.end
        for tally in arena.tallies:
            yield tally.start, tally.end
    for chunk in heap.mmapped:
        yield chunk.start, chunk.end


def _thread_local(reading: ProcessImage) -> Iterator[_Area]:
    static = sum(-(-image.thread_local_bytes // _ALIGNED) * _ALIGNED for image in reading.images)
    variables = Ranges(piece for image in reading.images for piece in image.writable)
    for thread in reading.threads:
        pointer = thread.thread_pointer
        mapping = mapping_at(reading.mappings, pointer)
        if pointer in variables:
            # musl keeps that of the first thread in a variable among others: of the program, if that is static.
            yield _Area(THREAD_LOCAL, pointer - static, pointer, thread.tid, pointer)
        elif mapping is not None:
            # A thread's stack ends where its thread-local memory begins; that of the first thread is elsewhere.
            on_stack = mapping.start <= thread.stack_pointer < mapping.end
            below = static if on_stack else static + _SURPLUS
            start = max((pointer - below) & -8, mapping.start)
            end = min(pointer + _DESCRIPTOR, mapping.end)
            yield _Area(THREAD_LOCAL, start, end, thread.tid, pointer)
    for stack in reading.stacks:
        # libc keeps the descriptor of an ended thread with its stack, and the block that leads to thread-local memory.
        if stack.tid is None and stack.pointer:
            yield _Area(THREAD_LOCAL, stack.pointer, min(stack.pointer + _DESCRIPTOR, stack.end))


def _thread_local_blocks(
    reading: ProcessImage, thread_locals: ThreadLocals, blocks: Blocks
) -> Iterator[tuple[_Area, int]]:
    """Yield the thread-local variables of libraries that were loaded later, which are in blocks, and these."""
    for thread in reading.threads:
        for start, image in thread_locals.of_thread(thread.thread_pointer):
            block = blocks.find_one(start)
            if block >= 0 and blocks.live[block]:
                end = start + image.thread_local_bytes
                yield _Area(THREAD_LOCAL, start, end, thread.tid, thread.thread_pointer), block


def _stacks(reading: ProcessImage) -> Iterator[_Area]:
    """Yield the stack of each thread, from its red zone up."""
    for thread in reading.threads:
        mapping = mapping_at(reading.mappings, thread.stack_pointer)
        if mapping is not None:
            start = max((thread.stack_pointer - _RED_ZONE) & -8, mapping.start)
            yield _Area(STACK, start, reading.stack_of(thread, mapping)[1], thread.tid)


def _ended(reading: ProcessImage) -> Iterator[tuple[int, int]]:
    """Yield what functions and threads that have ended left on stacks."""
    for thread in reading.threads:
        mapping = mapping_at(reading.mappings, thread.stack_pointer)
        if mapping is not None:
            yield reading.stack_of(thread, mapping)[0], thread.stack_pointer
    yield from ((stack.start, stack.end) for stack in reading.stacks if stack.tid is None)


def _data(reading: ProcessImage) -> Iterator[_Area]:
    """Yield the variables of each object as a whole: one may begin in pages of the file and end in others."""
    yield from (_Area(DATA, start, end) for image in reading.images for start, end in image.writable)


def _memory(reading: ProcessImage) -> Iterator[_Area]:
    for mapping in reading.mappings:
        if mapping.is_anonymous and mapping.permissions[0] == "r":
            yield _Area(MEMORY, mapping.start, mapping.end)


def _in_registers(threads: Sequence[ThreadPointers], blocks: Blocks) -> Iterator[tuple[_Area, Words]]:
    np = import_numpy()
    low, size = blocks.span
    for thread in threads:
        values = np.array([value & (1 << 64) - 1 for value in thread.registers], np.uint64)
        at = np.flatnonzero(values - np.uint64(low) < np.uint64(size))
        to = blocks.find(values[at])
        live = (to >= 0) & blocks.live.take(to, mode="clip")
        yield _Area(STACK, 0, 0, thread.tid), Words(to[live], at[live])


class _Namers:
    """Names words by symbols, threads and mappings."""

    def __init__(
        self, reading: ProcessImage, memory: Memory, blocks: Blocks, edges: Edges, thread_locals: ThreadLocals
    ) -> None:
        self._reading, self._memory, self._blocks, self._edges = reading, memory, blocks, edges
        self._sizes = blocks.sizes()
        self._symbols = ObjectSymbols(reading.images, reading.open)
        self._thread_local = ThreadLocalSymbols(reading.images, reading.open)
        self._locals = thread_locals
        self._names = {thread.tid: thread.name for thread in reading.threads}

    def name(self, area: _Area, words: Words) -> tuple[Any, list[Place]]:
        """Return for each word the number of its place among those that are returned."""
        np = import_numpy()
        if area.kind == DATA:
            return self._of_data(words)
        if area.kind == THREAD_LOCAL and area.thread:
            return self._of_thread(area, words)
        thread = self._thread(area.thread) if area.kind == STACK else ""
        name = self._of_memory(area) if area.kind == MEMORY else f"stack of {thread}"
        name = "threads that have ended" if area.kind == THREAD_LOCAL else name
        return np.zeros(len(words.blocks), np.int64), [Place(name, area.kind, area.start, "", thread)]

    def _of_memory(self, area: _Area) -> str:
        if not area.start:
            return "blocks of 8 bytes"
        if any(area.start <= arena.address < area.end for arena in self._reading.others.python.arenas):
            return "Python's arenas"
        mapping = mapping_at(self._reading.mappings, area.start)
        name = (mapping.name if mapping is not None else "") or "memory that is not malloc's"
        return f"{name} at 0x{area.start:x}"

    def _thread(self, tid: int) -> str:
        return thread_in_words(tid, self._names.get(tid, ""))

    def _of_data(self, words: Words) -> tuple[Any, list[Place]]:
        """Name words in order of address by the variables that contain them, or by their offset in the object."""
        np = import_numpy()
        image = _image_at(self._reading.images, int(words.addresses[0]))
        symbols = self._symbols.symbols_of(image) if image is not None else []
        at = words.addresses - (image.bias if image is not None else 0)
        starts = np.array([start for start, _, _ in symbols], np.int64)
        ends = np.array([end for _, end, _ in symbols], np.int64)
        symbol = np.searchsorted(starts, at, "right") - 1
        if len(symbols):
            symbol[(symbol >= 0) & (at >= ends[symbol])] = -1
        new = self._begins_another(words, symbol)
        numbers = np.cumsum(new) - 1
        file = PurePath(image.name).name if image is not None else ""
        bias = image.bias if image is not None else 0
        places = [
            self._variable(Place(symbols[n][2], DATA, bias + symbols[n][0], file))
            if n >= 0
            else Place(f"{file}+0x{int(offset):x}", DATA, int(address), file)
            for n, address, offset in zip(symbol[new].tolist(), words.addresses[new], at[new])
        ]
        return numbers, places

    def _variable(self, place: Place) -> Place:
        """Return the *place* of a variable with its contents."""
        try:
            return place._replace(contents=self._memory.read(place.address, _CONTENTS))
        except MemoryUnreadable:
            return place

    def _begins_another(self, words: Words, symbol: Any) -> Any:
        """Return whether each word begins another variable.

        Without a symbol, neighbours that lead to one block, or to blocks of one size and class, count as one
        variable's, as the three pointers of a vector and of a map do; so do words near each other of which one leads to
        a block that leads to that of the other, or to the other word itself, as in a hash table.
        """
        np = import_numpy()
        new = np.ones(len(symbol), bool)
        sizes = self._sizes[words.blocks]
        distance = words.addresses[1:] - words.addresses[:-1]
        vtables = self._vtables(words.blocks)
        joined = (distance <= _JOINED) & (sizes[1:] == sizes[:-1]) & (vtables[1:] == vtables[:-1])
        unknown = (symbol[1:] < 0) & (symbol[:-1] < 0)
        for n in np.flatnonzero(unknown & ~joined & (distance <= _REACH)).tolist():
            one, other = int(words.blocks[n]), int(words.blocks[n + 1])
            joined[n] = (
                self._leads(one, other) or self._leads(other, one)
                or self._leads_out(one, int(words.addresses[n + 1])) or self._leads_out(other, int(words.addresses[n]))
            )  # fmt: skip
        new[1:] = (symbol[1:] != symbol[:-1]) | (unknown & ~joined)
        return new

    def _vtables(self, blocks: Any) -> Any:
        """Return the vtable with which each of *blocks* begins; 0: none."""
        np = import_numpy()
        known, vtables = self._edges.objects
        if not len(known):
            return np.zeros(len(blocks), np.uint64)
        at = np.minimum(np.searchsorted(known, blocks), len(known) - 1)
        return np.where(known[at] == blocks, vtables[at], np.uint64(0))

    def _leads(self, block: int, to: int) -> bool:
        first = self._edges.first
        return bool((self._edges.to[int(first[block]) : int(first[block + 1])] == to).any())

    def _leads_out(self, block: int, address: int) -> bool:
        """Return whether *block* has a word that leads to *address*, which is that of a variable."""
        np = import_numpy()
        start = int(self._blocks.addresses(np.array([block]))[0])
        reader = Reader(self._memory)
        end = start + min(int(self._sizes[block]), _MOST_READ)
        return any((words == np.uint64(address)).any() for _, words in reader.pieces(start, end))

    def _of_thread(self, area: _Area, words: Words) -> tuple[Any, list[Place]]:
        """Name words of thread-local memory by symbols, or by offsets in that of an object; the rest is one place."""
        np = import_numpy()
        thread = self._thread(area.thread)
        objects = self._locals.of_thread(area.pointer)
        known = [
            (start + begin, start + end, name, image)
            for start, image in objects
            for begin, end, name in self._thread_local.symbols_of(image)
        ]
        symbol = _ranges_at([one[:2] for one in known], words.addresses)
        of = _ranges_at(
            [(start, start + image.thread_local_bytes) for start, image in objects], words.addresses
        )
        new = self._begins_another(words, symbol)
        new[1:] |= of[1:] != of[:-1]
        numbers = np.cumsum(new) - 1
        places = []
        for n, which, address in zip(symbol[new].tolist(), of[new].tolist(), words.addresses[new].tolist()):
            start, image = objects[which] if which >= 0 else (0, None)
            file = PurePath(image.name).name if image is not None else ""
            if n >= 0:
                start, _, name, image = known[n]
                of_object = f"{PurePath(image.name).name}, {thread}"
                places.append(self._variable(Place(name, THREAD_LOCAL, start, of_object, thread)))
            elif image is not None:
                name = f"{file}+0x{address - start:x}"
                places.append(Place(name, THREAD_LOCAL, address, f"{file}, {thread}", thread))
            else:
                places.append(Place(f"thread-local memory of {thread}", THREAD_LOCAL, area.start, "", thread))
        return numbers, places


def _ranges_at(ranges: Sequence[tuple[int, int]], addresses: Any) -> Any:
    """Return for each of *addresses* the number of the range, of some in order, that contains it; -1: none."""
    np = import_numpy()
    starts, ends = (
        (np.array(column, np.int64) for column in zip(*ranges)) if ranges else np.zeros((2, 0), np.int64)
    )
    number = np.searchsorted(starts, addresses, "right") - 1
    if len(ranges):
        number[(number >= 0) & (addresses >= ends[number])] = -1
    return number


def with_thread_pointers(
    memory: Memory, threads: Sequence[ThreadPointers], areas: Iterable[tuple[int, int]]
) -> list[ThreadPointers]:
    """Return *threads* with the thread pointers that were unknown, as those of a program under valgrind are.

    They are searched in *areas*: there is a pointer to itself, twice, and behind it the number of the thread.
    Source: glibc, sysdeps/x86_64/nptl/tls.h: tcbhead_t; nptl/descr.h: struct pthread.
    """
    np = import_numpy()
    missing = {thread.tid for thread in threads if not thread.thread_pointer}
    found: dict[int, int] = {}
    for start, end in areas if missing else ():
        for base, words in Reader(memory).pieces((start + 7) & -8, end):
            at = np.flatnonzero(words == np.arange(base, base + 8 * len(words), 8, dtype=np.uint64))
            for pointer in (base + 8 * at).tolist():
                with suppress(MemoryUnreadable):
                    descriptor = words_at(memory, pointer, _TID_BEFORE // 8)
                    tids = missing.intersection(word & 0xFFFFFFFF for word in descriptor[_TID_AFTER // 8 :])
                    if descriptor[2] == pointer and len(tids) == 1:
                        found.setdefault(tids.pop(), pointer)
    return [one._replace(thread_pointer=found.get(one.tid, one.thread_pointer)) for one in threads]


def thread_in_words(tid: int, name: str) -> str:
    return f"thread {tid} ({name})" if name else f"thread {tid}"


def grouped(places: Sequence[Place], by: str) -> tuple[list[int], list[Place]]:
    """Return for each of *places* the number of its group *by* object file or thread, and the groups.

    What a thread's stack leads to counts less than what its thread-local memory does: these are two groups of one name.
    """
    groups: dict[tuple[str, str], int] = {}
    of_place = []
    for place in places:
        kind, file = place.kind, place.object.removesuffix(f", {place.thread}")
        if by == BY_THREAD:
            name = place.thread or _BY_THREAD.get(kind, place.name)
        elif file and kind != STACK:
            kind, name = DATA, file
        else:
            name = _BY_OBJECT[kind] if place.thread else place.name
        of_place.append(groups.setdefault((kind, name), len(groups)))
    return of_place, [Place(name, kind, 0) for kind, name in groups]


def _image_at(images: Sequence[Image], address: int) -> Optional[Image]:
    """Return the object whose writable memory contains *address*."""
    return next((one for one in images for start, end in one.writable if start <= address < end), None)
