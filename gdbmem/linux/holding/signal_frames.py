"""Signal frames of x86-64 on a thread's own stack, from which the kernel restores its registers (rt_sigreturn).

A thread that a tracer has redirected returns by one, without a tracer.

Source: Linux, arch/x86/include/uapi/asm/sigcontext.h and ucontext.h; arch/x86/kernel/signal_64.c, fpu/signal.c.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from gdbmem.records import dataclass, replace

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


@dataclass(frozen=True)
class SignalFrame:
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
        return replace(
            self,
            address=_aligned(self.address - _WITH_INFORMATION),
            registers=registers,
            state=0,
            mask=mask,
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
