"""Looking into a live process: what must be read, in which order, while it is held still."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Optional

from gdbmem.allocators.glibc.arenas import HeapCorrupt
from gdbmem.allocators.glibc.caches import Known, ThreadPointers
from gdbmem.allocators.glibc.heap import HeapReading, Walker, choose_walker, read_heap
from gdbmem.allocators.glibc.layout import LibcFacts
from gdbmem.allocators.glibc.stacks import Stack, find_stacks
from gdbmem.allocators.others import recognise
from gdbmem.analysis.claims import areas_to_scan
from gdbmem.analysis.ledger import Reading, build_ledger
from gdbmem.errors import Notice, TargetError
from gdbmem.launch.libcfacts import libc_facts
from gdbmem.launch.vectorslack import AT_PROMPT, WHEN_STILL, WHILE_HELD, add_unused_in_vectors
from gdbmem.linux.elf import Image, images
from gdbmem.linux.maps import Mapping, parse_smaps
from gdbmem.linux.pages import Ranges, resident_ranges, scan_resident
from gdbmem.linux.process import check_analysable, open_in, process_facts
from gdbmem.linux.procmemory import CarefulMemory, ProcMemory
from gdbmem.linux.ptrace import Freeze, held_threads
from gdbmem.model.ledger import Ledger
from gdbmem.model.memory import Memory
from gdbmem.units import format_size

_LIBC = re.compile(r"/libc(-[\d.]+\.so|\.so\.6(\.1)?)( \(deleted\))?$")
_MUSL = re.compile(r"/(ld-musl-[^/]*|libc\.musl-[^/]*)\.so(\.1)?$|-musl/[^/]*libc\.so$")
_THREAD_LIBRARIES = re.compile(r"/(ld-linux[^/]*|ld-[\d.]+|ld64)\.so(\.\d+)?$|/libpthread[^/]*\.so(\.0)?$")


Look = Callable[[Reading, Memory], None]
"""What else is to be asked of a process (or its copy, or a core) while its memory can be read."""


@dataclass(frozen=True)
class Malloc:
    """The object of a process that malloc is part of, and what its file tells."""

    image: Optional[Image]
    facts: LibcFacts
    notice: Optional[Notice] = None


def explain_process(
    pid: int, *, walker: Optional[Walker] = None, fork: bool = False, look: Optional[Look] = None
) -> Ledger:
    """Return the ledger of live process *pid*, which is held still meanwhile; *look* gets what was read.

    With *fork* a motionless copy of it is analysed, and the process waits only while that is made.
    Raises TargetError with the reason where it can't be looked into.
    """
    facts = check_analysable(pid)
    with ProcMemory(pid) as memory:
        mappings = read_maps(pid)
        malloc = find_malloc(memory, mappings, pid)
        walker = walker or choose_walker()  # loads numpy, before the process is made to wait
        if fork:
            return _explain_copy(pid, facts.name, memory, mappings, malloc, walker, look)
        with Freeze(pid) as freeze:
            threads = thread_pointers(pid, freeze)
            reading = read_process(
                pid, facts.name, memory, threads, malloc, walker=walker, look=look, searched=WHILE_HELD
            )
    return build_ledger(reading, pause_seconds=freeze.pause_seconds)


def _explain_copy(
    pid: int,
    name: str,
    memory: ProcMemory,
    mappings: list[Mapping],
    malloc: Malloc,
    walker: Walker,
    look: Optional[Look],
) -> Ledger:
    from gdbmem.linux.copying import make_copy

    view: Optional[Reading] = None
    with Freeze(pid) as freeze:
        copy = make_copy(freeze, memory, mappings)
        try:
            threads = thread_pointers(pid, freeze)
            held = read_maps(pid)
            present = scan_resident(pid, [(held[0].start, held[-1].end)])
            if present is None:
                view = _kernels_view(pid, name, threads)  # only smaps tells here: the process waits longer
        except BaseException:
            freeze.release()
            copy.kill()
            raise
    try:
        if view is None and present is not None:
            mappings = _as_in_original(held, read_smaps(copy.pid), present)
            view = Reading(name, pid, mappings, present, True, threads)
            _look_beside(view)
        assert view is not None
        with ProcMemory(copy.pid) as still:
            fill_reading(view, still, malloc, main=pid, walker=walker, look=look, searched=WHEN_STILL)
    finally:
        copy.kill()
    return build_ledger(view, pause_seconds=freeze.pause_seconds)


def _as_in_original(held: Sequence[Mapping], copied: Sequence[Mapping], present: Ranges) -> list[Mapping]:
    """Return the mappings *held* with smaps' figures; Rss is the count of the original's present pages.

    The two are the same number (a test compares them), but smaps takes as long as the copy itself. The copy's
    own Rss is smaller: pages of files aren't copied. Its other figures are the original's.
    """
    figures = {mapping.start: mapping for mapping in copied}
    result = []
    for mapping in held:
        known = figures.get(mapping.start, mapping)
        in_hugetlb = known.hugetlb_bytes or "ht" in known.flags.split()
        rss = 0 if in_hugetlb else present.within(mapping.start, mapping.end)
        result.append(replace(known, end=mapping.end, name=mapping.name, rss_bytes=rss))
    return result


def explain_stopped(
    pid: int,
    name: str,
    memory: Memory,
    threads: Sequence[ThreadPointers],
    *,
    look: Optional[Look] = None,
) -> Ledger:
    """Return the ledger of process *pid*, which somebody else (gdb) holds still."""
    check_analysable(pid, may_be_traced=True)
    malloc = find_malloc(memory, read_maps(pid), pid)
    return build_ledger(read_process(pid, name, memory, threads, malloc, look=look))


def explain_core(
    path: Path,
    *,
    look: Optional[Look] = None,
    program: Optional[Path] = None,
) -> Ledger:
    """Return the ledger of a core file: its pages that hold data take the place of the resident set.

    *program* is the file that left the core, where it isn't at its old place any more. Raises InputError
    where *path* is no core, or *program* another program.
    """
    from gdbmem.linux.corefile import CoreFile

    core = CoreFile(path, program)
    mappings = core.mappings()
    threads = [ThreadPointers(t.tid, t.thread_pointer, t.stack_pointer) for t in core.threads]
    reading = Reading(core.program, None, mappings, core.written, True, threads)
    zeros = core.present_bytes - core.written.size_bytes
    reading.beside = {"zeros_in_core": zeros, "omitted_from_core": core.omitted_bytes}
    reading.notices += _of_core(zeros, core.omitted_bytes)
    malloc = find_malloc(core, mappings, None)
    main = min((t.tid for t in threads), default=0)
    fill_reading(reading, core, malloc, main=main, look=look, searched=WHEN_STILL)
    return build_ledger(reading)


def _of_core(zero_bytes: int, omitted_bytes: int) -> list[Notice]:
    """Return what has to be said of a core beside its ledger."""
    notices = [
        Notice(
            "core-has-no-rss",
            "a core doesn't say what was resident: what is counted are its pages that hold anything but zeros"
            f" ({format_size(zero_bytes)} more are zeros, touched or not)",
        )
    ]
    if omitted_bytes:
        text = (
            f"{format_size(omitted_bytes)} of the process's mappings are not in the core"
            " (files that can be read again, and what /proc/PID/coredump_filter left out)"
        )
        notices.append(Notice("core-leaves-out", text))
    return notices


def thread_pointers(pid: int, freeze: Freeze) -> list[ThreadPointers]:
    """Return the threads that *freeze* holds."""
    return [
        ThreadPointers(held.tid, held.thread_pointer, held.stack_pointer, thread_name(pid, held.tid))
        for held in held_threads(freeze)
    ]


def thread_name(pid: int, tid: int) -> str:
    try:
        return Path(f"/proc/{pid}/task/{tid}/comm").read_text(errors="surrogateescape").rstrip("\n")
    except OSError:
        return ""


def read_process(
    pid: int,
    name: str,
    memory: Memory,
    threads: Sequence[ThreadPointers],
    malloc: Malloc,
    *,
    walker: Optional[Walker] = None,
    look: Optional[Look] = None,
    searched: int = AT_PROMPT,
) -> Reading:
    """Read everything of stopped process *pid*; the kernel's figures first, as reading may swap pages in."""
    reading = _kernels_view(pid, name, threads)
    fill_reading(reading, memory, malloc, main=pid, walker=walker, look=look, searched=searched)
    return reading


def _kernels_view(pid: int, name: str, threads: Sequence[ThreadPointers]) -> Reading:
    mappings, resident, zero_known = read_residency(pid)
    reading = Reading(name, pid, mappings, resident, zero_known, threads)
    _look_beside(reading)
    return reading


def _look_beside(reading: Reading) -> None:
    mappings = reading.mappings
    facts = process_facts(reading.pid or 0)
    reading.beside = {
        "page_tables": facts.page_table_bytes,
        "swap": sum(m.swap_bytes for m in mappings),
        "huge_pages": sum(m.huge_bytes for m in mappings),
        "hugetlb": sum(m.hugetlb_bytes for m in mappings),
        "merged_by_ksm": sum(m.ksm_bytes for m in mappings),
    }


def read_residency(pid: int) -> tuple[list[Mapping], Ranges, bool]:
    """Return smaps, the resident pages of anonymous mappings, and whether zero pages are left out."""
    mappings = read_smaps(pid)
    partial, whole = areas_to_scan(mappings)
    scanned, zero_known = resident_ranges(pid, partial)
    return mappings, Ranges([*scanned.items, *whole]), zero_known or not partial


def fill_reading(
    reading: Reading,
    memory: Memory,
    malloc: Malloc,
    *,
    main: int,
    walker: Optional[Walker] = None,
    look: Optional[Look] = None,
    searched: int = AT_PROMPT,
) -> None:
    """Add what can be learnt from the process's memory: malloc, stacks, other allocators; then *look*.

    A heap of no more than *searched* bytes is searched for vectors too.
    """
    careful = CarefulMemory(memory, reading.mappings) if reading.pid is not None else memory
    _fill(reading, careful, malloc, main, walker)
    if look is not None:
        look(reading, memory)
    add_unused_in_vectors(reading, memory, most_bytes=searched)


def _fill(reading: Reading, memory: Memory, malloc: Malloc, main: int, walker: Optional[Walker]) -> None:
    reading.images = images(memory, reading.mappings)
    reading.others = recognise(memory, reading.mappings)
    if malloc.notice is not None:
        reading.notices.append(malloc.notice)
    reading.stacks = _stacks(reading, memory, main)
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
            walker=walker,
        )
    except HeapCorrupt as error:
        reading.notices.append(Notice(error.slug, f"{error.message}: only the kernel's view is given"))
        return
    notice = _silent_heap(reading, reading.heap)
    if notice is not None:
        reading.notices.append(notice)


def _silent_heap(reading: Reading, heap: Optional[HeapReading]) -> Optional[Notice]:
    replacement = reading.others.replacement
    if heap is None and not replacement:
        return Notice(
            "malloc-unknown",
            "glibc's malloc could not be recognised with certainty in this process: only the kernel's view is given",
        )
    if heap is not None and heap.is_used and not replacement:
        return None
    if replacement:
        return Notice(
            "malloc-replaced",
            f"malloc is {replacement} here: its memory is one entry, and what is free in it is not known",
        )
    return Notice("malloc-unused", "this process has allocated nothing through glibc's malloc")


def _stacks(reading: Reading, memory: Memory, main: int) -> list[Stack]:
    libraries = [i for i in reading.images if _THREAD_LIBRARIES.search(i.name) or _LIBC.search(i.name)]
    # A static program has libc's lists in its own data.
    data = [area for image in libraries or reading.images[:1] for area in image.writable]
    return find_stacks(memory, _small(data), reading.threads, Known(reading.mappings), main)


def _small(areas: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    # libc's own data is some 50 KB; a program with gigabytes of static arrays isn't searched.
    return sorted({(start, min(end, start + (16 << 20))) for start, end in areas})


def find_malloc(memory: Memory, mappings: Sequence[Mapping], pid: Optional[int]) -> Malloc:
    """Return where the process's malloc is, and what the file of that object tells (gdb is asked once)."""
    loaded = images(memory, mappings)
    libc = next((image for image in loaded if _LIBC.search(image.name)), None)
    if libc is None:
        musl = next((m for m in mappings if _MUSL.search(m.name)), None)
        if musl is not None:
            return Malloc(None, LibcFacts({}, None), _other_libc("musl"))
        # A static program has its malloc in itself; one that has an interpreter will load, or has loaded, its libc.
        is_static = not any(image.has_interpreter for image in loaded)
        libc = next(iter(loaded), None) if is_static else None
        if libc is None:
            return Malloc(None, LibcFacts({}, None), _NO_LIBC)
    path = open_in(pid, libc.name) if pid is not None else Path(libc.name)
    return Malloc(libc, libc_facts(path, libc.build_id, root=_other_root(pid)))


def _other_root(pid: Optional[int]) -> Optional[Path]:
    """Return the process's root folder when it is not this one's: a container, a chroot."""
    if pid is None:
        return None
    root = Path(f"/proc/{pid}/root")
    try:
        return None if root.samefile("/") else root
    except OSError:
        return None


_NO_LIBC = Notice(
    "other-libc",
    "this process has loaded no C library that gdbmem knows, one that was only just started none at all:"
    " only the kernel's view is given",
)


def _other_libc(what: str) -> Notice:
    return Notice(
        "other-libc",
        f"this process uses {what}, whose malloc gdbmem can't read: only the kernel's view is given",
    )


def read_maps(pid: int) -> list[Mapping]:
    return _of_user(parse_smaps(_read(pid, "maps")))


def _of_user(mappings: list[Mapping]) -> list[Mapping]:
    # The vsyscall page is the kernel's, in every process, and beyond what PAGEMAP_SCAN can walk.
    return [mapping for mapping in mappings if mapping.name != "[vsyscall]"]


def read_smaps(pid: int) -> list[Mapping]:
    mappings = parse_smaps(_read(pid, "smaps"))
    if not mappings:
        raise TargetError(
            f"process {pid} ended before it could be looked at",
            slug="process-ended",
            hint="name one that still runs",
        )
    return _of_user(mappings)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except ProcessLookupError:
        return b""
    except OSError as error:
        raise TargetError(
            f"/proc/{pid}/{name} can't be read: {error.strerror}",
            slug="process-forbidden",
            hint="run as the process's user, or as root",
        ) from error
