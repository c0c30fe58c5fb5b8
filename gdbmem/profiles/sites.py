"""Allocation sites: their growth, and their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Optional, TypeVar, Union

from gdbmem.model.calltree import Frame
from gdbmem.model.snapshot import LATER
from gdbmem.profiles.own_code import OWN, own_rank, qualified_name
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.formats.stacks import Stack
    from gdbmem.profiles.ranking import Row


Key = TypeVar("Key")
SiteKey = tuple[Optional[str], Optional[str], Optional[int], Optional[str]]  # as Frame.key

_NAME_ROOM = 60
_OF_EVERY_PACKAGE = ("__init__.py", "__main__.py")
_OPERATOR = re.compile(r"\boperator\b(?![^<]*::)")
_STRING = re.compile(
    r"std::(?:__cxx11::)?basic_string<char, std::char_traits<char>, std::allocator<char> ?>|std::__cxx11::string"
)


def growing_site(before: Mapping[Key, int], after: Mapping[Key, int]) -> Optional[tuple[Key, int]]:
    """Return the key whose bytes grew most from *before* to *after*, and by how much; None: none grew."""
    best: Optional[tuple[Key, int]] = None
    for key, size_bytes in after.items():
        delta_bytes = size_bytes - before.get(key, 0)
        if delta_bytes > (best[1] if best else 0):
            best = (key, delta_bytes)
    return best


def stack_sites(stacks: Iterable[Stack], chains: Sequence[Sequence[Frame]]) -> dict[SiteKey, int]:
    """Return the bytes of each user site in *stacks*, whose numbers refer to *chains* of frames.

    The site of a stack is chosen by `analysis.profiles.own_code.own_frame`.
    """
    found: dict[SiteKey, int] = {}
    for stack in stacks:
        site, best = Frame().key, -1
        for frame in (frame for number in stack.frames for frame in chains[number]):
            rank = own_rank(frame)
            if rank > best:
                site, best = frame.key, rank
            if best == OWN:
                break
        found[site] = found.get(site, 0) + stack.bytes
    return found


def describe_site(site: Union[Frame, SiteKey]) -> str:
    """Return ``decoder.cpp:120 (Decoder::remember)``, or ``sqlite3Malloc (in libsqlite3.so)`` without a file.

    *site* is a frame or its key.
    """
    frame = site if isinstance(site, Frame) else Frame(*site)
    if frame.key == Frame().key:
        return "call sites that are not listed"
    name = function_name(frame, room=_NAME_ROOM)
    if frame.file is None:
        return f"{name} ({place_without_file(frame)})"
    if has_place_only(frame):
        return name
    file = printable(short_file(frame.file))
    in_brackets = name if name.startswith("(") and name.endswith(")") else f"({name})"  # "(below main)"
    return f"{file if frame.line is None else f'{file}:{frame.line}'} {in_brackets}"


def place_without_file(frame: Frame) -> str:
    """Return ``in libx.so`` for a frame that has no source file."""
    return f"in {printable(PurePosixPath(frame.object).name)}" if frame.object else "no source known"


def function_name(frame: Frame, *, room: int = 0, ellipsis: str = "…") -> str:
    """Return the name of *frame*'s function without parameters, in *room* columns if given.

    A frame with a place only, as in tracemalloc, is named by that.
    """
    if frame.function is None:
        return f"{printable(short_file(frame.file or ''))}:{frame.line}" if has_place_only(frame) else "???"
    name = plain_strings(printable(qualified_name(frame.function)))
    if room and len(name) > room:
        name = _without_template_arguments(name, ellipsis)
    if room and len(name) > room:
        kept = max(room, 8) - 1
        # A name that could not be demangled begins with the function's name; others end with it.
        name = name[:kept] + ellipsis if name.startswith("_Z") else ellipsis + name[-kept:]
    return name


def has_place_only(frame: Frame) -> bool:
    """Return whether *frame* has a line and no function, as those of tracemalloc."""
    return frame.function is None and frame.file is not None and frame.line is not None


def short_file(file: str) -> str:
    """Return the last part of *file*; with its folder for names that occur in every Python package."""
    parts = PurePosixPath(file).parts
    return str(PurePosixPath(*parts[-2 if parts and parts[-1] in _OF_EVERY_PACKAGE else -1 :]))


def plain_strings(name: str) -> str:
    """Return *name* with the full type of std::string abbreviated."""
    return _STRING.sub("std::string", name)


def _without_template_arguments(name: str, ellipsis: str) -> str:
    # The brackets in "operator<" are not a template's.
    operator = _OPERATOR.search(name)
    end = operator.start() if operator else len(name)
    depth, kept = 0, []
    for char in name[:end]:
        if char == "<":
            depth += 1
            if depth == 1:
                kept.append(f"<{ellipsis}>")
        elif char == ">":
            depth -= 1
        elif depth == 0:
            kept.append(char)
    return "".join(kept) + name[end:]


# Frames and numbers for text reports: short function names, places, deltas, shares.


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
