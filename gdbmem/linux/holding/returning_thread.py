"""A stopped thread on x86-64 that makes calls, and resumes by itself from its old state if its tracer dies.

Before any change, a signal frame with all its registers is written below its stack, and from then on every return
leads to the system call that restores them. Single-stepping is not used: a dying tracer would leave the trap flag set
in the thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Callable, NamedTuple, Optional

from gdbmem.linux.holding.ptrace import (
    BLOCKED,
    X86_64,
    HeldThread,
    get_register_bytes,
    get_registers,
    machine,
    ptrace,
    set_register_bytes,
    set_registers,
    set_signal_mask,
    signal_mask,
    wait_for,
)
from gdbmem.linux.memory.maps import Mapping, resident_ranges
from gdbmem.linux.memory.process_memory import WritableMemory
from gdbmem.linux.process.process import ended, signals_in, status_fields, thread_lives
from gdbmem.model.memory import Memory, MemoryUnreadable

# Signal frames of x86-64 on a thread's own stack, from which the kernel restores its registers (rt_sigreturn).
#
# A thread that a tracer has redirected returns by one, without a tracer.
#
# Source: Linux, arch/x86/include/uapi/asm/sigcontext.h and ucontext.h; arch/x86/kernel/signal_64.c, fpu/signal.c.


RED_ZONE = 128  # bytes below the stack pointer that are in use
# Words of the kernel's register set, as ptrace has them.
R15, R14, R13, R12, RBP, RBX, R11, R10, R9, R8, RAX, RCX, RDX, RSI, RDI, ORIG_RAX = range(16)
RIP, CS, FLAGS, RSP, SS = 16, 17, 18, 19, 20
_IN_FRAME = (R8, R9, R10, R11, R12, R13, R14, R15, RDI, RSI, RBP, RBX, RDX, RAX, RCX, RSP, RIP, FLAGS)
# ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK: results that the kernel shows to tracers only
_RESTART = {-512, -513, -514, -516}
_SYSCALL_BYTES = 2
_HAS_STATE, _HAS_SS, _STRICT_SS = 1, 2, 4  # uc_flags
_NO_SUCH_STACK = 0x7FFF  # flags of a signal stack that the kernel refuses: the thread keeps its own
_CONTEXT, _WITH_INFORMATION = 8 + 40, 440  # bytes of the frame up to the registers, and in all
_RDI_AT = _CONTEXT + _IN_FRAME.index(RDI) * 8
_MASK_AT = _CONTEXT + 256
_MAGIC, _LAST_MAGIC = 0x46505853, 0x46505845
_FEATURES_AT, _IN_USE_AT = 464, 512  # in the XSAVE area
_TILES = 1 << 18  # AMX: in a frame only if in use, and last
_TILE_BYTES = 8192


class SignalFrame(NamedTuple):
    """One frame at *address*; it holds *registers*, the vector registers at *state*, and the signal *mask*."""

    address: int
    restorer: int  # a return address: the instructions of the system call
    registers: Sequence[int]
    state: int  # 0: they are cleared
    mask: int

    @property
    def stack_pointer(self) -> int:
        """The stack pointer at the restorer's first instruction: the return address has been popped."""
        return self.address + 8

    @property
    def first_argument_at(self) -> int:
        """The address, in the frame, of the register of a system call's first argument."""
        return self.address + _RDI_AT

    def encode(self) -> bytes:
        """Return the frame's bytes (struct rt_sigframe), to be written at its address."""
        flags = (_HAS_STATE if self.state else 0) | _HAS_SS | _STRICT_SS
        text = struct.pack("<4QiiQ", self.restorer, flags, 0, 0, _NO_SUCH_STACK, 0, 0)
        text += struct.pack("<18Q", *(self.registers[word] for word in _IN_FRAME))
        text += struct.pack("<4H", self.registers[CS] & 0xFFFF, 0, 0, self.registers[SS] & 0xFFFF)
        text += struct.pack("<5Q", 0, 0, 0, 0, self.state)
        text = text.ljust(_MASK_AT, b"\0") + struct.pack("<Q", self.mask)
        return text.ljust(_WITH_INFORMATION, b"\0")

    def below(self, registers: Sequence[int], mask: int) -> SignalFrame:
        """Return a frame below this one, with cleared vector registers."""
        return self._replace(
            address=_aligned(self.address - _WITH_INFORMATION), registers=registers, state=0, mask=mask
        )


def frame_below(
    registers: Sequence[int], restorer: int, mask: int, state: bytes
) -> tuple[SignalFrame, bytes]:
    """Return the frame that restores a thread with *registers*, and the vector registers' part of it."""
    kept = state_in_frame(state)
    at = registers[RSP] - RED_ZONE - len(kept) & ~63
    return SignalFrame(_aligned(at - _WITH_INFORMATION), restorer, resumable(registers), at, mask), kept


def state_in_frame(state: bytes) -> bytes:
    """Return the XSAVE area from ptrace in the form of a frame."""
    features, in_use = (int.from_bytes(state[at : at + 8], "little") for at in (_FEATURES_AT, _IN_USE_AT))
    if features & _TILES and not in_use & _TILES:
        features &= ~_TILES
        state = state[:-_TILE_BYTES]
    size = len(state)
    words = struct.pack("<IIQI28x", _MAGIC, size + 4, features, size)
    return state[:_FEATURES_AT] + words + state[_IN_USE_AT:] + _LAST_MAGIC.to_bytes(4, "little")


def resumable(registers: Sequence[int]) -> list[int]:
    """Return *registers* so that a system call interrupted by a stop is restarted from its beginning.

    The kernel itself does this better for an unchanged stopped thread: a call with a timeout then continues with the
    remaining time.
    """
    values = list(registers)
    result = values[RAX] - (1 << 64)
    if values[ORIG_RAX] < 1 << 63 and result in _RESTART:
        values[RAX] = values[ORIG_RAX]
        values[RIP] -= _SYSCALL_BYTES
    return values


def _aligned(address: int) -> int:
    """Return the start of a frame that ends below *address*, aligned as at a function's first instruction."""
    return (address & ~15) - 8


_GETEVENTMSG, _SYSCALL, _INTERRUPT = 0x4201, 24, 0x4207
_CLONE_EVENT, SYSTEM_CALL_STOP = 3, signal.SIGTRAP | 0x80
_XSTATE = 0x202  # the register set with the vector registers
_WORD = (1 << 64) - 1
WALL = 0x40000000
_DIRECTION_FLAG = 0x400
_ARGUMENTS = (RDI, RSI, RDX, R10, R8, R9)
RESTORER = b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"  # mov rax, 15 (rt_sigreturn); syscall
_CALL_AND_RETURN = b"\x0f\x05\xc3"  # syscall; ret
_CLONE_PARENT_SETTID, _EXIT_GROUP = 0x00100000, 231
_NO_PROCESS = 0x7FFFFFFF  # beyond the numbers that the kernel gives
_C_LIBRARY = re.compile(r"/(libc[-.]|ld-musl)[^/]*$")  # not libcrypto, which has more code, and none of use
_PIECE = 1 << 17  # bytes of code that are searched at once
_ALONE_SECONDS, _FUNCTION_SECONDS = 0.03, 1.0


class SystemCalls(NamedTuple):
    """Numbers of system calls on one architecture."""

    clone: int
    wait4: int
    mmap: int
    mprotect: int
    munmap: int


class CallSites(NamedTuple):
    """Addresses of instructions that every C library has, on x86-64."""

    restorer: int  # which a signal handler returns to
    call_and_return: int


def find_call_sites(pid: int, memory: Memory, mappings: Sequence[Mapping]) -> Optional[CallSites]:
    """Return their addresses in the process; None if it has none, and on other machines, which need none.

    Its resident pages are searched first: reading others would make it larger.
    """
    if machine() is not X86_64:
        return None
    code = [m for m in mappings if "x" in m.permissions and m.is_file and not m.name.startswith("[")]
    code.sort(key=lambda m: (not _C_LIBRARY.search(m.name), m.start))
    for resident_only in (True, False):
        found: dict[bytes, int] = {}
        for mapping in code:
            areas = [(mapping.start, mapping.end)]
            if resident_only:
                areas = resident_ranges(pid, areas)[0].items
            for piece, data in _pieces(memory, areas):
                for wanted in (RESTORER, _CALL_AND_RETURN):
                    if wanted not in found and (at := data.find(wanted)) >= 0:
                        found[wanted] = piece + at
                if len(found) == 2:
                    return CallSites(found[RESTORER], found[_CALL_AND_RETURN])
    return None


def _pieces(memory: Memory, areas: Iterable[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    for start, end in areas:
        for piece in range(start, end, _PIECE):
            try:
                yield piece, memory.read(piece, min(_PIECE, end - piece))
            except MemoryUnreadable:
                break


class ReturningThread:
    """A stopped thread on x86-64 that returns to its old state from any point if its tracer dies.

    It is set to the instructions that a signal handler returns to. Each call replaces the system call there, while
    the thread is stopped before it; afterwards it is before these instructions again.
    """

    calls = SystemCalls(56, 61, 9, 10, 11)

    def __init__(self, thread: HeldThread, memory: WritableMemory, sites: CallSites) -> None:
        self._thread, self._memory, self._sites = thread, memory, sites
        self.tid = thread.tid
        self._saved = get_registers(self.tid)
        self._state = get_register_bytes(self.tid, _XSTATE)
        self._mask = signal_mask(self.tid)
        self._frame, state = frame_below(self._saved, sites.restorer, self._mask, self._state)
        memory.write(self._frame.state, state)
        memory.write(self._frame.address, self._frame.encode())
        self._has_entered = False  # stopped before a system call that is not made yet
        self._has_called = False  # a function, which may change vector registers

    def __enter__(self) -> ReturningThread:
        self._stand(self._sites.restorer, self._frame.stack_pointer)
        set_signal_mask(self.tid, self._mask | BLOCKED)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._has_entered:
                self._make(_WORD)
            set_signal_mask(self.tid, self._mask)
            if self._has_called:
                set_register_bytes(self.tid, self._state, _XSTATE)
            set_registers(self.tid, self._saved)

    def system_call(self, number: int, *arguments: int) -> int:
        self._run()
        self._has_entered = True
        return self._make(number, *arguments)[0]

    def copy(self) -> tuple[int, int]:
        """Make it copy its process.

        Without a tracer the copy would end itself, and the thread collect it.
        """
        collecting = list(self._saved)
        collecting[RIP], collecting[RSP] = self._sites.call_and_return, self._frame.address
        # clone writes the copy's pid there.
        collecting[RAX], collecting[RDI] = self.calls.wait4, _NO_PROCESS
        collecting[RSI], collecting[RDX], collecting[R10] = 0, WALL, 0
        collect = self._frame.below(collecting, self._mask | BLOCKED)
        ending = list(self._saved)
        ending[RIP] = self._sites.restorer + len(RESTORER) - 2
        ending[RAX], ending[RDI] = _EXIT_GROUP, 0
        end = collect.below(ending, self._mask | BLOCKED)
        for frame in (collect, end):
            self._memory.write(frame.address, frame.encode())
        self._run()
        self._has_entered = True
        arguments = (_CLONE_PARENT_SETTID, end.stack_pointer, collect.first_argument_at, 0, 0)
        return self._make(self.calls.clone, *arguments, back=collect)

    def function(self, address: int, let_others_go: Callable[[], None]) -> bool:
        """Make it call the function at *address*, without arguments; return whether the call has returned in time.

        Otherwise the rest of it will not run. After a moment *let_others_go* is called: one of the other threads may
        hold a lock that the function waits for.
        """
        self._has_called = True
        self._stand(address, self._frame.address)
        self._has_entered = _runs_until(self._thread, self._sites.restorer + len(RESTORER), let_others_go)
        if self._has_entered:
            self._make(_WORD)
            return True
        self._stand(self._sites.restorer, self._frame.stack_pointer)
        return False

    def _stand(self, instruction: int, stack_pointer: int) -> None:
        values = list(self._saved)
        values[RIP], values[RSP], values[ORIG_RAX] = instruction, stack_pointer, _WORD
        values[FLAGS] &= ~_DIRECTION_FLAG
        set_registers(self.tid, values)

    def _make(self, number: int, *arguments: int, back: Optional[SignalFrame] = None) -> tuple[int, int]:
        """Replace the call that it is stopped before by another; return the result, and a copy's pid, or 0."""
        values = get_registers(self.tid)
        values[RIP], values[RSP] = self._sites.restorer, (back or self._frame).stack_pointer
        values[ORIG_RAX] = number
        for register, value in zip(_ARGUMENTS, arguments):
            values[register] = value
        set_registers(self.tid, values)
        child = self._run()
        self._has_entered = False
        result = get_registers(self.tid)[RAX]
        if result == number and _refused_by_filter(self.tid):
            run_until(self._thread, _SYSCALL, signal.SIGSYS)  # it is not delivered: the program made no call
        return result, child

    def _run(self) -> int:
        """Run it to the beginning or the end of a system call; return the pid of a copy that it made, else 0."""
        return run_until(self._thread, _SYSCALL, SYSTEM_CALL_STOP)


def run_until(thread: HeldThread, request: int, *signals: int) -> int:
    """Run *thread* by ptrace's *request* until one of *signals*; return the pid of a copy that it made, else 0."""
    child = 0
    while True:
        ptrace(request, thread.tid)
        status = wait_for(thread.tid)
        if status is None or not os.WIFSTOPPED(status):
            raise ended(thread.tid)
        event, number = status >> 16, os.WSTOPSIG(status)
        if event == _CLONE_EVENT:
            child = _event_message(thread.tid)
        elif event == 0 and number in signals:
            return child
        elif event == 0 and number != SYSTEM_CALL_STOP:
            thread.signal = number  # it is delivered when the thread continues


def _runs_until(thread: HeldThread, place: int, let_others_go: Callable[[], None]) -> bool:
    """Run *thread* until it stops at the system call before *place*; return whether it got there."""
    start = time.monotonic()
    ptrace(_SYSCALL, thread.tid)
    interrupted = False
    while True:
        done, status = os.waitpid(thread.tid, os.WNOHANG | WALL)
        waited = time.monotonic() - start
        if not done:
            if waited > _ALONE_SECONDS and not thread_lives(thread.tid, thread.tid):
                raise ended(thread.tid)
            if waited > _FUNCTION_SECONDS and not interrupted:
                ptrace(_INTERRUPT, thread.tid)
                interrupted = True
            elif waited > _ALONE_SECONDS:
                let_others_go()
            time.sleep(0.0002)
            continue
        if not os.WIFSTOPPED(status):
            raise ended(thread.tid)
        if status >> 16:
            return False  # interrupted by us
        if os.WSTOPSIG(status) == SYSTEM_CALL_STOP:
            if get_registers(thread.tid)[RIP] == place:
                return True
        else:
            thread.signal = os.WSTOPSIG(status)  # it is delivered when the thread continues
        ptrace(_SYSCALL, thread.tid)


def _refused_by_filter(tid: int) -> bool:
    """Return whether SIGSYS is pending for the thread."""
    return bool(signals_in(status_fields(tid), "SigPnd") >> signal.SIGSYS - 1 & 1)


def _event_message(tid: int) -> int:
    value = ctypes.c_ulong()
    ptrace(_GETEVENTMSG, tid, 0, ctypes.addressof(value))
    return value.value
