"""memtrim: malloc_trim(0) in the stopped process, with what it returned beside what was predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gdb

from gdbmem.debugger.command import Command
from gdbmem.debugger.explain import core_path, read_ledger_here
from gdbmem.errors import TargetError
from gdbmem.units import format_size

if TYPE_CHECKING:
    import argparse

    from gdbmem.arguments import ArgumentParser
    from gdbmem.model.ledger import Ledger

# A thread that stands in one of these may hold what malloc_trim needs, or have half-changed a list.
_IN_MALLOC = frozenset(
    ("malloc", "free", "calloc", "realloc", "memalign", "aligned_alloc", "posix_memalign", "malloc_trim",
     "_int_malloc", "_int_free", "_int_realloc", "_int_memalign", "sysmalloc", "systrim", "malloc_consolidate",
     "unlink_chunk", "arena_get2", "new_heap", "heap_trim", "tcache_init", "ptmalloc_init",
     "__libc_malloc", "__libc_free", "__libc_calloc", "__libc_realloc", "_mid_memalign")
)  # fmt: skip
_FRAMES = 64


class TrimCommand(Command):
    """Predict, call, measure."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        from gdbmem.arguments import add_output_options

        add_output_options(parser)

    def run(self, args: argparse.Namespace) -> None:
        from gdbmem.report.output import open_output

        if core_path() is not None:
            raise TargetError(
                "a core can't run malloc_trim",
                slug="trim-refused",
                hint="'memexplain' says what it would have returned",
            )
        with open_output(args.output, force=args.force) as stream:
            before = read_ledger_here()
            _check(before)
            _call()
            after = read_ledger_here()
            if args.json:
                from gdbmem.report.ledger_json import trim_json

                stream.write(trim_json(before, after))
                return
            from gdbmem.debugger.terminal import console_on
            from gdbmem.report.ledger_text import print_growth

            returned = before.rss_bytes - after.rss_bytes
            stream.write(
                f"malloc_trim(0) returned {format_size(returned)};"
                f" {format_size(before.releasable_bytes or 0)} were predicted\n"
            )
            stream.flush()
            print_growth(before, after, console_on(stream), ("before", "after"))


def _check(ledger: Ledger) -> None:
    """Raise TargetError where calling into malloc would be useless or dangerous."""
    if ledger.heap is None:
        raise TargetError(
            "glibc's malloc isn't what this process allocates with, so malloc_trim would do nothing",
            slug="trim-refused",
            hint="'memexplain' shows what it uses",
        )
    if any(notice.slug == "arena-locked" for notice in ledger.notices):
        raise _refused("a thread stands inside malloc with an arena locked: malloc_trim would wait for ever")
    try:
        frame = gdb.newest_frame()
    except gdb.error:
        frame = None
    for _ in range(_FRAMES):
        if frame is None:
            break
        if frame.type() == gdb.SIGTRAMP_FRAME:
            raise _refused("the selected thread stands in a signal handler, where malloc may not be called")
        if frame.name() in _IN_MALLOC:
            raise _refused(f"the selected thread stands in {frame.name()}, where malloc may not be called")
        frame = frame.older()


def _refused(message: str) -> TargetError:
    return TargetError(
        message, slug="trim-refused", hint="let the program go on a little ('finish', 'next') and try again"
    )


def _call() -> None:
    """Call malloc_trim(0), and leave every register as it was.

    gdb 13 can't write back the vector registers of processors that have AMX; it says so after everything
    else is restored. They are put back here then, by the kernel's own block.
    """
    thread = gdb.selected_thread()
    tid = int(thread.ptid[1])
    vectors = _vector_state(tid)
    registers = _registers()
    unwind = "on" if gdb.parameter("unwindonsignal") else "off"
    gdb.execute("set unwindonsignal on", to_string=True)
    try:
        gdb.parse_and_eval("((int (*) (unsigned long)) malloc_trim) (0)")
    except gdb.error as error:
        if "extended state" not in str(error) or not vectors:
            raise
        _restore_vectors(tid, vectors)
        if _registers() != registers:
            raise TargetError(
                f"gdb could not put the program's registers back after the call ({error})",
                slug="registers-lost",
                hint="let the program not go on from here; a newer gdb can do this",
            ) from None
    finally:
        gdb.execute(f"set unwindonsignal {unwind}", to_string=True)


def _registers() -> tuple[int, ...]:
    names = ("$pc", "$sp", "$rbx", "$rbp", "$r12", "$r13", "$r14", "$r15", "$rax", "$rdi", "$rsi")
    values = []
    for name in names:
        try:
            values.append(int(gdb.parse_and_eval(f"(unsigned long){name}")))
        except gdb.error:
            continue  # another architecture
    return tuple(values)


def _vector_state(tid: int) -> list[int]:
    """Return the thread's vector registers as the kernel keeps them; empty where that isn't x86's way."""
    from gdbmem.linux.ptrace import XSTATE, get_registers

    try:
        return get_registers(tid, XSTATE, 1 << 12)
    except OSError:
        return []


def _restore_vectors(tid: int, vectors: list[int]) -> None:
    from gdbmem.linux.ptrace import XSTATE, set_registers

    try:
        set_registers(tid, vectors, XSTATE)
    except OSError as error:
        raise TargetError(
            f"the program's vector registers could not be put back ({error.strerror})",
            slug="registers-lost",
            hint="let the program not go on from here; a newer gdb can do this",
        ) from None
    try:
        gdb.execute("maintenance flush register-cache", to_string=True)
    except gdb.error:
        gdb.execute("flushregs", to_string=True)  # its name before gdb 11
