"""Calling into glibc's malloc in the stopped process: conditions for a call, and the values of mallinfo2."""

from __future__ import annotations

import argparse
import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import NamedTuple, Optional, TextIO, Union

import gdb

from gdbmem.allocators.own_functions import OwnFunction, find_functions, why_uncallable
from gdbmem.debugger.command import Command, warn
from gdbmem.debugger.ledger.explain import core_path, local_pid, read_ledger_here
from gdbmem.debugger.location import frames_from, gdb_setting, program_file, stack_pointer
from gdbmem.debugger.native.inferior import program, signed, waits_for_condition
from gdbmem.debugger.program import scheduler_locking, selection_kept
from gdbmem.debugger.terminal import console_on
from gdbmem.errors import TargetError
from gdbmem.formats.reports.glibc_malloc import parse_malloc_info
from gdbmem.ledger.answer import DAMAGES, doubt_of
from gdbmem.ledger.document import returned_bytes, trim_json
from gdbmem.ledger.malloc_info import malloc_info_json, print_malloc_info
from gdbmem.ledger.text import print_growth
from gdbmem.linux.elf.objects import images
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.memory.maps import read_maps
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.model.ledger import FREE_PAGES, LAZY_PAGES, Ledger, OtherMalloc
from gdbmem.model.memory import MemoryUnreadable
from gdbmem.terminal.console import open_output
from gdbmem.text import format_size, printable

# A thread inside one of these may hold a lock that the call needs, or have changed a list in part.
_IN_MALLOC = frozenset(
    ("malloc", "free", "calloc", "realloc", "memalign", "aligned_alloc", "posix_memalign", "malloc_trim",
     "_int_malloc", "_int_free", "_int_realloc", "_int_memalign", "sysmalloc", "systrim", "malloc_consolidate",
     "unlink_chunk", "arena_get2", "new_heap", "heap_trim", "tcache_init", "ptmalloc_init",
     "__libc_malloc", "__libc_free", "__libc_calloc", "__libc_realloc", "_mid_memalign")
)  # fmt: skip
_FRAMES = 64
_WORD = (1 << 64) - 1
# struct mallinfo2, in order; mallinfo has the same as ints.
_FIELDS = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


def refuse_core(function: str) -> None:
    """Raise TargetError if gdb has a core, in which malloc's *function* can't be called."""
    if core_path() is not None:
        raise TargetError(
            f"a core can't run {function}",
            slug="trim-refused",
            hint="'memexplain' shows what its heap contains",
        )


def refused(message: str) -> TargetError:
    """Return the error for a call that would be dangerous now."""
    return TargetError(
        message, slug="trim-refused", hint="continue for a moment ('finish', 'next') and try again"
    )


def check_callable(ledger: Ledger, function: str) -> None:
    """Raise TargetError if calling malloc's *function* would be useless or dangerous."""
    if any(notice.slug == "swapped-unread" for notice in ledger.notices):
        raise TargetError(
            f"part of malloc's memory is swapped out, so the effect of {function} is unknown",
            slug="trim-refused",
            hint="'memexplain --swapped' reads it, which makes it resident",
        )
    if ledger.heap is None:
        raise TargetError(
            f"glibc's malloc has allocated nothing in this process (yet), so {function} would have no effect",
            slug="trim-refused",
            hint="'memexplain' shows where its memory is",
        )
    damage = doubt_of(ledger, DAMAGES)
    if damage is not None:
        raise refused(f"{damage.message}: {function} might end the program")
    if any(notice.slug == "arena-locked" for notice in ledger.notices):
        raise refused(f"a thread is inside malloc with an arena locked: {function} would deadlock")
    try:
        frame = gdb.newest_frame()
    except gdb.error:
        frame = None
    for _ in range(_FRAMES):
        if frame is None:
            break
        if frame.type() == gdb.SIGTRAMP_FRAME:
            raise refused("the selected thread is in a signal handler, where malloc may not be called")
        if frame.name() in _IN_MALLOC:
            raise refused(f"the selected thread is in {frame.name()}, where malloc may not be called")
        frame = frame.older()


def call_malloc(function: str, arguments: Sequence[int], address: int = 0) -> int:
    """Call malloc's *function*, the other threads held: none of them has an arena locked (check_callable).

    It is the one at *address*, if given. Every register of the thread is restored, and the selected frame.
    """
    return signed(call_for_address(function, arguments, address))


def call_for_address(function: str, arguments: Sequence[int], address: int = 0) -> int:
    """Call *function* likewise; return all 64 bits of its result."""
    with alone():
        program.lets_others_run = False
        try:
            return program.call_for_word(function, arguments, address)
        except TargetError as error:
            raise _translated(error, function) from error


def _translated(error: TargetError, function: str) -> TargetError:
    """Adapt error messages to malloc; the calls are shared with profiling allocators."""
    reasons = {
        "profiler-not-loaded": f"this process has no {function}",
        "other-processor": f"{function} can't be called on this processor",
        "no-page": "the program may not map executable memory, which a call from outside needs",
    }
    if error.slug not in reasons:
        return error
    hint = "use 'memexplain' for what it would have returned"
    return TargetError(reasons[error.slug], slug="trim-refused", hint=hint)


@contextmanager
def alone() -> Iterator[None]:
    """Lock the other threads, suppress gdb's queries, and keep the selected frame."""
    level, frame = 0, gdb.selected_frame().newer()
    while frame is not None:
        level, frame = level + 1, frame.newer()
    thread = gdb.selected_thread()
    try:
        with gdb_setting("confirm", "off"), scheduler_locking("on"):
            yield
    finally:
        if thread.is_valid():
            thread.switch()
            frame = gdb.newest_frame()
            for _ in range(level):
                frame = frame.older() or frame
            frame.select()


def read_mallinfo() -> dict[str, int]:
    """Return the result of mallinfo2 in the process, or of mallinfo if glibc is older than 2.33.

    The latter's figures are ints: they have wrapped where they exceed 2 GiB.
    """
    if "x86-64" not in gdb.selected_frame().architecture().name():
        raise TargetError(
            "mallinfo2 can't be called on this processor: it returns a structure",
            slug="trim-refused",
            hint="leave out --mallinfo",
        )
    for function, kind in (("mallinfo2", "Q"), ("mallinfo", "i")):
        if not program.has(function):
            continue
        form = f"<{len(_FIELDS)}{kind}"
        with alone():
            # The caller passes the address for the structure.
            address = program.place(bytes(struct.calcsize(form)))
        call_malloc(function, [address])
        data = bytes(gdb.selected_inferior().read_memory(address, struct.calcsize(form)))
        return dict(zip(_FIELDS, struct.unpack(form, data)))
    raise TargetError("this process has no mallinfo2", slug="trim-refused", hint="leave out --mallinfo")


def mallinfo_of(ledger: Ledger) -> dict[str, int]:
    """Return the expected result of mallinfo2 according to *ledger*. Source: glibc malloc/malloc.c, int_mallinfo."""
    heap = ledger.heap
    if heap is None:
        return {}
    system = sum(arena.system_bytes for arena in heap.arenas)
    free = heap.free_bytes + heap.fastbin_bytes
    return {
        "arena": system,
        "ordblks": heap.free_chunks,
        "smblks": heap.fastbin_chunks,
        "hblks": heap.mmapped_chunks,
        "hblkhd": heap.mmapped_bytes,
        "usmblks": 0,
        "fsmblks": heap.fastbin_bytes,
        "uordblks": system - free,
        "fordblks": free,
        "keepcost": heap.arenas[0].top_bytes,
    }


# memexplain --malloc-info: malloc_info called in the stopped process, beside the ledger of the same moment.
#
# It writes to a FILE, which libc allocates in the heap that is measured. The stream gets a file in memory and a
# buffer in a page that gdbmem maps, so it takes only one block; the ledger is read while that block is allocated.


_FULLY_BUFFERED = 0  # _IOFBF
_CLOSE_ON_EXEC = 1  # MFD_CLOEXEC
_BUFFER_BYTES = 8192
_MOST_BYTES = 1 << 26
# A thread inside one of these may hold the lock of libc's list of streams, or have changed it in part.
_WITH_STREAMS = re.compile(
    r"_IO_(?:new_)?(?:link_in|un_link|flush_all\w*|cleanup|unbuffer_all|list_\w+|fclose|fopen\w*|fdopen)"
    r"|(?:__)?(?:fopen|fdopen|fclose|fflush|fcloseall|popen|pclose|freopen|exit|fork|vfork)(?:64)?|__run_exit_handlers"
    r"|__libc_fork|open_memstream|fmemopen|fopencookie|tmpfile"
)
_MOST_CALLERS = 32


def write_malloc_info(stream: TextIO, *, as_json: bool) -> None:
    """Write the output of malloc_info, called in the process, beside the ledger."""
    refuse_core("malloc_info")
    check_callable(read_ledger_here(), "malloc_info")
    _check_streams()
    with _stream() as (file, descriptor):
        ledger = read_ledger_here()
        call_malloc("malloc_info", [0, file])
        call_malloc("fflush", [file])
        text = _written(descriptor)
        size = _block_bytes(file)
    theirs = parse_malloc_info(text)
    if as_json:
        stream.write(malloc_info_json(theirs, ledger, size))
    else:
        print_malloc_info(theirs, ledger, size, console_on(stream))


@contextmanager
def _stream() -> Iterator[tuple[int, int]]:
    """Open a FILE over memory in the process; yield its address and descriptor; close both."""

    def placed(data: bytes) -> int:
        with alone():
            return program.place(data)

    descriptor = call_malloc("memfd_create", [placed(b"malloc_info\0"), _CLOSE_ON_EXEC])
    if descriptor < 0:
        raise refused("the process can't create a file in memory for malloc_info to write to")
    file = 0
    try:
        file = call_for_address("fdopen", [descriptor, placed(b"w\0")])
        if not file:
            raise refused("the process could not open a stream for malloc_info to write to")
        call_malloc("setvbuf", [file, placed(bytes(_BUFFER_BYTES)), _FULLY_BUFFERED, _BUFFER_BYTES])
        yield file, descriptor
    finally:
        if file:
            call_malloc("fclose", [file])
        else:
            call_malloc("close", [descriptor])


def _written(descriptor: int) -> str:
    pid = local_pid()
    with suppress(OSError), open(f"/proc/{pid}/fd/{descriptor}", "rb") as file:  # noqa: PTH123
        return os.pread(file.fileno(), _MOST_BYTES, 0).decode("ascii", "replace")
    raise TargetError(
        "the output of malloc_info can't be read",
        slug="trim-refused",
        hint="run gdb as the process's user, or as root",
    )


def _block_bytes(address: int) -> int:
    """Return the size of the block at *address*, from its header."""
    with suppress(MemoryUnreadable, gdb.error):
        head = bytes(gdb.selected_inferior().read_memory(address - 8, 8))
        return (int.from_bytes(head, "little") & ~7) - 8
    return 0


def _check_streams() -> None:
    """Raise TargetError if a thread may hold a lock that opening a stream needs."""
    with selection_kept():
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            name = _with_streams()
            if name:
                raise refused(f"thread {thread.num} is in {name}, where opening a stream could deadlock")


def _with_streams() -> str:
    """Return the function that handles streams in which the selected thread is; "" if it is in none."""
    names = (frame.name() or "" for frame in frames_from(gdb.newest_frame(), _MOST_CALLERS))
    return next(filter(_WITH_STREAMS.fullmatch, names), "")


# memtrim: malloc_trim(0) in the stopped process, or what another allocator has for it; the bytes returned beside the
# prediction.


# Of the ledger's entries those that a function returns; of other allocators' it is unknown.
_RETURNED = {"jemalloc": (FREE_PAGES, LAZY_PAGES), "tcmalloc": (FREE_PAGES,)}
_STACK_WORDS = 128  # above a thread's stack pointer


class TrimCommand(Command):
    """Predict, call, measure."""

    def run(self, args: argparse.Namespace) -> None:
        refuse_core("malloc_trim")
        with open_output(args.output, force=args.force) as stream:
            before = read_ledger_here()
            steps = list(_purges(before))
            if not before.mallocs or (before.heap is not None and before.heap.sizes):
                check_callable(before, "malloc_trim")
                steps.append(_Step("malloc_trim(0)", "malloc_trim", 0, (0,), before.releasable_bytes))
            if not steps:
                malloc = before.mallocs[0]
                raise TargetError(
                    f"{_name(malloc)}: {why_uncallable(malloc.allocator)}",
                    slug="trim-refused",
                    hint="'memexplain' shows what it keeps",
                )
            predicted = _sum(step.predicted_bytes for step in steps)
            names = " and ".join(step.words for step in steps)
            warn(f"calling {names} in the program, {_expected(predicted)}")
            for step in steps:
                call_malloc(step.function, [_placed(one) for one in step.arguments], step.address)
            after = read_ledger_here()
            if args.json:
                stream.write(trim_json(before, after, predicted))
                return

            said = (
                f"{format_size(predicted)} were predicted"
                if predicted is not None
                else "nothing was predicted"
            )
            stream.write(f"{names} returned {format_size(returned_bytes(before, after))}; {said}\n")
            stream.flush()
            print_growth(before, after, console_on(stream), ("before", "after"))


class _Step(NamedTuple):
    words: str
    function: str
    address: int  # 0: gdb finds it by its name
    arguments: Sequence[Union[int, bytes]]
    predicted_bytes: Optional[int]


def _purges(ledger: Ledger) -> Iterator[_Step]:
    """Yield the calls that make the allocators beside glibc's return free pages; warn of those that have none.

    Raises TargetError if one is not possible now.
    """
    if not ledger.mallocs:
        return
    pid = local_pid()
    mappings = read_maps(pid)
    with ProcMemory(pid) as memory, TargetFiles(pid) as files:
        found = find_functions(images(memory, mappings), mappings, files.open, None)
    functions = {(one.allocator, one.file): one for one in found}
    for malloc in ledger.mallocs:
        function = functions.get((malloc.allocator, malloc.file))
        if function is not None:
            yield _purge_of(malloc, function, ledger)
        elif len(ledger.mallocs) > 1 or ledger.heap is not None:
            warn(f"{_name(malloc)} is left out: {why_uncallable(malloc.allocator)}")


def _name(malloc: OtherMalloc) -> str:
    return f"{malloc.allocator} in {printable(malloc.file)}"


def _purge_of(malloc: OtherMalloc, function: OwnFunction, ledger: Ledger) -> _Step:
    """Return the call of *function* of *malloc*. Raises TargetError if it is not possible now."""
    (purge,) = (step for step in function.steps if step.returns_all)
    if program_file() == malloc.file:
        raise TargetError(
            f"{malloc.allocator} is linked into the program itself: whether a thread is inside it can't be told",
            slug="trim-refused",
            hint=f"call {purge.words} where no thread can be in malloc",
        )
    with selection_kept():
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            if _is_inside(function.code) and not waits_for_condition():
                raise refused(
                    f"thread {thread.num} is inside {malloc.allocator}, or was lately: {purge.words} might deadlock"
                )
    labels = [label + malloc.suffix for label in _RETURNED.get(malloc.allocator, ())]
    predicted = ledger.total_of(malloc.category, *labels) if labels else None
    words = f"{purge.words} of {printable(PurePath(malloc.file).name)}" if malloc.suffix else purge.words
    return _Step(words, purge.words, function.address, purge.arguments, predicted)


def _expected(predicted: Optional[int]) -> str:
    return (
        f"which should return {format_size(predicted)}" if predicted is not None else "nothing is predicted"
    )


def _is_inside(code: Sequence[tuple[int, int]]) -> bool:
    """Return whether the selected thread is in *code*, or one of its callers.

    Where gdb can't unwind its stack to the end, an address in *code* near that end counts as a caller's.
    """

    def is_code(address: int) -> bool:
        return any(start <= address < end for start, end in code)

    frames = list(frames_from(gdb.newest_frame(), _MOST_CALLERS))
    if any(is_code(frame.pc()) for frame in frames):
        return True
    last = frames[-1]
    if last.name() == "main" or last.unwind_stop_reason() == gdb.FRAME_UNWIND_OUTERMOST:
        return False
    with suppress(gdb.error, gdb.MemoryError):
        data = bytes(gdb.selected_inferior().read_memory(stack_pointer(frames[0]), 8 * _STACK_WORDS))
        return any(map(is_code, struct.unpack(f"<{_STACK_WORDS}Q", data)))
    return True


def _placed(argument: Union[int, bytes]) -> int:
    if isinstance(argument, int):
        return argument
    with alone():
        return program.place(argument)


def _sum(sizes: Iterable[Optional[int]]) -> Optional[int]:
    known = list(sizes)
    return None if None in known else sum(size for size in known if size is not None)
