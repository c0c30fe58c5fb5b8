"""Resident memory that was not touched for a while, by the entries of a ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gdbmem.records import dataclass


@dataclass(frozen=True)
class IdleEntry:
    """An entry of the ledger; sizes are bytes.

    Accessed bits are counted by mapping: where several entries share one, only bounds are known.
    """

    category: str
    label: str
    resident_bytes: int
    least_idle_bytes: int
    most_idle_bytes: int


class BlockSum(NamedTuple):
    """Live blocks of malloc; bytes without its headers."""

    blocks: int
    bytes: int


@dataclass(frozen=True)
class BlockGroup:
    """The live blocks in one mapping, or in a part of it."""

    start: int  # of the mapping
    mapping_bytes: int
    # By kind, as model.ledger.block_types has it, and mangled class.
    types: Mapping[tuple[str, str], BlockSum]
    sizes: Mapping[int, BlockSum]  # by the bytes of each


@dataclass(frozen=True)
class IdleBlocks:
    """Live blocks of one type, or of one size; sizes are bytes, with bounds as those of entries."""

    kind: str  # as model.ledger.block_types has it; "" if they are alike in size
    name: str  # of the class, mangled
    size_bytes: int  # of each; 0 if they are alike in type
    blocks: int
    bytes: int
    least_idle_bytes: int
    most_idle_bytes: int


@dataclass(frozen=True)
class TreeHolder:
    """A place that owns nodes of trees."""

    name: str  # of a variable, mangled; else in words
    share: float  # of the nodes, by bytes, estimated from a sample


@dataclass(frozen=True)
class IdleMemory:
    """Memory that was resident at the end of some time and was not touched in it; sizes are bytes."""

    seconds: float
    rss_bytes: int
    idle_bytes: int
    entries: Sequence[IdleEntry]
    types: Sequence[IdleBlocks] = ()
    sizes: Sequence[IdleBlocks] = ()
    tree_holders: Sequence[TreeHolder] = ()
