"""Calling into glibc's malloc in the stopped process: conditions for a call, and the values of mallinfo2."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import gdb

from gdbmem.analysis.ledger.answer import DAMAGES, doubt_of
from gdbmem.debugger.native.inferior import program, signed
from gdbmem.debugger.stopping.scheduler import scheduler_locking
from gdbmem.errors import TargetError

if TYPE_CHECKING:
    from gdbmem.model.ledger.ledger import Ledger

# A thread inside one of these may hold a lock that the call needs, or have changed a list in part.
_IN_MALLOC = frozenset(
    ("malloc", "free", "calloc", "realloc", "memalign", "aligned_alloc", "posix_memalign", "malloc_trim",
     "_int_malloc", "_int_free", "_int_realloc", "_int_memalign", "sysmalloc", "systrim", "malloc_consolidate",
     "unlink_chunk", "arena_get2", "new_heap", "heap_trim", "tcache_init", "ptmalloc_init",
     "__libc_malloc", "__libc_free", "__libc_calloc", "__libc_realloc", "_mid_memalign")
)  # fmt: skip
_FRAMES = 64
# struct mallinfo2, in order; mallinfo has the same as ints.
_FIELDS = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


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


def refused(message: str) -> TargetError:
    """Return the error for a call that would be dangerous now."""
    return TargetError(
        message, slug="trim-refused", hint="continue for a moment ('finish', 'next') and try again"
    )


def call_malloc(function: str, arguments: Sequence[int]) -> int:
    """Call malloc's *function*, the other threads held: none of them has an arena locked (check_callable).

    It restores every register of the thread, and the selected frame.
    """
    return signed(call_for_address(function, arguments))


def call_for_address(function: str, arguments: Sequence[int]) -> int:
    """Call *function* likewise; return all 64 bits of its result."""
    with alone():
        program.lets_others_run = False
        try:
            return program.call_for_word(function, arguments)
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
    asks = bool(gdb.parameter("confirm"))
    gdb.execute("set confirm off", to_string=True)
    try:
        with scheduler_locking("on"):
            yield
    finally:
        gdb.execute(f"set confirm {'on' if asks else 'off'}", to_string=True)
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
            address = program.place(
                bytes(struct.calcsize(form))
            )  # the caller passes the address for the structure
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
