"""Python frames between native ones, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from gdbmem.analysis.python_frames import INTERPRETER
from gdbmem.model.profiles.calltree import Frame
from gdbmem.model.python import MixedStack
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.document import Document, head, to_json
from gdbmem.text import plural, printable


def print_mixed(stacks: Sequence[MixedStack], console: Console) -> None:
    """Print the frames of each thread, the innermost first."""
    for number, stack in enumerate(stacks):
        if number:
            console.print()
        print_sentence(console, _title(stack), "bold")
        for at, frame in enumerate(stack.frames):
            console.print(f"#{at:<3} {_line(frame)}", soft_wrap=True)
        if not stack.is_whole:
            console.print("… the rest of the Python frames could not be read")


def _title(stack: MixedStack) -> str:
    if not stack.python_frames:
        return f"thread {stack.tid}: no Python frame"
    return f"thread {stack.tid}: {plural(stack.python_frames, 'Python frame')} between the native ones"


def _line(frame: Frame) -> str:
    if frame.object == INTERPRETER:
        return printable(frame.function or "")
    name = printable(frame.function or "??")
    place = printable(frame.file or "")
    if frame.line is not None:
        place += f":{frame.line}"
    elif not place and frame.object:
        place = printable(PurePath(frame.object).name)
    return f"{name}  {place}" if place else name


def mixed_json(stacks: Sequence[MixedStack]) -> str:
    """Return *stacks* as ``kind=python-stack``; frames run from the innermost outward, Python's have no object."""
    document: Document = {
        **head("python-stack", ()),
        "threads": [
            {
                "tid": one.tid,
                "python_frames": one.python_frames,
                "whole": one.is_whole,
                "frames": [frame._asdict() for frame in one.frames],
            }
            for one in stacks
        ],
    }
    return to_json(document)
