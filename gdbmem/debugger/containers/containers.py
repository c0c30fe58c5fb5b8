"""memcontainers: the memory held by the program's containers, reached from its variables."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from typing import Callable, NamedTuple, Optional

import gdb

from gdbmem.containers.containers import containers_json, growth, print_container_growth, print_containers
from gdbmem.containers.survey import Surveyor
from gdbmem.debugger.command import Command, say, warn
from gdbmem.debugger.containers.type_plans import Planner
from gdbmem.debugger.ledger.explain import read_ledger_here
from gdbmem.debugger.location import (
    frame_variables,
    frames_from,
    gdb_setting,
    memory_address,
    program_runs,
    real_pid,
    stack_pointer,
)
from gdbmem.debugger.memwatch.gauges.gauge import HeapReader
from gdbmem.debugger.program import GdbMemory, selection_kept
from gdbmem.debugger.saved_results import keep_survey, kept_survey, saved_names
from gdbmem.debugger.terminal import console_on, file_name, gdb_text, symbol_at
from gdbmem.errors import GdbmemError, Notice, TargetError, UsageError
from gdbmem.inspection.block_queries import VECTORS, BlockQueries
from gdbmem.ledger.blocks import print_vectors, vectors_json
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.linux.process.process import process_facts
from gdbmem.model.containers import Survey
from gdbmem.model.heap_blocks import DATA, STACK, FoundVector
from gdbmem.model.memory import Memory
from gdbmem.profiles.own_code import qualified_name
from gdbmem.runs.saved_results import CONTAINERS
from gdbmem.terminal.console import open_output
from gdbmem.text import plural

# memcontainers --everywhere: the vectors of the heap, found by their pointers, named by their holders.


_MOST_OUTER_FRAMES = 1000


def show_everywhere(args: argparse.Namespace) -> None:
    """Find the vectors of the stopped process or core, and print or write them."""
    if args.expression or args.save is not None or args.since is not None:
        raise UsageError(
            "--everywhere finds vectors without names, which can't be compared or picked out",
            hint="leave out --save, --since and EXPR",
        )
    with open_output(args.output, force=args.force) as stream:
        queries = BlockQueries(frozenset([VECTORS]))
        read_ledger_here(queries)
        found = queries.vectors
        assert found is not None
        owners = {vector.owner: _owner(vector) for vector in found.largest[: args.top]}
        if args.json:
            stream.write(vectors_json(found, owners))
            return

        print_vectors(found, owners, console_on(stream), args.top)


def _owner(vector: FoundVector) -> str:
    """Return the variable that contains a vector's pointers, if gdb knows one."""
    if vector.place == STACK:
        return _in_frame(vector.owner)
    return symbol_at(vector.owner) if vector.place == DATA else ""


def _in_frame(address: int) -> str:
    """Return the function whose frame contains *address*, on the stack of any thread."""
    with selection_kept():
        pointers = []
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            pointer = _stack_pointer(gdb.newest_frame())
            if 0 < pointer <= address:
                pointers.append((pointer, thread))
        if not pointers:
            return ""
        max(pointers, key=lambda found: found[0])[1].switch()
        name = ""
        for frame in frames_from(gdb.newest_frame(), _MOST_OUTER_FRAMES):
            if not 0 < _stack_pointer(frame) <= address:
                break
            name = frame.name() or ""
        return f"{name.partition('(')[0]}()" if name else ""


def _stack_pointer(frame: gdb.Frame) -> int:
    try:
        return int(frame.read_register("sp"))
    except (gdb.error, ValueError):
        return 0


_MOST_FRAMES = 100  # of each thread
_MOST_NAMED = 3
_ADDRESS = re.compile(r"\b(?:is|starts) at address (0x[0-9a-f]+)")  # in the output of `info line`
_MOST_FILES = 5_000
_SOURCES = (".cpp", ".cc", ".cxx", ".C", ".c++", ".cp", ".cu", ".CPP")


class ContainersCommand(Command):
    """Reach, add up, compare."""

    def saved_names(self) -> list[str]:
        return saved_names(CONTAINERS)

    def run(self, args: argparse.Namespace) -> None:
        if args.everywhere:
            show_everywhere(args)
            return
        earlier = kept_survey(args.since) if args.since is not None else None
        if not program_runs():
            raise TargetError("there is no process to inspect", slug="not-running", hint="type 'run'")
        with open_output(args.output, force=args.force) as stream:
            survey = survey_here(" ".join(args.expression))
            survey.check()
            if args.save is not None:
                say(f"containers saved as {keep_survey(args.save, survey).label}")

            if args.json:
                stream.write(containers_json(survey, earlier))
                return

            console = console_on(stream)
            if earlier is not None:
                print_container_growth(growth(earlier, survey), console, args.top, args.since)
            else:
                print_containers(survey, console, args.top, " ".join(args.expression))


def survey_here(expression: str = "") -> Survey:
    """Return the containers reachable from every frame's variables and the globals, or from *expression*."""
    with gdb_setting("language", "c++"):  # names of types are C++, also if the program is stopped in libc
        return _survey(expression)


def _survey(expression: str) -> Survey:
    memory = _memory()
    surveyor, planner = Surveyor(memory), Planner(memory)
    unread: dict[str, None] = {}
    for root in [_root_of(expression)] if expression else _roots():
        try:
            plan = planner.plan(_referred(root.type))
            if plan is None or not (plan.holds() or plan.resolve is not None):
                continue
            value, refers = root.read(), root.type != _referred(root.type)
            if refers:
                value = value.referenced_value()  # the address of a reference is that of its referent
            address = memory_address(value)
            if address is None or value.is_optimized_out:
                unread[root.path] = None
                continue
            is_target = refers or root.path in ("this", expression)
            surveyor.visit(root.path, plan, address, is_target=is_target)
        except (gdb.error, RuntimeError, TypeError, OverflowError):
            unread[root.path] = None
    found = surveyor.survey(_notices(planner.unknown_classes, list(unread)))
    return found if expression else found._replace(live_heap_bytes=_live_heap_bytes(memory))


def _referred(found: gdb.Type) -> gdb.Type:
    """Return the referent of a reference, and any other value unchanged."""
    bare = found.strip_typedefs()
    return bare.target() if bare.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF) else found


def _live_heap_bytes(memory: Memory) -> Optional[int]:
    """Return the bytes that malloc has in use in this process; None if unknown, as under valgrind."""
    pid = real_pid()
    if pid is None or not isinstance(memory, ProcMemory) or process_facts(pid).tracer != os.getpid():
        return None
    heap = HeapReader(pid)
    try:
        found = heap.read()
    finally:
        heap.close()
    return None if found is None else found.bytes


def _notices(unknown_classes: set[str], unread: Sequence[str]) -> list[Notice]:
    """Return notices on omissions: objects of *unknown_classes*, and the variables *unread*."""
    notices = []
    if unknown_classes:
        notices.append(
            Notice(
                "class-unknown",
                "the classes of some objects have no debug information, so only the members of their base class were"
                f" scanned: {_first_of(sorted(unknown_classes))}",
            )
        )
    if unread:
        variables = f"{plural(len(unread), 'variable')} that may hold containers"
        notices.append(
            Notice(
                "variables-unread",
                f"{variables} could not be read here (optimized out, or in unreadable memory); their contents are"
                f" not counted: {_first_of(unread)}",
            )
        )
    return notices


def _first_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _memory() -> Memory:
    """Return the fastest access to the program's memory: the kernel's for a process on this machine.

    Under valgrind too: the program's addresses are valgrind's own, and its gdbserver reads 1 MB a second.
    """
    through_gdb = GdbMemory()
    try:
        place = int(gdb.newest_frame().pc())
        pid = real_pid()
        memory = ProcMemory(pid) if pid is not None else None
        # The pid of a remote program is of another machine; an unrelated process here would have different code there.
        if (
            memory is not None
            and memory.read(place, 16) == through_gdb.read(place, 16)
            and _same_stack(memory)
        ):
            return memory
    except (GdbmemError, gdb.error):
        pass
    return through_gdb


def _same_stack(memory: Memory) -> bool:
    stack = stack_pointer(gdb.newest_frame())
    return memory.read(stack, 64) == GdbMemory().read(stack, 64)


class _Root(NamedTuple):
    """A variable, or an expression, from which containers are reached."""

    path: str
    type: gdb.Type
    read: Callable[[], gdb.Value]  # raises gdb.error, RuntimeError or TypeError if it can't be read here


def _root_of(expression: str) -> _Root:
    value = gdb.parse_and_eval(expression)
    return _Root(expression, value.type, lambda: value)


def _roots() -> Iterator[_Root]:
    """Yield globals and statics first, so that containers get their names, then the variables of the frames."""
    yield from _globals()
    with selection_kept():
        for thread in sorted(gdb.selected_inferior().threads(), key=lambda t: int(t.num)):
            thread.switch()
            yield from _frames()


def _frames() -> Iterator[_Root]:
    for frame in frames_from(gdb.newest_frame(), _MOST_FRAMES):
        for symbol, _ in frame_variables(frame):
            yield from _of_frame(symbol, frame)


def _of_frame(symbol: gdb.Symbol, frame: gdb.Frame) -> Iterator[_Root]:
    if symbol.is_variable and _is_declared_below(symbol, frame.find_sal()):
        return  # not constructed yet, whatever its bytes
    if symbol.name == "this":
        yield _Root("this", symbol.type.target(), lambda: symbol.value(frame).dereference())
    else:
        yield _Root(
            f"{qualified_name(frame.name() or '?')}::{symbol.name}", symbol.type, lambda: symbol.value(frame)
        )


def _is_declared_below(symbol: gdb.Symbol, place: gdb.Symtab_and_line) -> bool:
    """Return whether the frame has not reached the variable yet; by name, as equal symtabs may be distinct objects."""
    if place.symtab is None or symbol.symtab is None:
        return False
    return bool(file_name(place.symtab) == file_name(symbol.symtab) and 0 < place.line < symbol.line)


def _globals() -> Iterator[_Root]:
    """Yield global and static variables of the C++ files that have debug information."""
    seen = set()
    for symtab in _symtabs():
        for block in (symtab.global_block(), symtab.static_block()):
            for symbol in block:
                if symbol.is_variable and not symbol.name.startswith("std::") and symbol.name not in seen:
                    seen.add(symbol.name)
                    yield _Root(symbol.name.partition("[abi:")[0], symbol.type, symbol.value)


def _symtabs() -> Iterator[gdb.Symtab]:
    """Yield the symbol tables of C++ sources: asking gdb for all variables takes seconds in libc's alone."""
    text = gdb_text("info sources")
    files = [word.strip() for line in text.splitlines() for word in line.split(", ")]
    # A quote would end the name in the command below.
    sources = [file for file in dict.fromkeys(files) if file.endswith(_SOURCES) and "'" not in file]
    if len(sources) > _MOST_FILES:
        warn(
            f"only the global variables of the first {_MOST_FILES:,} source files were read",
            slug="containers-cut",
        )
    for file in sources[:_MOST_FILES]:
        try:
            # `info line`, because from gdb 16 on breakpoints, and so decode_line(), refuse a line without code.
            said = gdb_text(f"info line '{file}':1")
        except gdb.error:
            continue  # a name that gdb's own parser can't take, or a file without a line
        places = (gdb.find_pc_line(int(address, 16)) for address in _ADDRESS.findall(said))
        yield from {file_name(place.symtab): place.symtab for place in places if place.symtab}.values()
