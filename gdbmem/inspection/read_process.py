"""Reading a stopped process, a copy or a core in the right order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from gdbmem.allocators.cpython.arenas import find_arenas
from gdbmem.allocators.glibc.arenas import HeapCorrupt, writable_areas
from gdbmem.allocators.glibc.bins import threads_inside
from gdbmem.allocators.glibc.heap import Walker, read_heap
from gdbmem.allocators.glibc.layout import LibcFacts
from gdbmem.allocators.glibc.stacks import ThreadStack, find_stacks
from gdbmem.allocators.malloc_heap import MallocHeap, SearchedMemory
from gdbmem.allocators.others import GOOGLE_TCMALLOC, recognise, replacement_among
from gdbmem.arrays import has_numpy
from gdbmem.errors import Notice
from gdbmem.inspection import ledger_parts
from gdbmem.ledger.division import areas_to_scan
from gdbmem.ledger.ledger import ProcessImage, build_ledger
from gdbmem.linux.elf.objects import Image, images
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.holding.ptrace import HeldThread
from gdbmem.linux.memory.maps import Mapping, Ranges, read_maps, read_smaps, resident_ranges
from gdbmem.linux.memory.process_memory import PageAbsent, careful_memory, forked_from
from gdbmem.linux.process.process import check_analysable, process_facts, thread_name
from gdbmem.model.ledger import SHARED_BY_FORK, Ledger
from gdbmem.model.memory import Memory, ThreadPointers
from gdbmem.text import format_size, plural, printable

# Heaps of allocators other than glibc's for a ledger: read where anonymous memory has no other explanation.


_WORTH_BYTES = 1 << 20
_Reader = Callable[[SearchedMemory, Image], Optional[MallocHeap]]


def find_mallocs(reading: ProcessImage, memory: Memory) -> list[MallocHeap]:
    """Return the heaps of the process of *reading* that could be read; none without numpy."""
    if not has_numpy():
        return []
    left = unexplained_bytes(reading)
    # Where a library replaces malloc, there is a heap to find. Most of a small heap of musl is in gaps of files' data.
    worth = 1 if reading.others.replacement is not None else _WORTH_BYTES
    if left < worth:
        return []
    data = [area for image in reading.images for area in image.writable]
    view = SearchedMemory(
        memory,
        Ranges((m.start, m.end) for m in reading.mappings if m.is_anonymous and "w" in m.permissions),
        Ranges([*reading.resident.items, *reading.swapped.items, *_touched_data(reading, data)]),
        {},
        [thread.thread_pointer for thread in reading.threads],
    )
    reading.heap_view = view
    found: list[MallocHeap] = []
    for read, image in _readers(reading.images):
        heap = read(view, image)
        if heap is not None:
            found.append(heap)
            left -= sum(reading.resident.within(start, end) for start, end in heap.spans.runs())
            if left < _WORTH_BYTES:
                break
    return found


def _readers(images: Sequence[Image]) -> Iterator[tuple[_Reader, Image]]:
    """Yield the readers of heaps, each with an object of *images* that may have the allocator's variables.

    A reader is imported when it is its turn: few processes need more than one.
    """

    def among(read: _Reader, least_bytes: int) -> Iterator[tuple[_Reader, Image]]:
        """Yield *read* with each object that has so many bytes of variables: most allocators have a large root."""
        for image in images:
            if sum(end - start for start, end in image.writable) >= least_bytes:
                yield read, image

    from gdbmem.allocators import jemalloc

    yield from among(jemalloc.read_heap, 1 << 18)
    from gdbmem.allocators import gperftools

    yield from among(gperftools.read_heap, 1 << 18)
    from gdbmem.allocators import tbbmalloc

    yield from among(tbbmalloc.read_heap, 1 << 16)
    from gdbmem.allocators import mimalloc

    yield from among(mimalloc.read_heap, 1 << 13)
    from gdbmem.allocators import musl

    # The C library, or part of a program without libraries.
    yield from ((musl.read_heap, one) for one in images if _MUSL.search(one.name) or not images[1:])


def unexplained_bytes(reading: ProcessImage) -> int:
    """Return the resident bytes of anonymous memory that are neither glibc's, nor Python's, nor stacks'."""
    heap = reading.heap
    used = sum(arena.state.system_bytes for arena in heap.arenas) if heap is not None and heap.is_used else 0
    mapped = heap.mmapped_bytes if heap is not None else 0
    arenas = sum(arena.size_bytes for arena in reading.others.python.arenas)
    anonymous = [m for m in reading.mappings if m.is_anonymous and not m.name.startswith("[stack")]
    stacks = sum(reading.resident.within(stack.start, stack.end) for stack in reading.stacks)
    return sum(m.rss_bytes + m.swap_bytes for m in anonymous) - used - mapped - arenas - stacks


def _touched_data(reading: ProcessImage, areas: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of *areas* that are in memory: reading others would make pages of a file resident."""
    if reading.pid is None:
        return []  # a core's resident set has them
    files = [m for m in reading.mappings if m.is_file]
    in_files = [
        (max(start, m.start), min(end, m.end))
        for start, end in areas
        for m in files
        if m.start < end and start < m.end
    ]
    return list(resident_ranges(reading.pid, in_files)[0].items) if in_files else []


_LIBC = re.compile(r"/libc(-[\d.]+\.so|\.so\.6(\.1)?)( \(deleted\))?$")
_MUSL = re.compile(r"/(ld-musl-[^/]*|libc\.musl-[^/]*)\.so(\.1)?$|-musl/[^/]*libc\.so$")
_THREAD_LIBRARIES = re.compile(r"/(ld-linux[^/]*|ld-[\d.]+|ld64)\.so(\.\d+)?$|/libpthread[^/]*\.so(\.0)?$")
_SMALL_GAP = 1 << 20  # bytes
_NOTHING = Ranges()


Look = Callable[[ProcessImage, Memory], None]
"""A further question to a process (or its copy, or a core) while its memory can be read."""


class Malloc(NamedTuple):
    """The object file that contains malloc, and the facts from its file."""

    image: Optional[Image]
    facts: LibcFacts
    files: TargetFiles
    notice: Optional[Notice] = None


def explain_stopped(
    pid: int,
    name: str,
    memory: Memory,
    threads: Sequence[ThreadPointers],
    *,
    look: Optional[Look],
    swapped: bool,
) -> Ledger:
    """Return the ledger of process *pid*, which is stopped by someone else (gdb).

    Swapped pages are read only if *swapped*, because reading brings them back into memory.
    """
    check_analysable(pid, may_be_traced=True)
    with TargetFiles(pid) as files:
        malloc = find_malloc(memory, read_maps(pid), files)
        return build_ledger(read_process(pid, name, memory, threads, malloc, look=look, swapped=swapped))


def explain_core(path: Path, *, look: Optional[Look] = None, program: Optional[Path] = None) -> Ledger:
    """Return the ledger of a core file: its pages with data take the place of the resident set.

    *program* is the program's file, if it has moved. Raises InputError if *path* is not a core, or *program*
    is a different program.
    """
    return build_ledger(read_core(path, look=look, program=program))


def read_core(
    path: Path,
    *,
    look: Optional[Look] = None,
    program: Optional[Path] = None,
    walker: Optional[Walker] = None,
    searched: int = ledger_parts.WHEN_STILL,
) -> ProcessImage:
    """Return everything of a core file; arguments and exceptions as for explain_core()."""
    from gdbmem.linux.elf.corefile import CoreFile  # for cores alone

    core = CoreFile(path, program)
    mappings = core.mappings()
    reading = ProcessImage(core.program, None, mappings, core.written, True, core.threads)
    zeros = core.present_bytes - core.written.size_bytes
    beside = {"zeros_in_core": zeros, "omitted_from_core": core.omitted_bytes}
    if core.cut_bytes:
        beside["cut_from_core"] = core.cut_bytes
    reading.beside = beside
    reading.notices += _of_core(zeros, core.omitted_bytes, core.cut_bytes)
    malloc = find_malloc(core, mappings, TargetFiles())
    if core.cut_bytes and malloc.notice is not None:
        malloc = malloc._replace(notice=_BEHIND_THE_CUT)
    main = min((t.tid for t in core.threads), default=0)
    fill_reading(reading, core, malloc, main=main, walker=walker, look=look, searched=searched)
    return reading


_BEHIND_THE_CUT = Notice(
    "malloc-unknown",
    "glibc's malloc could not be read in the rest of this core: only the kernel's view is given",
)


def _of_core(zero_bytes: int, omitted_bytes: int, cut_bytes: int) -> list[Notice]:
    """Return the notices on a core."""
    notices = [
        Notice(
            "core-has-no-rss",
            "a core doesn't record which pages were resident: pages with anything but zeros are counted"
            f" ({format_size(zero_bytes)} more are zeros, touched or not)",
        )
    ]
    if cut_bytes:
        text = (
            f"the core is truncated: {format_size(cut_bytes)} are missing from its end"
            " (a full disk, a limit of its size, a copy that broke off)"
        )
        notices.insert(0, Notice("core-cut", text))
    if omitted_bytes:
        text = (
            f"{format_size(omitted_bytes)} of the process's mappings are not in the core"
            " (files that can be read again, and what /proc/PID/coredump_filter left out)"
        )
        notices.append(Notice("core-leaves-out", text))
    return notices


def named_threads(pid: int, threads: Iterable[HeldThread]) -> list[ThreadPointers]:
    """Return *threads*, which are or were stopped, with their names."""
    return [
        ThreadPointers(
            held.tid,
            held.thread_pointer,
            held.stack_pointer,
            thread_name(pid, held.tid),
            held.program_counter,
            held.system_call,
            held.registers,
        )
        for held in threads
    ]


def read_process(
    pid: int,
    name: str,
    memory: Memory,
    threads: Sequence[ThreadPointers],
    malloc: Malloc,
    *,
    walker: Optional[Walker] = None,
    look: Optional[Look] = None,
    searched: int = ledger_parts.AT_PROMPT,
    swapped: bool = False,
    beside: Ranges = _NOTHING,
) -> ProcessImage:
    """Read everything of stopped process *pid*, but for *beside* and its files; swapped pages only if *swapped*."""
    reading = kernels_view(pid, name, threads)
    files = {one.name for one in reading.mappings if one.is_file and one.start in beside}
    reading.mappings = [one for one in reading.mappings if one.start not in beside and one.name not in files]
    fill_reading(
        reading, memory, malloc, main=pid, walker=walker, look=look, searched=searched, swapped=swapped
    )
    return reading


def kernels_view(pid: int, name: str, threads: Sequence[ThreadPointers]) -> ProcessImage:
    """Return what the kernel says about stopped process *pid*."""
    mappings, resident, zero_known = read_residency(pid)
    view = ProcessImage(name, pid, mappings, resident, zero_known, threads)
    view.forked_from = forked_from(pid)
    look_beside(view, process_facts(pid).page_table_bytes, mappings)
    return view


def look_beside(reading: ProcessImage, page_table_bytes: int, itself: Sequence[Mapping]) -> None:
    """Add the kernel's figures beside the ledger; *itself* are the mappings before a copy shared all pages."""
    mappings = reading.mappings
    reading.beside = {
        "page_tables": page_table_bytes,
        "swap": sum(m.swap_bytes for m in mappings),
        "huge_pages": sum(m.huge_bytes for m in mappings),
        "hugetlb": sum(m.hugetlb_bytes for m in mappings),
        "merged_by_ksm": sum(m.ksm_bytes for m in mappings),
        SHARED_BY_FORK: sum(max(m.shared_bytes - m.ksm_bytes, 0) for m in itself if m.is_anonymous),
    }


def read_residency(pid: int) -> tuple[list[Mapping], Ranges, bool]:
    """Return smaps, the resident pages of anonymous mappings, and whether zero pages are left out."""
    mappings = read_smaps(pid)
    partial, whole = areas_to_scan(mappings)
    scanned, zero_known = resident_ranges(pid, partial)
    return mappings, Ranges([*scanned.items, *whole]), zero_known or not partial


def fill_reading(
    reading: ProcessImage,
    memory: Memory,
    malloc: Malloc,
    *,
    main: int,
    walker: Optional[Walker] = None,
    look: Optional[Look],
    searched: int,
    swapped: bool = True,
) -> None:
    """Add the data from the process's memory: malloc, stacks, other allocators; then call *look*.

    A heap of no more than *searched* bytes is also searched for vectors. Unless *swapped*, pages that reading would
    bring back into memory are not read.
    """
    reading.open = malloc.files.open
    if reading.pid is not None:
        memory = careful_memory(reading.pid, memory, reading.mappings, swapped=swapped)
    _fill(reading, memory, malloc, main, walker)
    reading.pools = ledger_parts.find_pools(reading, memory)
    if look is not None:
        look(reading, memory)
    ledger_parts.add_unused_in_vectors(reading, memory, most_bytes=searched)


def _fill(reading: ProcessImage, memory: Memory, malloc: Malloc, main: int, walker: Optional[Walker]) -> None:
    reading.images = images(memory, reading.mappings)
    touched = _touched(reading)
    reading.others = recognise(memory, reading.mappings, touched)
    others = reading.others
    if not (others.python.arenas or others.runtime or others.is_go) and ledger_parts.holds_python(
        reading.mappings, reading.open
    ):
        others.python = find_arenas(memory, reading.mappings, touched)
    reading.stacks = _stacks(reading, memory, main)
    _read_glibc(reading, memory, malloc, walker, touched)
    reading.mallocs = find_mallocs(reading, memory)
    if malloc.notice is not None and not (malloc.notice is _OF_MUSL and reading.mallocs):
        reading.notices.append(malloc.notice)
    if not reading.mallocs:
        ledger_parts.find_linked_in(reading)
    notice = _silent_heap(reading, malloc)
    if notice is not None:
        reading.notices.append(notice)
    reading.notices += [_odd_descriptors(heap) for heap in reading.mallocs if heap.odd_descriptors]
    reading.notices += [_in_files(heap) for heap in reading.mallocs if heap.in_files[0]]


def _read_glibc(
    reading: ProcessImage, memory: Memory, malloc: Malloc, walker: Optional[Walker], touched: Optional[Ranges]
) -> None:
    if malloc.image is None:
        return
    try:
        reading.heap = read_heap(
            memory,
            reading.mappings,
            reading.threads,
            malloc.image.writable,
            malloc.image.bias,
            malloc.facts,
            tls_bytes=malloc.image.thread_local_bytes,
            threads_inside=threads_inside(memory, malloc.image, reading.threads),
            walker=walker,
            touched=touched,
        )
    except PageAbsent:
        reading.notices.append(_absent(reading))
    except HeapCorrupt as error:
        unread = Notice(error.slug, f"{error.message}: only the kernel's view is given")
        reading.notices.append(_absent(reading) if isinstance(error.__cause__, PageAbsent) else unread)


def _touched(reading: ProcessImage) -> Optional[Ranges]:
    """Return the memory that may have something other than zeros; None if that is unknown: part of it is swapped out.

    Pages of hugetlbfs are not resident by the kernel's count.
    """
    if any(mapping.swap_bytes for mapping in reading.mappings):
        return None
    huge = [
        (one.start, one.end) for one in reading.mappings if one.hugetlb_bytes or "ht" in one.flags.split()
    ]
    joined: list[tuple[int, int]] = []
    for start, end in Ranges([*reading.resident.items, *huge]).items:
        # To read a small gap costs less than to begin anew after it.
        if joined and start - joined[-1][1] <= _SMALL_GAP:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return Ranges(joined)


def _absent(reading: ProcessImage) -> Notice:
    size = sum(mapping.swap_bytes for mapping in reading.mappings)
    which = f"swapped out ({format_size(size)} of the process are)" if size else "supplied by a userfaultfd"
    remedy = " (memexplain --swapped and gdbmem explain --swapped read it nevertheless)" if size else ""
    return Notice(
        "swapped-unread",
        f"part of malloc's memory is {which}, and reading would bring it into memory:"
        f" only the kernel's view is given{remedy}",
    )


def _silent_heap(reading: ProcessImage, malloc: Malloc) -> Optional[Notice]:
    heap, replacement = reading.heap, reading.others.replacement
    if reading.mallocs:
        return _read_others(reading)
    if heap is None and not replacement and any(n.slug in _SAID for n in reading.notices):
        return None
    if heap is None and not replacement and reading.others.is_go:
        return Notice(
            "malloc-unknown",
            "the heap is that of Go's runtime, which gdbmem can't read: only the kernel's view is given",
        )
    if heap is None and not replacement and _is_static(reading, malloc):
        return Notice(
            "malloc-unknown",
            "the malloc of this static program is none that gdbmem recognises (in a program of musl's that never frees,"
            " it keeps no record of its blocks): only the kernel's view is given",
        )
    if heap is None and not replacement:
        return Notice(
            "malloc-unknown",
            "glibc's malloc could not be recognised with certainty in this process: only the kernel's view is given",
        )
    if heap is not None and heap.is_used and not replacement:
        return None
    if replacement:
        return _replaced(reading)
    return Notice("malloc-unused", "this process has allocated nothing through glibc's malloc")


def _is_static(reading: ProcessImage, malloc: Malloc) -> bool:
    """Return whether the malloc that was looked for would be the program's own."""
    image = malloc.image
    return image is not None and bool(reading.images) and image.start == reading.images[0].start


_SAID = ("other-libc", "malloc-unknown", "heap-corrupt", "swapped-unread")


def _read_others(reading: ProcessImage) -> Notice:
    heaps = reading.mallocs
    libraries = [one for one in heaps if replacement_among([one.file]) is not None]
    others = [one for one in heaps if replacement_among([one.file]) is None]
    if heaps[0].allocator == "musl":
        text = f"malloc is that of {_named(heaps)}"
    elif reading.heap is not None and reading.heap.is_used:
        text = f"{_beside(heaps)} glibc's malloc"
    elif libraries and others:  # as a plugin with its own, beside a library that replaces malloc
        text = f"malloc is replaced by {_named(libraries)}; {_beside(others)} it"
    else:
        text = f"malloc is replaced by {_named(heaps)}"
    text += ": its heap was read" if len(heaps) == 1 else ": their heaps were read"
    for one in heaps:
        if not one.is_complete:
            where = f" in that of {printable(one.file)}" if len(heaps) > 1 else ""
            text += f"; freed blocks that its caches keep count as live{where}: {one.unread_caches}"
    return Notice("malloc-replaced", text)


def _beside(heaps: Sequence[MallocHeap]) -> str:
    return f"{_named(heaps)} {'allocate' if heaps[1:] else 'allocates'} beside"


def _named(heaps: Sequence[MallocHeap]) -> str:
    return " and ".join(f"{one.allocator} ({one.layout}; {printable(one.file)})" for one in heaps)


def _in_files(heap: MallocHeap) -> Notice:
    blocks, size = heap.in_files
    return Notice(
        "blocks-in-files",
        f"{plural(blocks, 'live block')} of {heap.allocator} more, {format_size(size)}, are in gaps of files' data,"
        " which its dynamic linker gives to malloc: they count as variables of these files",
    )


def _odd_descriptors(heap: MallocHeap) -> Notice:
    return Notice(
        "descriptors-left-out",
        f"{plural(heap.odd_descriptors, 'descriptor')} of {heap.allocator} ({printable(heap.file)})"
        f" {'contradicts' if heap.odd_descriptors == 1 else 'contradict'} the others, as while a thread changes them:"
        " their pages are in no other entry than 'changing', or unclaimed",
    )


def _replaced(reading: ProcessImage) -> Notice:
    others = reading.others
    if others.linked_into:
        where = f"{others.replacement} is linked into {printable(others.linked_into)}"
    elif reading.heap is not None and reading.heap.is_used:
        # libc_malloc_debug forwards calls, unless checking is enabled.
        where = f"{others.replacement} is loaded, but glibc's malloc also allocates blocks"
    else:
        where = f"malloc is replaced by {others.replacement}"
    text = f"{where}: its memory is one entry, and the free part of it is unknown"
    if others.replacement in _TRIED and reading.pid is not None:
        text += f"; 'gdbmem explain {reading.pid} --try' measures in a copy what its own functions return"
    elif others.replacement == GOOGLE_TCMALLOC:
        text += "; tcmalloc::MallocExtension::GetStats() in the program returns its figures"
    return Notice("malloc-replaced", text)


_TRIED = ("jemalloc", "tcmalloc", "mimalloc", "tbbmalloc", "scudo")  # whose functions a copy can call


def _stacks(reading: ProcessImage, memory: Memory, main: int) -> list[ThreadStack]:
    libraries = [i for i in reading.images if _THREAD_LIBRARIES.search(i.name) or _LIBC.search(i.name)]
    # A static program has libc's lists in its own data.
    data = [area for image in libraries or reading.images[:1] for area in image.writable]
    return find_stacks(memory, _small(data), reading.threads, writable_areas(reading.mappings), main)


def _small(areas: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    # libc's own data is some 50 KB; a program with gigabytes of static arrays is not searched.
    return sorted({(start, min(end, start + (16 << 20))) for start, end in areas})


def find_malloc(memory: Memory, mappings: Sequence[Mapping], files: TargetFiles) -> Malloc:
    """Return the location of the process's malloc, and the facts from its object file (read by gdb once)."""
    loaded = images(memory, mappings)
    libc = next((image for image in loaded if _LIBC.search(image.name)), None)
    if libc is None:
        musl = next((m for m in mappings if _MUSL.search(m.name)), None)
        if musl is not None:
            return Malloc(None, LibcFacts({}, None), files, _OF_MUSL)
        # A static program contains its malloc; a program with an interpreter will load, or has loaded, its libc.
        is_static = not any(image.has_interpreter for image in loaded)
        libc = next(iter(loaded), None) if is_static else None
        if libc is None:
            return Malloc(None, LibcFacts({}, None), files, _NO_LIBC)
    return Malloc(libc, ledger_parts.libc_facts(files, libc.name, libc.build_id), files)


_NO_LIBC = Notice(
    "other-libc",
    "no C library known to gdbmem is loaded in this process (it may have just started):"
    " only the kernel's view is given",
)


_OF_MUSL = Notice(
    "other-libc",
    "this process uses musl, whose malloc gdbmem reads from 1 MiB on, and since 1.2.1:"
    " only the kernel's view is given",
)
