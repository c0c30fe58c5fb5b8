"""Stopping a process by ptrace, and resuming it without visible effects."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import Mapping as Mapped
from gdbmem.linux.memory.maps import parse_maps, read_maps_text
from gdbmem.linux.monitoring.limits import waits_for_memory
from gdbmem.linux.process import process
from gdbmem.linux.process.rights import AS_ROOT, asker
from gdbmem.linux.process.threads import parse_syscall
from gdbmem.model.memory import Memory, MemoryUnreadable

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
CONTINUE = 7
GETREGSET, SETREGSET = 0x4204, 0x4205
_GETSIGMASK, _SETSIGMASK, _MASK_BYTES = 0x420A, 0x420B, 8
# If one of these is blocked when an instruction or a step raises it, the kernel resets the process's handler.
_OF_INSTRUCTIONS = (
    signal.SIGTRAP,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGILL,
    signal.SIGFPE,
    signal.SIGSYS,
)
BLOCKED = (1 << 64) - 1 & ~sum(1 << number - 1 for number in _OF_INSTRUCTIONS)
_NT_PRSTATUS, _NT_ARM_TLS, _NT_ARM_SYSTEM_CALL = 1, 0x401, 0x404
_MOST_WORDS, _MOST_BYTES = 64, 1 << 15  # of a register set
_PEEK, _SVC, _NO_CALL = 1, 0xD4000001, 0xFFFFFFFF  # aarch64's `svc #0`; -1 for the kernel
_WALL = 0x40000000
_EVENT_STOP = 128
_EINTR = (1 << 64) - errno.EINTR
_PATIENCE_SECONDS, _ENDING_SECONDS = 5.0, 0.05
_CHECK_SECONDS = 0.05  # between looks why a thread doesn't stop
_WITHOUT_SLEEP, _LONGEST_SLEEP = 30, 0.0002  # tries, seconds: most calls last some microseconds


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class PtraceMachine(NamedTuple):
    """Offsets of registers in the kernel's register set of one architecture, in words."""

    words: int
    result: int
    number: int  # of the system call
    program_counter: int
    stack_pointer: int
    thread_pointer: Optional[int]  # None: it has a separate register set
    original: Optional[int]  # x86's orig_rax


X86_64 = PtraceMachine(27, 10, 10, 16, 19, 21, 15)
AARCH64 = PtraceMachine(34, 0, 8, 32, 31, None, None)


def machine() -> Optional[PtraceMachine]:
    """Return this machine's registers; None for an unsupported architecture."""
    return {"x86_64": X86_64, "aarch64": AARCH64}.get(os.uname().machine)


class HeldThread:
    """One stopped thread."""

    def __init__(self, tid: int) -> None:
        self.tid = tid
        self.signal = 0  # about to be delivered; it is delivered when the thread resumes
        self.registers: list[int] = []
        self.thread_pointer = 0
        self.stack_pointer = 0
        self.program_counter = 0
        self.system_call = -1  # number of the system call that the thread is in; -1: unknown
        # First argument of an interrupted call, if its result overwrites it.
        self.first_argument: Optional[int] = None
        self.is_made_again = False  # a system call that came back with EINTR because of our stop
        self.is_stopped_by_signal = False  # by SIGSTOP or its like: resuming it would end that stop


def wait_for(tid: int) -> Optional[int]:
    """Wait until the traced thread *tid* stops or ends; return the kernel's status, None for one that was killed.

    The kernel doesn't report the end of a main thread before the ends of the other traced threads have been collected.
    """
    tries, delay, slept = _WITHOUT_SLEEP, 0.00001, 0.0
    while True:
        done, status = os.waitpid(tid, os.WNOHANG | _WALL)
        if done:
            return status
        if tries:
            tries -= 1
            continue
        if slept >= _CHECK_SECONDS:
            if not process.thread_lives(tid, tid):
                return None
            slept = 0.0
        time.sleep(delay)
        slept += delay
        delay = min(delay * 2, _LONGEST_SLEEP)


_libc: Optional[ctypes.CDLL] = None


def ptrace(request: int, tid: int, address: int = 0, data: int = 0) -> int:
    """Make the system call; raises OSError."""
    global _libc
    if _libc is None:
        _libc = ctypes.CDLL(None, use_errno=True)
        _libc.ptrace.restype = ctypes.c_long
        _libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    ctypes.set_errno(0)
    result: int = _libc.ptrace(request, tid, address, data)
    if result == -1 and ctypes.get_errno():
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def signal_mask(tid: int) -> int:
    """Return the signals that the stopped thread *tid* blocks, a bit each; raises OSError."""
    mask = ctypes.c_uint64()
    ptrace(_GETSIGMASK, tid, _MASK_BYTES, ctypes.addressof(mask))
    return mask.value


def set_signal_mask(tid: int, mask: int) -> None:
    """Make the stopped thread *tid* block the signals of *mask*; raises OSError."""
    ptrace(_SETSIGMASK, tid, _MASK_BYTES, ctypes.addressof(ctypes.c_uint64(mask)))


def get_registers(tid: int, kind: int = _NT_PRSTATUS) -> list[int]:
    """Return a register set of a stopped thread, as words."""
    buffer = (ctypes.c_uint64 * _MOST_WORDS)()
    vector = _Vector(ctypes.addressof(buffer), ctypes.sizeof(buffer))
    ptrace(GETREGSET, tid, kind, ctypes.addressof(vector))
    return list(buffer[: vector.length // 8])


def get_register_bytes(tid: int, kind: int) -> bytes:
    """Return a register set of a stopped thread as bytes, for sets that are longer, or not of words."""
    buffer = (ctypes.c_char * _MOST_BYTES)()
    vector = _Vector(ctypes.addressof(buffer), ctypes.sizeof(buffer))
    ptrace(GETREGSET, tid, kind, ctypes.addressof(vector))
    return ctypes.string_at(buffer, vector.length)


def set_registers(tid: int, values: list[int], kind: int = _NT_PRSTATUS) -> None:
    """Write a register set of a stopped thread, in the form of get_registers()."""
    set_register_bytes(tid, bytes((ctypes.c_uint64 * len(values))(*values)), kind)


def set_register_bytes(tid: int, data: bytes, kind: int) -> None:
    """Write a register set of a stopped thread, in the form of get_register_bytes()."""
    buffer = (ctypes.c_char * len(data)).from_buffer_copy(data)
    vector = _Vector(ctypes.addressof(buffer), ctypes.sizeof(buffer))
    ptrace(SETREGSET, tid, kind, ctypes.addressof(vector))


@contextlib.contextmanager
def ahead_of_others() -> Iterator[None]:
    """Run this thread before all others within the block, where the kernel lets us (CAP_SYS_NICE).

    A stopped process waits for each of some ten steps here, on a busy machine each time for a processor.
    """
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, policy, priority)


class Freeze:
    """All threads of a process, stopped while the block runs.

    They are interrupted, not signalled: no handler runs, and an interrupted system call is restarted, so that the
    process never sees an EINTR because of us.
    """

    def __init__(
        self,
        pid: int,
        *,
        only: Optional[int] = None,
        seized: Collection[int] = (),
        standing: Collection[HeldThread] = (),
    ) -> None:
        """Stop all threads of *pid*, or *only* one; this thread traces those that are *seized* already.

        Those that are *standing* in the kernel, where nothing stops them, are left alone.
        """
        self.standing = standing
        self.pid = pid
        self._seized = seized
        self._only = only  # stop this one thread and let the others run
        self.threads: dict[int, HeldThread] = {}
        self.started = 0.0
        self.pause_seconds = 0.0

    def __enter__(self) -> Freeze:
        self.started = time.monotonic()
        try:
            self._hold_all()
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def adopt(self, tid: int) -> None:
        """Add thread *tid*, which this thread traces and which has stopped."""
        self.threads[tid] = HeldThread(tid)
        self._read_registers(self.threads[tid])

    def _hold_all(self) -> None:
        standing = {held.tid for held in self.standing}
        while True:
            every = process.thread_ids(self.pid) if self._only is None else [self._only]
            fresh = [tid for tid in every if tid not in self.threads and tid not in standing]
            if not fresh:
                break
            seized = [tid for tid in fresh if self._seize(tid)]
            if not seized:
                break
            for tid in seized:
                self._await_stop(tid)
        if not self.threads and not standing:
            raise process.ended(self.pid)

    def _seize(self, tid: int) -> bool:
        try:
            if tid not in self._seized:
                ptrace(SEIZE, tid)
        except ProcessLookupError:
            return False
        except PermissionError:
            if not process.thread_lives(self.pid, tid):
                return False  # a main thread that has ended stays until all have
            raise self._refused() from None
        self.threads[tid] = HeldThread(tid)
        try:
            ptrace(INTERRUPT, tid)
        except ProcessLookupError:
            del self.threads[tid]
            return False
        return True

    def _refused(self) -> TargetError:
        facts = process.process_facts(self.pid)
        if facts.tracer not in (0, os.getpid()):
            return process.traced(facts)
        asks = asker()
        why = f"ptrace_scope is {asks.scope}" if asks.scope else "it is traced already, or in a container"
        return TargetError(
            f"the kernel doesn't let process {self.pid} be stopped ({why})",
            slug="ptrace-refused",
            hint="type it outside the container" if asks.uid == 0 else AS_ROOT,
        )

    def _await_stop(self, tid: int) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        next_check = time.monotonic() + _CHECK_SECONDS
        delay = 0.00002
        while True:
            try:
                done, status = os.waitpid(tid, os.WNOHANG | _WALL)
            except ChildProcessError:
                self.threads.pop(tid, None)
                return
            if done:
                break
            if delay > _LONGEST_SLEEP and not process.thread_lives(self.pid, tid):
                self.threads.pop(tid, None)  # killed: see wait_for()
                return
            now = time.monotonic()
            out_of_memory = now > next_check and tid in waits_for_memory(self.pid)
            next_check = now + _CHECK_SECONDS if now > next_check else next_check
            if now > deadline or out_of_memory:
                raise TargetError(
                    f"thread {tid} of process {self.pid} doesn't stop: it waits in the kernel",
                    slug="thread-stuck",
                    hint="try again when its disk or network answers, or when its control group has memory",
                )
            time.sleep(delay)
            delay = min(delay * 2, 0.002)
        if not os.WIFSTOPPED(status):
            self.threads.pop(tid, None)
            return
        held = self.threads[tid]
        if status >> 16 != _EVENT_STOP:
            held.signal = os.WSTOPSIG(status)
        elif os.WSTOPSIG(status) != signal.SIGTRAP:
            held.is_stopped_by_signal = True
        self._read_registers(held)

    def _read_registers(self, held: HeldThread) -> None:
        known = machine()
        if known is None:
            return
        try:
            values = get_registers(held.tid)
            if len(values) < known.words:
                return  # a 32-bit thread
            held.registers = values
            held.stack_pointer = values[known.stack_pointer]
            held.program_counter = values[known.program_counter]
            held.system_call = values[known.number if known.original is None else known.original]
            if known.thread_pointer is not None:
                held.thread_pointer = values[known.thread_pointer]
            else:
                held.thread_pointer = get_registers(held.tid, _NT_ARM_TLS)[0]
            if known.original is None and values[known.result] == _EINTR:
                held.first_argument = _first_argument(held, known, self.pid)
            if not held.signal:
                held.is_made_again = _make_again(held, known, self.pid)
        except OSError:
            return  # died meanwhile

    def run_on(self, tids: Iterable[int], seconds: float) -> None:
        """Let the threads *tids* run for *seconds* and stop them again, and also those that they have started."""
        resumed = []
        for held in [self.threads[tid] for tid in tids if tid in self.threads]:
            if not held.is_stopped_by_signal:
                with contextlib.suppress(OSError):
                    _restore_for_signal(held, self.pid)
                    ptrace(CONTINUE, held.tid, 0, held.signal)
                    resumed.append(held.tid)
        time.sleep(seconds)
        for tid in resumed:
            self.threads[tid] = HeldThread(tid)
            with contextlib.suppress(ProcessLookupError):
                ptrace(INTERRUPT, tid)
        for tid in resumed:
            self._await_stop(tid)
        if self._only is None:
            self._hold_all()

    def release_others(self, tid: int) -> None:
        """Resume every thread but *tid*."""
        _let_go([held for held in self.threads.values() if held.tid != tid], self.pid)
        self.threads = {tid: self.threads[tid]}

    def release(self) -> None:
        """Resume every thread; harmless when called again."""
        threads, self.threads = self.threads, {}
        _let_go(threads.values(), self.pid)
        if threads:
            self.pause_seconds = time.monotonic() - self.started


def _let_go(threads: Iterable[HeldThread], pid: int) -> None:
    for held in sorted(threads, key=lambda one: one.tid == pid):
        try:
            _restore_for_signal(held, pid)
            ptrace(DETACH, held.tid, 0, held.signal)
        except OSError:  # it was killed meanwhile
            if held.tid != pid or process.parents().get(pid) != os.getpid():
                _collect(held.tid)


def _restore_for_signal(held: HeldThread, pid: int) -> None:
    if held.is_made_again and (held.signal or _pending(pid, held.tid)):
        set_registers(held.tid, held.registers)  # the EINTR is that signal's


def _collect(tid: int) -> None:
    """Collect a traced thread that is ending: the parent of its process is not notified before."""
    end = time.monotonic() + _ENDING_SECONDS
    with contextlib.suppress(ChildProcessError):
        while not os.waitpid(tid, os.WNOHANG | _WALL)[0] and time.monotonic() < end:
            time.sleep(0.001)


def _make_again(held: HeldThread, known: PtraceMachine, pid: int) -> bool:
    """Restart a system call that returned EINTR only because of our stop; return whether there was one.

    Some calls (epoll_wait, semop, …) return EINTR after any stop; if a signal is pending, the EINTR is that signal's.
    This is done immediately, because this process may be killed while it holds the thread.
    """
    if held.registers[known.result] != _EINTR or _pending(pid, held.tid):
        return False
    values = list(held.registers)
    if known.original is None:
        if held.first_argument is None:
            return False
        values[known.result] = held.first_argument
        values[known.program_counter] -= 4  # the length of `svc`
    else:
        number = values[known.original]
        if number >= 1 << 63:
            return False
        values[known.result] = number
        values[known.program_counter] -= 2  # the length of `syscall`
        values[known.original] = (1 << 64) - 1
    set_registers(held.tid, values)
    return True


def _first_argument(held: HeldThread, known: PtraceMachine, pid: int) -> Optional[int]:
    """Return the first argument of the call that our stop interrupted; its result is in the same register.

    The kernel still has it, but no longer knows that there was a call; given the number, it shows it in /proc.
    Call this before any injected call. None if the thread was not in a call.
    """
    if ptrace(_PEEK, held.tid, held.registers[known.program_counter] - 4) & 0xFFFFFFFF != _SVC:
        return None
    set_registers(held.tid, [held.registers[known.number]], _NT_ARM_SYSTEM_CALL)
    try:
        call = parse_syscall(Path(f"/proc/{pid}/task/{held.tid}/syscall").read_text())
    finally:
        set_registers(held.tid, [_NO_CALL], _NT_ARM_SYSTEM_CALL)
    return None if call is None else call.argument


def _pending(pid: int, tid: int) -> bool:
    fields = process.status_fields(pid, tid)
    pending = process.signals_in(fields, "SigPnd", "ShdPnd")
    return not fields or bool(pending & ~process.signals_in(fields, "SigBlk"))


def held_threads(freeze: Freeze) -> Iterable[HeldThread]:
    """Return the stopped threads, the process's first one first."""
    every = [*freeze.threads.values(), *freeze.standing]
    return sorted(every, key=lambda held: (held.tid != freeze.pid, held.tid))


# Pending signals of a process: sent, and not delivered yet.


_GETSIGINFO = 0x4202
_SI_QUEUE = -1  # sent by sigqueue()


def pending_signals(pid: int) -> set[signal.Signals]:
    """Return the signals pending for *pid* as a whole, or for its first thread; none if it has ended."""
    mask = process.signals_in(process.status_fields(pid), "SigPnd", "ShdPnd")
    return {number for number in signal.Signals if mask >> (number - 1) & 1}


def waits_for_process(pid: int, number: signal.Signals) -> bool:
    """Return whether *number* is pending for *pid* as a whole, so that any thread may take it."""
    return bool(process.signals_in(process.status_fields(pid), "ShdPnd") >> (number - 1) & 1)


def send_marked(pid: int, number: signal.Signals, mark: int) -> None:
    """Send *number* with *mark* (31 bits) to process *pid*; `stop_mark` finds the mark in the thread that takes it.

    Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.sigqueue(ctypes.c_int(pid), ctypes.c_int(number), ctypes.c_void_p(mark)):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def stop_mark(tid: int, number: signal.Signals) -> Optional[int]:
    """Return the mark of the signal *number* at which the traced thread *tid* has stopped; else None.

    Source: Linux, ptrace(2), PTRACE_GETSIGINFO; siginfo_t of a 64-bit machine.
    """
    information = (ctypes.c_int * 32)()
    try:
        ptrace(_GETSIGINFO, tid, 0, ctypes.addressof(information))
    except OSError:
        return None
    number_found, _, code, _, _, _, mark = information[:7]
    return mark if number_found == number and code == _SI_QUEUE else None


_SIGWAIT = {"x86_64": 128, "aarch64": 137}.get(os.uname().machine)  # rt_sigtimedwait


def reaches(pid: int, number: signal.Signals) -> bool:
    """Return whether *number* sent to process *pid* is delivered to its first thread at once.

    It is not if that thread blocks it, or if any thread waits for signals.
    """
    try:
        calls = [(task / "syscall").read_text().split()[:1] for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return False
    return not blocks(process.status_fields(pid), number) and [str(_SIGWAIT)] not in calls


def blocks(fields: Mapping[str, str], number: signal.Signals) -> bool:
    """Return whether the thread with these *fields* of its status blocks *number*; True if it has no mask."""
    return "SigBlk" not in fields or bool(process.signals_in(fields, "SigBlk") >> (number - 1) & 1)


# Threads that stand still because their control group has no memory left, and its OOM killer is switched off.
#
# Such a thread waits in the kernel, in a page fault, until somebody gives the group memory. It can't be stopped by
# ptrace, nor need it be: it is read as it stands.


_SEARCHED_BYTES = 1 << 20  # at the end of a mapping: the kernel joins neighbours
_TCB_BYTES = 0x400  # glibc, struct pthread: up to the thread's id


def threads_out_of_memory(pid: int, memory: Optional[Memory] = None) -> list[HeldThread]:
    """Return the threads of *pid* that stand still for want of memory, with their registers as far as /proc shows them.

    With *memory* their thread pointers are searched there.
    """
    found = []
    for tid, where in waits_for_memory(pid).items():
        held = HeldThread(tid)
        held.stack_pointer, held.program_counter = where
        found.append(held)
    if found and memory is not None and os.uname().machine == "x86_64":
        mappings = parse_maps(read_maps_text(pid))
        for held in found:
            held.thread_pointer = _thread_pointer(memory, mappings, held)
    return found


def _thread_pointer(memory: Memory, mappings: Iterable[Mapped], held: HeldThread) -> int:
    """Return the address of the thread's own block: it begins with its address, twice, and has its id; 0 if not found.

    Source: glibc, sysdeps/x86_64/nptl/tls.h, tcbhead_t: tcb and self.
    """
    for mapping in mappings:
        if mapping.name or not mapping.permissions.startswith("rw"):
            continue
        start = max(mapping.start, mapping.end - _SEARCHED_BYTES)
        if mapping.start <= held.stack_pointer < mapping.end:
            start = max(mapping.start, held.stack_pointer)
        try:
            data = memory.read(start, mapping.end - start)
        except MemoryUnreadable:
            continue
        identity = struct.pack("<i", held.tid)
        first = -start % 16
        for at in range(first, len(data) - 24, 16):
            address = start + at
            if (
                struct.unpack_from("<Q8xQ", data, at) == (address, address)
                and identity in data[at : at + _TCB_BYTES]
            ):
                return address
    return 0
