"""Twin mappings: memory that a process and one that it forked had in common at the fork."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

from gdbmem.linux.memory.maps import Mapping
from gdbmem.linux.process.auxv import random_bytes


class Twin(NamedTuple):
    """A range of addresses with the same private memory, or file, behind it in both processes."""

    start: int
    end: int
    parent: Mapping
    child: Mapping


def runs_same_program(parent: int, child: int) -> Optional[bool]:
    """Return whether neither *parent* nor *child* has executed a program since the fork; None if this is unknown.

    A process that did has nothing of its parent's memory, even if its mappings are at the same addresses.
    """
    ours, theirs = random_bytes(parent), random_bytes(child)
    return ours == theirs if ours and theirs else None


def are_twins(parent: Mapping, child: Mapping) -> bool:
    """Return whether two overlapping mappings can have the same memory behind them where they overlap.

    Names and bounds do not count: new memory beside a mapping moves its start, a file may be deleted meanwhile, and
    the kernel calls only a part of the heap [heap].
    """
    if parent.permissions[3] != "p" or child.permissions[3] != "p":
        return False
    if (parent.inode, parent.device) != (child.inode, child.device):
        return False
    return not parent.inode or parent.offset - parent.start == child.offset - child.start


def find_twins(parent: Sequence[Mapping], child: Sequence[Mapping]) -> Iterator[Twin]:
    """Yield the ranges of twin mappings, given both processes' mappings in order of address."""
    number = 0
    for mapping in parent:
        while number < len(child) and child[number].end <= mapping.start:
            number += 1
        for other in child[number:]:
            if other.start >= mapping.end:
                break
            if are_twins(mapping, other):
                yield Twin(max(mapping.start, other.start), min(mapping.end, other.end), mapping, other)


def is_private_data(mapping: Mapping) -> bool:
    """Return whether *mapping* is private and writable: a fork shares it until one process writes."""
    return (
        mapping.permissions[1] == "w" and mapping.permissions[3] == "p" and not mapping.name.startswith("[v")
    )
