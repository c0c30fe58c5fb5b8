"""The program's current location, in words."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import Optional

import gdb

from gdbmem.debugger.terminal import file_name, gdb_text, library_at, symbol_at
from gdbmem.errors import UsageError


def frames_from(frame: Optional[gdb.Frame], most: int) -> Iterator[gdb.Frame]:
    """Yield *frame* and its callers, at most *most* frames, as far as gdb can unwind the stack."""
    for _ in range(most):
        if frame is None:
            return
        yield frame
        try:
            frame = frame.older()
        except gdb.error:
            return


def function_frame(frame: gdb.Frame) -> gdb.Frame:
    """Return *frame*, or the frame of the function into which that of *frame* is inlined."""
    while frame.type() == gdb.INLINE_FRAME:
        frame = frame.older()
    return frame


def stack_pointer(frame: gdb.Frame) -> int:
    """Return the stack pointer of *frame*."""
    return int(frame.read_register("sp")) & (1 << 64) - 1


def frame_pointer(frame: gdb.Frame) -> int:
    """Return the value of the register for frame pointers in *frame*, whatever the frame uses it for.

    gdb's own $fp is an address that it derives from the unwound frame where there is no frame pointer.
    """
    try:
        value = frame.read_register("rbp")
    except ValueError:
        value = frame.read_register("x29")
    return int(value) & (1 << 64) - 1


def block_of(frame: gdb.Frame) -> Optional[gdb.Block]:
    """Return the innermost block of *frame*; None without debug information."""
    try:
        return frame.block()
    except RuntimeError:
        return None


def frame_variables(frame: gdb.Frame) -> Iterator[tuple[gdb.Symbol, gdb.Block]]:
    """Yield the variables and arguments of the function that *frame* shows, innermost first, and their blocks."""
    block = block_of(frame)
    while block is not None and not block.is_static and not block.is_global:
        for symbol in block:
            if symbol.is_variable or symbol.is_argument:
                yield symbol, block
        block = block.superblock if block.function is None else None


def current_place() -> Optional[str]:
    """Return the location of the selected thread: ``function at file:line``; None when nothing runs.

    In valgrind's replacement of malloc this is the location of the call.
    """
    try:
        frame = newest = gdb.newest_frame()
        while frame is not None and "/vgpreload_" in (library_at(frame.pc()) or ""):
            frame = frame.older()
        return frame_place(frame or newest)
    except gdb.error:
        return None


def users_place() -> Optional[str]:
    """Return the innermost place in the program itself, not in a library; None when nothing runs.

    A signal is mostly raised deep inside libc, which is not informative.
    """
    try:
        frame = newest = gdb.newest_frame()
        while frame is not None and (frame.name() is None or library_at(frame.pc()) is not None):
            frame = frame.older()
        return frame_place(frame or newest)
    except gdb.error:
        return current_place()


def frame_place(frame: gdb.Frame) -> str:
    """Return the location of *frame*: ``function at file:line``, or as much of it as is known."""
    name = frame.name()
    position = frame.find_sal()
    if position.symtab is not None and position.line:
        where = f"{PurePath(file_name(position.symtab)).name}:{position.line}"
        return f"{name} at {where}" if name else where
    return name or f"0x{frame.pc():x} in {PurePath(library_at(frame.pc()) or program_file()).name}"


def memory_address(value: gdb.Value) -> Optional[int]:
    """Return the address of a *value* that was not yet looked at; None if the program doesn't have it in memory.

    For the `address` of an array that the program has nowhere, gdb calls the program's malloc and puts a copy there.
    """
    if value.type.strip_typedefs().code in (gdb.TYPE_CODE_ARRAY, gdb.TYPE_CODE_STRING) and not value.is_lazy:
        return None
    return None if value.address is None else int(value.address)


def program_file() -> str:
    """Return the path of the program that gdb has loaded, "program" if it has none.

    Some gdbs can't hand a name that is not UTF-8 to Python.
    """
    try:
        return gdb.current_progspace().filename or "program"
    except UnicodeDecodeError:
        return "program"


def loaded_files() -> Iterator[str]:
    """Yield the names of the files that gdb has loaded; not those that it can't hand to Python, as program_file()."""
    for objfile in gdb.objfiles():
        with suppress(UnicodeDecodeError):
            yield objfile.filename or ""


def entry() -> str:
    """Return the function to stop at first: main, or in a stripped program the libc function that calls it."""
    try:
        gdb.execute("info address main", to_string=True)
    except gdb.error:
        return "__libc_start_main"
    return "main"


def current_thread() -> Optional[int]:
    """Return gdb's number of the selected thread."""
    thread = gdb.selected_thread()
    return thread.num if thread is not None else None


def program_runs() -> bool:
    """Return whether there is a live program."""
    return bool(gdb.selected_inferior().pid)


VGDB_PID = 42000  # gdb's name for the process behind valgrind's gdbserver
_first_threads: dict[int, gdb.InferiorThread] = {}  # by inferior: for their list gdb asks valgrind anew


def real_pid() -> Optional[int]:
    """Return the process id in this machine's /proc of the selected inferior; None when it has none here.

    Under vgdb gdb invents the pid 42000; the first thread's id is the true one. Elsewhere the first may have ended.
    """
    inferior = gdb.selected_inferior()
    if inferior.pid != VGDB_PID:
        return int(inferior.pid) or None
    first = _first_threads.get(inferior.num)
    if first is None or not first.is_valid():
        threads = inferior.threads()
        if not threads:
            return None
        first = _first_threads[inferior.num] = min(threads, key=lambda thread: thread.num)
    return int(first.ptid[1] or inferior.pid)


# The functions that an address lies in: those inlined there, and the one whose code it is.


BlockKey = tuple[int, int, str]  # start, end, function

_WITHIN = re.compile(r" \+ \d+$|\.cold(?:\.\d+)?$")  # not at the address at which a symbol begins
_INLINED = re.compile(
    r"^\[\(block \*\) \S+\] 0x([0-9a-f]+)\.\.0x([0-9a-f]+)\n  entry pc: 0x([0-9a-f]+)\n  inline function: (.*)$",
    re.MULTILINE,
)


def function_blocks(address: int, names: Optional[dict[int, str]] = None) -> list[gdb.Block]:
    """Return the blocks of the functions at *address*: those inlined, innermost first, then the one around them.

    A lambda or a method of a local class is declared within a function, whose block gdb has around it, but its
    code is its own: the function did not inline it. gdb 18 gives an inlined function without code one byte after the
    function that it is inlined into. *names* keeps gdb's names of addresses from one query to the next.
    """
    found = _nested_blocks(address)
    ended = _ended_blocks(found, address)
    found = found[ended[-1] + 1 if ended else 0 :]
    return found[: _out_of_line(found, {} if names is None else names)] if len(found) > 1 else found


def is_behind_inlined(address: int) -> bool:
    """Return whether gdb still shows an inlined function at *address* whose code has ended there, as gdb 18 may."""
    return bool(_ended_blocks(_nested_blocks(address), address))


def _nested_blocks(address: int) -> list[gdb.Block]:
    """Return the blocks of functions that gdb has around *address*, innermost first, up to the last that spans it."""
    found = _functions_around(address)
    while found and not found[-1].start <= address < found[-1].end:
        found.pop()
    return found


def _functions_around(address: int) -> list[gdb.Block]:
    found: list[gdb.Block] = []
    block = gdb.block_for_pc(address)
    while block is not None and not block.is_static and not block.is_global:
        if block.function is not None:
            found.append(block)
        block = block.superblock
    return found


def _ended_blocks(blocks: list[gdb.Block], address: int) -> list[int]:
    return [at for at, one in enumerate(blocks) if not one.start <= address < one.end]


def _out_of_line(blocks: list[gdb.Block], names: dict[int, str]) -> int:
    """Return how many of *blocks* there are up to the first that is a function's own.

    The range of a block is not sufficient: that of a function in two pieces spans whatever lies between them.
    """
    for block in blocks:
        start = block.start
        if start not in names:
            names[start] = symbol_at(start)
        name = names[start]
        if name and not _WITHIN.search(name):
            # A function inlined at the very beginning starts there, too. A colder part may lie in front of both.
            return max(
                at + 1
                for at, other in enumerate(blocks)
                if start in (other.start, int(other.function.value().address))
            )
    return len(blocks)


def block_key(block: gdb.Block) -> BlockKey:
    """Return a key that identifies *block*: gdb makes a new object for the same block each time."""
    return block.start, block.end, str(block.function)


def function_symtab(block: gdb.Block) -> gdb.Symtab:
    """Return the source file of a function that is not inlined, from its first line.

    The *block*'s own has another file's number, or is "<artificial>", for code that is optimized by the linker.
    """
    return gdb.find_pc_line(int(block.function.value().address)).symtab or block.function.symtab


def function_key(frame: gdb.Frame) -> Optional[BlockKey]:
    """Return the key of the function that *frame* shows, inlined or not; None without debug information."""
    block = block_of(frame)
    while block is not None and block.function is None:
        block = block.superblock
    return block_key(block) if block is not None else None


def inlined_entries(address: int) -> Mapping[BlockKey, int]:
    """Return at which address each of the inlined functions at *address* is entered; empty before gdb 16.

    From then on gdb takes this from the debug information. It need not be where the function's code begins.
    """
    if not _has_entries():
        return {}
    said = gdb.execute(f"maintenance info blocks {address:#x}", to_string=True)
    return {
        (int(one[1], 16), int(one[2], 16), one[4]): int(one[3], 16) for one in _INLINED.finditer(str(said))
    }


@functools.cache
def _has_entries() -> bool:
    """Return whether gdb has the command. One that fails, in an event or as a breakpoint is hit, loses the program."""
    return bool(str(gdb.execute("complete maintenance info blocks", to_string=True)).strip())


# Code that gdb takes for another function's.
#
# GCC 12 gives functions inlined into coroutines ranges that lie in other functions. gdb 13 then finds a function none
# of whose ranges has the address, and ends when a breakpoint is set there.


_MOST_LINES = 20  # that are tried in place of one
_RANGE = re.compile(r"^Address range 0x([0-9a-f]+) to 0x([0-9a-f]+):$", re.MULTILINE)


def ends_gdb_at(address: int) -> bool:
    """Return whether gdb takes *address* for code of a function none of whose ranges has it."""
    symbol, _, offset = symbol_at(address, demangled=False).partition(" + ")
    entries = (int(one.function.value().address) for one in _functions_around(address))
    named = ((entry, symbol_at(entry, demangled=False)) for entry in entries)
    # The first that is no inlined function's.
    entry, name = next((one for one in named if one[1] and not _WITHIN.search(one[1])), (0, ""))
    if entry <= address - int(offset or 0) or _WITHIN.sub("", symbol) == name:
        return False  # gdb goes by the symbol
    ranges = _RANGE.findall(gdb_text(f"with language c -- disassemble {entry:#x}"))
    return bool(ranges) and not any(int(start, 16) <= address < int(end, 16) for start, end in ranges)


class NoBreakpointError(UsageError):
    """gdb can't set a breakpoint there."""


def check_breakpoint_at(address: int) -> None:
    """Raise NoBreakpointError if gdb would end when it sets a breakpoint at *address*."""
    if not ends_gdb_at(address):
        return
    place = gdb.find_pc_line(address)
    file = PurePath(file_name(place.symtab)).name if place.symtab is not None else "?"
    other = _line_behind(address, place.symtab, file)
    raise NoBreakpointError(
        f"gdb would end at a breakpoint at {address:#x} ({file}:{place.line}), which the program's debug information"
        " puts into another function",
        hint=(f"put the point on {other}, or " if other else "") + "compile that file with -O1",
    )


def _line_behind(address: int, symtab: Optional[gdb.Symtab], file: str) -> str:
    """Return the next line of the function where gdb can set breakpoints, as ``file:line``; "" if there is none."""
    symbol, tried = symbol_at(address).partition(" + ")[0], {gdb.find_pc_line(address).line}
    for row in symtab.linetable() if symtab is not None else ():
        if row.pc <= address or row.line in tried or symbol_at(row.pc).partition(" + ")[0] != symbol:
            continue
        tried.add(row.line)
        if len(tried) > _MOST_LINES:
            break
        with suppress(gdb.error):
            places = gdb.decode_line(f"{file}:{row.line}")[1] or ()
            if places and all(one.line == row.line and not ends_gdb_at(one.pc) for one in places):
                return f"{file}:{row.line}"
    return ""


# Expressions and names of types that gdbmem writes: they are C's, whatever language the program is written in.
#
# gdb reads each in the language of the selected frame: Rust knows no symbol without debug information and no `unsigned
# long`, Pascal and Ada no `&`, Modula-2 no 0x and no number of more than 32 bits.


def c_value(expression: str) -> gdb.Value:
    """Return the value of *expression*, which is C's; raises gdb.error."""
    with gdb_setting("language", "c"):
        return gdb.parse_and_eval(expression)


def c_type(name: str) -> gdb.Type:
    """Return C's type *name*; raises gdb.error."""
    with gdb_setting("language", "c"):
        return gdb.lookup_type(name)


# The user's settings of gdb, changed for a while.


@contextmanager
def gdb_setting(name: str, value: str) -> Iterator[None]:
    """Set gdb's *name* to *value* during the block."""
    before = gdb.parameter(name)
    gdb.execute(f"set {name} {value}", to_string=True)
    try:
        yield
    finally:
        words = {True: "on", False: "off"}.get(before, before)
        gdb.execute(f"set {name} {words}", to_string=True)
