"""Calls into the stopped program, for engines that need one: never through its heap, never inside malloc.

gdb's own calls write every register back afterwards, which gdb before 14 cannot do on processors with AMX: the program
would continue with other floating-point registers. On x86-64 a few instructions in a separate page therefore save and
restore those registers; gdb sets only the general registers.
"""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Callable, Optional

import gdb

from gdbmem.debugger.command import warn
from gdbmem.debugger.location import gdb_setting, real_pid
from gdbmem.debugger.program import InternalBreakpoint, address_of, executions, selection_kept
from gdbmem.debugger.terminal import library_at
from gdbmem.engines.call_stubs import SAVED, CallMachine, machine_of
from gdbmem.engines.engine import inside_hint
from gdbmem.errors import TargetError
from gdbmem.launch.guard import calling
from gdbmem.linux.holding.ptrace import BLOCKED, set_signal_mask, signal_mask
from gdbmem.linux.holding.seccomp import filter_count, may_end_for_a_call
from gdbmem.linux.memory.maps import read_maps
from gdbmem.linux.process.process import status_fields
from gdbmem.text import format_size

_TEXT_START, _TEXT_END = 512, 1 << 14  # of the strings passed to calls; the instructions precede them
_STATE_BYTES = 1 << 14  # for saved registers: more than any processor's
_STACK_BYTES = 1 << 16  # for the call: the program's own stack may have no room, for example a coroutine's
_CALLS = 15  # that have room for both in one piece of our memory, behind the instructions
_MAP_BYTES = (_CALLS + 1) * _STATE_BYTES + _CALLS * _STACK_BYTES  # less than a huge page, all of it resident
_MAP_ARGUMENTS = (0, _MAP_BYTES, 7, 0x22, -1, 0)
_WORD = (1 << 64) - 1
# Registers of a futex call, by architecture: its number and that of the call, its result, its command.
_FUTEX = (("orig_rax", 202, "rax", "rsi"), ("x8", 98, "x0", "x1"))
_WAIT_BITSET, _COMMAND = 9, 0x7F
_INTERRUPTED = range(
    -516, -511
)  # what the kernel returns, and nobody else sees, until it makes the call again
_ALLOCATOR = re.compile(
    r"(?:je_|_rjem_|rjem_|tc_)?(?:malloc\w*|calloc|realloc\w*|free|cfree|sdallocx|\w*allocx|posix_memalign|memalign"
    r"|aligned_alloc|valloc|pvalloc|mallctl\w*)|operator (?:new|delete).*|tcmalloc::.*|(?:je|_rjem_je)_\w+"
)
_TRIES = 1000  # stops of other threads while one runs to the end
_FRAMES = 24  # an allocator is never further from the innermost frame
_JUMP = 480  # offset of the return code, followed by its destination


class StoppedProgram:
    """The stopped program, in the form that engines use (engines.engine.Inferior)."""

    def __init__(self) -> None:
        self._owner = (0, b"")  # the program that contains our memory
        self._pieces: list[int] = []  # of our memory there; the first has the instructions
        self._used = _TEXT_START
        self.lock: Optional[str] = None  # its file, for calls into a process that outlives gdb
        self.harmless: Sequence[str] = ()  # threads whose filters end nothing for a call: "TID:FILTERS"
        self.lets_others_run = False  # during a call: one of them holds a lock that the call needs
        self.is_calling = False
        # During a call: the thread that makes it, where it comes back to, and its stack pointer there (0: any).
        self.arrival: Optional[tuple[tuple[int, int, int], int, int]] = None

    @property
    def makes_call(self) -> bool:
        """True if the selected thread makes a call: what it passes is passed by the handler of a signal."""
        return self.arrival is not None and self.arrival[0] == gdb.selected_thread().ptid

    @property
    def has_arrived(self) -> bool:
        """True if the selected thread is back from its call; the breakpoints there were passed before it."""
        if self.arrival is None or not self.makes_call:
            return False
        _, end, pointer = self.arrival
        return get_register("pc") == end and (not pointer or get_register("sp") == pointer)

    @property
    def process(self) -> int:
        """Its process id."""
        return int(gdb.selected_inferior().pid)

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
        """Call *function* with integers; raises TargetError if the program has none of that name."""
        return signed(self.call_for_word(function, arguments))

    def call_for_word(self, function: str, arguments: Sequence[int], address: int = 0) -> int:
        """Call *function* likewise, the one at *address* if given; return all 64 bits of its result."""
        machine, base = machine_here(), self._memory()
        address = address or address_of(function)
        with calling(self.lock), _registers(base) as before, _breakpoints_off():
            set_registers(self.entry(machine, before, address, arguments))
            with self._others_running():
                _run_to(base + machine.end, function, start=base)
            return get_register(machine.result)

    def entry(
        self,
        machine: CallMachine,
        before: Mapping[str, int],
        address: int,
        arguments: Sequence[int],
        *,
        slot: int = 0,
    ) -> dict[str, int]:
        """Return the registers for a call of the function at *address*; the counter goes to `self.stub`.

        Calls at the same time need a *slot* each, below `self.slots`.
        """
        piece, place = self._pieces[slot // _CALLS], slot % _CALLS
        state = piece + (place + 1) * _STATE_BYTES
        stack = piece + (_CALLS + 1) * _STATE_BYTES + (place + 1) * _STACK_BYTES - 64
        saved = b"".join((before[name] & _WORD).to_bytes(8, "little") for name in machine.general)
        gdb.selected_inferior().write_memory(state + SAVED, saved)
        return {
            **dict(zip(machine.arguments, arguments)),
            machine.function: address,
            machine.state: state,
            machine.stack: stack,
            **machine.outside_system_call,
        }

    def result(self, machine: CallMachine) -> int:
        """Return the int that the stub's call has returned."""
        return signed(get_register(machine.result))

    def read(self, address: int, size: int) -> bytes:
        """Return *size* bytes of the program's memory at *address*."""
        return bytes(gdb.selected_inferior().read_memory(address, size))

    def has(self, function: str) -> bool:
        """Return whether the program, or one of its libraries, has a function of that name."""
        try:
            address_of(function)
        except TargetError:
            return False
        return True

    @property
    def stub(self) -> int:
        """The stub's address; 0 if this program has none yet."""
        return self._pieces[0] if self._pieces and self._owner == executions.here() else 0

    @property
    def slots(self) -> int:
        """The number of calls that can be under way at the same time."""
        return len(self._pieces) * _CALLS if self.stub else 0

    def system_call(self, call: str, arguments: Sequence[int]) -> int:
        """Make only the selected thread execute a system call of CallMachine; return its result, signed."""
        machine, base = machine_here(), self._memory()
        with _locking("on"):
            answer = _system_call(getattr(machine, call), arguments, call, base)
        return answer - (1 << 64) if answer >> 63 else answer

    def prepare(self) -> None:
        """Map our memory in the program, which has to be stopped."""
        self._memory()

    @contextmanager
    def _others_running(self) -> Iterator[None]:
        with _locking("off" if self.lets_others_run else "on"):
            yield

    def _memory(self) -> int:
        refuse_filtered()
        if not self.stub:
            self.adopt(_system_call(machine_here().mmap, _MAP_ARGUMENTS, "mmap"))
        return self._pieces[0]

    def mapping(self, machine: CallMachine) -> tuple[dict[str, int], int, int]:
        """Return the registers for the system call that maps memory, and its start and end addresses."""
        refuse_filtered()
        return _at_system_call(machine, machine.mmap, _MAP_ARGUMENTS)

    def adopt(self, answer: int) -> None:
        """Take the memory that the kernel has given, which is *answer*; raises TargetError if it gave none."""
        machine, piece = machine_here(), _checked(answer)
        if self.stub:
            self._pieces.append(piece)
            return
        gdb.selected_inferior().write_memory(piece, machine.stub + machine.home)
        gdb.selected_inferior().write_memory(piece + _JUMP, machine.jump)
        self._pieces, self._owner, self._used = [piece], executions.here(), _TEXT_START


def refuse_filtered() -> None:
    """Raise TargetError if a seccomp filter could end the program because of an injected call."""
    tid = int(gdb.selected_thread().ptid[1])
    status = status_fields(tid)
    if may_end_for_a_call(status) and f"{tid}:{filter_count(status)}" not in program.harmless:
        raise TargetError(
            "gdbmem calls no function in the program: its seccomp filter could kill it for that",
            slug="seccomp-filter",
            hint="'memexplain' only reads its memory",
        )


def signed(word: int) -> int:
    """Return the int in the lower half of a register."""
    status = word & 0xFFFFFFFF
    return status - (1 << 32) if status >> 31 else status


def machine_here() -> CallMachine:
    """Return the machine type of the selected thread; raises TargetError for an unsupported one."""
    architecture = gdb.selected_frame().architecture()
    registers = [str(register) for register in architecture.registers()]
    machine = machine_of(architecture.name(), registers)
    if machine is None:
        raise TargetError(
            "snapshots by a call into the program work on x86-64, and on aarch64 without SVE",
            slug="other-processor",
            hint="use --massif",
        )
    return machine


def _system_call(number: int, arguments: Sequence[int], name: str, base: int = 0) -> int:
    """Make the stopped program execute system call *number*; return its result. For *base* see _registers()."""
    machine = machine_here()
    registers, start, end = _at_system_call(machine, number, arguments)
    with calling(program.lock), _registers(base), _breakpoints_off():
        set_registers(registers)
        _run_to(end, name, start=start)
        return get_register(machine.answer)


def _at_system_call(
    machine: CallMachine, number: int, arguments: Sequence[int]
) -> tuple[dict[str, int], int, int]:
    """Return the registers for system call *number*, and where its instruction starts and ends."""
    site = _instruction(machine)
    registers = {
        machine.number: number,
        **dict(zip(machine.system_arguments, arguments)),
        **machine.outside_system_call,
    }
    return registers, site, site + len(machine.system_call)


def _instruction(machine: CallMachine) -> int:
    """Return the address of a system call instruction: the C library's, or one of the kernel's own code."""
    spans = []
    with suppress(TargetError):
        spans.append((address_of("syscall"), 64))
    pid = real_pid()
    mappings = read_maps(pid) if pid else []
    spans += [(one.start, one.size_bytes) for one in mappings if one.name == "[vdso]"]
    for start, size in spans:
        at = bytes(gdb.selected_inferior().read_memory(start, size)).find(machine.system_call)
        if at >= 0:
            return start + at
    raise TargetError(
        "no system call instruction was found in the program", slug="no-page", hint="use --massif"
    )


def _checked(address: int) -> int:
    if address == (1 << 64) - errno.ENOMEM:
        raise TargetError(
            f"the program can't map {format_size(_MAP_BYTES)} more, which the call for a snapshot needs",
            slug="no-page",
            hint="raise the limit of its address space (ulimit -v), or use --massif",
        )
    if address >= (1 << 64) - 4096 or address == 0:
        raise TargetError(
            "the program may not map executable memory",
            slug="no-page",
            hint="a security policy forbids it (SELinux, seccomp); use --massif",
        )
    return address


def get_register(register: str) -> int:
    """Return the selected frame's *register*."""
    value = gdb.parse_and_eval(f"${register}")
    return int(value) & ((1 << 8 * int(value.type.sizeof)) - 1)


def set_registers(registers: Mapping[str, int]) -> None:
    """Set *registers* of the selected thread's newest frame."""
    with gdb_setting("language", "c"):
        for name, value in registers.items():
            # With another stack pointer gdb may consider the selected frame an outer one, and write there.
            gdb.newest_frame().select()
            gdb.execute(f"set var ${name} = {value}", to_string=True)
    gdb.newest_frame().select()


@contextmanager
def _registers(base: int) -> Iterator[dict[str, int]]:
    """Restore the general registers of the selected thread, which the block may change, at its end.

    With our memory at *base* the program returns by a jump that it executes itself: only then does gdb step over a
    breakpoint at its location, instead of stopping there again.
    """
    thread = gdb.selected_thread()
    gdb.newest_frame().select()
    machine = machine_here()
    before, pointer = general_registers(machine), get_register("sp")
    release_signals = hold_signals()
    try:
        yield before
    finally:
        if thread.is_valid():
            thread.switch()
            gdb.newest_frame().select()
            if base and machine.jump:
                counter = before[machine.counter]
                target = counter.to_bytes(8, "little")
                gdb.selected_inferior().write_memory(base + _JUMP + len(machine.jump), target)
                others = {name: value for name, value in before.items() if name != machine.counter}
                set_registers({**others, **machine.outside_system_call})
                with _breakpoints_off():
                    _run_to(counter, "the way back", start=base + _JUMP, pointer=pointer)
                set_registers({name: before[name] for name in machine.outside_system_call})
            else:
                set_registers(before)
            release_signals()


def hold_signals() -> Callable[[], None]:
    """Keep signals from the selected thread, and return what undoes that.

    The kernel takes an alternate stack for free while the thread is on ours: a handler would overwrite the frames of
    the one that the call has interrupted. SIGINT still comes, so that a call that doesn't return can be ended.
    """
    tid = int(gdb.selected_thread().ptid[1])
    try:
        mask = signal_mask(tid)
        set_signal_mask(tid, mask | BLOCKED & ~(1 << signal.SIGINT - 1))
    except OSError:  # it is not gdb that traces it, but another machine's server
        return lambda: None

    def release() -> None:
        with suppress(OSError):  # it has ended
            set_signal_mask(tid, mask)

    return release


def general_registers(machine: CallMachine) -> dict[str, int]:
    """Return the general registers of the selected thread's newest frame."""
    return {name: get_register(name) for name in machine.general}


@contextmanager
def _breakpoints_off() -> Iterator[None]:
    # Breakpoints at which a thread is expected stay, as it would run into invalid code, and those that count.
    disabled = [point for point in gdb.breakpoints() if point.enabled and not getattr(point, "stays", False)]
    for point in disabled:
        point.enabled = False
    before, program.is_calling = program.is_calling, True
    try:
        yield
    finally:
        program.is_calling = before
        for point in disabled:
            if point.is_valid():
                point.enabled = True


def _run_to(end: int, function: str, *, start: int, pointer: int = 0) -> None:
    """Run the selected thread from *start* to *end*; other threads continue past their stops meanwhile.

    With another stack pointer than *pointer* there, it is in the handler of a signal.
    """
    thread = gdb.selected_thread()
    stop = InternalBreakpoint(end)
    program.arrival = thread.ptid, end, pointer
    try:
        command = f"jump *{start:#x}"  # gdb's own command: gdb may reset a program counter that is merely set
        for _ in range(_TRIES):
            gdb.execute(command, to_string=True)
            command = "continue"
            if not gdb.selected_inferior().pid or not thread.is_valid():
                break
            thread.switch()
            gdb.newest_frame().select()
            if program.has_arrived:
                break
        else:
            raise TargetError(
                f"{function} did not return in the program",
                slug="call-failed",
                hint="type 'info program' to see what happened",
            )
    finally:
        program.arrival = None
        stop.delete()


@contextmanager
def outside_allocator(library: str) -> Iterator[None]:
    """Allow the block to call into the program, other threads locked; refuse if that would deadlock.

    A thread inside the allocator *library* may hold its locks. The selected thread must not be; if others are, all
    threads run during the call, and a notice reports it.
    """
    selected = gdb.selected_thread()
    others = [thread for thread in gdb.selected_inferior().threads() if thread.num != selected.num]
    with selection_kept():
        gdb.newest_frame().select()
        refuse_inside(library)
        busy = [
            thread.num
            for thread in others
            if thread.switch() is None and not waits_for_condition() and is_inside(library)
        ]
    if busy:
        warn(
            f"thread {busy[0]} is inside {library}: all threads run while the snapshot is taken",
            slug="threads-run-on",
        )
    program.lets_others_run = bool(busy)
    with _locking("on"):
        yield
    gdb.newest_frame().select()


def refuse_inside(library: str) -> None:
    """Raise TargetError if the selected thread is inside the allocator *library*."""
    if is_inside(library):
        raise TargetError(
            "a snapshot at this point could deadlock", slug="inside-allocator", hint=inside_hint(library)
        )


def is_inside(library: str, only: Optional[gdb.Frame] = None) -> bool:
    """Return whether a frame of the selected thread is inside the allocator *library*.

    "" is one that is linked into the program: it is recognised by the names of functions.
    """
    stem = library.split(".so", 1)[0]
    frame, count = only or gdb.newest_frame(), 0
    while frame is not None and count < (1 if only else _FRAMES):
        if stem:
            name = library_at(frame.pc())
            if name is not None and stem in name.rpartition("/")[2]:
                return True
        elif _ALLOCATOR.fullmatch(frame.name() or ""):
            return True
        frame, count = frame.older(), count + 1
    return False


def waits_for_condition() -> bool:
    """Return whether the selected thread waits for a condition, and so has released the lock that belongs to it.

    As jemalloc's background threads do, inside the allocator, most of the time. A wait for a lock is another command.
    Source: glibc nptl/futex-internal.c; Linux, include/linux/errno.h.
    """
    frame = gdb.newest_frame()
    for call, number, result, command in _FUTEX:
        with suppress(ValueError, gdb.error):  # no such register
            if int(frame.read_register(call)) == number and int(frame.read_register(result)) in _INTERRUPTED:
                return int(frame.read_register(command)) & _COMMAND == _WAIT_BITSET
    return False


@contextmanager
def _locking(mode: str) -> Iterator[None]:
    # jump asks where it leaves the function
    with gdb_setting("scheduler-locking", mode), gdb_setting("confirm", "off"):
        yield


program = StoppedProgram()
