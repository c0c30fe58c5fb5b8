"""The heap of the selected inferior: bytes in use, found without running code in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional, Union

import gdb

from gdbmem.allocators.glibc.in_use import GlibcHeap, InUse, tcache_offset
from gdbmem.allocators.glibc.layout import LibcFacts, Struct, locate
from gdbmem.allocators.others import replacement_among
from gdbmem.debugger.program import GdbMemory, selection_kept, thread_pointer
from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import Mapping, mappings_of
from gdbmem.linux.memory.process_memory import ProcMemory

_MOST_DATA = 1 << 20
PATIENT_CHUNKS = 2_000_000  # number of free chunks that one command at the prompt walks, in about a second


class _Place(NamedTuple):
    """The location of malloc's state in a C library."""

    main_arena: int
    state: Struct
    mmapped_mem: Optional[int]


class HeapReader:
    """glibc's malloc in the selected inferior; located on first use."""

    def __init__(self, pid: Optional[int]) -> None:
        self._pid = pid  # on this machine; None: elsewhere
        self._memory: Union[ProcMemory, GdbMemory, None] = None
        self._heap: Optional[GlibcHeap] = None
        self._is_early = False  # found before malloc had a heap: its layout is not fully determined yet
        self._offset: Optional[int] = None  # of the tcache pointer below the thread pointer
        self._pointers: dict[int, int] = {}  # by gdb's thread number
        self.problem = ""
        self.nothing_yet = False  # no malloc was found because nothing has been allocated

    def close(self) -> None:
        if isinstance(self._memory, ProcMemory):
            self._memory.close()
        self._memory = None

    def read(self, *, most_chunks: int = PATIENT_CHUNKS) -> Optional[InUse]:
        """Return the bytes in use; None if there is no glibc malloc to read, with the reason in `problem`."""
        try:
            if (self._heap is None or self._is_early) and not self._find():
                return None
            assert self._heap is not None
            return self._heap.in_use(self._tcaches(), most_chunks=most_chunks)
        except (OSError, ValueError, TargetError) as error:
            self.problem = f"malloc's bookkeeping can't be read: {error}"
        except gdb.error as error:
            self.problem = f"malloc's bookkeeping can't be found: {error}"
        return None

    @property
    def counts_mapped_blocks(self) -> bool:
        return self._heap is not None and self._heap.counts_mapped_blocks

    def _find(self) -> bool:
        if self._memory is None:
            self._memory = ProcMemory(self._pid) if self._pid is not None else GdbMemory()
        mappings = mappings_of(self._pid) if self._pid is not None else []
        replacement = replacement_among(mapping.name for mapping in mappings)
        if replacement is not None:
            self.problem = (
                f"the allocator is {replacement}, and only glibc's blocks can be counted at each step"
            )
            return False
        has_heap = any(mapping.name == "[heap]" for mapping in mappings)
        found = self._by_shape(mappings)
        if found is None or found.mmapped_mem is None:
            found = _by_symbols() or found  # may make gdb read libc's debug information, 30 ms
        if found is None:
            self.problem = (
                "glibc's malloc was not found in this process (not loaded yet, or another C library)"
            )
            self.nothing_yet = not has_heap
            return False
        self._is_early = bool(mappings) and not has_heap and found.mmapped_mem is None
        self._heap = GlibcHeap(self._memory, *found)
        return True

    def _by_shape(self, mappings: Sequence[Mapping]) -> Optional[_Place]:
        assert self._memory is not None
        data = [(m.start, m.end) for m in mappings if m.is_file and m.permissions.startswith("rw")]
        small = [(start, end) for start, end in data if end - start <= _MOST_DATA]
        found = locate(self._memory, mappings, small, 0, LibcFacts({}, None))
        if found is None:
            return None
        mapped = found.parameters and found.parameters + found.layout.parameters["mmapped_mem"]
        return _Place(found.main_arena, found.layout.state, mapped)

    def _tcaches(self) -> list[int]:
        assert self._memory is not None
        bases = self._thread_bases()
        if self._offset is None:
            self._offset = tcache_offset(bases, self._memory)
        return [] if self._offset is None else [base - self._offset for base in bases]

    def _thread_bases(self) -> list[int]:
        threads = gdb.selected_inferior().threads()
        numbers = {thread.num for thread in threads}
        for gone in self._pointers.keys() - numbers:
            del self._pointers[gone]
        missing = [thread for thread in threads if thread.num not in self._pointers]
        if missing:
            with selection_kept():
                for thread in missing:
                    thread.switch()
                    pointer = thread_pointer()
                    if pointer:
                        self._pointers[thread.num] = pointer
        return [self._pointers[number] for number in numbers if number in self._pointers]


def _by_symbols() -> Optional[_Place]:
    """Find the main arena by libc's own debug information."""
    try:
        arena = gdb.parse_and_eval("&main_arena")
        kind = arena.dereference().type
        state = Struct({field.name: field.bitpos // 8 for field in kind.fields()}, kind.sizeof)
    except (gdb.error, TypeError):
        return None
    if not {"bins", "top", "next", "system_mem"} <= state.offsets.keys():
        return None
    try:
        mapped: Optional[int] = int(gdb.parse_and_eval("&mp_.mmapped_mem"))
    except gdb.error:
        mapped = None
    return _Place(int(arena), state, mapped)
