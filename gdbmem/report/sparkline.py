"""A series of numbers as one line of characters."""

from __future__ import annotations

from collections.abc import Sequence


def thinned(course: Sequence[int], count: int) -> list[int]:
    """Return at most *count* values of *course*: both ends, and between them the maximum of each interval."""
    if len(course) <= count or count < 3:
        return list(course) if len(course) <= count else [max(course)][:count]
    within = course[1:-1]
    cuts = [number * len(within) // (count - 2) for number in range(count - 1)]
    return [course[0], *(max(within[a:b]) for a, b in zip(cuts, cuts[1:])), course[-1]]


def sparkline(course: Sequence[int], levels: str) -> str:
    """Return *course* as one line of characters, from the lowest of *levels* to the highest."""
    low, high = min(course), max(course)
    height = max(high - low, 1)
    return "".join(levels[1 + round((value - low) * (len(levels) - 2) / height)] for value in course)
