"""Letting an attached process go when gdb or the launcher is killed.

A separate process of gdbmem survives both. If the launcher dies, it ends gdb by SIGHUP, on which gdb detaches. If gdb
dies, it stops the process immediately, because a breakpoint that no debugger handles would end it; then it removes the
breakpoints and resumes the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import threading
import time
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import NoReturn, Optional

from gdbmem.errors import GdbmemError, Notice, TargetError
from gdbmem.files import close_all_but
from gdbmem.json_values import as_json
from gdbmem.launch.child import outlive_parent
from gdbmem.linux.files.target_files import TargetSide
from gdbmem.linux.holding.ptrace import X86_64, Freeze, get_registers, machine, set_registers
from gdbmem.linux.memory.maps import Mapping as Mapped
from gdbmem.linux.memory.maps import mappings_of
from gdbmem.linux.process.process import memory_folder, process_facts, stat_of
from gdbmem.linux.process.rights import ThreadLock
from gdbmem.runs.run import Run
from gdbmem.text import plural

# Breakpoints that a debugger has left in a program: found by comparing its code with its files, and removed.
#
# A page is assumed to contain breakpoints only if it differs from its file only in trap instructions. Source: gdb,
# gdb/i386-tdep.c and gdb/aarch64-tdep.c (the instruction that a breakpoint is).


_TRAPS = {"x86_64": b"\xcc", "aarch64": b"\x00\x00\x20\xd4"}
# Instructions of x86-64 of one byte: push, pop, nop and exchanges, string instructions, ret, leave, flags.
_ONE_BYTE = frozenset(
    [*range(0x50, 0x60), *range(0x6C, 0x70), *range(0x90, 0x9A), *range(0x9B, 0xA0), *range(0xA4, 0xA8),
     *range(0xAA, 0xB0), 0xC3, 0xC9, 0xCB, 0xCC, 0xCF, *range(0xEC, 0xF0), 0xF1, 0xF4, 0xF5, *range(0xF8, 0xFE)]
)  # fmt: skip
_PAGE = 4096
_PIECE = 1 << 16


def planted(pid: int, side: TargetSide) -> dict[int, bytes]:
    """Return the addresses of breakpoints in the code of *pid*, with the original code from its files.

    Raises OSError if the process has ended or may not be read.
    """
    trap = _TRAPS.get(os.uname().machine)
    if trap is None:
        return {}
    memory = os.open(f"{memory_folder(pid)}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        mappings = mappings_of(pid, "smaps")
        return dict(
            found
            for mapping in mappings
            if _may_hold(mapping)
            for found in _in_mapping(mapping, memory, side, trap)
        )
    finally:
        os.close(memory)


def _may_hold(mapping: Mapped) -> bool:
    """Return whether *mapping* is code of a file with pages that were written to."""
    is_code = mapping.permissions[2:] == "xp" and mapping.is_file
    return is_code and mapping.anonymous_bytes > 0 and not mapping.name.endswith(" (deleted)")


def _in_mapping(mapping: Mapped, memory: int, side: TargetSide, trap: bytes) -> Iterator[tuple[int, bytes]]:
    for start in range(mapping.start, mapping.end, _PIECE):
        there = os.pread(memory, min(_PIECE, mapping.end - start), start)
        if trap not in there:
            continue
        try:
            wanted = side.read(mapping.name, mapping.offset + start - mapping.start, len(there))
        except TargetError:
            return
        for page in range(0, len(wanted), _PAGE):
            yield from _in_page(start + page, there[page : page + _PAGE], wanted[page : page + _PAGE], trap)


def _in_page(address: int, there: bytes, wanted: bytes, trap: bytes) -> Iterator[tuple[int, bytes]]:
    there, size = there[: len(wanted)], len(trap)
    found, mended, at = [], bytearray(there), there.find(trap)
    while at >= 0:
        if at % size == 0 and wanted[at : at + size] != trap:
            found.append((address + at, wanted[at : at + size]))
            mended[at : at + size] = wanted[at : at + size]
        at = there.find(trap, at + 1)
    if mended == wanted:
        yield from found


def _set_back(freeze: Freeze, found: Mapping[int, bytes]) -> None:
    """Set threads that have just executed a trap back to the original instruction.

    If the original instruction has a single byte, the thread may have executed it: then the thread is not moved.
    """
    known = machine()
    if known is not X86_64:
        return  # elsewhere a trap leaves the thread at its address
    for held in freeze.threads.values():
        code = found.get(held.program_counter - 1, b"")
        if held.registers and code and code[0] not in _ONE_BYTE:
            values = get_registers(held.tid)
            values[known.program_counter] = held.program_counter - 1
            set_registers(held.tid, values)


def take_out(pid: int, before: Container[int], side: TargetSide) -> Optional[int]:
    """Remove the breakpoints in the code of *pid* but those at *before*; return how many there were.

    None if unknown: the process has ended, or can't be stopped.
    """
    try:
        found = {address: code for address, code in planted(pid, side).items() if address not in before}
        if not found:
            return 0
        with Freeze(pid) as freeze:
            memory = os.open(f"{memory_folder(pid)}/mem", os.O_RDWR | os.O_CLOEXEC)
            try:
                again = planted(pid, side)  # now that the process is stopped
                same = [address for address in found if again.get(address) == found[address]]
                for address in same:
                    os.pwrite(memory, found[address], address)
                _set_back(freeze, {address: found[address] for address in same})
            finally:
                os.close(memory)
        return len(same)
    except (OSError, TargetError):
        return None


# The lock that gdb holds while a thread makes a call, and that others take before they end gdb.
#
# A gdb that gets a signal during such a call detaches immediately, and the thread resumes inside the call, with
# wrong registers.


LOCK_NAME = "calls"  # of the file, in the runtime folder
_RETRY_SECONDS = 0.01


@contextlib.contextmanager
def calling(path: Optional[str]) -> Iterator[None]:
    """Keep others from ending this gdb while the block runs; *path* is the lock's file, None if nothing is attached.

    Raises TargetError if that is about to happen.
    """
    if path is None:
        yield
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _about_to_end() from None
    try:
        if not _lock(descriptor):
            raise _about_to_end()
        yield
    finally:
        os.close(descriptor)


def _about_to_end() -> TargetError:
    return TargetError(
        "gdb is about to end, so no more functions are called in the process",
        slug="launcher-gone",
        hint="attach again",
    )


def hold_calls(descriptor: int, seconds: float) -> None:
    """Wait until gdb is in no call, for *seconds* at most; from then on it begins none while *descriptor* is open."""
    deadline = time.monotonic() + seconds
    while not _lock(descriptor) and time.monotonic() < deadline:
        time.sleep(_RETRY_SECONDS)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_AGAIN_SECONDS = 2.0  # until a gdb, which may be busy reading symbols, gets the next signal
_LET_GO_SECONDS = 5.0
_PAUSE_SECONDS = 0.001
_MOST = 100  # breakpoints that the exit status can count
_UNKNOWN = 101
NAME = "tracer"  # of the file, in the runtime folder, with the lock that gdb's tracing thread holds
KILLED = "launcher-killed"  # the slug of the message of such a run


class Guard:
    """Over process *pid*, while gdb is attached to it. End with dismiss() or let_go()."""

    def __init__(self, pid: int, side: TargetSide, runtime: Path, run: Run, *, is_stopped: bool) -> None:
        """Start watching; *is_stopped*: the process has to stay stopped.

        *runtime* is the folder with the lock that gdb holds during calls, and gets the lock of gdb's tracing thread;
        *run* gets a warning about the actions taken for a killed launcher. Raises OSError.
        """
        before: Container[int] = ()
        lock = os.open(runtime / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
        tracer = ThreadLock(runtime / NAME, make=True)
        with contextlib.suppress(OSError):
            before = frozenset(planted(pid, side))
        end, self._pipe = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            _watch(end, lock, tracer, pid, before, run, is_stopped=is_stopped)
        os.close(end)
        os.close(lock)

    def watch(self, gdb: int) -> None:
        """Make process *gdb* detach from the target if this process is killed."""
        self._tell(f"{gdb}\n")

    def dismiss(self) -> None:
        """Do nothing: gdb has let the process go."""
        self._tell("done\n")
        self._end()

    def let_go(self) -> Optional[int]:
        """See to the process that a killed gdb has left; return how many breakpoints it left, None if unknown."""
        count = self._end()
        return None if count == _UNKNOWN else count

    def _tell(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, line.encode())

    def _end(self) -> int:
        os.close(self._pipe)
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        except ChildProcessError:
            return _UNKNOWN


# -- in the process that outlives us ----------------------------------------------------------------------


def _watch(
    end: int, lock: int, tracer: ThreadLock, pid: int, before: Container[int], run: Run, *, is_stopped: bool
) -> NoReturn:
    """Wait until gdb has died, or the launcher has finished or died; never return."""
    status, launcher = _UNKNOWN, os.getppid()
    try:
        outlive_parent()
        end, lock = _kept_alone(end, lock)
        with contextlib.suppress(OSError):  # only root may
            os.nice(-20)
        began = _began(pid)
        stopper = _Stopper(tracer, pid)
        words = _words(end, stopper.dead)
        was_left = was_sent = True
        if words is not None and words[-1:] == ["done"]:
            was_left = stopper.has_stopped()
        elif words is not None:
            hold_calls(lock, _LET_GO_SECONDS)
            was_sent = _end_gdb(pid, began, int(words[-1]) if words else None) or stopper.has_stopped()
        if was_left and _is_still(pid, began):
            status = _clear(pid, before, was_sent=was_sent, is_stopped=is_stopped)
        if words is None:  # gdb has died; the launcher is notified later
            words = _words(end) or []
        if words[-1:] != ["done"] and os.getppid() != launcher:
            _note(run, pid, status)
    finally:
        os._exit(status)


class _Stopper:
    """Stops process *pid* as soon as the thread that holds *tracer* has died."""

    def __init__(self, tracer: ThreadLock, pid: int) -> None:
        self.dead, self._told = os.pipe()  # the first becomes readable when that has happened
        self._tracer, self._did = tracer, False
        self._thread = threading.Thread(target=self._wait, daemon=True)
        try:
            self._target = os.pidfd_open(pid)
            self._thread.start()
        except (AttributeError, OSError):  # before Linux 5.3
            pass

    def _wait(self) -> None:
        if self._tracer.wait():
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._target, signal.SIGSTOP)
            self._did = True
            os.write(self._told, b".")

    def has_stopped(self) -> bool:
        """Return, after gdb has ended, whether the process was stopped."""
        if self._tracer.is_taken and self._thread.is_alive():
            self._thread.join(_LET_GO_SECONDS)
        return self._did


def _note(run: Run, pid: int, count: int) -> None:
    """Record in *run* what was done: no other process reports it."""
    text = f"gdbmem was killed while gdb was attached to process {pid}; gdb was made to detach"
    if 0 < count < _UNKNOWN:
        text += f", and {plural(count, 'breakpoint')} that gdb had left in it removed"
    run = Run(run.folder)  # the launcher's descriptors have been closed here
    with contextlib.suppress(GdbmemError, OSError):
        run.update(warnings=[*run.facts.get("warnings", []), as_json(Notice(KILLED, text))])


def _kept_alone(*descriptors: int) -> list[int]:
    """Close all but *descriptors*; return their new numbers, the null device being the first three."""
    kept = [os.dup2(os.dup(descriptor), 1000 + number) for number, descriptor in enumerate(descriptors)]
    close_all_but(*kept)
    for _ in range(3):  # nothing is printed on a terminal, nor to the file that is opened first
        os.open(os.devnull, os.O_RDWR)
    return kept


def _words(end: int, dead: Optional[int] = None) -> Optional[list[str]]:
    """Return everything that the launcher wrote to *end* before closing it; None if *dead* is readable earlier."""
    text = b""
    while True:
        ready = select.select([end] if dead is None else [end, dead], [], [])[0]
        if dead in ready:
            return None
        piece = os.read(end, 4096)
        if not piece:
            return text.decode().split()
        text += piece


def _began(pid: int) -> Optional[int]:
    stat = stat_of(pid)
    return None if stat is None or stat.has_ended else stat.start_ticks


def _is_still(pid: int, began: Optional[int]) -> bool:
    """Return whether *pid* is the process that _began() returned *began* for, and no other that got its number."""
    return began is not None and _began(pid) == began


def _end_gdb(pid: int, target_began: Optional[int], gdb: Optional[int]) -> bool:
    """Make *gdb* detach from *pid*; kill it only if it doesn't. Return whether *pid* was sent a SIGSTOP."""
    was_sent = False
    began = None if gdb is None else _began(gdb)
    if gdb is not None and began is not None:
        # On SIGTERM a busy gdb leaves its breakpoints in the process. It may lose a SIGHUP, and ignores all of them
        # under nohup.
        gentle = [(signal.SIGHUP, _AGAIN_SECONDS)] * 3 + [(signal.SIGTERM, _AGAIN_SECONDS)] * 7
        for number, seconds in (*gentle, (signal.SIGKILL, _LET_GO_SECONDS)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if number == signal.SIGKILL and _is_still(pid, target_began):
                    os.kill(pid, signal.SIGSTOP)  # its threads go no further than to where they stop
                    was_sent = True
                os.kill(gdb, number)
                os.kill(gdb, signal.SIGCONT)  # one that Ctrl-Z has stopped would not come to its signals
            deadline = time.monotonic() + seconds
            while _is_still(gdb, began) and time.monotonic() < deadline:
                time.sleep(0.01)
            if not _is_still(gdb, began):
                break
    return was_sent


def _is_traced(pid: int) -> bool:
    try:
        return process_facts(pid).tracer != 0
    except TargetError:
        return False


def _clear(pid: int, before: Container[int], *, was_sent: bool, is_stopped: bool) -> int:
    """Remove the breakpoints of a gdb that has ended; return how many there were, or _UNKNOWN.

    *was_sent*: a SIGSTOP, which the process may not have come to yet.
    """
    deadline = time.monotonic() + _LET_GO_SECONDS
    while _is_traced(pid) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    count = None
    with contextlib.suppress(TargetError, OSError), TargetSide(pid) as side:
        count = take_out(pid, before, side)
    with contextlib.suppress(TargetError, OSError):
        if not is_stopped and (was_sent or process_facts(pid).state == "T"):
            os.kill(pid, signal.SIGCONT)
    return _UNKNOWN if count is None else min(count, _MOST)
