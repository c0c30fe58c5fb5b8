"""Merging the Python frames of a thread with its native ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from gdbmem.model.calltree import Frame

if TYPE_CHECKING:
    from gdbmem.model.python import PythonCall

_LOOP = "_PyEval_EvalFrameDefault"  # the interpreter's loop, in all versions since 3.6
_INTERFACE = ("_Py", "Py", "vectorcall", "cfunction_", "method_vectorcall", "object_vacall")
INTERPRETER = "interpreter"  # the object of a frame that represents several of the interpreter's own


def interleave(
    native: Sequence[Frame], calls: Sequence[PythonCall], stack_pointers: Sequence[int], *, fold: bool = True
) -> list[Frame]:
    """Return the frames of one thread, innermost first: Python frames in place of the interpreter's loop.

    A native frame is the loop if the interpreter's record of its entry is in it (since 3.12, and with *stack_pointers*,
    one for each of *native*), else by its name: a compiler may inline the loop into its caller, or make each
    instruction a separate function. It corresponds to one Python frame called from C and those that this one called in
    the loop itself. With *fold* the interpreter's other frames become one, which names the function that Python called.
    Python frames for which no loop was found come last, so that none is lost.
    """
    left = list(calls)
    found: list[Frame] = []
    own: list[Frame] = []  # of the interpreter, not yet folded
    loops = _loops(native, calls, stack_pointers)
    for number, frame in enumerate(native):
        if number in loops:
            found += _folded(own)
            own = []
            entered = list(_through_entry(left))
            del left[: len(entered)]
            found += [as_frame(call) for call in entered] or [frame]
        elif fold and is_interpreters(frame):
            own.append(frame)
        else:
            found += [*_folded(own), frame]
            own = []
    return [*found, *_folded(own), *(as_frame(call) for call in left)]


def _loops(native: Sequence[Frame], calls: Sequence[PythonCall], stack_pointers: Sequence[int]) -> set[int]:
    """Return which of the native frames are the interpreter's loop."""
    entered = [one.entered_at for one in calls if one.is_entry and one.entered_at is not None]
    found = {
        number
        for number, (lowest, end) in enumerate(zip(stack_pointers, stack_pointers[1:]))
        if any(lowest <= at < end for at in entered)
    }
    return found or {number for number, frame in enumerate(native) if is_loop(frame)}


def is_loop(frame: Frame) -> bool:
    """Return whether *frame* is the interpreter's loop, or a part of it that the compiler moved away."""
    return frame.function is not None and frame.function.partition(".")[0] == _LOOP and not frame.inlined


def is_interpreters(frame: Frame) -> bool:
    """Return whether *frame* is in the file of the interpreter itself."""
    name = (frame.object or "").rpartition("/")[2]
    return name.startswith(("libpython", "python")) and not name.endswith(".py")


def _through_entry(calls: Sequence[PythonCall]) -> Iterator[PythonCall]:
    for call in calls:
        yield call
        if call.is_entry:
            return


def as_frame(call: PythonCall) -> Frame:
    return Frame(call.function or None, call.file or None, call.line)


def fold_interpreter(frames: Sequence[Frame]) -> list[Frame]:
    """Return *frames* with one frame in place of several consecutive ones of the interpreter itself."""
    found: list[Frame] = []
    for inside, run in groupby(frames, is_interpreters):
        these = list(run)
        found += _folded(these) if inside else these
    return found


def _folded(frames: Sequence[Frame]) -> list[Frame]:
    if len(frames) < 2:
        return list(frames)
    count = f"{len(frames)} frames of the interpreter"
    names = [one.function for one in frames if one.function and not one.is_nameless]
    # The function that Python calls is more informative than the interface that it is called through.
    name = next((one for one in names if not one.startswith(_INTERFACE)), names[0] if names else None)
    return [Frame(f"{name} … ({count})" if name else count, None, None, INTERPRETER)]
