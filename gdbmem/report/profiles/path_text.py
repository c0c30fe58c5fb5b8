"""One call path in a table's cell: the user's own line with its source, and its callers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbmem.analysis.profiles.own_code import OTHER, OWN, own_frame, own_rank
from gdbmem.model.profiles.calltree import Frame
from gdbmem.report import drawing
from gdbmem.report.naming import Places, full_function

if TYPE_CHECKING:
    from gdbmem.report.source import SourceLines

_CALLERS = 4


def path_text(frames: Sequence[Frame], sources: SourceLines) -> drawing.Text:
    """Return *frames*, from the allocation outward, from the user's own innermost one on."""
    places = Places(frames)
    text = drawing.Text()
    for number, frame in enumerate(_shortened(_listed(frames))):
        if number == 0:
            text.append(f"{places.place(frame)}  ", "bold")
            text.append(full_function(frame))
            line = sources.highlighted_line(frame.file, frame.line)
            if line is not None:
                text.append("\n    ")
                text.append(line)
        else:
            text.append(f"\n  {places.place(frame)}  {full_function(frame)}", "dim")
    return text


def _listed(frames: Sequence[Frame]) -> list[Frame]:
    """Return the user's own innermost frame and its callers, without a library's in between."""
    first = max(own_frame(frames), 0)
    own, callers = frames[first], frames[first + 1 :]
    if any(map(_is_python, callers)):
        # The frames between C and Python are the interpreter and its libraries, such as libffi.
        callers = [frame for frame in callers if own_rank(frame) == OWN]
    elif own_rank(own) != OTHER:
        callers = [frame for frame in callers if own_rank(frame) != OTHER]
    return [own, *callers]


def _shortened(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return the first of *frames*; the innermost two Python frames replace the last ones."""
    first = frames[: 1 + _CALLERS]
    python = next((number for number, frame in enumerate(frames) if _is_python(frame)), 0)
    of_python = frames[python : python + 2] if python >= len(first) - 1 and python else ()
    return [*first[: 1 + _CALLERS - len(of_python)], *of_python] if of_python else first


def _is_python(frame: Frame) -> bool:
    return frame.file is not None and frame.file.endswith(".py")
