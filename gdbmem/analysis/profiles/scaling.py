"""Snapshots scaled to one total, so that a diff shows changes of the proportions."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from gdbmem.errors import InputError, Notice
from gdbmem.model.profiles.calltree import CallTree
from gdbmem.model.profiles.snapshot import Snapshot
from gdbmem.records import replace
from gdbmem.text import printable
from gdbmem.units import format_size


def normalized(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """Return *snapshots*, all but the last scaled to the total of the last, to the byte.

    Blocks are no longer counted then. Raises InputError if one of them is empty.
    """
    total_bytes = snapshots[-1].tree.bytes[0]
    for snapshot in snapshots:
        if not snapshot.tree.bytes[0]:
            raise InputError(
                f"{printable(snapshot.source)} is empty and can't be scaled",
                slug="nothing-to-normalize",
                hint="leave --normalize out",
            )
    return [replace(one, tree=_scaled(one.tree, total_bytes)) for one in snapshots]


def scaling_notices(snapshots: Sequence[Snapshot]) -> list[Notice]:
    """Return the notices on normalized(): the original total of each of *snapshots*."""
    total_bytes = snapshots[-1].tree.bytes[0]
    return [
        Notice(
            "scaled",
            f"{printable(one.source)} holds {format_size(one.tree.bytes[0])}, here scaled to"
            f" {format_size(total_bytes)} by --normalize",
        )
        for one in snapshots[:-1]
        if one.tree.bytes[0] != total_bytes
    ]


def _scaled(tree: CallTree, total_bytes: int) -> CallTree:
    whole = tree.bytes[0]
    sizes = tree.self_bytes()
    seen = scaled_seen = 0
    for node, size_bytes in enumerate(sizes):
        # Rounding the running sum, not each number, leaves the total exact.
        seen += size_bytes
        scaled = seen * total_bytes // whole
        sizes[node], scaled_seen = scaled - scaled_seen, scaled
    for node in range(len(sizes) - 1, 0, -1):
        sizes[tree.parent[node]] += sizes[node]
    factor = total_bytes / whole
    return replace(
        tree,
        bytes=sizes,
        blocks=None,
        threshold_bytes=-(-tree.threshold_bytes * total_bytes // whole),
        variance=None if tree.variance is None else array("d", [v * factor * factor for v in tree.variance]),
    )
