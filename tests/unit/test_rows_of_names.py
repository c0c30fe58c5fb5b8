"""Functions of which only the names are known are grouped without a table, as they would be with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gdbmem.analysis.profiles.grouping import GroupedPaths
from gdbmem.analysis.profiles.query import Query
from gdbmem.api.profiles import ReadOptions, as_growth, load_from_profile, open_profile
from gdbmem.model.profiles.calltree import Frames


@pytest.mark.parametrize("place", ["", " (in libz.so)", " (a.c:3)"])
def test_distinct_names_are_grouped_as_any_others(tmp_path: Path, place: str) -> None:
    file = tmp_path / "stacks.folded"
    file.write_text("".join(f"main;f{n % 7}{place};g{n % 5};h{n} {n + 1}\n" for n in range(40)))
    found = []
    for distinct in (True, False):
        diff = as_growth(load_from_profile(open_profile(file, ReadOptions()), "peak").snapshot)
        assert isinstance(diff.frames, Frames)
        assert diff.frames.distinct
        diff.frames.distinct = distinct
        paths = GroupedPaths(diff, Query(by="line"))
        groups = paths.changed(Query(by="line"))
        found.append([(paths.row(group).site, paths.amount(group)) for group in groups])
    assert found[0] == found[1]
    assert len(found[0]) == 40
