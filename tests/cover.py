"""Tables of tests whose cells prove much the same: some are always run, the others by `scripts/test --thorough`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def cover(cells: Iterable[Any], always: Callable[..., bool]) -> list[Any]:
    """Return *cells* for parametrize; those for which *always* is false are marked `thorough`.

    A cell that is a tuple is what *always* gets as its arguments.
    """
    found = []
    for cell in cells:
        values = cell if isinstance(cell, tuple) else (cell,)
        marks = () if always(*values) else (pytest.mark.thorough,)
        found.append(pytest.param(*values, marks=marks))
    return found


def diagonals(rows: Sequence[Any], columns: Sequence[Any], kept: Sequence[int]) -> list[Any]:
    """Return all pairs of *rows* and *columns* for parametrize; always run are those on *kept* diagonals.

    So each row is always run with as many columns as *kept* has numbers, and columns are about as often met.
    """
    places = {
        (id(row), id(column)): (i + j) % len(columns)
        for (i, row), (j, column) in itertools.product(enumerate(rows), enumerate(columns))
    }
    pairs = itertools.product(rows, columns)
    return cover(pairs, lambda row, column: places[id(row), id(column)] in kept)
