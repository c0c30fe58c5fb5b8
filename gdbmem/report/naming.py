"""Frames and numbers for text reports: short function names, places, deltas, shares."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Optional

from gdbmem.analysis.profiles.sites import has_place_only, place_without_file, plain_strings, short_file
from gdbmem.model.profiles.calltree import Frame
from gdbmem.model.profiles.snapshot import LATER
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.analysis.profiles.ranking import Row


class Places:
    """File names as short as they stay distinct: ``decoder.cpp:120``, or ``a/io.cpp:3`` beside ``b/io.cpp:3``."""

    def __init__(self, frames: Iterable[Optional[Frame]]) -> None:
        self._folders: dict[str, set[str]] = {}
        for frame in frames:
            if frame is not None and frame.file is not None:
                self._folders.setdefault(PurePosixPath(frame.file).name, set()).add(frame.file)

    def place(self, frame: Frame) -> str:
        """Return where *frame* is: ``file:line``, or ``in libx.so``."""
        if frame.file is None:
            return place_without_file(frame)
        name = printable(self._short(frame.file))
        return name if frame.line is None else f"{name}:{frame.line}"

    def _short(self, file: str) -> str:
        parts = PurePosixPath(file).parts
        others = [
            PurePosixPath(o).parts for o in self._folders.get(parts[-1] if parts else "", ()) if o != file
        ]
        for count in range(len(PurePosixPath(short_file(file)).parts), len(parts)):
            if all(other[-count:] != parts[-count:] for other in others):
                return str(PurePosixPath(*parts[-count:]))
        return file


def full_place(frame: Frame) -> str:
    """Return where *frame* is with the whole path of its file."""
    if frame.file is None:
        return f"in {printable(frame.object)}" if frame.object else "no source known"
    return printable(frame.file if frame.line is None else f"{frame.file}:{frame.line}")


def full_function(frame: Frame) -> str:
    """Return the function of *frame* with its parameters, as in its symbol."""
    return plain_strings(printable(frame.function or ("" if has_place_only(frame) else "???")))


def unlisted_site(row: Row) -> str:
    """Return the label for the place of *row* without a known frame."""
    if not row.is_pruned:
        return "no frame recorded"
    return (
        "call sites that the file leaves out" if row.is_cut else "call sites under the threshold, not listed"
    )


def unlisted_callers(row: Row) -> str:
    """Return the label for the unlisted callers of *row*'s last frame."""
    return "callers that the file leaves out" if row.is_cut else "callers under the threshold, not listed"


def outside_row(name: str) -> str:
    """Return the text of the row for memory in no call tree; *name* is that of an OutsideHeap (model.profiles.diff)."""
    return name if name == LATER else f"{name}, outside the heap"


def share(part: int, whole: int) -> str:
    """Return ``98 %`` or ``all``; 100 % and 0 % never result from rounding."""
    if part == whole:
        return "all"
    percent = 100 * part / whole
    if percent > 99:
        return "over 99 %"
    return f"{percent:.0f} %" if percent >= 1 else "under 1 %"
