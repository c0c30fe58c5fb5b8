"""What the path of each node of a diff is: whose frames it has, which regexes it matches, what it is folded to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gdbmem.analysis.library import NAMELESS, OWN, is_library, own_rank
from gdbmem.analysis.query import Query, frame_text
from gdbmem.model.calltree import PRUNED, Frame
from gdbmem.model.diff import Diff

FOCUSED, IGNORED, KNOWN_PATH = 1, 2, 4
_NOBODY = -1  # the rank of a frame that is hidden, and of no frame


@dataclass(frozen=True)
class Walk:
    """Columns over the nodes of a diff, and over its frames."""

    diff: Diff
    site: Sequence[int]  # node of the user's own innermost frame; 0: none
    marks: Sequence[int]  # FOCUSED, IGNORED, KNOWN_PATH of the whole path; empty where nothing is looked for
    origin: Sequence[int]  # node at which the uncertainty begins; empty where all is certain
    hidden: Sequence[bool]  # of each frame: no row may show it
    left_out: Sequence[bool]  # of each frame: hidden, or folded as the library's

    @cached_property
    def folded(self) -> Sequence[int]:
        """For each node, the number of the path of the frames that are shown; 0: it has none."""
        return _folded(self.diff, self.left_out)


def walk(diff: Diff, query: Query) -> Walk:
    """Return the Walk of *diff* that *query* asks for, made once for all groupings."""
    key = (query.hide, query.all_frames, query.focus, query.ignore, tuple(query.known))
    found = diff.memo.get(key)
    if found is None:
        found = diff.memo[key] = _walk(diff, query)
    assert isinstance(found, Walk)
    return found


def _walk(diff: Diff, query: Query) -> Walk:
    hidden = [_is_hidden(frame, query) for frame in diff.frames]
    left_out = [
        out or (is_library(frame) and not query.all_frames) for frame, out in zip(diff.frames, hidden)
    ]
    return Walk(
        diff=diff,
        site=_sites(diff, hidden),
        marks=_marks(diff, query) if query.filters or query.known else (),
        origin=_origins(diff) if any(diff.uncertain) else (),
        hidden=hidden,
        left_out=left_out,
    )


def _is_hidden(frame: Frame, query: Query) -> bool:
    if frame.is_size_class:
        return True
    return query.hide is not None and query.hide.search(frame_text(frame)) is not None


def _sites(diff: Diff, hidden: Sequence[bool]) -> list[int]:
    quality = [_NOBODY if out else own_rank(frame) for frame, out in zip(diff.frames, hidden)]
    site, best = [0], [_NOBODY]
    rows = enumerate(zip(diff.parent, diff.frame))
    next(rows)
    for node, (parent, frame) in rows:
        above, best_above = site[parent], best[parent]
        if best_above != OWN and frame >= 0 and quality[frame] > best_above:
            above, best_above = node, quality[frame]
        elif frame < 0 and best_above < NAMELESS:
            above, best_above = 0, _NOBODY  # a library's frame is no place to name for what is not listed
        site.append(above)
        best.append(best_above)
    return site


def _folded(diff: Diff, left_out: Sequence[bool]) -> list[int]:
    folded = [0] * len(diff)
    index: dict[int, int] = {}
    stride = len(diff.frames) + 2
    rows = enumerate(zip(diff.parent, diff.frame))
    next(rows)
    for node, (parent, frame) in rows:
        above = folded[parent]
        if frame != PRUNED and left_out[frame]:
            folded[node] = above
        else:
            folded[node] = index.setdefault(above * stride + frame + 2, len(index) + 1)
    return folded


def _marks(diff: Diff, query: Query) -> bytearray:
    frame_marks = [_frame_marks(frame, query) for frame in diff.frames]
    marks = bytearray(len(diff))
    for node in range(1, len(diff)):
        frame = diff.frame[node]
        marks[node] = marks[diff.parent[node]] | (frame_marks[frame] if frame >= 0 else 0)
    return marks


def _frame_marks(frame: Frame, query: Query) -> int:
    if frame.is_size_class:
        return 0
    text = frame_text(frame)
    focused = FOCUSED if query.focus is not None and query.focus.search(text) else 0
    ignored = IGNORED if query.ignore is not None and query.ignore.search(text) else 0
    known = KNOWN_PATH if any(pattern.search(text) for pattern in query.known) else 0
    return focused | ignored | known


def _origins(diff: Diff) -> list[int]:
    origin = list(range(len(diff)))
    for node in range(1, len(diff)):
        parent = diff.parent[node]
        if diff.uncertain[parent]:
            origin[node] = origin[parent]
    return origin
