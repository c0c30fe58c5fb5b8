"""Finds where a program continues after an exception or longjmp has left functions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Callable, NamedTuple, Optional

import gdb

from gdbmem.debugger.memwatch.gauges.line_tally import register, return_address

_WORD = (1 << 64) - 1
_DEEPEST_BYTES = 8 << 20  # between a longjmp and the setjmp of the same stack
_JUMPS = ("longjmp", "siglongjmp", "_longjmp", "__longjmp_chk")


class Landing(NamedTuple):
    """The destination of a jump."""

    stack: int  # the stack pointer there
    address: int


class Departure(NamedTuple):
    """A location that each jump passes."""

    location: str  # for gdb's `break`
    landing: Callable[[], Optional[Landing]]  # evaluated there; None: unknown, or on another stack


class _Buffer(NamedTuple):
    """The layout of a processor's jmp_buf, the same in glibc and musl: words."""

    parameter: str  # the register with its address
    stack: int
    address: int


_X86, _ARM = _Buffer("rdi", 6, 7), _Buffer("x0", 13, 11)


def departures() -> Iterator[Departure]:
    """Yield the locations to watch in the selected inferior."""
    with contextlib.suppress(gdb.error):  # a program without exceptions
        if gdb.parse_and_eval("&__cxa_begin_catch"):
            yield Departure("*__cxa_begin_catch", _handler)
    # Not every C library is built with probes.
    if "longjmp_target" in str(gdb.execute("info probes stap libc ^longjmp_target$", to_string=True)):
        yield Departure("-probe-stap libc:longjmp_target", _probe_target)
        return
    addresses = set()
    for name in _JUMPS:
        with contextlib.suppress(gdb.error):
            addresses.add(int(gdb.parse_and_eval(f"(long) &{name}")))
    for address in sorted(addresses):
        yield Departure(f"*{address:#x}", _jump_target)


def _handler() -> Landing:
    # Where the program's own code continues, not in the middle of a library.
    stack = register("sp")
    return Landing(stack, return_address(stack))


def _probe_target() -> Landing:
    return Landing(register("sp"), int(gdb.parse_and_eval("$_probe_arg2")))


def _jump_target() -> Optional[Landing]:
    """Read the destination of the longjmp that begins here."""
    is_arm = gdb.newest_frame().architecture().name().startswith("aarch64")
    layout = _ARM if is_arm else _X86
    buffer, here = register(layout.parameter), register("sp")
    stack, address = (_word(buffer + 8 * number) for number in (layout.stack, layout.address))
    if not 0 <= stack - here < _DEEPEST_BYTES:
        # glibc keeps them mangled.
        guard = _word(int(gdb.parse_and_eval("(long) &__pointer_chk_guard"))) if is_arm else _x86_guard()
        stack, address = ((value if is_arm else _rotated(value)) ^ guard for value in (stack, address))
    return Landing(stack, address) if 0 <= stack - here < _DEEPEST_BYTES else None


def _x86_guard() -> int:
    return _word(register("fs_base") + 0x30)  # tcbhead_t.pointer_guard


def _rotated(value: int) -> int:
    return (value >> 17 | value << 47) & _WORD


def _word(address: int) -> int:
    return int.from_bytes(bytes(gdb.selected_inferior().read_memory(address & _WORD, 8)), "little")
