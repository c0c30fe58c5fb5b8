"""Paths to Python objects, merged if they are alike: the same root, then the same types in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Optional

from gdbmem.allocators.cpython.nodes import Nodes
from gdbmem.allocators.cpython.references import Reach
from gdbmem.arrays import import_numpy
from gdbmem.json_values import as_json
from gdbmem.model import python
from gdbmem.model.python import HolderPath, HolderStep, PythonHolders, Referrer
from gdbmem.terminal.console import Console, print_notices, print_pause, print_sentence
from gdbmem.terminal.document import Document, to_json, whole
from gdbmem.terminal.drawing import Table, new_table
from gdbmem.text import format_size, plural, printable

_NESTED = 4  # containers in containers are distinguished up to this depth
_NO_SPACE, _OWNER, _NAMES = 0, 1, 2  # of names: a module or a class, and its dict


@dataclass
class PathStep:
    """Objects reached in the same way; blocks that are not objects belong to the previous step."""

    before: Optional[int]  # number of the step that leads here
    node: int  # the first of them; beyond the nodes: a root
    kind: int  # number of their type; -1: a root
    space: int = _NO_SPACE
    count: int = 0
    repeats: bool = False  # some are reached through others of the same type
    is_named: bool = False  # the object after a module's or class's dict is a separate step


class Kinds(NamedTuple):
    """Numbers of the types whose objects are distinguished by name, of dicts, and of all containers."""

    spaces: frozenset[int]  # modules and classes
    dicts: frozenset[int]
    containers: frozenset[int]


class Paths:
    """The paths to *targets*, as a tree of steps."""

    def __init__(self, nodes: Nodes, reach: Reach, kinds: Kinds, targets: Any) -> None:
        np = import_numpy()
        self._nodes, self._reach, self._kinds = nodes, reach, kinds
        self.steps: list[PathStep] = []
        self._known: dict[tuple[int, int], int] = {}
        self.step_of = np.full(len(reach.parent), -1, np.int32)
        for group, singly in reach.in_order(reach.ancestors(targets)):
            if singly:
                for node in group.tolist():
                    self._place_one(node)
            else:
                self._place(group)

    def _place(self, group: Any) -> None:
        """Give each node of *group* its step; their parents have theirs."""
        np = import_numpy()
        parents = self._reach.parent[group]
        before = np.where(parents >= 0, self.step_of[np.maximum(parents, 0)], -1).astype(np.int64)
        kinds = self._kinds_of(group).astype(np.int64)
        key = (before + 1 << 32) + kinds + 2
        _, at, number, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        order = np.argsort(number, kind="stable")
        ends = np.cumsum(count)
        for first, end, one in zip((ends - count).tolist(), ends.tolist(), at.tolist()):
            members = group[order[first:end]]
            if self._is_told_apart(int(before[one]), int(kinds[one])):
                for node in members.tolist():
                    self._place_one(node)
                continue
            step = self._step(int(members[0]), int(before[one]), int(kinds[one]))
            self.step_of[members] = step
            self.steps[step].count += len(members) if kinds[one] >= 0 else 0

    def _kinds_of(self, group: Any) -> Any:
        np = import_numpy()
        inside = group < len(self._nodes)
        return np.where(inside, self._nodes.kinds[np.where(inside, group, 0)], -1)

    def _place_one(self, node: int) -> None:
        parent = int(self._reach.parent[node])
        kind = int(self._nodes.kinds[node]) if node < len(self._nodes) else -1
        step = self._step(node, int(self.step_of[parent]) if parent >= 0 else -1, kind)
        self.step_of[node] = step
        self.steps[step].count += kind >= 0

    def _is_told_apart(self, before: int, kind: int) -> bool:
        if before < 0:
            return True
        return kind >= 0 and (kind in self._kinds.spaces or self.steps[before].space == _NAMES)

    def _step(self, node: int, before: int, kind: int) -> int:
        """Return the step of *node* after the step *before*; a new one if there is none yet."""
        if self._is_told_apart(before, kind):
            space = _OWNER if kind in self._kinds.spaces else _NO_SPACE
            return self._new(PathStep(None if before < 0 else before, node, kind, space, is_named=True))
        if kind < 0:
            return before
        key = (before, kind)
        if key not in self._known:
            alike = [one for one in self.way(before) if self._is_alike(one, kind)]
            if len(alike) >= (_NESTED if kind in self._kinds.containers else 2):
                self.steps[alike[0]].repeats = True
                self._known[key] = alike[0]
            else:
                names = self.steps[before].space == _OWNER and kind in self._kinds.dicts
                self._known[key] = self._new(PathStep(before, node, kind, _NAMES if names else _NO_SPACE))
        return self._known[key]

    def _is_alike(self, step: int, kind: int) -> bool:
        return self.steps[step].kind == kind and self.steps[step].space == _NO_SPACE

    def _new(self, step: PathStep) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def way(self, step: int) -> Iterator[int]:
        """Yield *step* and those that lead to it, the root last."""
        at: Optional[int] = step
        while at is not None:
            yield at
            at = self.steps[at].before

    def is_dict_of_names(self, step: int) -> bool:
        return self.steps[step].space == _NAMES


@dataclass
class PathSums:
    """Objects and bytes by the step that they have."""

    objects: dict[int, int] = field(default_factory=dict)
    bytes: dict[int, int] = field(default_factory=dict)
    # Bytes in blocks without an object that they lead to.
    beyond: dict[int, int] = field(default_factory=dict)
    shared_bytes: int = 0  # in such blocks to which others lead as well


def sum_paths(nodes: Nodes, reach: Reach, paths: Paths, targets: Any, shared: Any) -> PathSums:
    """Return, by step, the objects, their bytes, and the bytes of other blocks to which they alone lead.

    *shared* is true for each node that is reached without *targets*, too: a pool of an allocator belongs to none of the
    objects in it.
    """
    np = import_numpy()
    sums = PathSums()
    reached = targets[paths.step_of[targets] >= 0]
    steps, number = np.unique(paths.step_of[reached], return_inverse=True)
    counts = np.bincount(number, minlength=len(steps))
    sizes = np.bincount(number, nodes.sizes[reached], len(steps))
    is_target = np.zeros(len(reach.parent), bool)
    is_target[reached] = True
    others = np.flatnonzero((nodes.kinds == -1) & (reach.owner[: len(nodes)] >= 0))
    others = others[is_target[reach.owner[others]]]
    sums.shared_bytes = int(nodes.sizes[others[shared[others]]].sum())
    others = others[~shared[others]]
    owners = np.searchsorted(steps, paths.step_of[reach.owner[others]])
    beyond = np.bincount(owners, nodes.sizes[others], len(steps))
    for at, step in enumerate(steps.tolist()):
        sums.objects[step], sums.bytes[step] = int(counts[at]), int(sizes[at])
        sums.beyond[step] = int(beyond[at])
    return sums


def merge_alike(paths: Sequence[HolderPath]) -> list[HolderPath]:
    """Return *paths*, the ones with most bytes first; those that differ only in places of items (``[3]``) are one."""
    groups: dict[tuple[Any, ...], list[HolderPath]] = {}
    for path in paths:
        steps = tuple((one.type, _without_place(one.label), one.name, one.repeats) for one in path.steps)
        groups.setdefault((path.root, path.root_name, steps), []).append(path)
    merged = [_merged(alike) for alike in groups.values()]
    return sorted(merged, key=lambda one: -one.bytes - one.beyond_bytes)


def _without_place(label: str) -> str:
    return "" if label[1:-1].isdigit() else label


def _merged(alike: Sequence[HolderPath]) -> HolderPath:
    if len(alike) == 1:
        return alike[0]
    steps = []
    for same in zip(*(path.steps for path in alike)):
        labels = {one.label for one in same}
        label = labels.pop() if len(labels) == 1 else ""
        steps.append(replace(same[0], label=label, count=sum(one.count for one in same)))
    return replace(
        alike[0],
        steps=steps,
        count=sum(path.count for path in alike),
        bytes=sum(path.bytes for path in alike),
        beyond_bytes=sum(path.beyond_bytes for path in alike),
    )


def direct_holders(nodes: Nodes, reach: Reach, first: Any, to: Any, targets: Any) -> dict[int, Sequence[int]]:
    """Return the references to *targets* by the type of their holders, and the number of such holders.

    -1 is memory that belongs to no object. *first* and *to* are the references.
    """
    np = import_numpy()
    is_target = np.zeros(len(nodes), bool)
    is_target[targets] = True
    owners = []
    piece = 1 << 24
    for start in range(0, len(to), piece):
        places = np.flatnonzero(is_target[to[start : start + piece]]) + start
        holders = np.searchsorted(first, places, "right") - 1
        inside = np.minimum(holders, len(nodes) - 1)
        is_object = (holders < len(nodes)) & (nodes.kinds[inside] >= 0)
        owners.append(np.where(is_object, holders, reach.owner[holders]))
    every = np.concatenate(owners) if owners else np.zeros(0, np.int64)
    distinct, counts = np.unique(every, return_counts=True)
    kinds = np.where(distinct >= 0, nodes.kinds[np.maximum(distinct, 0)], -1) if len(nodes) else distinct
    found: dict[int, Sequence[int]] = {}
    for kind in np.unique(kinds).tolist():
        alike = kinds == kind
        found[kind] = int(counts[alike].sum()), int((alike & (distinct >= 0)).sum())
    return found


# Holders of the objects of a Python type, as text.


_REFERRERS = 5
_WORTH_SAYING = 1 << 20  # bytes
_ROOTS = {
    python.ROOT_FRAME: "{}",
    python.ROOT_VARIABLES: "variables of {}",
    python.ROOT_STACK: "native stack of thread {}",
    python.ROOT_MEMORY: "memory of no known allocator",
}


def print_holders(holders: PythonHolders, console: Console, *, top: int) -> None:
    """Print the paths to the objects, the *top* largest groups of them, and their direct referrers."""
    print_sentence(console, holders_answer(holders), "bold")
    console.print()
    table = new_table("objects", "bytes", "beyond", last="path")
    for one in holders.paths[:top]:
        table.add_row(f"{one.count:,}", format_size(one.bytes), format_size(one.beyond_bytes), path_text(one))
    _add_rest(table, holders, top)
    console.print(table)
    console.print()
    print_sentence(console, f"Referred to directly by {_referrers(holders.referrers)}.")
    if any(one.beyond_bytes for one in holders.paths):
        print_sentence(
            console,
            "Beyond: blocks that are not Python objects and to which these objects alone lead (items, buffers, C's).",
        )
    if holders.shared_bytes >= _WORTH_SAYING:
        print_sentence(
            console,
            f"{format_size(holders.shared_bytes)} more in such blocks are not counted, as others lead to them, too (a"
            " pool of an allocator, for example: 'gdbmem bfc' divides those of TensorFlow).",
        )
    for text in _unreached(holders):
        print_sentence(console, text)
    print_pause(holders.pause_seconds, console)
    print_notices(holders.notices, console)


def _unreached(holders: PythonHolders) -> list[str]:
    """Return sentences on the objects without a path, with and without references."""
    bare, all_bytes = holders.unreferred, holders.unreached.bytes
    referred = holders.unreached.count - bare.count
    texts = []
    if bare.count:
        texts.append(
            f"The address of {bare.count:,} of them ({format_size(bare.bytes)}) is nowhere in the memory that was"
            " searched: C code may have kept a reference count without a reference (a missing Py_DECREF)."
        )
    if referred:
        texts.append(
            f"No path from a module, a frame or a variable was found to {referred:,} of them"
            f" ({format_size(all_bytes - bare.bytes)}): they wait for the collector, or C code alone refers to them."
        )
    return texts


def holders_answer(holders: PythonHolders) -> str:
    """Return the number of objects, and the holder of most of them."""
    names = " and ".join(f"'{printable(one)}'" for one in holders.types)
    sentence = f"{plural(holders.count, 'object')} of type {names} ({format_size(holders.bytes)})"
    if not holders.paths:
        return f"{sentence}: no path of references to them was found"
    first = max(holders.paths, key=lambda one: one.count)
    reached = f"{first.count:,} of them are reached through {path_text(first)}"
    lost, bare = holders.unreached, holders.unreferred
    if lost.count <= first.count:
        return f"{sentence}; {reached}"
    if bare.count > lost.count - bare.count:
        none = f"nothing that was found refers to {bare.count:,} of them ({format_size(bare.bytes)})"
    else:
        none = f"no path of references was found to {lost.count:,} of them ({format_size(lost.bytes)})"
    return f"{sentence}; {none}; {reached}"


def _add_rest(table: Table, holders: PythonHolders, top: int) -> None:
    rest = holders.paths[top:]
    count = sum(one.count for one in rest) + holders.other_paths.count
    if count:
        size = sum(one.bytes for one in rest) + holders.other_paths.bytes
        table.add_row(f"{count:,}", format_size(size), "", "by further paths")


def _referrers(rows: Sequence[Referrer]) -> str:
    texts = [
        f"{plural(one.holders, 'object')} of type '{printable(one.type)}' ({plural(one.references, 'reference')})"
        if one.type
        else f"memory that is not a Python object's ({plural(one.references, 'reference')})"
        for one in rows[:_REFERRERS]
    ]
    if len(rows) > _REFERRERS:
        left = sum(one.references for one in rows[_REFERRERS:])
        texts.append(
            f"objects of {plural(len(rows) - _REFERRERS, 'further type')} ({plural(left, 'reference')})"
        )
    return ", ".join(texts) or "nothing that was found"


def path_text(path: HolderPath) -> str:
    """Return *path* as one line: names as Python has them, then types."""
    steps = list(path.steps)
    if path.root == python.ROOT_MODULE and steps and steps[0].name == path.root_name:
        text, steps = printable(path.root_name), steps[1:]
    elif path.root == python.ROOT_MODULE:
        text = f"{printable(path.root_name)} …"
    else:
        text = _ROOTS[path.root].format(printable(path.root_name))
    # Names first, as far as they lead: module.Class.attribute.
    named, steps = _named(path, steps)
    text += named
    if steps:
        text += ": " + " → ".join(_types(steps))
    return text


def _named(path: HolderPath, steps: Sequence[HolderStep]) -> tuple[str, list[HolderStep]]:
    """Return the names that continue from the root, and the steps described by their types."""
    text = ""
    for number, one in enumerate(steps):
        name = _attribute(one.label)
        if number == 0 and path.root == python.ROOT_FRAME:
            name = f", local {printable(one.label)}" if one.label else ""
        elif path.root != python.ROOT_MODULE:
            name = ""
        if not name and one.name and path.root == python.ROOT_MODULE:
            name = f" … {printable(one.name)}"
        text += name
        if not one.name:
            return text, list(steps[number:])
    return text, []


def _attribute(label: str) -> str:
    """Return the name of a module's or a class's attribute, from the key in its dict."""
    if label.startswith("['"):
        return f".{printable(label[2:-2])}"
    return printable(label)


def _types(steps: Sequence[HolderStep]) -> list[str]:
    """Return the types of *steps*, each with how it refers to the next one."""
    texts = []
    for one, following in zip(steps, [*steps[1:], None]):
        text = printable(one.type)
        if one.name and one.type == "type":
            text = f"class {printable(one.name)}"
        if following is not None:
            text += printable(following.label)
        texts.append(text + (" (through one another)" if one.repeats else ""))
    return texts


def holders_json(holders: PythonHolders) -> str:
    """Return *holders* as ``kind=python-holders``; sizes are bytes, steps run from the root to the objects."""
    document: Document = {
        **whole("python-holders", holders, holders_answer(holders)),
        "other_paths": as_json(holders.other_paths, "count", "bytes"),
        "unreached": as_json(holders.unreached, "count", "bytes"),
        "unreferred": as_json(holders.unreferred, "count", "bytes"),
    }
    return to_json(document)
