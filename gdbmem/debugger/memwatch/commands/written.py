"""`memwatch written`: run the program by one of gdb's commands, then list the pages that it wrote meanwhile."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Sequence
from typing import TextIO

import gdb

from gdbmem.debugger.command import warn
from gdbmem.debugger.memwatch.commands.command import Driving
from gdbmem.debugger.memwatch.commands.growth import native_pid
from gdbmem.debugger.memwatch.driving.locking import Alarm
from gdbmem.debugger.memwatch.driving.stop_recorder import recorder
from gdbmem.debugger.native.inferior import program
from gdbmem.debugger.program import executions, selection_kept, thread_pointer
from gdbmem.debugger.stopping.stops import quietly
from gdbmem.debugger.terminal import console_on, source_file, symbol_at
from gdbmem.errors import UsageError
from gdbmem.linux.memory.maps import PAGE, Mapping, mappings_of
from gdbmem.linux.memory.pagemap import FLAGS, WrittenPages, refused_in_program, take_descriptor
from gdbmem.model.steps import WrittenMemory, WrittenRange
from gdbmem.steps.growth import print_written, written_json
from gdbmem.text import printable

_RESUMING = ("next", "step", "nexti", "stepi", "finish", "until", "advance", "continue")
_SHORT = {
    "n": "next",
    "s": "step",
    "ni": "nexti",
    "si": "stepi",
    "fin": "finish",
    "u": "until",
    "c": "continue",
}

_THREAD_BYTES = 2304  # of glibc's data of a thread; the kernel writes there on its own account (rseq)
_OFFSET = re.compile(r" \+ \d+$")


class WrittenCommand(Driving):
    """`memwatch written`."""

    def act(self, args: argparse.Namespace, stream: TextIO) -> None:
        command = _resuming(args.argument or "next")
        pid = native_pid("memwatch written")
        found = _written_by(command, pid)
        if args.json:
            stream.write(written_json(found))
        else:
            print_written(found, console_on(stream), top=args.top)


def _resuming(text: str) -> str:
    """Return gdb's command *text* with its whole name; raises UsageError for one that does not run the program."""
    word, _, rest = text.partition(" ")
    name = _SHORT.get(word, word)
    if name not in _RESUMING:
        raise UsageError(
            f"'{printable(word)}' is not a command by which memwatch written runs the program",
            hint=f"one of {', '.join(_RESUMING)}",
        )
    return f"{name} {rest}".strip()


def _written_by(command: str, pid: int) -> WrittenMemory:
    """Run the program by *command* and return what was written meanwhile."""
    place = gdb.newest_frame().find_sal()
    file = source_file(place.symtab)
    line = place.line if file is not None else None
    function = gdb.newest_frame().name() or ""
    before = executions.here()
    with contextlib.closing(WrittenPages(pid, _userfaultfd(pid), _mappings(pid))) as pages:
        with recorder.recording(lambda: None), Alarm(pid, lambda: False, every_seconds=0.1) as alarm:
            recorder.arm()
            gdb.execute(command)
            stop = recorder.stop(wait=None, ours=set(), thread=None)
        if alarm.by_user:
            warn("interrupted (Ctrl-C): the pages are those written until then")
        ended = _loss(before, stop.ended)
        ranges = [] if ended else _named(pages.written(_mappings(pid)))
        return WrittenMemory(
            command, function, file, line, PAGE, ranges,
            pages.huge.size_bytes, pages.unwatched.size_bytes,
            len(gdb.selected_inferior().threads()), ended,
        )  # fmt: skip


def _loss(before: tuple[int, bytes], ended: str) -> str:
    """Return why the written pages are lost, "" if they aren't."""
    if executions.here() == before:
        return ""
    if gdb.selected_inferior().pid == before[0]:
        return "the process has executed another program"
    return ended or "the process is no longer debugged"


def _userfaultfd(pid: int) -> int:
    """Return a userfaultfd of the program, which only it can make, and keeps no descriptor of."""
    with quietly(), selection_kept():
        number = program.system_call("userfaultfd", (FLAGS,))
        if number < 0:
            raise refused_in_program(-number)
        try:
            return take_descriptor(pid, number)
        finally:
            program.system_call("close", (number,))


def _mappings(pid: int) -> list[Mapping]:
    mappings = mappings_of(pid)
    return [one for one in mappings if one.end >> 63 == 0]  # [vsyscall] is the kernel's


def _named(ranges: Sequence[WrittenRange]) -> list[WrittenRange]:
    places = _places_of_threads()
    return [one._replace(where=_where(one, places)) for one in ranges]


def _where(one: WrittenRange, places: Sequence[tuple[int, str]]) -> str:
    """Return what the pages of *one* belong to."""
    found = [text for address, text in places if one.start <= address < one.end]
    if found:
        return ", ".join(dict.fromkeys(found))
    variables = [_OFFSET.sub("", symbol_at(address)) for address in (one.start, one.end - 1)]
    names = list(dict.fromkeys(filter(None, variables)))
    if len(names) == 1 and all(variables):
        return f"variable {names[0]}"
    if one.mapping.startswith("/"):
        return one.mapping.rpartition("/")[2]
    if names:
        return f"variables around {' to '.join(names)}"
    return one.mapping.strip("[]") or "anonymous memory"


def _places_of_threads() -> list[tuple[int, str]]:
    """Return the addresses that identify the thread of a stack page or of a page of thread-local data."""
    found = []
    with selection_kept():
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            pointer = int(gdb.newest_frame().read_register("sp")) & ((1 << 64) - 1)
            found.append((pointer, f"stack of thread {thread.num}"))
            own, text = thread_pointer(), f"thread-local data of thread {thread.num}"
            found += [(own, text), (own + _THREAD_BYTES, text)]
    return [(address, text) for address, text in found if address]
