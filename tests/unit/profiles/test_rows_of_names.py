"""Functions of which only the names are known are grouped without a table, as they would be with one."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest

from gdbmem.api.profiles import ReadOptions, as_growth, load_from_profile, open_profile
from gdbmem.formats.stacks import _all_of
from gdbmem.model.calltree import Frames, Names, lines_of
from gdbmem.profiles.own_code import OTHER, OWN
from gdbmem.profiles.paths import Query, _sites, ranks_of
from gdbmem.profiles.ranking import GroupedPaths


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


def test_the_place_of_a_path_of_own_code_alone_is_its_first_function(tmp_path: Path) -> None:
    file = tmp_path / "stacks.folded"
    file.write_text("".join(f"main;f{n % 7};g{n % 5};h{n % 13} {n + 1}\n" for n in range(400)) + "main 3\n")
    diff = as_growth(load_from_profile(open_profile(file, ReadOptions()), "peak").snapshot)
    own = ranks_of(diff)
    assert set(own) == {OWN}
    assert _sites(diff, own) == _sites(diff, bytes([*own, OTHER])), "as if some code were not own"


def test_names_in_one_text_are_read_as_those_in_a_list() -> None:
    words = ["main", "", "é", "f(int)", "x" * 300, "\udcff", "main(int)"]
    names = Names(words)
    assert list(names) == words
    assert [names[at] for at in range(-len(words), len(words))] == [*words, *words]
    assert (names[1:4], len(names), list(Names([]))) == (words[1:4], len(words), [])
    assert "é" in names and names.index("f(int)") == 3
    with pytest.raises(IndexError):
        names[len(words)]
    assert lines_of(names) == lines_of(words) == "".join(f"\n{word}" for word in words)


@pytest.mark.parametrize(
    "names", [["main", "a", "main", "b", "main"], ["b", "main", "c"], ["a\nmain\nb", "main"], [None], []]
)
def test_all_functions_of_a_name_are_found(names: list[Optional[str]]) -> None:
    expected = [number for number, name in enumerate(names) if name == "main"]
    assert list(_all_of("main", names)) == expected
    if len(set(names)) == len(names) and not any(name is None or "\n" in name for name in names):
        assert list(_all_of("main", Names([name or "" for name in names]))) == expected
