"""Twin mappings: memory that a process and one that it forked had in common at the fork."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gdbmem.linux.memory.maps import Mapping


class Twin(NamedTuple):
    """A range of addresses with the same private memory, or file, behind it in both processes."""

    start: int
    end: int
    parent: Mapping
    child: Mapping


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
