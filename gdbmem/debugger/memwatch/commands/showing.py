"""The output of a memwatch command: gdb's own report of the stop, then the account."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Optional, TextIO

import gdb

from gdbmem.debugger.memwatch.driving.stop_recorder import selected_thread
from gdbmem.debugger.stopping.interrupting import without_announcement
from gdbmem.debugger.terminal import console_on
from gdbmem.model.steps import Step
from gdbmem.steps.steps import print_sums, step_line, steps_json, sum_steps
from gdbmem.terminal.drawing import SourceLines
from gdbmem.text import plural, printable

if TYPE_CHECKING:
    from gdbmem.debugger.memwatch.driving.stepping import Stepper


def show_steps(stepper: Stepper, *, json: bool, top: Optional[int], stream: TextIO) -> None:
    """Print the outcome of *stepper*: one line for one step, a table for more; or JSON to *stream*."""
    if not (json and stream is sys.stdout):
        _show_stop(stepper)
    if json:
        stream.write(steps_json(stepper.steps, sum_steps(stepper.steps)[:top]))
    elif stepper.request.count == 1:
        print_step(stepper.steps[-1], stream)
    else:
        _show_table(stepper, top, stream)


def print_step(step: Step, stream: TextIO) -> None:
    """Print the one line of *step*."""
    text = source_lines().line(step.file, step.line)
    stream.write(step_line(step, color=console_on(stream).has_colors, source_text=text) + "\n")


def _show_table(stepper: Stepper, top: Optional[int], stream: TextIO) -> None:
    sums = sum_steps(stepper.steps)
    # Most lines change nothing; omitting them makes the others visible.
    changed = [one for one in sums if one.changed_anything]
    print_sums(changed[:top], stepper.steps, console_on(stream), source_lines())
    shown = len(changed[:top])
    if shown < len(changed):
        stream.write(f"{plural(len(changed) - shown, 'more line')} changed it, see 'memwatch report'\n")
    if len(changed) < len(sums):
        stream.write(f"{plural(len(sums) - len(changed), 'line')} changed nothing\n")
    done, wanted = len(stepper.steps), stepper.request.count
    if done < wanted:
        ended = stepper.steps[-1].ended or "interrupted"
        stream.write(f"Stopped after {done:,} of {plural(wanted, 'step')}: {printable(ended)}\n")


def _show_stop(stepper: Stepper) -> None:
    """Print the program's location as gdb itself would have."""
    from gdbmem.debugger.memwatch.driving.fast_steps import in_full  # slow to import

    if not stepper.capture.holds_back:
        return
    for line in stepper.capture.news:
        gdb.write(line + "\n")
    stop = stepper.stop
    if stop is not None and not stop.announced and stepper.start is not None and selected_thread():
        frame = gdb.newest_frame()
        if frame == stepper.start.frame and frame.find_sal().line:
            # Still in the same function: only the line, in gdb's colours.
            gdb.execute("with print frame-info source-line -- frame")
            return
    said = without_announcement(stepper.capture.final_text)
    gdb.write(in_full(said) if stepper.request.count > 1 else said)


def source_lines() -> SourceLines:
    """Return a reader of source lines that searches gdb's own `directory` path."""
    folders = [part for part in str(gdb.parameter("directories")).split(":") if part.startswith("/")]
    return SourceLines([*folders, os.getcwd()])  # noqa: PTH109
