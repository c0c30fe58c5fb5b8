"""`memgrow`: the program continues, and the kernel samples which lines make its memory resident.

A `gdbmem grow` process in the command's own interpreter makes the recording; the program runs at full speed.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import gdb

from gdbmem.debugger.command import warn
from gdbmem.debugger.memwatch.commands.command import Driving
from gdbmem.debugger.memwatch.commands.growth import native_pid
from gdbmem.debugger.memwatch.driving.locking import Alarm
from gdbmem.debugger.memwatch.driving.stop_recorder import recorder
from gdbmem.errors import ToolError, UsageError
from gdbmem.inspection.interpreters import own_python
from gdbmem.text import printable

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
