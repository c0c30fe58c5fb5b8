"""The few instructions that a Python process calls for us, on x86-64."""

from __future__ import annotations

from gdbmem.allocators.cpython.recursion import CallDepth
from gdbmem.records import dataclass

HAS_RUN, TOO_DEEP, HAS_BEGUN = 1, 2, 3  # values of the flag
CALLS_NEEDED = 100  # calls: the lines need 12, an import hook of the program some more
_CALL_RAX = b"\xff\xd0"


@dataclass(frozen=True)
class InterpreterFunctions:
    """Addresses of functions of the interpreter."""

    add_pending_call: int
    run: int  # PyRun_SimpleString
    thread_state: int  # PyThreadState_Get
    recursion_limit: int  # Py_GetRecursionLimit


def noting_call(function: int, arguments: tuple[int, int], result: int) -> bytes:
    """Return a function that calls the one at *function*, and stores its return value (32 bits) at *result*.

    The byte after these four is then 1.
    """
    text = b"\xf3\x0f\x1e\xfa\x48\x83\xec\x08"  # endbr64; sub rsp, 8
    text += b"\x48\xbf" + arguments[0].to_bytes(8, "little")  # mov rdi, N
    text += b"\x48\xbe" + arguments[1].to_bytes(8, "little")  # mov rsi, N
    text += _call(function) + b"\x89\xc1"  # call; mov ecx, eax
    text += b"\x48\xb8" + result.to_bytes(8, "little") + b"\x89\x08"  # mov rax, result; mov [rax], ecx
    return text + b"\xc6\x40\x04\x01\x48\x83\xc4\x08\xc3"  # mov byte [rax+4], 1; add rsp, 8; ret


def instructions(functions: InterpreterFunctions, depth: CallDepth, flag: int) -> bytes:
    """Return a function that runs its argument, a Python text, if the thread is not too deep in calls.

    It sets the byte at *flag* to HAS_BEGUN before it reads the text, to HAS_RUN or TOO_DEEP at the end, and returns 0:
    an error would end the program. A thread that has
    overflowed, or would, gets no further call: in CPython 3.8 and 3.9 that leaves a state in which the program's own
    next overflow is fatal.
    """
    begin = b"\xf3\x0f\x1e\xfa\x53\x41\x54\x48\x83\xec\x08"  # endbr64; push rbx; push r12; sub rsp, 8
    begin += _flag(flag) + b"\xc6\x00" + bytes([HAS_BEGUN])  # mov byte [rax], HAS_BEGUN
    begin += (
        b"\x48\x89\xfb" + _call(functions.thread_state) + b"\x49\x89\xc4"
    )  # mov rbx, rdi; call; mov r12, rax
    run = b"\x48\x89\xdf" + _call(functions.run)  # mov rdi, rbx; call
    run += b"\xb9" + HAS_RUN.to_bytes(4, "little") + b"\xeb\x05"  # mov ecx, HAS_RUN; jmp end
    refuse = b"\xb9" + TOO_DEEP.to_bytes(4, "little")  # mov ecx, TOO_DEEP
    end = _flag(flag) + b"\x88\x08\x31\xc0"  # mov [rax], cl; xor eax, eax
    end += b"\x48\x83\xc4\x08\x41\x5c\x5b\xc3"  # add rsp, 8; pop r12; pop rbx; ret
    return begin + _with_jumps(_checks(functions, depth), len(run)) + run + refuse + end


def _checks(functions: InterpreterFunctions, depth: CallDepth) -> list[tuple[bytes, bytes]]:
    """Return comparisons, each with its conditional jump."""
    found = [
        (b"\x41\x80\xbc\x24" + _word(depth.overflowed) + b"\x00", b"\x0f\x85")
    ]  # cmp byte [r12+N], 0; jne
    needed = b"\x3d" + _word(CALLS_NEEDED)  # cmp eax, N
    if depth.made is not None:
        counted = (
            _call(functions.recursion_limit) + b"\x41\x2b\x84\x24" + _word(depth.made)
        )  # sub eax, [r12+N]
        found.append((counted + needed, b"\x0f\x8c"))  # jl
    for at in depth.remaining:
        found.append((b"\x41\x8b\x84\x24" + _word(at) + needed, b"\x0f\x8c"))  # mov eax, [r12+N]; cmp; jl
    return found


def _with_jumps(checks: list[tuple[bytes, bytes]], over: int) -> bytes:
    """Return the checks; each jumps over the following ones, and *over* bytes more."""
    text = b""
    for comparison, jump in reversed(checks):
        text = comparison + jump + _word(len(text) + over) + text
    return text


def _call(function: int) -> bytes:
    return b"\x48\xb8" + function.to_bytes(8, "little") + _CALL_RAX  # mov rax, N; call rax


def _flag(address: int) -> bytes:
    return b"\x48\xb8" + address.to_bytes(8, "little")  # mov rax, N


def _word(value: int) -> bytes:
    return value.to_bytes(4, "little")
