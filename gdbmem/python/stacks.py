"""Python frames of threads, alone and between native ones, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from gdbmem.json_values import as_json
from gdbmem.linux.process.threads import call_name
from gdbmem.model.calltree import Frame
from gdbmem.model.python import MixedStack, PythonCall, PythonStacks, PythonThread
from gdbmem.python.frames import INTERPRETER
from gdbmem.terminal.console import Console, print_notices, print_pause, print_sentence
from gdbmem.terminal.document import Document, head, to_json
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
    threads = [as_json(one, "tid", "python_frames", "is_whole", "frames") for one in stacks]
    return to_json({**head("python-stack", ()), "threads": threads})


# The Python frames of each thread, as text.


def print_stacks(stacks: PythonStacks, console: Console) -> None:
    """Print the threads of *stacks*, each with its frames, the innermost first."""
    frames = sum(len(one.frames) for one in stacks.threads)
    where = f"process {stacks.pid}" if stacks.pid is not None else printable(stacks.program)
    sentence = f"{where}: {plural(frames, 'Python frame')} in {plural(len(stacks.threads), 'thread')}"
    if stacks.native_threads:
        sentence += f"; {plural(stacks.native_threads, 'further thread')} unknown to Python"
    print_sentence(console, sentence, "bold")
    for thread in stacks.threads:
        console.print()
        _print_thread(thread, stacks, console)
    if stacks.pause_seconds is not None:
        console.print()
        print_pause(stacks.pause_seconds, console)
    print_notices(stacks.notices, console)


def _print_thread(thread: PythonThread, stacks: PythonStacks, console: Console) -> None:
    several = any(one.interpreter for one in stacks.threads)
    print_sentence(console, thread_title(thread, main=thread.tid == stacks.pid, several=several))
    if not thread.frames:
        console.print("  no Python frame")
    for number, call in enumerate(thread.frames):
        console.print(f"  #{number:<3} {call_text(call)}", soft_wrap=True)
    if not thread.is_whole:
        console.print("  … the rest could not be read")


def thread_title(thread: PythonThread, *, main: bool, several: bool) -> str:
    """Return the title of *thread*; *several*: there is more than one interpreter."""
    words = ["thread", str(thread.tid) if thread.tid is not None else "of unknown number"]
    if thread.name:
        words.append(printable(thread.name))
    about = ["main"] if main else []
    if several:
        about.append(f"interpreter {thread.interpreter}")
    if thread.system_call is not None:
        about.append(f"waits in {call_name(thread.system_call)}")
    return " ".join(words) + (f" ({', '.join(about)})" if about else "")


def call_text(call: PythonCall) -> str:
    """Return function, file and line of *call*."""
    line = "" if call.line is None else f":{call.line}"
    return f"{printable(call.function) or '<unread>'}  {printable(call.file) or '<unread>'}{line}"


def stacks_json(stacks: PythonStacks) -> str:
    """Return *stacks* as ``kind=python-stack``; frames run from the innermost outward."""
    document: Document = {
        **head("python-stack", stacks.notices),
        **as_json(stacks, "program", "pid", "pause_seconds", "native_threads"),
        "threads": [_thread(one) for one in stacks.threads],
    }
    return to_json(document)


def _thread(thread: PythonThread) -> Document:
    own, native = ("function", "file", "line"), {"object": None, "inlined": False}
    frames = [{**as_json(one, *own), **native, **as_json(one, "is_entry")} for one in thread.frames]
    return {**as_json(thread, "tid", "name", "interpreter", "system_call", "is_whole"), "frames": frames}
