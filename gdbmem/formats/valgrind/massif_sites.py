"""Bytes per line of the user's own code, from a massif snapshot that was just written, without its tree."""

from __future__ import annotations

import re
from typing import Callable, NamedTuple, Optional

from gdbmem.errors import InputError
from gdbmem.formats.valgrind.massif_tree import UnknownTextError, read_node_text
from gdbmem.model.profiles.calltree import Frame
from gdbmem.patterns import lazy_pattern

FrameKey = tuple[Optional[str], Optional[str], Optional[int], Optional[str]]

UNKNOWN_SITE: FrameKey = Frame().key  # bytes of which not even the allocation site is listed

_TREE = lazy_pattern(rb"^heap_tree=(?:detailed|peak)\n", re.MULTILINE)
_LINE = lazy_pattern(rb" *n([0-9]{1,18}): ([0-9]{1,18}) (.*)\n")


_PRUNED, _LIBRARY = 0, 1  # ranks below those of the user's own frames


class _Site(NamedTuple):
    key: FrameKey
    rank: int  # of those that the caller's function gives, or _PRUNED


class _Sites(dict[bytes, _Site]):
    """Node text → the site it is."""

    def __init__(self, rank: Callable[[Frame], int]) -> None:
        super().__init__()
        self._rank = rank
        self._places: dict[bytes, _Site] = {}  # the same, without the address: far fewer

    def __missing__(self, text: bytes) -> _Site:
        address, _, place = text.partition(b": ")
        is_named = address.startswith(b"0x") and not place.startswith(b"???")
        known = self._places.get(place) if is_named else None
        site = self[text] = self._places[place] = known or self._read(text)
        return site

    def _read(self, text: bytes) -> _Site:
        frame = read_node_text(text).frame
        if frame is None:
            return _Site(UNKNOWN_SITE, _PRUNED)
        return _Site(frame.key, self._rank(frame))


def read_sites(data: bytes, rank: Callable[[Frame], int], *, own: int) -> dict[FrameKey, int]:
    """Return the bytes of each user site in the first tree of *data*; they add up to the tree's.

    A user site is the first frame on a path, from the allocation outward, with the highest *rank*. 0 is the lowest, a
    library's: merged places below those only are UNKNOWN_SITE. *own* is the highest: what lies below is not parsed.
    Raises InputError when there is no tree or when it ends early.
    """
    if data.find(b"\r\n", 0, 4096) >= 0:
        data = data.replace(b"\r\n", b"\n")
    start = _TREE.search(data)
    root = _LINE.match(data, start.end()) if start is not None else None
    if root is None:
        raise _cut("holds no tree")
    try:
        return _descend(data, root, _Sites(rank), own)
    except UnknownTextError as error:
        raise _bad(f"is not one of massif's: {error}") from None


def _descend(data: bytes, root: re.Match[bytes], sites: _Sites, own: int) -> dict[FrameKey, int]:
    found: dict[FrameKey, int] = {}
    # Level by level: children still to come, bytes that no child has claimed yet, and the best site so far.
    children, unclaimed, bests = [int(root[1])], [int(root[2])], [_Site(UNKNOWN_SITE, _PRUNED)]
    at = root.end()
    while children:
        if not children[-1]:
            children.pop()
            rest, best = unclaimed.pop(), bests.pop()
            if rest < 0:
                raise _bad("holds less than its children")
            if rest:
                found[best.key] = found.get(best.key, 0) + rest
            continue
        depth = len(children)
        match = _LINE.match(data, at)
        if match is None or match.start(1) != at + depth + 1:
            # Between here and the next child is what lies below a site.
            at = data.find(b"\n" + b" " * depth + b"n", at) + 1
            match = _LINE.match(data, at) if at else None
            if match is None:
                raise _cut("ends within its tree")
        at = match.end()
        digits, size_digits, text = match.groups()
        count, size = int(digits), int(size_digits)
        site, best = sites[text], bests[-1]
        if site.rank <= best.rank and not (site.rank == _PRUNED and best.rank == _LIBRARY):
            site = best
        children[-1] -= 1
        unclaimed[-1] -= size
        if count and site.rank != own:
            children.append(count)
            unclaimed.append(size)
            bests.append(site)
        else:
            found[site.key] = found.get(site.key, 0) + size
    return found


def _cut(what: str) -> InputError:
    return InputError(f"the snapshot {what}", slug="massif-truncated", hint="is the disk full?")


def _bad(what: str) -> InputError:
    return InputError(f"a node of the snapshot's tree {what}", slug="massif-unknown-line")
