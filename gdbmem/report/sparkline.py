"""A course of numbers as one line of characters."""

from __future__ import annotations

from collections.abc import Sequence


def thinned(course: Sequence[int], count: int) -> list[int]:
    """Return at most *count* values of *course*, the last of each stretch."""
    if len(course) <= count:
        return list(course)
    return [course[(number + 1) * len(course) // count - 1] for number in range(count)]


def sparkline(course: Sequence[int], levels: str) -> str:
    """Return *course* as one line of characters, from the lowest of *levels* to the highest."""
    low, high = min(course), max(course)
    height = max(high - low, 1)
    return "".join(levels[1 + round((value - low) * (len(levels) - 2) / height)] for value in course)
