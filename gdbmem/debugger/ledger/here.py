"""The ledger of the process or core in this gdb."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import gdb

from gdbmem.allocators.glibc.thread_pointers import ThreadPointers
from gdbmem.debugger.command import warn
from gdbmem.debugger.gdb_text import gdb_text
from gdbmem.debugger.location import program_runs, real_pid
from gdbmem.debugger.selection import register, selection_kept, thread_pointer
from gdbmem.errors import GdbmemError, TargetError
from gdbmem.inspection.interpreters import INTERPRETER
from gdbmem.inspection.looks import Looks
from gdbmem.inspection.pause import expected_hold, is_long, wait_text
from gdbmem.inspection.process_maps import read_maps
from gdbmem.inspection.worker_requests import explain_for_gdb, look_for_gdb
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.linux.process.process import check_analysable, process_facts
from gdbmem.patterns import lazy_pattern
from gdbmem.units import format_size

if TYPE_CHECKING:
    from gdbmem.linux.process.process import ProcessFacts
    from gdbmem.model.ledger.ledger import Ledger


_SMALL_BYTES = 256 << 10  # 10 ms of reading in plain Python; a worker takes 0.3 s of CPU to start
_CORE = lazy_pattern(r"^Local core dump file:\n\s+.(.+)., file type ", re.M)


def read_ledger_here(looks: Optional[Looks] = None, *, swapped: bool = False) -> Ledger:
    """Return the ledger of the stopped process or core, and fill *looks*.

    Swapped pages are read only if *swapped*, because reading brings them back into memory.
    Raises TargetError with the reason if there is none.
    """
    core = core_path()
    if core is not None:
        from gdbmem.inspection.read_process import explain_core  # 60 ms

        of_core = explain_core(core, look=looks)
        of_core.check()
        return of_core
    pid = local_pid()

    facts = check_analysable(pid, may_be_traced=True)
    threads = threads_here()
    _announce(facts, len(threads))
    with ProcMemory(pid) as memory:
        if _is_small(facts):
            ledger = None
        elif looks is None:
            ledger = explain_for_gdb(pid, facts.name, memory.descriptor, threads, swapped=swapped)
        else:
            ledger = look_for_gdb(pid, facts.name, memory.descriptor, threads, looks, swapped=swapped)
        if ledger is None:
            from gdbmem.inspection.read_process import explain_stopped  # 60 ms, which a worker spares gdb

            ledger = explain_stopped(pid, facts.name, memory, threads, look=looks, swapped=swapped)
    ledger.check()
    return ledger


def _is_small(facts: ProcessFacts) -> bool:
    """Return whether gdb's own Python reads the process sooner than a worker starts."""
    # A Python named by the user is always used.
    if INTERPRETER in os.environ or not facts.anonymous_bytes:  # 0: a kernel that doesn't count them
        return False
    return facts.anonymous_bytes + facts.swap_bytes <= _SMALL_BYTES


def _announce(facts: ProcessFacts, threads: int) -> None:
    """Announce a noticeable duration: the process and the prompt wait meanwhile."""
    expected = expected_hold(facts, read_maps(facts.pid), threads)
    if is_long(expected):
        size = format_size(facts.anonymous_bytes)
        warn(f"reading its {size} takes {wait_text(expected)}")


def core_path() -> Optional[Path]:
    """Return gdb's core file; None for a live process, or without a target."""
    found = _CORE.search(gdb_text("info target"))
    return Path(found[1]) if found else None


def local_pid() -> int:
    """Return the pid of the process that this gdb itself debugs on this machine, not under valgrind."""
    if not program_runs():
        raise TargetError(
            "there is no process to explain", slug="not-running", hint="type 'run', or 'attach PID'"
        )
    pid = real_pid()
    if pid is None or not _is_ours(pid):
        raise TargetError(
            "this program runs under valgrind or on another machine, so its memory can't be analysed from here",
            slug="not-local",
            hint="under massif 'massif-diff' shows what grew; else run gdb where the program runs",
        )
    return pid


def _is_ours(pid: int) -> bool:
    try:
        return process_facts(pid).tracer == os.getpid()
    except GdbmemError:
        return False


def threads_here() -> list[ThreadPointers]:
    """Return the process's threads with their registers; the selected thread and frame stay selected."""
    threads = []
    with selection_kept():
        for thread in sorted(gdb.selected_inferior().threads(), key=lambda t: int(t.num)):
            thread.switch()
            threads.append(
                ThreadPointers(
                    int(thread.ptid[1]),
                    thread_pointer(),
                    register("$sp"),
                    str(thread.name or ""),
                    register("$pc"),
                    register("$orig_rax") or register("$x8"),
                )
            )
    return threads
