"""Commands that let the program run and watch its pages: `memgrow`, `memwatch written` and `memwatch limit`."""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional, TextIO

import gdb

from gdbmem.debugger.command import say, warn
from gdbmem.debugger.memwatch.commands.command import Driving
from gdbmem.debugger.memwatch.commands.growth import native_pid
from gdbmem.debugger.memwatch.driving.locking import Alarm
from gdbmem.debugger.memwatch.driving.stop_recorder import own_place, recorder
from gdbmem.debugger.memwatch.gauges.gauge import accounts, make_gauge
from gdbmem.debugger.native.inferior import program
from gdbmem.debugger.program import executions, selection_kept, thread_pointer
from gdbmem.debugger.stopping.stops import quietly
from gdbmem.debugger.terminal import console_on, source_file, symbol_at
from gdbmem.errors import ToolError, UsageError
from gdbmem.inspection.interpreters import own_python
from gdbmem.linux.memory.maps import PAGE, Mapping, mappings_of
from gdbmem.linux.memory.pagemap import FLAGS, WrittenPages, refused_in_program, take_descriptor
from gdbmem.linux.process.threads import SizeLimit
from gdbmem.model.steps import WrittenMemory, WrittenRange
from gdbmem.steps.growth import print_written, written_json
from gdbmem.text import format_size, parse_size, printable

# `memgrow`: the program continues, and the kernel samples which lines make its memory resident.
#
# A `gdbmem grow` process in the command's own interpreter makes the recording; the program runs at full speed.


_BEGUN = "gdbmem: recording "
_SECONDS = 600.0  # for naming what was recorded
_GRACE_SECONDS = 2.0


class GrowCommand(Driving):
    """Run on, record, print."""

    def act(self, args: argparse.Namespace, stream: TextIO) -> None:
        if args.argument:
            raise UsageError(
                f"'{printable(args.argument)}' is not an option of memgrow", hint="see 'help memgrow'"
            )
        pid = native_pid("memgrow")
        seconds = math.inf if args.duration is None else args.duration
        with _recording(pid, _options(args)) as tool:
            end = time.monotonic() + seconds
            with (
                recorder.recording(lambda: None),
                Alarm(pid, lambda: time.monotonic() >= end, every_seconds=0.01) as alarm,
            ):
                recorder.arm()
                gdb.execute("continue")
                stop = recorder.stop(wait=None, ours=set(), thread=None)
            stream.write(_result(tool))
        if alarm.by_user:
            warn("recording ended: interrupted (Ctrl-C)")
        elif stop.ended and not alarm.stopped:
            warn(f"recording ended: {printable(stop.ended)}")


def _options(args: argparse.Namespace) -> Sequence[str]:
    words = ["--top", str(args.top), *(["--json"] if args.json else [])]
    if args.profile is not None:
        words += ["--profile", str(Path(args.profile).absolute()), *(["--force"] if args.force else [])]
    return words


@contextlib.contextmanager
def _recording(pid: int, options: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Yield a `gdbmem grow` that has begun to record process *pid*."""
    python, environment = own_python("memgrow", "gdbmem.cli.main")
    tool = subprocess.Popen(
        [*python, "grow", *options, str(pid)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="surrogateescape",
        env=environment,
        start_new_session=True,  # Ctrl-C is for gdb
    )
    try:
        _wait_until_begun(tool)
        yield tool
    finally:
        _end(tool)
        for pipe in (tool.stdout, tool.stderr):
            if pipe is not None:
                pipe.close()
        tool.wait()


def _end(tool: subprocess.Popen[str]) -> None:
    """End it: a first SIGINT ends the recording, a second one the naming, with the gdbs that do it."""
    for _ in range(2):
        if tool.poll() is not None:
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            tool.send_signal(signal.SIGINT)
            tool.wait(_GRACE_SECONDS)
    with contextlib.suppress(OSError):
        tool.kill()


def _wait_until_begun(tool: subprocess.Popen[str]) -> None:
    assert tool.stderr is not None
    said = ""
    for line in tool.stderr:
        if line.startswith(_BEGUN):
            return
        said = line
    raise _refused(said)


def _result(tool: subprocess.Popen[str]) -> str:
    with contextlib.suppress(OSError):
        tool.send_signal(signal.SIGINT)
    try:
        output, said = tool.communicate(timeout=_SECONDS)
    except KeyboardInterrupt:
        warn("the samples had not been named yet, so the recording is discarded")
        raise
    except subprocess.TimeoutExpired:
        raise _refused("") from None
    if not output:
        raise _refused(said.strip().rpartition("\n")[2])
    return output


def _refused(said: str) -> ToolError:
    reason = said.strip().removeprefix("gdbmem: ") or "it ended without a message"
    return ToolError(
        f"page faults could not be recorded: {printable(reason)}",
        slug="memgrow-failed",
        hint="try it in a shell: gdbmem grow PID",
    )


# `memwatch written`: run the program by one of gdb's commands, then list the pages that it wrote meanwhile.


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
        command = _resuming_command(args.argument or "next")
        pid = native_pid("memwatch written")
        found = _written_by(command, pid)
        if args.json:
            stream.write(written_json(found))
        else:
            print_written(found, console_on(stream), top=args.top)


def _resuming_command(text: str) -> str:
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


# `memwatch limit`: the program continues until its resident set exceeds a size.


_EVERY_SECONDS = 0.001


class LimitCommand(Driving):
    """`memwatch limit`."""

    def act(self, args: argparse.Namespace, stream: TextIO) -> None:
        if not args.argument:
            raise UsageError("name a size", hint="memwatch limit +100MiB, or memwatch limit 2GiB")
        pid = native_pid("memwatch limit")
        if args.source == "heap":
            raise UsageError("memwatch limit watches the resident set", hint="leave out --source heap")
        gauge = accounts.current(args.source).gauge
        if gauge.measures_heap:  # as set by an earlier command
            gauge = make_gauge("auto")
        now = gauge.read() or 0
        size = parse_size(args.argument)
        limit = now + size if args.argument.lstrip().startswith(("+", "-")) else size
        if now > limit:
            raise UsageError(
                f"the program already holds {format_size(now)}",
                hint="memwatch limit +SIZE is relative to the present size",
            )
        watch = SizeLimit(pid, gauge.read, limit)
        with recorder.recording(gauge.read), Alarm(pid, watch.is_past, every_seconds=_EVERY_SECONDS) as alarm:
            recorder.arm()
            gdb.execute("continue")
            stop = recorder.stop(wait=None, ours=frozenset(), thread=None)
        if alarm.stopped and not alarm.by_user:
            self._say_where(watch, limit, stop.reading)
            return
        how = "interrupted (Ctrl-C)" if alarm.stopped else printable(stop.ended or "stopped")
        if watch.passed_bytes is None:
            say(f"The limit of {format_size(limit)} was not reached: {how}.")
        else:
            say(f"The resident set passed {format_size(limit)}, but before it could be stopped there: {how}.")

    @staticmethod
    def _say_where(watch: SizeLimit, limit: int, size_bytes: Optional[int]) -> None:
        over = format_size((size_bytes or watch.passed_bytes or limit) - limit)
        passed = f"The resident set passed {format_size(limit)} in"
        tid = watch.grower.tid if watch.grower else None
        grower = next((t for t in gdb.selected_inferior().threads() if t.ptid[1] == tid), None)
        if grower is None:
            has_ended = tid is not None or (watch.grower and watch.grower.has_ended)
            which = (
                "a thread that has ended" if has_ended else "an unknown thread (no page fault was counted)"
            )
            say(f"{passed} {which}; the program was stopped {over} above.")
            return
        if grower.num != gdb.selected_thread().num:
            gdb.execute(f"thread {grower.num}")  # which prints its location
        say(
            f"{passed} thread {grower.num}, {own_place() or 'somewhere'}; "
            f"it was stopped {over} above (sampled every millisecond)."
        )
