"""Finding the referrers of the objects of one type, up to modules, frames and variables."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, NamedTuple, Optional

from gdbmem.allocators.cpython.arenas import PythonArena
from gdbmem.allocators.cpython.blocks import Blocks, Unsure, large_blocks, live_blocks
from gdbmem.allocators.cpython.code_objects import member_offsets
from gdbmem.allocators.cpython.frames import LocatedFrame, find_frames
from gdbmem.allocators.cpython.nodes import Nodes, collect_nodes
from gdbmem.allocators.cpython.objects import (
    IS_DICT,
    IS_LIST,
    IS_STR,
    IS_TUPLE,
    IS_TYPE,
    ObjectCounter,
    PythonType,
    Types,
    read_str,
)
from gdbmem.allocators.cpython.references import Reach, References, Root, bases, find_references
from gdbmem.arrays import import_numpy
from gdbmem.errors import InputError, Notice
from gdbmem.inspection.python_queries import about_python, check_python, no_arenas
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.memory.maps import Mapping, Ranges, mapping_at
from gdbmem.model import python
from gdbmem.model.ledger import Ledger
from gdbmem.model.memory import Memory, MemoryUnreadable, words_at
from gdbmem.python.holders import Kinds, Paths, PathSums, direct_holders, merge_alike, sum_paths
from gdbmem.text import format_size, plural, printable

# The way in which one Python object refers to another: an attribute, a key, a number, a local variable.


_TUPLE_ITEMS = 3  # words before the first
_MOST_BYTES = 1 << 24  # size of the part of a block that is searched for a reference
_LONGEST = 40
_NAME_WORDS = range(2, 9)  # of a module object
_NUMPY_BASE_AT = 48  # numpy's arrayobject.h, PyArrayObject_fields


class Labels:
    """Finds the reference that leads to a node, and its label."""

    def __init__(
        self, memory: Memory, nodes: Nodes, reach: Reach, frames: Sequence[LocatedFrame], first_root: int
    ) -> None:
        self._memory, self._nodes, self._reach = memory, nodes, reach
        self._frames, self._first_root = frames, first_root
        self._types = Types(memory)
        self._members: dict[int, dict[int, str]] = {}

    def name(self, node: int) -> str:
        """Return the name of *node*, a module or class; "" if it can't be read."""
        address = int(self._nodes.objects[node])
        kind = self._types.at(address)
        if kind is not None:
            return kind.name
        try:
            content = words_at(self._memory, address, _NAME_WORDS.stop)
        except MemoryUnreadable:
            return ""
        return next((text for n in _NAME_WORDS for text in [self._text(content[n])] if text), "")

    def _text(self, address: int) -> str:
        """Return the text of the object at *address*; "" if it is not a str: another's words may look like one's."""
        try:
            kind = self._types.at(words_at(self._memory, address, 2)[1])
        except MemoryUnreadable:
            return ""
        return read_str(self._memory, address) if kind is not None and kind.flags & IS_STR else ""

    def of(self, node: int, *, exact: bool) -> str:
        """Return the label of the reference to *node*; only if *exact* with parts that differ between elements."""
        holder = int(self._reach.parent[node])
        try:
            if holder >= self._first_root:
                return self._local(node, holder - self._first_root)
            return self._in_block(node, holder, exact)
        except MemoryUnreadable:
            return ""

    def _local(self, node: int, root: int) -> str:
        if root >= len(self._frames):
            return ""
        frame = self._frames[root]
        wanted = int(self._nodes.objects[node])
        content = words_at(self._memory, frame.locals_at, (frame.end - frame.locals_at) // 8)
        at = next((n for n, word in enumerate(content) if word & ~7 == wanted), None)
        return frame.names[at] if at is not None and at < len(frame.names) else ""

    def _in_block(self, node: int, holder: int, exact: bool) -> str:
        owner = int(self._reach.owner[holder])
        if owner < 0 or self._nodes.kinds[owner] < 0:
            return ""
        kind = self._nodes.types[int(self._nodes.kinds[owner])]
        start, size = int(self._nodes.starts[holder]), int(self._nodes.sizes[holder])
        if size > _MOST_BYTES:
            return ""
        words = import_numpy().frombuffer(self._memory.read(start, size // 8 * 8), "uint64")
        at = self._place(words, node, owner if holder == owner else None, start)
        if at is None:
            return ""
        if kind.flags & IS_DICT and holder != owner:
            return self._key(words, at, exact)
        number = at - (int(self._nodes.objects[owner]) - start) // 8
        if holder == owner and not kind.flags & IS_TUPLE:
            return self._attribute(kind.address, kind.name, number * 8)
        if holder == owner:
            return f"[{number - _TUPLE_ITEMS}]" if exact else ""
        return f"[{at}]" if exact and kind.flags & IS_LIST else ""

    def _place(self, words: Any, node: int, owner: Optional[int], start: int) -> Optional[int]:
        """Return which of *words*, a block's from *start* on, refers to *node*; None if none does any more."""
        places = import_numpy().flatnonzero(words == int(self._nodes.objects[node])).tolist()
        if owner is not None:
            its_type = (int(self._nodes.objects[owner]) - start) // 8 + 1
            places = [one for one in places if one != its_type]
        return places[0] if places else None

    def _key(self, words: Any, at: int, exact: bool) -> str:
        text = self._text(int(words[at - 1])) if at else ""
        if not text:
            return ""
        short = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
        return f"['{short}']" if exact else ""

    def _attribute(self, kind: int, name: str, offset: int) -> str:
        if name == "numpy.ndarray" and offset == _NUMPY_BASE_AT:
            return ".base"
        if kind not in self._members:
            self._members[kind] = self._offsets(kind)
        found = self._members[kind].get(offset)
        return f".{found}" if found else ""

    def _offsets(self, kind: int) -> dict[int, str]:
        found: dict[int, str] = {}
        for one in bases(self._memory, kind):
            try:
                named = member_offsets(self._memory, one)
            except MemoryUnreadable:
                continue
            for name, offset in named.items():
                found.setdefault(offset, name)
        return found


# Roots of references to Python's objects other than modules: frames, variables of files, stacks, other memory.


_MOST_SEARCHED_BYTES = 1 << 31  # most bytes of other memory that are searched


class KindOfRoot(NamedTuple):
    """Roots that are followed together."""

    kind: str
    roots: Sequence[Root]


def frames_of(memory: Memory, mappings: Sequence[Mapping]) -> list[LocatedFrame]:
    """Return the frames of all threads, the innermost of each first; none if they can't be read."""
    reader = find_frames(memory, mappings)
    if reader is None or reader.is_free_threaded:
        return []
    try:
        return list(reader.located(memory))
    except MemoryUnreadable:
        return []


def frame_title(frame: LocatedFrame) -> str:
    call = frame.call
    place = f"{PurePath(call.file).name}:{call.line}" if call.line is not None else PurePath(call.file).name
    return f"{call.function}() at {place}"


def other_roots(reading: ProcessImage, frames: Sequence[LocatedFrame], taken: Ranges) -> list[KindOfRoot]:
    """Return the roots other than modules, in the order in which they are followed; *taken*: memory with blocks."""
    inner = [Root(frame_title(one), [(one.locals_at, one.end)]) for one in frames if one.locals_at]
    variables: dict[str, list[tuple[int, int]]] = {}
    mapped = Ranges((m.start, m.end) for m in reading.mappings if m.permissions.startswith("rw"))
    for image in reading.images:
        areas = [piece for area in image.writable for piece in mapped.overlaps(*area)]
        variables.setdefault(PurePath(image.name).name, []).extend(areas)
    stacks = list(_stacks(reading))
    known = [*taken.items, *(area for areas in variables.values() for area in areas)]
    known += [(one.locals_at, one.end) for one in frames if one.locals_at]
    known += [area for one in stacks for area in one.areas]
    return [
        KindOfRoot(python.ROOT_FRAME, inner),
        KindOfRoot(python.ROOT_VARIABLES, [Root(name, areas) for name, areas in variables.items()]),
        KindOfRoot(python.ROOT_STACK, stacks),
        KindOfRoot(python.ROOT_MEMORY, [Root("", _rest(reading, Ranges(known)))]),
    ]


def _stacks(reading: ProcessImage) -> Iterator[Root]:
    """Yield the used part of each thread's stack."""
    for thread in reading.threads:
        area = mapping_at(reading.mappings, thread.stack_pointer)
        if area is not None and area.permissions[1] == "w":
            yield Root(str(thread.tid), [(thread.stack_pointer & ~7, reading.stack_of(thread, area)[1])])


def _rest(reading: ProcessImage, known: Ranges) -> list[tuple[int, int]]:
    """Return resident anonymous memory that is not *known*, up to a limit."""
    areas: list[tuple[int, int]] = []
    left = _MOST_SEARCHED_BYTES
    for mapping in reading.mappings:
        is_private = mapping.permissions.startswith("rw") and mapping.permissions[3] == "p"
        if not mapping.is_anonymous or not is_private:
            continue
        for start, end in known.gaps(mapping.start, mapping.end):
            for low, high in reading.resident.overlaps(start, end):
                if high - low <= left:
                    areas.append((low, high))
                    left -= high - low
    return areas


_SECONDS = 60.0  # for following references
_MOST_PATHS = 200  # number of named ones
_MOST_STEPS = 40  # named steps of a path
_CONTAINERS = frozenset({"dict", "list", "tuple", "set"})


@dataclass
class FindHolders:
    """The query; called with the data read from the process."""

    type: str
    unsure: Unsure = field(default_factory=Unsure)
    found: Optional[python.PythonHolders] = None

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

    def result(self, ledger: Ledger) -> python.PythonHolders:
        """Return the answer; *ledger* is of the same process at the same moment."""
        found = self.found
        assert found is not None, "the question was not asked"
        notices = [*about_python(ledger), *_notices(found, self.unsure)]
        return replace(
            found, program=ledger.program, pid=ledger.pid, pause_seconds=ledger.pause_seconds, notices=notices
        )


def _notices(found: python.PythonHolders, unsure: Unsure) -> list[Notice]:
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

    def answer(self) -> python.PythonHolders:
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
        return python.PythonHolders(
            "", None,
            sorted({nodes.types[one].name for one in self._wanted}),
            len(self.targets),
            int(nodes.sizes[self.targets].sum()),
            merge_alike(named),
            self._referrers(direct_holders(nodes, reach, references.first, references.to, self.targets)),
            python.TypeUse("", sum(sums.objects[one] for one in rest), sum(sums.bytes[one] for one in rest)),
            python.TypeUse("", len(lost), int(nodes.sizes[lost].sum())),
            python.TypeUse("", len(bare), int(nodes.sizes[bare].sum())),
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
            if avoid is None or group.kind in (python.ROOT_FRAME, python.ROOT_VARIABLES):
                reach.add(np.arange(number, number + len(group.roots)))
            number += len(group.roots)
        return reach

    def _kinds(self) -> Kinds:
        types = list(enumerate(self._nodes.types))
        spaces = {n for n, one in types if one.flags & IS_TYPE or self._is_module(one)}
        containers = {n for n, one in types if one.name in _CONTAINERS}
        dicts = {n for n, one in types if one.flags & IS_DICT}
        return Kinds(frozenset(spaces), frozenset(dicts), frozenset(containers))

    def _path(self, last: int, sums: PathSums, paths: Paths, labels: Labels) -> python.HolderPath:
        way = list(paths.way(last))[::-1]
        kind, name = self._root(paths.steps[way[0]].node, labels)
        steps = []
        for number in way if paths.steps[way[0]].kind >= 0 else way[1:]:
            one = paths.steps[number]
            if paths.is_dict_of_names(number) and number != last:
                continue
            steps.append(
                python.HolderStep(
                    self._nodes.types[one.kind].name,
                    labels.of(one.node, exact=one.is_named or one.count == 1)
                    if one.before is not None
                    else "",
                    one.count,
                    labels.name(one.node) if one.space == 1 else "",
                    one.repeats,
                )
            )
        return python.HolderPath(
            kind, name, steps[-_MOST_STEPS:], sums.objects[last], sums.bytes[last], sums.beyond[last]
        )

    def _root(self, node: int, labels: Labels) -> tuple[str, str]:
        if node in self._frames:
            return python.ROOT_FRAME, self._frames[node]
        number = node - len(self._nodes)
        if number < 0:
            return python.ROOT_MODULE, labels.name(node)
        return _named_root(self._groups, number)

    def _referrers(self, found: Any) -> list[python.Referrer]:
        rows = [
            python.Referrer(self._nodes.types[kind].name if kind >= 0 else "", holders, references)
            for kind, (references, holders) in found.items()
        ]
        return sorted(rows, key=lambda one: (-one.references, one.type))


def _named_root(groups: Sequence[KindOfRoot], number: int) -> tuple[str, str]:
    for group in groups:
        if number < len(group.roots):
            return group.kind, group.roots[number].label
        number -= len(group.roots)
    raise AssertionError("every root is in a group")
