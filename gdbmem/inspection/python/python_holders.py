"""Finding the referrers of the objects of one type, up to modules, frames and variables."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from gdbmem.allocators.cpython.arenas import PythonArena
from gdbmem.allocators.cpython.blocks import Blocks, Unsure, live_blocks
from gdbmem.allocators.cpython.large_blocks import large_blocks
from gdbmem.allocators.cpython.nodes import Nodes, collect_nodes
from gdbmem.allocators.cpython.objects import ObjectCounter
from gdbmem.allocators.cpython.reach import Reach
from gdbmem.allocators.cpython.references import References, bases, find_references
from gdbmem.allocators.cpython.types import IS_DICT, IS_TYPE, PythonType, Types
from gdbmem.analysis.ledger.ledger import ProcessImage
from gdbmem.analysis.python_paths import Kinds, Paths, PathSums, direct_holders, merge_alike, sum_paths
from gdbmem.arrays import import_numpy
from gdbmem.errors import InputError, Notice
from gdbmem.inspection.python.python_labels import Labels
from gdbmem.inspection.python.python_questions import about_python, check_python, no_arenas
from gdbmem.inspection.python.python_roots import KindOfRoot, frame_title, frames_of, other_roots
from gdbmem.linux.memory.pages import Ranges
from gdbmem.model.ledger.ledger import Ledger
from gdbmem.model.memory import Memory
from gdbmem.model.python import (
    ROOT_FRAME,
    ROOT_MODULE,
    ROOT_VARIABLES,
    HolderPath,
    HolderStep,
    PythonHolders,
    Referrer,
    TypeUse,
)
from gdbmem.records import dataclass, field, replace
from gdbmem.text import plural, printable
from gdbmem.units import format_size

_SECONDS = 60.0  # for following references
_MOST_PATHS = 200  # number of named ones
_MOST_STEPS = 40  # named steps of a path
_CONTAINERS = frozenset({"dict", "list", "tuple", "set"})


@dataclass
class FindHolders:
    """The query; called with the data read from the process."""

    type: str
    unsure: Unsure = field(default_factory=Unsure)
    found: Optional[PythonHolders] = None

    def __call__(self, reading: ProcessImage, memory: Memory) -> None:
        arenas = reading.others.python.arenas
        check_python(reading.mappings, reading.pid, None if arenas else memory)
        counter = ObjectCounter(memory, reading.mappings, arenas)
        nodes = collect_nodes(counter.sorted_by_type(self._blocks(reading, memory)))
        if not arenas and not len(nodes.types):
            raise no_arenas(reading, memory)
        wanted = _wanted(self.type, nodes)
        search = _HolderSearch(reading, memory, nodes, _taken(reading, arenas), wanted)
        self.found = search.answer()

    def _blocks(self, reading: ProcessImage, memory: Memory) -> Iterator[Blocks]:
        yield from live_blocks(memory, reading.others.python.arenas, self.unsure)
        heap = reading.heap
        if heap is not None and heap.is_used and not reading.others.replacement:
            yield from large_blocks(memory, heap, every=True)

    def result(self, ledger: Ledger) -> PythonHolders:
        """Return the answer; *ledger* is of the same process at the same moment."""
        found = self.found
        assert found is not None, "the question was not asked"
        notices = [*about_python(ledger), *_notices(found, self.unsure)]
        return replace(
            found,
            program=ledger.program,
            pid=ledger.pid,
            pause_seconds=ledger.pause_seconds,
            notices=notices,
        )


def _notices(found: PythonHolders, unsure: Unsure) -> list[Notice]:
    texts = []
    if found.unsearched_bytes:
        texts.append(f"{format_size(found.unsearched_bytes)} could not be searched for references")
    if found.is_cut:
        texts.append("not all references were followed within a minute: objects without a path may have one")
    if unsure.blocks:
        texts.append(f"{plural(unsure.blocks, 'block')} in inconsistent pools are left out")
    return [Notice("python-holders-incomplete", text) for text in texts]


def _taken(reading: ProcessImage, arenas: Sequence[PythonArena]) -> Ranges:
    """Return the memory that contains blocks: arenas of Python, and malloc's regions."""
    areas = [(one.address, one.end) for one in arenas]
    if reading.heap is not None:
        areas += [(one.start, one.end) for one in reading.heap.mmapped]
        areas += [(t.start, t.stopped_at) for a in reading.heap.arenas for t in a.tallies]
    return Ranges(areas)


def _wanted(name: str, nodes: Nodes) -> list[int]:
    """Return the numbers of the types that *name* matches. Raises InputError if there is no live object of them."""
    np = import_numpy()
    counts = np.bincount(nodes.kinds[nodes.kinds >= 0], minlength=len(nodes.types))
    alive = [(number, one.name) for number, one in enumerate(nodes.types) if counts[number]]
    for is_meant in (
        lambda one: one == name,
        lambda one: one.endswith("." + name),
        lambda one: name.endswith("." + one),
    ):
        numbers = [number for number, one in alive if is_meant(one)]
        if numbers:
            return numbers
    near = difflib.get_close_matches(name, {one for _, one in alive}, 3, 0.6)
    hint = (
        f"did you mean {', '.join(printable(one) for one in near)}?"
        if near
        else "'gdbmem python objects PID' lists the types"
    )
    raise InputError(
        f"no live object of type '{printable(name)}' was found", slug="python-no-such-type", hint=hint
    )


class _HolderSearch:
    """One search, from the nodes to the answer."""

    def __init__(
        self, reading: ProcessImage, memory: Memory, nodes: Nodes, taken: Ranges, wanted: Sequence[int]
    ) -> None:
        np = import_numpy()
        self._memory, self._nodes, self._wanted = memory, nodes, wanted
        frames = frames_of(memory, reading.mappings)
        self._groups = other_roots(reading, frames, taken)
        self._modules = nodes.of_types([n for n, one in enumerate(nodes.types) if self._is_module(one)])
        old = [one for one in frames if not one.locals_at]
        found = nodes.find(np.array([one.address for one in old], np.int64))
        self._frames = {int(node): frame_title(one) for node, one in zip(found, old) if node >= 0}
        self._located = [one for one in frames if one.locals_at]
        self.targets = nodes.of_types(wanted)

    def _is_module(self, kind: PythonType) -> bool:
        types = Types(self._memory)
        named = (types.at(one) for one in bases(self._memory, kind.address))
        return any(one is not None and one.name == "module" for one in named)

    def answer(self) -> PythonHolders:
        """Return the answer, without the facts on the process."""
        np = import_numpy()
        nodes = self._nodes
        roots = [root for group in self._groups for root in group.roots]
        references = find_references(self._memory, nodes, roots)
        reach = self._reached(references)
        paths = Paths(nodes, reach, self._kinds(), self.targets)
        without = self._reached(references, avoid=self.targets)
        sums = sum_paths(nodes, reach, paths, self.targets, without.is_seen)
        listed = sorted(sums.objects, key=lambda one: (-sums.bytes[one] - sums.beyond[one], one))
        labels = Labels(self._memory, nodes, reach, self._located, len(nodes))
        named = [self._path(step, sums, paths, labels) for step in listed[:_MOST_PATHS]]
        rest = listed[_MOST_PATHS:]
        lost = self.targets[~reach.is_seen[self.targets]]
        bare = lost[~np.isin(lost, references.to)]
        # Blocks referred to by unreached objects belong to these objects as well.
        reach.add(np.flatnonzero((nodes.kinds >= 0) & ~reach.is_seen[: len(nodes)]))
        return PythonHolders(
            "", None,
            sorted({nodes.types[one].name for one in self._wanted}),
            len(self.targets),
            int(nodes.sizes[self.targets].sum()),
            merge_alike(named),
            self._referrers(direct_holders(nodes, reach, references.first, references.to, self.targets)),
            TypeUse("", sum(sums.objects[one] for one in rest), sum(sums.bytes[one] for one in rest)),
            TypeUse("", len(lost), int(nodes.sizes[lost].sum())),
            TypeUse("", len(bare), int(nodes.sizes[bare].sum())),
            reach.is_cut or without.is_cut,
            references.unsearched_bytes + references.unread_bytes,
            references.sampled_bytes,
            sums.shared_bytes,
        )  # fmt: skip

    def _reached(self, references: References, *, avoid: Any = None) -> Reach:
        """Follow the references from modules, then from frames, and so on.

        With nodes to *avoid*, only from where references are certain: a stale word on a stack keeps nothing.
        """
        np = import_numpy()
        reach = Reach(self._nodes, references, seconds=_SECONDS)
        if avoid is not None:
            reach.avoid(avoid)
        reach.add(self._modules)
        reach.add(np.array(list(self._frames), np.int64))
        number = len(self._nodes)
        for group in self._groups:
            if avoid is None or group.kind in (ROOT_FRAME, ROOT_VARIABLES):
                reach.add(np.arange(number, number + len(group.roots)))
            number += len(group.roots)
        return reach

    def _kinds(self) -> Kinds:
        types = list(enumerate(self._nodes.types))
        spaces = {n for n, one in types if one.flags & IS_TYPE or self._is_module(one)}
        containers = {n for n, one in types if one.name in _CONTAINERS}
        dicts = {n for n, one in types if one.flags & IS_DICT}
        return Kinds(frozenset(spaces), frozenset(dicts), frozenset(containers))

    def _path(self, last: int, sums: PathSums, paths: Paths, labels: Labels) -> HolderPath:
        way = list(paths.way(last))[::-1]
        kind, name = self._root(paths.steps[way[0]].node, labels)
        steps = []
        for number in way if paths.steps[way[0]].kind >= 0 else way[1:]:
            one = paths.steps[number]
            if paths.is_dict_of_names(number) and number != last:
                continue
            steps.append(
                HolderStep(
                    self._nodes.types[one.kind].name,
                    labels.of(one.node, exact=one.is_named or one.count == 1)
                    if one.before is not None
                    else "",
                    one.count,
                    labels.name(one.node) if one.space == 1 else "",
                    one.repeats,
                )
            )
        return HolderPath(
            kind, name, steps[-_MOST_STEPS:], sums.objects[last], sums.bytes[last], sums.beyond[last]
        )

    def _root(self, node: int, labels: Labels) -> tuple[str, str]:
        if node in self._frames:
            return ROOT_FRAME, self._frames[node]
        number = node - len(self._nodes)
        if number < 0:
            return ROOT_MODULE, labels.name(node)
        return _named_root(self._groups, number)

    def _referrers(self, found: Any) -> list[Referrer]:
        rows = [
            Referrer(self._nodes.types[kind].name if kind >= 0 else "", holders, references)
            for kind, (references, holders) in found.items()
        ]
        return sorted(rows, key=lambda one: (-one.references, one.type))


def _named_root(groups: Sequence[KindOfRoot], number: int) -> tuple[str, str]:
    for group in groups:
        if number < len(group.roots):
            return group.kind, group.roots[number].label
        number -= len(group.roots)
    raise AssertionError("every root is in a group")
