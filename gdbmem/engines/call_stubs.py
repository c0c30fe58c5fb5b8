"""The instructions with which a stopped program calls a function for gdbmem, for each supported processor.

A stub saves the floating-point registers, calls, saves the result where the calling convention preserves it, and
restores the floating-point registers; gdb sets and restores only the general registers. Data, no gdb.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional


class CallMachine(NamedTuple):
    """The properties of one processor."""

    name: str
    arguments: Sequence[str]  # registers of a function's integer arguments
    general: Sequence[str]  # what a call may change, and gdb puts back; the program counter among them
    counter: str
    stack: str
    function: str  # holds the function's address for the stub,
    state: str  # and this where the floating-point registers are saved,
    result: str  # and this what the function returned
    stub: bytes  # its last instruction is a nop, on which gdb's breakpoint comes
    nop_size: int
    jump: bytes  # goes where the 8 bytes behind it say; changes no register
    system_call: bytes  # the instruction
    number: str  # register of the system call's number
    answer: str  # of what it returns
    system_arguments: Sequence[str]
    mmap: int
    userfaultfd: int
    close: int
    # What keeps the kernel from restarting a call that was interrupted.
    outside_system_call: Mapping[str, int]
    # Behind the nop: takes the general registers from SAVED behind `state`, should gdb have gone.
    home: bytes = b""

    @property
    def end(self) -> int:
        """The offset of the stub's last instruction."""
        return len(self.stub) - self.nop_size


SAVED = 0x2000  # behind `state`: the general registers, 8 bytes each

_ENCODED = (
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
)  # fmt: skip
_GENERAL = (
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15", "eflags", "rip", "orig_rax",
)  # fmt: skip


def _saved(register: str) -> bytes:
    return (SAVED + 8 * _GENERAL.index(register)).to_bytes(4, "little")


def _load(register: str) -> bytes:
    """Return ``mov register, [r14 + its place]``."""
    number = _ENCODED.index(register)
    return bytes((0x49 | (number >> 3) << 2, 0x8B, 0x86 | (number & 7) << 3)) + _saved(register)


_X86_HOME = b"".join((
    _load("rsp"),
    bytes.fromhex("488d642480"),  # lea rsp, [rsp - 128]: the red zone is not ours
    bytes.fromhex("41ffb6") + _saved("rip"),  # push [r14 + …]
    bytes.fromhex("41ffb6") + _saved("eflags"),
    bytes.fromhex("9d"),  # popfq
    *(_load(name) for name in _ENCODED if name not in ("rsp", "r14")),
    _load("r14"),
    bytes.fromhex("c28000"),  # ret 128
))  # fmt: skip


X86_64 = CallMachine(
    name="x86-64",
    arguments=("rdi", "rsi", "rdx", "rcx", "r8", "r9"),
    general=_GENERAL,
    counter="rip",
    stack="rsp",
    function="r12",
    state="r14",
    result="r15",
    stub=bytes.fromhex(
        "4989d5"  # mov r13, rdx
        "b8ff020000"  # mov eax, 0x2ff: x87, SSE, AVX, MPX, AVX-512, PKRU
        "31d2"  # xor edx, edx
        "490fae26"  # xsave64 [r14]
        "4c89ea"  # mov rdx, r13
        "31c0"  # xor eax, eax
        "41ffd4"  # call r12
        "4989c7"  # mov r15, rax
        "b8ff020000"  # mov eax, 0x2ff
        "31d2"  # xor edx, edx
        "490fae2e"  # xrstor64 [r14]
        "90"  # nop
    ),
    nop_size=1,
    jump=bytes.fromhex("ff2500000000"),  # jmp [rip]
    system_call=bytes.fromhex("0f05"),
    number="rax",
    answer="rax",
    system_arguments=("rdi", "rsi", "rdx", "r10", "r8", "r9"),
    mmap=9,
    userfaultfd=323,
    close=3,
    outside_system_call={"orig_rax": -1},
    home=_X86_HOME,
)


def _words(*instructions: int) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in instructions)


def _vector_pair(first: int, *, load: bool) -> int:
    """Return ``stp`` or ``ldp`` of the 128-bit registers *first* and the next, at their place behind x20."""
    opcode = 0xAD400000 if load else 0xAD000000
    return opcode | first << 15 | (first + 1) << 10 | _X20 << 5 | first


_X19, _X20, _X21, _X22, _X23 = range(19, 24)
_FPCR, _FPSR = 0xD51B4400, 0xD51B4420  # msr; mrs has one bit more
_MRS = 1 << 21


def _at_512(register: int, slot: int, *, load: bool) -> int:
    """Return ``str`` or ``ldr`` of x*register* at [x20, 512 + 8 * slot]."""
    return (0xF9400000 if load else 0xF9000000) | (64 + slot) << 10 | _X20 << 5 | register


AARCH64 = CallMachine(
    name="aarch64",
    arguments=tuple(f"x{number}" for number in range(8)),
    general=(*(f"x{number}" for number in range(31)), "sp", "pc", "cpsr"),
    counter="pc",
    stack="sp",
    function="x19",
    state="x20",
    result="x23",
    stub=_words(
        *(_vector_pair(first, load=False) for first in range(0, 32, 2)),
        _FPSR | _MRS | _X21,  # mrs x21, fpsr
        _FPCR | _MRS | _X22,  # mrs x22, fpcr
        _at_512(_X21, 0, load=False),
        _at_512(_X22, 1, load=False),
        0xD63F0000 | _X19 << 5,  # blr x19
        0xAA0003E0 | _X23,  # mov x23, x0
        _at_512(_X21, 0, load=True),
        _at_512(_X22, 1, load=True),
        _FPSR | _X21,  # msr fpsr, x21
        _FPCR | _X22,  # msr fpcr, x22
        *(_vector_pair(first, load=True) for first in range(0, 32, 2)),
        0xD503201F,  # nop
    ),
    nop_size=4,
    jump=b"",  # none leaves every register alone; gdb sets the counter
    system_call=_words(0xD4000001),  # svc #0
    number="x8",
    answer="x0",
    system_arguments=tuple(f"x{number}" for number in range(6)),
    mmap=222,
    userfaultfd=282,
    close=57,
    # The kernel has set the counter back to the instruction before gdb sees the stop.
    outside_system_call={},
)


def machine_of(architecture: str, registers: Sequence[str]) -> Optional[CallMachine]:
    """Return the machine of gdb's *architecture*, whose registers are *registers*; None: not known here."""
    if "x86-64" in architecture and "x32" not in architecture:
        return X86_64
    # The stub would save only the lower part of wider vectors (SVE).
    return AARCH64 if architecture.startswith("aarch64") and "vg" not in registers else None
