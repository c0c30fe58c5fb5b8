"""The call path of the selected thread."""

from __future__ import annotations

from typing import Optional

import gdb

from gdbmem.analysis.profiles.own_code import own_frame
from gdbmem.debugger.gdb_text import library_at, source_file
from gdbmem.debugger.location import current_place, frame_place
from gdbmem.debugger.python.call_paths import beside, in_python, python_place
from gdbmem.model.profiles.calltree import Frame

_DEEPEST = 48


def own_place() -> Optional[str]:
    """Return the innermost place in the user's own code, by the rules of reports, and its function.

    Python's is named beside that of native code that it called.
    """
    try:
        frames = newest_frames()
        native = [described(frame) for frame in frames]
        python, newest = python_place(), frames[0].name()
        if python and in_python(frames, native):
            return f"{python} (in {newest})" if newest else python
        own = frames[max(own_frame(native), 0)]
        within = f" (in {newest})" if newest and own.name() != newest else ""
        return beside(frame_place(own) + within, python)
    except (gdb.error, IndexError):
        return current_place()


def newest_frames() -> list[gdb.Frame]:
    """Return the frames of the selected thread, innermost first, up to the length of a listed path."""
    frames: list[gdb.Frame] = []
    frame = gdb.newest_frame()
    while frame is not None and len(frames) < _DEEPEST:
        frames.append(frame)
        frame = frame.older()
    return frames


def described(frame: gdb.Frame) -> Frame:
    """Return *frame* in the form used by reports."""
    position = frame.find_sal()
    file = source_file(position.symtab)
    library = None if file else library_at(frame.pc())
    line = position.line if file else None
    return Frame(frame.name(), file, line, library, frame.type() == gdb.INLINE_FRAME)
