"""The heap of the selected inferior: bytes in use, found without running code in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Optional, Union

import gdb

from gdbmem.allocators.glibc_in_use import GlibcHeap, InUse, Layout, find_main_arena, tcache_offset
from gdbmem.allocators.others import replacement_among
from gdbmem.debugger.selection import selection_kept, thread_pointer
from gdbmem.debugger.target import GdbMemory, ProcMemory

_MOST_DATA = 1 << 20
PATIENT_CHUNKS = 2_000_000  # free chunks that are walked for one command at the prompt, in about a second


class HeapReader:
    """glibc's malloc in the selected inferior; finds it when it is first asked."""

    def __init__(self, pid: Optional[int]) -> None:
        self._pid = pid  # on this machine; None: elsewhere
        self._memory: Union[ProcMemory, GdbMemory, None] = None
        self._heap: Optional[GlibcHeap] = None
        self._offset: Optional[int] = None  # of the tcache pointer below the thread pointer
        self._pointers: dict[int, int] = {}  # by gdb's thread number
        self.problem = ""
        self.nothing_yet = False  # no malloc was found because there is nothing that it has given out

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def read(self, *, most_chunks: int = PATIENT_CHUNKS) -> Optional[InUse]:
        """Return the bytes in use; None where there is no glibc malloc to read, with the reason in `problem`."""
        try:
            if self._heap is None and not self._find():
                return None
            assert self._heap is not None
            return self._heap.in_use(self._tcaches(), most_chunks=most_chunks)
        except (OSError, ValueError, OverflowError) as error:
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
        files = _bases(self._pid) if self._pid is not None else {}
        replacement = replacement_among(name for name, _ in files)
        if replacement is not None:
            self.problem = f"malloc is {replacement} here, and only glibc's is read"
            return False
        found = _known(files) or _by_symbols(self._pid) or self._by_shape()
        if found is None:
            self.problem = "no glibc malloc was found in this process (not loaded yet, or another C library)"
            self.nothing_yet = ("[heap]", "0") not in files
            return False
        arena, layout, mapped = found
        self._heap = GlibcHeap(self._memory, arena, layout, mapped)
        return True

    def _by_shape(self) -> Optional[tuple[int, Layout, Optional[int]]]:
        assert self._memory is not None
        for start, size in _libc_data(self._pid) if self._pid is not None else ():
            found = find_main_arena(self._memory.read(start, size), start)
            if found is not None:
                return (*found, None)
        return None

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


# (library, inode) → its main arena, layout and mp_.mmapped_mem as offsets: looking symbols up takes gdb 30 ms.
_offsets: dict[tuple[str, str], tuple[int, Layout, Optional[int]]] = {}


def _known(files: Mapping[tuple[str, str], int]) -> Optional[tuple[int, Layout, Optional[int]]]:
    """Return what an earlier process with the same C library, one of *files*, has taught."""
    for key, start in files.items():
        if key in _offsets:
            arena, layout, mapped = _offsets[key]
            return start + arena, layout, None if mapped is None else start + mapped
    return None


def _bases(pid: int) -> dict[tuple[str, str], int]:
    """Return each file that *pid* has mapped, with its inode, and where it begins."""
    found: dict[tuple[str, str], int] = {}
    for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6:
            found.setdefault((words[5], words[4]), int(words[0].split("-")[0], 16))
    return found


def _by_symbols(pid: Optional[int]) -> Optional[tuple[int, Layout, Optional[int]]]:
    """Find the main arena by libc's own debug information."""
    try:
        arena = gdb.parse_and_eval("&main_arena")
        fields = {field.name: field for field in arena.dereference().type.fields()}
    except (gdb.error, TypeError):
        return None
    if "bins" not in fields or "top" not in fields:
        return None
    fast = fields.get("fastbinsY")
    count = fast.type.range()[1] + 1 if fast is not None else 0
    layout = Layout(fields["bins"].bitpos // 8, fast.bitpos // 8 if fast is not None else None, count)
    if fields["system_mem"].bitpos // 8 != layout.system_mem or fields["next"].bitpos // 8 != layout.next:
        return None
    try:
        mapped: Optional[int] = int(gdb.parse_and_eval("&mp_.mmapped_mem"))
    except gdb.error:
        mapped = None
    found = int(arena), layout, mapped
    if pid is not None:
        _remember(pid, found)
    return found


def _remember(pid: int, found: tuple[int, Layout, Optional[int]]) -> None:
    arena, layout, mapped = found
    library = str(Path(gdb.solib_name(arena) or "").resolve())
    for key, start in _bases(pid).items():
        if key[0] == library:
            _offsets[key] = (arena - start, layout, None if mapped is None else mapped - start)


def _libc_data(pid: int) -> Iterator[tuple[int, int]]:
    """Yield where libc's (or, in a static program, the program's) writable data lies: address, size."""
    lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    for line in lines:
        words = line.split(maxsplit=5)
        name = words[5].rpartition("/")[2] if len(words) == 6 else ""
        if words[1].startswith("rw") and (name.startswith(("libc.so", "libc-")) or words[4] != "0"):
            start, end = (int(part, 16) for part in words[0].split("-"))
            if end - start <= _MOST_DATA:
                yield start, end - start
