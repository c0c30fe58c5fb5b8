"""A heap at one moment, to be compared with another one: all holders and types, and of each live block its holder."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from gdbmem.arrays import import_numpy
from gdbmem.heap.graph import TEXT_END
from gdbmem.heap.text import HolderWords, Names, class_in_words, encoded, in_words, named_view
from gdbmem.json_values import as_json
from gdbmem.model.heap_graph import (
    LOST,
    MAYBE_LOST,
    TYPE,
    BlockColumns,
    HeapNode,
    HeapSum,
    HeapView,
    Holder,
    Part,
    SavedHeap,
)
from gdbmem.terminal.document import to_json, whole

if TYPE_CHECKING:
    from gdbmem.heap.holders import Answers, HeapGraph, Row

_MOST_BLOCKS = 1 << 27
_FAST = 1  # level of zlib: 3 takes twice as long, and saves a tenth
_DEPTH, _MOST_GROUPS, _LEAST_SHARE = 24, 40, 0.0005  # of the tree


def saved_json(saved: SavedHeap) -> str:
    """Return *saved* as ``kind=heap``, as that of a view, with one field more."""
    more = as_json(saved, "execution", "time", "holders", "types", "tree", "blocks")
    return to_json({**whole("heap", saved.view), "saved": more})


def mangled_names_in(found: HeapGraph) -> list[str]:
    """Return the names that a demangler for types should be asked for before save_heap()."""
    names = {encoded(place.name) for place in found.outside.places} | set(found.classes.values())
    return sorted(names - {""})


def save_heap(answers: Answers, view: HeapView, names: Names) -> SavedHeap:
    """Return all that *answers* says of this moment; *view* is its answer for people."""
    rows = answers.by_root
    return SavedHeap(
        view=named_view(view, names),
        execution=answers.found.execution,
        time=answers.found.time,
        holders=[_sum_of(row.holder, names) for row in rows],
        types=_types(answers, names),
        tree=_tree(answers, rows, names),
        blocks=_columns(answers, rows),
    )


def _sum_of(holder: Holder, names: Names) -> HeapSum:
    holders = [in_words(name, names) for name in holder.holders]
    name = in_words(holder.name, names)
    return HeapSum(
        name, holder.kind, holder.object, holders, 0, holder.retained_bytes, holder.retained_blocks
    )


def _types(answers: Answers, names: Names) -> list[HeapSum]:
    """Return the live blocks, reached or not, by class, or by size where none is known."""
    np = import_numpy()
    graph = answers.graph
    live = np.flatnonzero(graph.live)
    sizes, classes = graph.sizes_of(live), answers.class_of[live].astype(np.int64)
    kinds, which = np.unique(np.where(classes > 0, classes, -sizes), return_inverse=True)
    counts = np.bincount(which, minlength=len(kinds))
    sums = np.bincount(which, weights=sizes, minlength=len(kinds))
    return [
        HeapSum(
            class_in_words(answers.class_names[kind], names) if kind > 0 else "", TYPE, "", (),
            0 if kind > 0 else -kind - answers.found.blocks.header_bytes, int(size), int(count),
        )
        for kind, size, count in zip(kinds.tolist(), sums, counts)
    ]  # fmt: skip


def _tree(answers: Answers, rows: Sequence[Row], names: Names) -> list[HeapNode]:
    """Return what retains what, down to a small share of the heap, and what is lost."""
    words, nodes = HolderWords(names), list[HeapNode]()
    least = _LEAST_SHARE * int(answers.held.retained[0])
    todo: list[tuple[int, Holder, str]] = []
    others = [row.holder for row in rows if row.holder.retained_bytes < least]
    for row in rows[: len(rows) - len(others)]:
        inside = answers.inside(row, _DEPTH, least=_LEAST_SHARE, most=_MOST_GROUPS)
        todo.append(
            (
                -1,
                row.holder._replace(below=inside),
                in_words(row.holder.name, names) or words.holder(row.holder),
            )
        )
    while todo:
        above, holder, name = todo.pop()
        below = holder.below
        nodes.append(
            HeapNode(
                above, name, holder.object,
                holder.retained_bytes - sum(one.retained_bytes for one in below),
                holder.retained_blocks - sum(one.retained_blocks for one in below),
            )
        )  # fmt: skip
        todo += [(len(nodes) - 1, one, words.kind(one.parts[0])) for one in below]
    if others:
        sums = sum(one.retained_bytes for one in others), sum(one.retained_blocks for one in others)
        nodes.append(HeapNode(-1, "other holders", "", *sums))
    lost = answers.lost_groups()
    if lost:
        nodes.append(HeapNode(-1, "perhaps lost" if answers.found.gaps else "lost", "", 0, 0))
    top = len(nodes) - 1
    for one in lost:
        part = Part(one.structures, 0, one.block_bytes, one.class_name)
        nodes.append(HeapNode(top, f"beginning with {words.kind(part)}", "", one.bytes, one.blocks))
    return nodes


def _columns(answers: Answers, rows: Sequence[Row]) -> Optional[BlockColumns]:
    """Return the live blocks, each with the place in *rows* of what holds it."""
    np = import_numpy()
    graph = answers.graph
    live = np.flatnonzero(graph.live)
    if len(live) > _MOST_BLOCKS:
        return None
    row_of_top = np.full(len(answers.held.nodes), LOST, np.int32)
    for place, row in enumerate(rows):
        row_of_top[row.numbers] = place
    holders = row_of_top[answers.tops][answers.held.number[live]]
    holders[answers.reached.phases[live] == TEXT_END] = MAYBE_LOST
    addresses = answers.found.blocks.addresses(live)
    return BlockColumns(
        len(live),
        _pack(np.diff(addresses, prepend=np.int64(0)), "<i8"),
        _pack(graph.sizes_of(live) >> 4, "<u4"),
        _pack(holders, "<i4"),
    )


def _pack(column: Any, kind: str) -> str:
    return base64.b64encode(zlib.compress(column.astype(kind).tobytes(), _FAST)).decode("ascii")


def _unpack(text: str, kind: str, count: int) -> Any:
    """Return *count* numbers. Raises ValueError for any other text; no more is unpacked than they take."""
    np = import_numpy()
    size, unpacking = np.dtype(kind).itemsize * count, zlib.decompressobj()
    try:
        data = unpacking.decompress(base64.b64decode(text, validate=True), size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(data) != size or not unpacking.eof:
        raise ValueError("a column of another length")
    return np.frombuffer(data, kind)


def unpacked(saved: SavedHeap) -> tuple[Any, Any, Any]:
    """Return address, size (bytes) and holder (its place, or LOST, MAYBE_LOST) of the live blocks of *saved*, int64.

    Raises ValueError if they are not what save_heap() made.
    """
    np = import_numpy()
    blocks = saved.blocks
    assert blocks is not None
    if not 0 <= blocks.blocks <= _MOST_BLOCKS:
        raise ValueError("too many blocks")
    addresses = np.cumsum(_unpack(blocks.addresses, "<i8", blocks.blocks))
    sizes = _unpack(blocks.sizes, "<u4", blocks.blocks).astype(np.int64) << 4
    holders = _unpack(blocks.holders, "<i4", blocks.blocks).astype(np.int64)
    if len(holders) and not MAYBE_LOST <= holders.min() <= holders.max() < len(saved.holders):
        raise ValueError("a holder that is not listed")
    if len(addresses) and (addresses[0] < 0 or (np.diff(addresses) <= 0).any()):
        raise ValueError("blocks out of order")
    return addresses, sizes, holders


def encode_blocks(saved: SavedHeap, blocks: tuple[Any, Any, Any], kind: str) -> bytes:
    """Return the *blocks* of *saved*, as heap_blocks() gives them, as a file of *kind*. Raises MissingToolError."""
    from gdbmem.profiles.export import encode_columns, parquet_text  # slow to import

    np = import_numpy()
    addresses, sizes, holders = blocks
    words = HolderWords({})  # names are demangled
    rows = [(words.sum(one), one.kind, one.object) for one in saved.holders]
    rows += [("", "", "")] * 2  # LOST and MAYBE_LOST, which count from the end
    held = {
        name: ("name", np.array([*map(parquet_text, column)], object)[holders])
        for name, column in zip(("holder", "holder_kind", "holder_object"), zip(*rows))
    }
    lost = np.array([*[None] * len(saved.holders), "perhaps", "lost"], object)[holders]
    return encode_columns(
        {"address": ("int64", addresses), "size_bytes": ("int64", sizes), **held, "lost": ("name", lost)},
        {"allocator": saved.view.allocator, "target": parquet_text(saved.view.program) or ""},
        kind,
    )
