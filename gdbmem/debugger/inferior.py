"""Calls into the stopped program, for engines that are asked by one: never through its heap, never inside it.

gdb's own calls write every register back afterwards, and on processors with AMX gdb before 14 can't: the program
would go on with other floating-point registers. So x86-64 gets a few instructions in a page of our own, which
save and restore those registers themselves; gdb only has to set the general ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import gdb

from gdbmem.debugger.command import warn
from gdbmem.errors import TargetError

_MAP_BYTES = 32768
_TEXT_START, _TEXT_END = 256, 4096  # of the texts that calls get; the instructions stand before them
_STATE = 4096  # of the saved registers: 16 KiB are more than any processor's
_TRIES = 1000  # stops of other threads while one runs to its end
_FRAMES = 24  # an allocator is never further from the innermost frame
_SYSCALL = b"\x0f\x05"
_MMAP = 9
_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_GENERAL = (
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
    "eflags", "rip", "orig_rax",
)  # fmt: skip
_STUB = bytes.fromhex(
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
    "90"  # nop: gdb's breakpoint comes here
)
_JUMP = 64  # where the way back stands, and after it where to
_JUMP_CODE = bytes.fromhex("ff2500000000")  # jmp [rip]: changes no register


class StoppedProgram:
    """The stopped program, as an engine may use it (engines.engine.Inferior)."""

    def __init__(self) -> None:
        self._process = 0
        self._base = 0  # of our memory in that process
        self._used = _TEXT_START
        self.lets_others_run = False  # during a call: one of them holds what the call needs

    def place(self, data: bytes) -> int:
        """Put *data* into memory of our own and return its address; later calls overwrite the oldest."""
        base = self._memory()
        if self._used + len(data) > _TEXT_END:
            self._used = _TEXT_START
        if len(data) > _TEXT_END - _TEXT_START:
            raise TargetError("this text is too long for the program", slug="no-page")
        address = base + self._used
        gdb.selected_inferior().write_memory(address, data)
        self._used += len(data) + 15 & ~15
        return address

    def call(self, function: str, arguments: Sequence[int]) -> int:
        """Call *function* with integers; raises TargetError where the program has none of that name."""
        address = _address(function)
        base = self._memory()
        with _registers(base) as before, _breakpoints_off():
            stack = before["rsp"] - 128 - 512 & ~63  # below the red zone
            registers = dict(zip(_ARGUMENTS, arguments))
            registers.update(r12=address, r14=base + _STATE, rsp=stack, orig_rax=-1)
            _set(registers)
            with self._others_running():
                _run_to(base + len(_STUB) - 1, function, start=base)
            status = _get("r15") & 0xFFFFFFFF
        return status - (1 << 32) if status >> 31 else status

    @contextmanager
    def _others_running(self) -> Iterator[None]:
        with _locking("off" if self.lets_others_run else "on"):
            yield

    def _memory(self) -> int:
        process = gdb.selected_inferior().pid
        if self._process != process:
            self._base, self._process = _map(), process
            self._used = _TEXT_START
            gdb.selected_inferior().write_memory(self._base, _STUB)
            gdb.selected_inferior().write_memory(self._base + _JUMP, _JUMP_CODE)
        return self._base


def _map() -> int:
    """Have the kernel map memory into the program; return its address."""
    if "x86-64" not in gdb.selected_frame().architecture().name():
        raise TargetError("snapshots by a call into the program work on x86-64 only", slug="other-processor",
                          hint="use --massif")  # fmt: skip
    start = _address("syscall")
    code = bytes(gdb.selected_inferior().read_memory(start, 64))
    at = code.find(_SYSCALL)
    if at < 0:
        raise TargetError("the C library has no system call to borrow", slug="no-page", hint="use --massif")
    with _registers():
        _set(
            {"rax": _MMAP, "rdi": 0, "rsi": _MAP_BYTES, "rdx": 7, "r10": 0x22, "r8": -1, "r9": 0,
             "orig_rax": -1}
        )  # fmt: skip
        _run_to(start + at + len(_SYSCALL), "mmap", start=start + at)
        address = _get("rax")
    if address >= (1 << 64) - 4096 or address == 0:
        raise TargetError(
            "the program may not map memory that can be executed",
            slug="no-page",
            hint="a security policy forbids it (SELinux, seccomp); use --massif",
        )
    return address


def _get(register: str) -> int:
    # Flags and pointers convert to no common type; their bytes do.
    value = gdb.parse_and_eval(f"${register}")
    size = int(value.type.sizeof)
    as_integer = gdb.selected_frame().architecture().integer_type(8 * size, False)
    return (
        int(value.cast(as_integer))
        if value.type.code == gdb.TYPE_CODE_PTR
        else int(value) & ((1 << 8 * size) - 1)
    )


def _set(registers: dict[str, int]) -> None:
    for name, value in registers.items():
        gdb.execute(f"set var ${name} = {value}", to_string=True)


@contextmanager
def _registers(base: int = 0) -> Iterator[dict[str, int]]:
    """Let the block change the general registers of the selected thread, and put them back.

    With our memory at *base* the program gets back by a jump of its own: only where it has arrived by itself
    does gdb step over a breakpoint that it stands on, instead of stopping there again.
    """
    thread = gdb.selected_thread()
    gdb.newest_frame().select()
    before = {name: _get(name) for name in _GENERAL}
    try:
        yield before
    finally:
        if thread.is_valid():
            thread.switch()
            gdb.newest_frame().select()
            if base:
                target = before["rip"].to_bytes(8, "little")
                gdb.selected_inferior().write_memory(base + _JUMP + len(_JUMP_CODE), target)
                _set({**{name: before[name] for name in _GENERAL if name != "rip"}, "orig_rax": -1})
                with _breakpoints_off():
                    _run_to(before["rip"], "the way back", start=base + _JUMP)
                _set({"orig_rax": before["orig_rax"]})
            else:
                _set(before)


@contextmanager
def _breakpoints_off() -> Iterator[None]:
    disabled = [point for point in gdb.breakpoints() if point.enabled]
    for point in disabled:
        point.enabled = False
    try:
        yield
    finally:
        for point in disabled:
            if point.is_valid():
                point.enabled = True


def _run_to(end: int, function: str, *, start: int) -> None:
    """Let the selected thread run from *start* to *end*, others passing by whatever stops them meanwhile."""
    thread = gdb.selected_thread()
    stop = gdb.Breakpoint(f"*{end:#x}", internal=True)
    stop.silent = True
    try:
        command = (
            f"jump *{start:#x}"  # gdb's own: a program counter that is only set may be taken back by gdb
        )
        for _ in range(_TRIES):
            gdb.execute(command, to_string=True)
            command = "continue"
            if not gdb.selected_inferior().pid or not thread.is_valid():
                break
            thread.switch()
            gdb.newest_frame().select()
            if _get("rip") == end:
                break
        else:
            raise TargetError(
                f"{function} did not come to its end in the program",
                slug="call-failed",
                hint="type 'info program' to see what happened",
            )
    finally:
        stop.delete()


def _address(function: str) -> int:
    try:
        return int(gdb.parse_and_eval(f"(unsigned long) &{function}"))
    except gdb.error:
        raise TargetError(
            f"the program has no {function}: the profiling allocator is not loaded (yet)",
            slug="profiler-not-loaded",
            hint="set a breakpoint (break main) and type 'continue' first; a static or setuid program loads none",
        ) from None


@contextmanager
def outside_allocator(library: str) -> Iterator[None]:
    """Let the block call into the program, other threads held; refuse where that would deadlock.

    Whoever is inside the allocator *library* may hold its locks. The selected thread must not be; where
    others are, all run on during the call, which is said.
    """
    selected = gdb.selected_thread()
    frame = gdb.selected_frame()
    others = [thread for thread in gdb.selected_inferior().threads() if thread.num != selected.num]
    try:
        gdb.newest_frame().select()
        if _is_inside(library):
            from gdbmem.engines.engine import inside_hint

            raise TargetError(
                "no snapshot can be taken here, it could deadlock",
                slug="inside-allocator",
                hint=inside_hint(library),
            )
        busy = [thread.num for thread in others if thread.switch() is None and _is_inside(library)]
    finally:
        selected.switch()
        frame.select()
    if busy:
        warn(f"thread {busy[0]} stands inside {library}: all threads run on while the snapshot is taken")
    program.lets_others_run = bool(busy)
    with _locking("on"):
        yield
    gdb.newest_frame().select()


def _is_inside(library: str) -> bool:
    stem = library.split(".so", 1)[0]
    frame, count = gdb.newest_frame(), 0
    while frame is not None and count < _FRAMES:
        name = gdb.solib_name(frame.pc())
        if stem and name is not None and stem in name.rpartition("/")[2]:
            return True
        frame, count = frame.older(), count + 1
    return False


@contextmanager
def _locking(mode: str) -> Iterator[None]:
    before = str(gdb.parameter("scheduler-locking"))
    asks = bool(gdb.parameter("confirm"))
    gdb.execute(f"set scheduler-locking {mode}", to_string=True)
    gdb.execute("set confirm off", to_string=True)  # jump asks where it leaves the function
    try:
        yield
    finally:
        gdb.execute(f"set scheduler-locking {before}", to_string=True)
        gdb.execute(f"set confirm {'on' if asks else 'off'}", to_string=True)


program = StoppedProgram()
