"""`memwatch function`: one function, line by line, over some calls, by breakpoints on its own lines."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, TextIO

import gdb

from gdbmem.debugger.command import warn
from gdbmem.debugger.memwatch.account import accounts
from gdbmem.debugger.memwatch.command import Driving
from gdbmem.debugger.memwatch.lines import calls_in, own_line_starts
from gdbmem.errors import GdbmemError, TargetError, UsageError
from gdbmem.model.function_profile import FunctionProfile, LineProfile
from gdbmem.text import plural, printable

if TYPE_CHECKING:
    import argparse

    from gdbmem.arguments import ArgumentParser

Read = Callable[[], Optional[int]]


class Place(NamedTuple):
    """A function in the program."""

    name: str
    file: str
    start: int  # address of its first instruction
    lines: Sequence[tuple[int, int]]  # (address, line) where its own lines begin
    calls: Sequence[tuple[int, int]]  # (address of a call, address behind it)
    has_inlined: bool


class _Activation:
    """One call that has not returned yet."""

    __slots__ = ("back", "line", "stack")

    def __init__(self, stack: int, back: int) -> None:
        self.stack = stack  # the stack pointer at entry
        self.back = back  # where it returns to
        self.line: Optional[int] = None


class _Thread:
    """One thread's calls, and the reading at its last event."""

    __slots__ = ("activations", "inside_call", "last")

    def __init__(self) -> None:
        self.activations: list[_Activation] = []
        self.last: Optional[int] = None
        self.inside_call = False  # with --own: below a call instruction


class Tally:
    """Charges what changed between two events of a thread to the line that it was on."""

    def __init__(self, place: Place, read: Read, *, wanted_calls: int) -> None:
        self.place = place
        self.calls = self.abandoned = self.recursive = self.outside_bytes = 0
        self._read = read
        self._wanted = wanted_calls
        self._threads: dict[int, _Thread] = {}
        self._hits: dict[int, list[int]] = {line: [0, 0, 0] for _, line in place.lines}  # hits, bytes, shared
        self._totals: dict[int, int] = {}

    # -- events, each from a Breakpoint.stop() ------------------------------------------------------------

    def entered(self) -> int:
        """A call begins; return where it will return to."""
        thread = self._thread()
        stack = _register("sp")
        # No two live calls begin at the same place of the stack.
        self._drop_abandoned(thread, stack + 1)
        self._charge(thread)
        if thread.activations:
            self.recursive += 1
        back = _return_address(stack)
        thread.activations.append(_Activation(stack, back))
        thread.inside_call = False
        return back

    def on_line(self, line: int, address: int) -> bool:
        """A line begins at *address*."""
        thread = self._thread()
        if not thread.activations:
            return False  # it was entered before we watched
        if len(thread.activations) > 1:
            self.returned(address)  # of a recursive call, whose breakpoint comes after this one
            self._drop_abandoned(thread, _register("sp"))
        self._charge(thread)
        if thread.activations[-1].line != line:  # a line may begin at several addresses
            hits = self._hits[line]
            hits[0] += 1
            hits[2] += len(gdb.selected_inferior().threads()) > 1
            thread.activations[-1].line = line
        thread.inside_call = False
        return False

    def calling(self) -> bool:
        """With --own: what follows is done by another function."""
        thread = self._thread()
        self._charge(thread)
        thread.inside_call = True
        return False

    def called(self) -> bool:
        """With --own: the line itself goes on."""
        thread = self._thread()
        self._charge(thread)
        thread.inside_call = False
        return False

    def returned(self, address: int) -> bool:
        """A call may have returned to *address*; tell whether enough have."""
        thread = self._thread()
        stack = _register("sp")
        while thread.activations:
            last = thread.activations[-1]
            if last.back == address and _has_returned(last.stack, stack, address):
                self._charge(thread)
                thread.activations.pop()
                # Of a recursive function the outermost calls count.
                self.calls += not thread.activations
                return self.calls >= self._wanted
            if last.stack >= stack:
                break
            self._abandon(thread)
        return False

    # -- inside ---------------------------------------------------------------------------------------------

    def _thread(self) -> _Thread:
        number = gdb.selected_thread().num
        found = self._threads.get(number)
        if found is None:
            found = self._threads[number] = _Thread()
        return found

    def _charge(self, thread: _Thread) -> None:
        now = self._read()
        if now is None:
            return
        before, thread.last = thread.last, now
        if before is None or not thread.activations:
            return
        line = thread.activations[-1].line
        if thread.inside_call:
            self.outside_bytes += now - before
        elif line is not None:
            self._hits[line][1] += now - before
            self._totals[line] = now

    def _drop_abandoned(self, thread: _Thread, stack: int) -> None:
        while thread.activations and thread.activations[-1].stack < stack:
            self._abandon(thread)

    def _abandon(self, thread: _Thread) -> None:
        # An exception or longjmp left it, nobody saw when: its last line's change isn't known.
        thread.activations.pop()
        thread.last = None
        self.abandoned += 1

    def profile(self, source: str, *, own_only: bool) -> FunctionProfile:
        lines = [
            LineProfile(line, hits, size, self._totals.get(line), shared)
            for line, (hits, size, shared) in sorted(self._hits.items())
        ]
        return FunctionProfile(
            function=self.place.name,
            file=self.place.file,
            calls=self.calls,
            lines=lines,
            source=source,
            own_only=own_only,
            abandoned_calls=self.abandoned,
            recursive_calls=self.recursive,
            has_inlined=self.place.has_inlined,
            outside_bytes=self.outside_bytes,
        )


def _register(name: str) -> int:
    return int(gdb.newest_frame().read_register(name)) & 0xFFFFFFFFFFFFFFFF


def _return_address(stack: int) -> int:
    """Return where the function whose first instruction is next returns to."""
    frame = gdb.newest_frame()
    if frame.architecture().name().startswith("aarch64"):
        return _register("lr")
    return int.from_bytes(bytes(gdb.selected_inferior().read_memory(stack, 8)), "little")


def _has_returned(entry_stack: int, stack: int, address: int) -> bool:
    """Tell a return from a jump to the same place, out of a handler of exceptions for example."""
    if gdb.newest_frame().architecture().name().startswith("aarch64"):
        return stack == entry_stack
    return stack == entry_stack + 8 and _return_address(entry_stack) == address


class _Watch(gdb.Breakpoint):  # type: ignore[misc]  # gdb's module has no types
    """An invisible breakpoint that reports an event and never stops the program, but for the last one."""

    def __init__(self, address: int, act: Callable[[], bool], failures: list[str]) -> None:
        super().__init__(f"*{address:#x}", internal=True)
        self.silent = True
        self._act = act
        self._failures = failures

    def stop(self) -> bool:
        try:
            return self._act()
        except (GdbmemError, gdb.error) as error:
            self._failures.append(str(error))
            return True


class _Watches:
    """All breakpoints of one tally; gone with the `with`."""

    def __init__(self, tally: Tally, *, own_only: bool) -> None:
        self.failures: list[str] = []
        self._tally = tally
        self._own_only = own_only
        self._breakpoints: list[_Watch] = []
        self._returns: dict[int, _Watch] = {}

    def __enter__(self) -> _Watches:
        place, tally = self._tally.place, self._tally
        actions: dict[int, list[Callable[[], bool]]] = {place.start: [self._enter]}
        for _, behind in place.calls if self._own_only else ():
            actions.setdefault(behind, []).append(tally.called)
        for address, line in place.lines:
            actions.setdefault(address, []).append(functools.partial(tally.on_line, line, address))
        for call, _ in place.calls if self._own_only else ():
            actions.setdefault(call, []).append(tally.calling)
        for address, acts in actions.items():
            self._breakpoints.append(_Watch(address, _in_turn(acts), self.failures))
        return self

    def __exit__(self, *exception: object) -> None:
        for one in [*self._breakpoints, *self._returns.values()]:
            if one.is_valid():
                one.delete()

    @property
    def numbers(self) -> set[int]:
        return {one.number for one in [*self._breakpoints, *self._returns.values()] if one.is_valid()}

    def _enter(self) -> bool:
        back = self._tally.entered()
        if back not in self._returns:
            self._returns[back] = _Watch(back, lambda: self._tally.returned(back), self.failures)
        return False


def _in_turn(acts: Sequence[Callable[[], bool]]) -> Callable[[], bool]:
    if len(acts) == 1:
        return acts[0]

    def act_all() -> bool:
        stops = [act() for act in acts]  # every one of them, whatever the first says
        return any(stops)

    return act_all


def find_place(location: str) -> Place:
    """Return the function that holds *location*; raises UsageError, TargetError, or gdb.error in gdb's words."""
    found = gdb.decode_line(location)[1]
    block = _function_at(found[0].pc) if found else None
    if block is None or found[0].symtab is None:
        raise TargetError(
            f"{printable(location)} is in no function with line information",
            slug="no-line-information",
            hint="compile it with -g",
        )
    others = {str(b.function) for one in found[1:] if (b := _function_at(one.pc)) is not None} - {
        str(block.function)
    }
    if others:
        warn(f"{printable(location)} is several functions; this is {block.function.print_name}")
    symtab = block.function.symtab
    lines, has_inlined = own_line_starts(block, symtab)
    calls = calls_in(gdb.selected_frame(), block)
    return Place(block.function.print_name, symtab.fullname(), _entry(block), lines, calls, has_inlined)


def _function_at(address: int) -> Optional[gdb.Block]:
    block = gdb.block_for_pc(address)
    while block is not None and (block.function is None or block.superblock.function is not None):
        block = block.superblock
    return block


def _entry(block: gdb.Block) -> int:
    # A function in several parts may have a colder one in front.
    return int(block.function.value().address)


class FunctionCommand(Driving):
    """`memwatch function`."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--calls", metavar="N", type=int, default=1, help="stop after so many calls")
        parser.add_argument("--own", action="store_true", help="leave out what the calls that lines make do")

    def act(self, args: argparse.Namespace, stream: TextIO) -> None:
        from gdbmem.debugger.memwatch.recorder import recorder

        if args.calls < 1 or not args.argument:
            raise UsageError(
                "name a function, and at least one call", hint="memwatch function --calls 10 decode"
            )
        gauge = accounts.current(args.source).gauge
        place = find_place(args.argument)
        tally = Tally(place, gauge.read, wanted_calls=args.calls)
        with (
            _Watches(tally, own_only=args.own) as watches,
            recorder.recording(gauge.read, asks_gdb=gauge.asks_gdb),
        ):
            recorder.arm()
            try:
                gdb.execute("continue")
            finally:
                stop = recorder.stop(wait=None, ours=watches.numbers, thread=None)
                profile = tally.profile(gauge.source, own_only=args.own)
        for failure in watches.failures[:1]:
            warn(failure)
        if stop.is_ordinary and not (args.json and stream is sys.stdout):
            gdb.execute("frame")
        _show(profile, args, stream)
        if tally.calls < args.calls:
            warn(
                f"{printable(stop.ended or 'interrupted')} after {plural(tally.calls, 'call')} of {args.calls:,}"
            )


def _show(profile: FunctionProfile, args: argparse.Namespace, stream: TextIO) -> None:
    from gdbmem.debugger.memwatch.showing import source_lines
    from gdbmem.report.function import function_json, print_function

    if args.json:
        stream.write(function_json(profile, source_lines()))
        return
    from gdbmem.debugger.terminal import console_on

    print_function(profile, console_on(stream), source_lines())
