"""Columns of numpy: distinct values by a table and by sorting are those of numpy's unique()."""

from __future__ import annotations

import pytest

from gdbmem.arrays import import_numpy, places_of

np = import_numpy()


@pytest.mark.parametrize("most", [1, 50, 1 << 20, 1 << 60])
@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_distinct_values_and_their_places_are_those_of_numpy(most: int, kind: object) -> None:
    values = np.random.default_rng(1).integers(0, most, 1000).astype(kind)
    found, places = places_of(values)
    wanted, wanted_places = np.unique(values, return_inverse=True)
    assert found.dtype == values.dtype
    assert (found == wanted).all()
    assert (places == wanted_places).all()


def test_no_values_have_no_distinct_ones() -> None:
    found, places = places_of(np.zeros(0, np.int64))
    assert (len(found), len(places)) == (0, 0)
