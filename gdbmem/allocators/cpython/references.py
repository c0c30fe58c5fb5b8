"""References between the blocks of a Python process: every word of a block, or of a root, that leads to another block.

Only the code of an object's type knows which words are references; every word that is an object's address is assumed
to be one. Words that don't keep anything alive are excluded: an object's type, the collector's links, weak references,
the characters of strings.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gdbmem.allocators.cpython.nodes import DEAD, NO_OBJECT, Nodes, UsedParts, used_parts
from gdbmem.allocators.cpython.objects import HAS_GC, INLINE_VALUES, PythonType, Types
from gdbmem.arrays import import_numpy, runs_of
from gdbmem.model.memory import Memory, MemoryUnreadable, word_at

_LEAVES = frozenset({"str", "bytes", "int", "float", "complex", "bool"})  # types without references
# Types with the variables and the stack of a call as their items; since 3.11 without their number.
_SUSPENDED, _FRAME = ("generator", "coroutine", "async_generator"), "frame"
_MOST_VARIABLES = 1 << 15
_CALL_WORDS = 9  # of a call before its variables, up to 3.13; 10 since 3.14
# Words that a frame has up to 3.10: those of its blocks, no references, before the first of its variables.
_BLOCK_WORDS, _WITH_BLOCKS = 30, 40
_MANY = 1 << 40
_WEAK_LIST_AT, _BASE_AT = 208, 256  # in a type
_WEAK_TYPES = frozenset(
    {"weakref", "weakproxy", "weakcallableproxy"}  # up to 3.9
    | {"weakref.ReferenceType", "weakref.ProxyType", "weakref.CallableProxyType"}
)
_WEAK_WORDS = (2, 5, 6)  # of a weak reference: its referent, and its neighbours in a list
_MOST_BASES = 64
_RUN = 1 << 25  # bytes read at once
_APART = 1 << 16  # largest gap between two blocks that are read together
_LARGE = 1 << 20  # a block of this size without an object is sampled first
_SAMPLES, _SAMPLE = 64, 1 << 12
_MOST_REFERENCES = 150_000_000  # 600 MB
_LOW_BITS = 7


class Root(NamedTuple):
    """Memory other than blocks that contains references: variables of a library, a stack, a frame."""

    label: str
    areas: Sequence[tuple[int, int]]


@dataclass
class References:
    """The references by holder: nodes by their numbers, then roots."""

    first: Any = None  # int64: index in *to* of the first reference of each holder; one more for the end
    to: Any = None  # int32: numbers of nodes
    unread_bytes: int = 0
    unsearched_bytes: int = 0  # beyond the limit
    sampled_bytes: int = 0  # in large blocks without references, according to samples

    def of(self, holder: int) -> Any:
        """Return the nodes that *holder* refers to."""
        return self.to[int(self.first[holder]) : int(self.first[holder + 1])]


@dataclass
class _Rules:
    """The relevant words of objects, by the number of their type; words are numbered from the object."""

    leaf: Any
    has_gc: Any
    is_weak: Any
    weak_list: Any  # word of the list of weak references to an object; 0: none
    basic_words: Any  # of an object without its items; very many if values may follow
    item_bytes: Any
    has_call: Any  # a generator, a coroutine, …, and a frame since 3.11
    is_frame: Any
    has_blocks: Any  # a frame up to 3.10


def _rules(memory: Memory, types: Sequence[PythonType]) -> _Rules:
    np = import_numpy()
    basic_words = np.array([one.basic_bytes // 8 for one in types], np.int64)
    is_frame = np.array([one.name == _FRAME for one in types], bool)
    has_blocks = is_frame & (basic_words > _WITH_BLOCKS)
    is_suspended = np.array([one.name in _SUSPENDED and one.item_bytes > 0 for one in types], bool)
    return _Rules(
        np.array([one.name in _LEAVES for one in types], bool),
        np.array([bool(one.flags & HAS_GC) for one in types], bool),
        np.array([_is_weak(memory, one) for one in types], bool),
        np.array([_weak_list(memory, one) for one in types], np.int64),
        np.where([bool(one.flags & INLINE_VALUES) for one in types], _MANY, basic_words),
        np.array([one.item_bytes for one in types], np.int64),
        is_suspended | is_frame & ~has_blocks,
        is_frame,
        has_blocks,
    )


def bases(memory: Memory, address: int) -> Iterator[int]:
    """Yield the type at *address* and its base types, by the first base of each."""
    for _ in range(_MOST_BASES):
        if not address:
            return
        yield address
        try:
            address = word_at(memory, address + _BASE_AT)
        except MemoryUnreadable:
            return


def _is_weak(memory: Memory, kind: PythonType) -> bool:
    types = Types(memory)
    named = (types.at(one) for one in bases(memory, kind.address))
    return any(one is not None and one.name in _WEAK_TYPES for one in named)


def _weak_list(memory: Memory, kind: PythonType) -> int:
    try:
        at = int.from_bytes(memory.read(kind.address + _WEAK_LIST_AT, 8), "little", signed=True)
    except MemoryUnreadable:
        return 0
    return at // 8 if -64 <= at < 1 << 16 else 0


@dataclass
class _ReferenceSearch:
    """Finds the references piece by piece."""

    memory: Memory
    nodes: Nodes
    rules: _Rules
    low: int
    high: int
    counts: Any  # of each holder's references
    used: UsedParts
    is_begun: Any  # by node: whether a reference leads to its start
    found: list[Any] = field(default_factory=list)
    # Which of them point into the interior of blocks without an object.
    into: list[Any] = field(default_factory=list)
    # Which of them lead to blocks with a dead object.
    to_dead: list[Any] = field(default_factory=list)
    total: int = 0
    result: References = field(default_factory=References)

    def look(self, words: Any, base: int, part: slice) -> None:
        """Add the references in *words*, read at *base*, from the nodes of *part*."""
        np = import_numpy()
        starts = self.nodes.starts[part]
        places = np.flatnonzero((words >= self.low) & (words < self.high))
        addresses = base + places * 8
        number = np.searchsorted(starts, addresses, "right") - 1
        inside = number >= 0
        number = np.maximum(number, 0)
        inside &= addresses < starts[number] + self.used.end[part][number]
        inside &= addresses >= starts[number] + self.used.begin[part][number]
        places, addresses, number = places[inside], addresses[inside], number[inside] + part.start
        counts = self._is_reference(words[places], addresses, number)
        counts &= self._is_inside(words, base, addresses, number)
        self._add(words[places[counts]].astype(np.int64), number[counts])

    def _is_reference(self, words: Any, addresses: Any, number: Any) -> Any:
        """Return which of *words*, at *addresses* in the nodes *number*, may be references that keep a block alive."""
        np = import_numpy()
        kinds = self.nodes.kinds[number]
        word = (addresses - self.nodes.objects[number]) // 8
        aligned = words & _LOW_BITS == 0
        if not len(self.rules.leaf):
            return aligned
        one = np.maximum(kinds, 0)  # of a type
        kept = ~self.rules.leaf[one] & (word != 1) & (aligned | (word < 0))
        kept &= ~(self.rules.has_gc[one] & ((word == -1) | (word == -2)))
        kept &= (word != self.rules.weak_list[one]) | (self.rules.weak_list[one] == 0)
        kept &= ~(self.rules.is_weak[one] & np.isin(word, _WEAK_WORDS))
        blocks_end = self.rules.basic_words[one] - 1
        kept &= ~(self.rules.has_blocks[one] & (word >= blocks_end - _BLOCK_WORDS) & (word < blocks_end))
        return np.where(kinds >= 0, kept, aligned)

    def _is_inside(self, words: Any, base: int, addresses: Any, number: Any) -> Any:
        """Return which of *addresses* are in an object itself, and not in the unused end of its block."""
        np = import_numpy()
        if not len(self.rules.leaf):
            return np.ones(len(number), bool)
        kinds = self.nodes.kinds[number]
        one = np.maximum(kinds, 0)
        count = np.abs(_word_at(words, base, self.nodes.objects[number] + 16))
        for is_chosen, items in (
            (self.rules.has_call, self._variables),
            (self.rules.has_blocks, self._counted),
        ):
            chosen = (kinds >= 0) & is_chosen[one]
            if chosen.any():
                count[chosen] = items(words, base, number[chosen], count[chosen])
        items = np.where(self.rules.item_bytes[one] > 0, np.minimum(count, _MANY), 0)
        end = self.rules.basic_words[one] * 8 + items * self.rules.item_bytes[one]
        return (kinds < 0) | (addresses - self.nodes.objects[number] < end)

    def _variables(self, words: Any, base: int, number: Any, _: Any) -> Any:
        """Return how many words the call in each of the nodes *number* has of variables and its stack, since 3.11.

        Before the variables is their number with the stack's (up to 3.13), or two words before them its end. While the
        call runs neither is there, and the end of the block is the limit. Source: Include/internal/pycore_frame.h,
        pycore_interpframe_structs.h.
        """
        np = import_numpy()
        one = self.nodes.kinds[number]
        objects, ends = self.nodes.objects[number], self.nodes.starts[number] + self.nodes.sizes[number]
        variables = objects + self.rules.basic_words[one] * 8
        depth = _word_at(words, base, variables - 8) & 0xFFFFFFFF
        stack_end = _word_at(words, base, variables - 16)
        count = np.where(depth <= _MOST_VARIABLES, depth, _MANY)
        has_end = (stack_end >= variables) & (stack_end <= ends)
        count = np.where(has_end, (stack_end - variables) // 8, count)
        # Of a call that runs all of this is on the stack of its thread, and what its frame has room for is not set.
        data = _word_at(words, base, objects + 24)
        return np.where(self.rules.is_frame[one] & ((data < objects) | (data >= ends)), -_CALL_WORDS, count)

    def _counted(self, words: Any, base: int, number: Any, count: Any) -> Any:
        """Return how many of their *count* words the frames *number* use, up to 3.10.

        Their stack begins at word 8; up to 3.9 word 9 is its end, 0 while the call runs; in 3.10 word 10 has its depth,
        and above that whether lines are traced. Source: Include/cpython/frameobject.h.
        """
        np = import_numpy()
        objects, ends = self.nodes.objects[number], self.nodes.starts[number] + self.nodes.sizes[number]
        variables = objects + self.rules.basic_words[self.nodes.kinds[number]] * 8
        stack, stack_end, word = (_word_at(words, base, objects + 8 * place) for place in (8, 9, 10))
        is_depth = (word >> 32 & 0xFEFF == 1) & (word & 0xFFFFFFFF <= _MOST_VARIABLES)
        depth = np.where(is_depth, word & 0xFFFFFFFF, _MANY)
        depth = np.where((stack_end >= stack) & (stack_end <= ends), (stack_end - stack) // 8, depth)
        has_stack = (stack >= variables) & (stack <= ends)
        return np.where(has_stack, np.minimum(count, (stack - variables) // 8 + depth), count)

    def _add(self, words: Any, holders: Any) -> None:
        """Add the references *words* of *holders*, which are in order."""
        np = import_numpy()
        words = words & ~_LOW_BITS
        to = self.nodes.find(words)
        known = (to >= 0) & (to != holders)
        words, to = words[known], to[known]
        begins = words == self.nodes.starts[to]
        self.is_begun[to[begins]] = True
        self.into.append(self.total + np.flatnonzero(~begins & (self.nodes.kinds[to] == NO_OBJECT)))
        self.to_dead.append(self.total + np.flatnonzero(self.nodes.kinds[to] == DEAD))
        self.found.append(to.astype(np.int32))
        self.total += len(self.found[-1])
        if len(self.found[-1]):
            low, high = int(holders[0]), int(holders[-1]) + 1
            self.counts[low:high] += np.bincount(holders[known] - low, minlength=high - low)

    def look_at_root(self, number: int, root: Root) -> None:
        """Add the references from *root*, the holder *number*."""
        np = import_numpy()
        for start, end in root.areas:
            for words, _ in _words(self.memory, start, end, self.result):
                places = np.flatnonzero((words >= self.low) & (words < self.high))
                self._add(words[places].astype(np.int64), np.full(len(places), number))

    def is_full(self) -> bool:
        return self.total >= _MOST_REFERENCES

    def finish(self) -> References:
        """Return all references found.

        Pointers into the interior of a block are excluded if something else points to its start: they are mostly
        left over from an earlier use, but for those to attributes, which don't begin where their block does.
        """
        np = import_numpy()
        first = np.append(0, np.cumsum(self.counts))
        to = np.concatenate(self.found) if self.found else np.zeros(0, np.int32)
        into = np.concatenate(self.into) if self.into else np.zeros(0, np.int64)
        left_over = into[self.is_begun[to[into]] & (self.used.begin[to[into]] == 0)]
        left_over = np.union1d(left_over, self._dead_ends(first, to))
        if len(left_over):
            first -= np.searchsorted(left_over, first)
            to = np.delete(to, left_over)
        self.result.first, self.result.to = first, to
        return self.result

    def _dead_ends(self, first: Any, to: Any) -> Any:
        """Return which of the references lead to dead objects, or are theirs.

        A block that still has what is left of an object is another's by now if a live object refers to its start, or
        if something does before which the object begins: lists of dead objects that are kept for reuse lead to those.
        """
        np = import_numpy()
        nodes, kinds = self.nodes, self.nodes.kinds
        places = np.concatenate(self.to_dead) if self.to_dead else np.zeros(0, np.int64)
        targets, holders = to[places], np.searchsorted(first, places, "right") - 1
        is_root = holders >= len(nodes)
        holders = np.where(is_root, 0, holders)
        is_trusted = (nodes.objects[targets] > nodes.starts[targets]) | (~is_root & (kinds[holders] >= 0))
        while True:
            used = targets[is_trusted & (is_root | (kinds[holders] != DEAD)) & (kinds[targets] == DEAD)]
            if not len(used):
                break
            kinds[used] = NO_OBJECT
        dead = np.flatnonzero(kinds == DEAD)
        theirs = runs_of(first[dead], first[dead + 1] - first[dead])
        return np.union1d(places[kinds[targets] == DEAD], theirs)


def _word_at(words: Any, base: int, addresses: Any) -> Any:
    """Return the word, signed, at each of *addresses*, of *words* that were read at *base*; _MANY beyond them."""
    np = import_numpy()
    at = (addresses - base) // 8
    there = (at >= 0) & (at < len(words))
    return np.where(there, words[np.where(there, at, 0)].astype(np.int64), _MANY)


def find_references(memory: Memory, nodes: Nodes, roots: Sequence[Root]) -> References:
    """Return all references of *nodes* and *roots*."""
    np = import_numpy()
    low = int(nodes.starts[0]) if len(nodes) else 0
    high = int(nodes.starts[-1] + nodes.sizes[-1]) if len(nodes) else 0
    counts = np.zeros(len(nodes) + len(roots), np.int64)
    used = used_parts(memory, nodes)
    is_begun = np.zeros(len(nodes), bool)
    search = _ReferenceSearch(memory, nodes, _rules(memory, nodes.types), low, high, counts, used, is_begun)
    for part in _runs(nodes):
        size = int(nodes.starts[part][-1] + nodes.sizes[part][-1] - nodes.starts[part][0])
        if search.is_full():
            search.result.unsearched_bytes += size
        elif not _is_data(search, part):
            start = int(nodes.starts[part.start])
            for words, base in _words(memory, start, start + size, search.result):
                search.look(words, base, part)
    for number, root in enumerate(roots, len(nodes)):
        search.look_at_root(number, root)
    return search.finish()


def _runs(nodes: Nodes) -> Iterator[slice]:
    """Yield groups of nodes that are read together; a large one alone."""
    np = import_numpy()
    ends = nodes.starts + nodes.sizes
    alone = nodes.sizes >= _LARGE
    cut = (nodes.starts[1:] - ends[:-1] > _APART) | alone[1:] | alone[:-1]
    borders = [0, *(np.flatnonzero(cut) + 1).tolist(), len(nodes)]
    for first, last in zip(borders, borders[1:]):
        while first < last:
            stop = min(int(np.searchsorted(nodes.starts, nodes.starts[first] + _RUN)), last)
            stop = max(stop, first + 1)
            yield slice(first, stop)
            first = stop


def _words(memory: Memory, start: int, end: int, result: References) -> Iterator[tuple[Any, int]]:
    """Yield the words from *start* to *end* a piece at a time; unreadable bytes are counted in *result*."""
    np = import_numpy()
    step = _RUN
    while start + 8 <= end:
        size = min(step, end - start) // 8 * 8
        try:
            data = memory.read(start, size)
        except MemoryUnreadable:
            if step > _SAMPLE:
                step = _SAMPLE
                continue
            result.unread_bytes += size
            start += size
            continue
        yield np.frombuffer(data, np.uint64), start
        start += size


def _is_data(search: _ReferenceSearch, part: slice) -> bool:
    """Return whether samples of a large block without an object contain no reference to any object."""
    np = import_numpy()
    nodes = search.nodes
    size = int(nodes.sizes[part.start])
    if part.stop - part.start > 1 or size < _LARGE or nodes.kinds[part.start] != NO_OBJECT:
        return False
    start = int(nodes.starts[part.start])
    for number in range(_SAMPLES):
        at = start + (size - _SAMPLE) * number // _SAMPLES // 8 * 8
        for words, _ in _words(search.memory, at, at + _SAMPLE, References()):
            likely = words[(words >= search.low) & (words < search.high)].astype(np.int64)
            to = nodes.find(likely)
            if (nodes.kinds[to[to >= 0]] >= 0).any():
                return False
    search.result.sampled_bytes += size
    return True


# Shortest paths of references to all blocks of a Python process, from modules first, then from other roots.


NOTHING = -1
_THIN = 64  # number of nodes of one distance up to which they are followed one by one: arrays are slow for long lists
_WIDE = 4096
_PATIENCE = 1 << 16


class Reach:
    """A tree of shortest paths: the *parent* of each node, and the *owner*, the nearest object on the path to it."""

    def __init__(self, nodes: Nodes, references: References, *, seconds: float) -> None:
        np = import_numpy()
        count = len(references.first) - 1
        self._nodes, self._references = nodes, references
        self.parent = np.full(count, NOTHING, np.int32)
        self.owner = np.full(count, NOTHING, np.int32)
        self.is_seen = np.zeros(count, bool)
        self._is_object = nodes.kinds >= 0
        self._steps: list[tuple[Any, bool]] = []  # nodes in order of distance, and whether one by one
        self._deadline = time.monotonic() + seconds
        self.is_cut = False  # the time limit was reached before everything was followed

    def avoid(self, nodes: Any) -> None:
        """Never enter *nodes*: what is reached then is reached without them."""
        self.is_seen[nodes] = True

    def add(self, seeds: Any) -> None:
        """Follow all references from those of *seeds* that were not reached before."""
        np = import_numpy()
        seeds = seeds[~self.is_seen[seeds]]
        self.is_seen[seeds] = True
        inside = seeds[seeds < len(self._nodes)]
        self.owner[inside] = inside
        frontier = np.asarray(seeds, np.int64)
        self._steps.append((frontier, False))
        while len(frontier) and not self.is_cut:
            follow = self._follow_singly if len(frontier) < _THIN else self._follow
            frontier = follow(frontier)
            self.is_cut = time.monotonic() > self._deadline

    def _follow(self, frontier: Any) -> Any:
        """Return the nodes reached from *frontier* for the first time."""
        np = import_numpy()
        first = self._references.first
        begin, count = first[frontier], first[frontier + 1] - first[frontier]
        to = self._references.to[runs_of(begin, count)]
        new = ~self.is_seen[to]
        to, origin = to[new], np.repeat(frontier, count)[new]
        found, at = np.unique(to, return_index=True)
        found = found.astype(np.int64)
        self.is_seen[found] = True
        self.parent[found] = origin[at]
        self.owner[found] = np.where(self._is_object[found], found, self.owner[origin[at]])
        self._steps.append((found, False))
        return found

    def _follow_singly(self, frontier: Any) -> Any:
        """Follow *frontier* node by node; return the rest when it grows wide."""
        np = import_numpy()
        queue = frontier.tolist()
        done = len(queue)
        at = 0
        while at < len(queue) and len(queue) - at < _WIDE and at < _PATIENCE:
            holder = queue[at]
            at += 1
            to = self._references.of(holder)
            for node in dict.fromkeys(to[~self.is_seen[to]].tolist()):
                self.is_seen[node] = True
                self.parent[node] = holder
                self.owner[node] = node if self._is_object[node] else self.owner[holder]
                queue.append(node)
        self._steps.append((np.array(queue[done:], np.int64), True))
        return np.array(queue[at:], np.int64)

    def ancestors(self, targets: Any) -> Any:
        """Return which nodes are on the paths to *targets*, inclusive, as an array of booleans."""
        np = import_numpy()
        marked = np.zeros(len(self.parent), bool)
        nodes = targets[self.is_seen[targets]]
        while len(nodes) >= _THIN:
            marked[nodes] = True
            nodes = np.unique(self.parent[nodes])
            nodes = nodes[(nodes >= 0) & ~marked[np.maximum(nodes, 0)]]
        for node in nodes.tolist():
            while node >= 0 and not marked[node]:
                marked[node] = True
                node = int(self.parent[node])
        return marked

    def in_order(self, marked: Any) -> Iterator[tuple[Any, bool]]:
        """Yield the *marked* nodes in groups, parents first.

        With True a node may be the parent of another in the same group.
        """
        for nodes, singly in self._steps:
            chosen = nodes[marked[nodes]]
            if len(chosen):
                yield chosen, singly

    def path(self, node: int) -> Sequence[int]:
        """Return the nodes from a root to *node*."""
        found = [node]
        while self.parent[found[-1]] >= 0:
            found.append(int(self.parent[found[-1]]))
        return found[::-1]
