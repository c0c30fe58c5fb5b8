"""Allocation wrappers: functions that only allocate for many callers; the answer should name the callers."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Optional

from gdbmem.model.calltree import Frames, Names
from gdbmem.model.diff import Diff
from gdbmem.profiles.own_code import NAMELESS, OTHER, WRAPPER, is_allocator, is_copy_name, own_ranks

MANY_CALLERS = 8  # number of callers from which a function that only allocates is a wrapper
_CALLERS_OF_NAMED = 2  # the same if "alloc" is in its name
_WHOLE = 0.9  # the least fraction of a function's bytes that it requests itself from the allocator
_DEEPEST = 6  # wrappers of wrappers
_NAMED = re.compile("alloc", re.IGNORECASE)


def find_wrappers(diff: Diff) -> set[str]:
    """Return the names of the functions in *diff* that are allocation wrappers.

    Those with an allocator's name; and those that request at least 90 % of their bytes from an allocator or another
    wrapper, and are called by MANY_CALLERS functions, or by two if "alloc" is in their name. Calls through which no
    bytes came do not count, so that the answer for two snapshots is the same beside others. A page's script finds the
    same (``web/wrappers.js``).
    """
    return _WrapperSearch(diff).wrappers


def named_wrappers(diff: Diff) -> set[str]:
    """Return the functions in *diff* that have an allocator's name."""
    ranks = ranks_of(diff)
    if WRAPPER not in ranks:
        return set()
    functions = Frames.of(diff.frames).functions
    found = {f for f, rank in zip(functions, ranks) if rank == WRAPPER} - {None}
    return {function for function in found if function and not is_copy_name(function)}


def allocator_frames(diff: Diff) -> set[int]:
    """Return the numbers of the frames in *diff* that are an allocator."""
    ranks, functions = ranks_of(diff), Frames.of(diff.frames).functions
    others = enumerate(ranks) if OTHER in ranks else ()
    allocators = {number for number, rank in others if rank == OTHER}
    return {number for number in allocators if is_allocator(functions[number] or "")}


def nameless_frames(diff: Diff) -> set[int]:
    """Return the numbers of the frames in *diff* for which ``Frame.is_nameless`` holds."""
    ranks, frames = ranks_of(diff), Frames.of(diff.frames)
    if NAMELESS not in ranks and OTHER not in ranks:
        return set()
    candidates = [number for number, rank in enumerate(ranks) if rank in (NAMELESS, OTHER)]
    return {number for number in candidates if frames[number].is_nameless}


def has_alloc_in_name(function: str) -> bool:
    """Return whether two callers suffice for *function* to be a wrapper."""
    return _NAMED.search(function) is not None


def ranks_of(diff: Diff) -> Sequence[int]:
    """Return the rank of analysis.own_code of each frame of *diff*, found once."""
    found = diff.memo.get("ranks")
    if found is None:
        found = diff.memo["ranks"] = own_ranks(Frames.of(diff.frames))
    ranks: Sequence[int] = found
    return ranks


class _WrapperSearch:
    def __init__(self, diff: Diff) -> None:
        self.diff = diff
        self.ranks = ranks_of(diff)
        self.functions = Frames.of(diff.frames).functions
        self.nameless = nameless_frames(diff)
        self.wrappers = named_wrappers(diff)
        columns = [column for column in (diff.before, diff.after, *diff.course) if any(column)]
        held = map(any, zip(*columns)) if len(columns) != 1 else map(bool, columns[0])
        self._is_held = bytes(held) or bytes(len(diff))
        tops = self._tops()
        for turn in range(_DEEPEST):
            tops = self._beyond(tops, nameless=turn > 0)
            found = self._called_by_many(tops, any_name=turn == 0)
            if not found and (turn or not self.nameless):
                break
            self.wrappers = self.wrappers | found

    def _function(self, node: int) -> Optional[str]:
        number = self.diff.frame[node]
        return self.functions[number] if number >= 0 else None

    def _tops(self) -> list[int]:
        # The nodes that call an allocator itself.
        parent, frame = self.diff.parent, self.diff.frame
        allocators = allocator_frames(self.diff)
        is_inner = bytearray(len(frame))
        is_inner[0] = 1
        for node in [node for node, number in enumerate(frame) if number in allocators] if allocators else ():
            is_inner[node] = is_inner[parent[node]]
        held = self._is_held
        return [
            node for node, above in enumerate(parent) if is_inner[above] and not is_inner[node] and held[node]
        ]

    def _children(self, nodes: set[int]) -> list[tuple[int, int]]:
        held = self._is_held
        return [
            (node, parent) for node, parent in enumerate(self.diff.parent) if parent in nodes and held[node]
        ]

    def _beyond(self, tops: list[int], *, nameless: bool) -> list[int]:
        # The same nodes, those of wrappers (and of nameless functions) replaced by their callers.
        through = set(self.nameless) if nameless else set()
        if self.wrappers:
            through |= {number for number, function in enumerate(self.functions) if function in self.wrappers}
        frame = self.diff.frame
        for _ in range(_DEEPEST if through else 0):
            passed = {node for node in tops if frame[node] in through}
            if not passed:
                break
            tops = [node for node in tops if node not in passed]
            tops += [node for node, _ in self._children(passed)]
        return tops

    def _called_by_many(self, tops: Sequence[int], *, any_name: bool) -> set[str]:
        direct: dict[str, int] = {}
        for node in self._called_often(tops):
            function = self._function(node)
            if function is None or self.ranks[self.diff.frame[node]] == OTHER:
                continue
            if any_name or has_alloc_in_name(function):
                direct[function] = direct.get(function, 0) + self._bytes(node)
        if not direct:
            return set()
        wanted = {node for node in tops if self._function(node) in direct}
        callers = self._callers(wanted)
        enough = {f for f, found in callers.items() if len(found) >= _least_callers(f)}
        return {f for f, size in self._totals(enough).items() if direct[f] >= _WHOLE * size}

    def _called_often(self, tops: Sequence[int]) -> Sequence[int]:
        # Without functions that can't have enough callers. One nameless caller may represent many.
        frame, functions = self.diff.frame, self.functions
        is_top = bytearray(len(frame))
        for node in tops:
            is_top[node] = frame[node] >= 0
        # The root is none, nor is the last node.
        called = array("i", (frame[above] for above in self.diff.parent if is_top[above]))
        names: Sequence[object] = called if isinstance(functions, Names) else [functions[n] for n in called]
        least = 1 if self.nameless else _CALLERS_OF_NAMED
        if least > 1 and len(set(names)) == len(names):  # as in the largest files
            return ()
        callers = Counter(functions[number] for number in called)
        enough = {function for function, count in callers.items() if count >= least}
        return (
            [node for node in tops if frame[node] >= 0 and functions[frame[node]] in enough] if enough else ()
        )

    def _callers(self, nodes: set[int]) -> dict[str, set[str]]:
        # The named functions that call those of *nodes*, also through nameless ones.
        found: dict[str, set[str]] = {}
        called = {node: self._function(node) or "" for node in nodes}
        for _ in range(_DEEPEST):
            if not called:
                break
            further: dict[int, str] = {}
            for node, parent in self._children(set(called)):
                caller, function = self._function(node), called[parent]
                if self.diff.frame[node] in self.nameless:
                    further[node] = function
                elif caller is not None and caller != function:
                    found.setdefault(function, set()).add(caller)
            called = further
        return found

    def _bytes(self, node: int) -> int:
        return max(self.diff.before[node], self.diff.after[node])

    def _totals(self, functions: set[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        wanted = [function in functions for function in self.functions]
        for node, number in enumerate(self.diff.frame) if functions else ():
            if number >= 0 and wanted[number]:
                function = self.functions[number] or ""
                found[function] = found.get(function, 0) + self._bytes(node)
        return found


def _least_callers(function: str) -> int:
    return _CALLERS_OF_NAMED if has_alloc_in_name(function) else MANY_CALLERS
