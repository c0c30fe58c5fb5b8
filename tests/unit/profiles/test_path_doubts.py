"""How far rows may be off where paths from one instruction may have some of each other's memory."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from gdbmem.formats.json_profiles import faults_profile
from gdbmem.model.calltree import Frame, Snapshot
from gdbmem.model.diff import Diff, Expectation, Position
from gdbmem.model.faults import FaultTotals, NamedFaults, NamedStack
from gdbmem.page.explorer import profile_data
from gdbmem.profiles.diff import as_growth
from gdbmem.profiles.paths import Query
from gdbmem.profiles.ranking import rank
from gdbmem.recipes.verdicts import judge

MIB = 1 << 20
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
MEMSET = Frame("memset", object=LIBC)
FILL, OTHER, TOUCH = Frame("fill", "a.c", 1), Frame("other", "a.c", 2), Frame("touch", "a.c", 3)
CALLERS = [Frame(name, "a.c", line) for line, name in enumerate(("one", "two", "three"), 10)]


class Path(NamedTuple):
    frames: tuple[Frame, ...]
    error: float  # MiB


THROUGH_LIBC = [Path((MEMSET, FILL, caller), 2.0) for caller in CALLERS]
OWN = [Path((TOUCH, caller), 2.0) for caller in CALLERS]
BESIDE = Path((MEMSET, OTHER), 3.0)


def growth(*paths: Path) -> Diff:
    """Return growth of 10 MiB along each of *paths*, with its error."""
    frames = list(dict.fromkeys(frame for path in paths for frame in path.frames))
    stacks = [
        NamedStack(
            [frames.index(frame) for frame in path.frames], 1, 1, 10.0 * MIB, 10.0 * MIB, 2560, 0.0, 0.0,
            seen_path_variance=(path.error * MIB) ** 2, grown_path_variance=(path.error * MIB) ** 2,
        )
        for path in paths
    ]  # fmt: skip
    totals = FaultTotals(1.0, 1, 1, 0, 1, 1, sees_kernel_mode=True, broken_paths=0)
    profile = faults_profile(NamedFaults("x", totals, {}, frames, stacks), "x")
    tree = profile.tree(0)
    assert tree is not None and tree.variance is None
    return as_growth(Snapshot("x", "x", profile.snapshots[0], tree, unit=profile.unit))


def errors(diff: Diff, by: str) -> dict[str, float]:
    """Return the errors of the rows by their functions, in MiB."""
    found = {}
    for row in rank(diff, Query(by=by)).rows:
        assert row.site is not None
        name = "/".join(str(frame.function) for frame in row.frames) if by == "path" else row.site.function
        found[str(name)] = row.amount.error_bytes / MIB
    return found


def test_each_path_has_its_own_error() -> None:
    assert errors(growth(*OWN), "path") == {f"touch/{name}": 2.0 for name in ("one", "two", "three")}


def test_a_line_that_touches_memory_itself_is_certain_whoever_called_it() -> None:
    assert errors(growth(*OWN), "line") == {"touch": 0.0}


def test_code_that_is_inlined_at_the_instruction_is_as_certain() -> None:
    copied = Frame("std::fill", "/usr/include/c++/12/bits/stl_algobase.h", 9, None, True)
    paths = [Path((copied, place, caller), 2.0) for place in (FILL, OTHER) for caller in CALLERS]
    assert errors(growth(*paths), "line") == {"fill": 0.0, "other": 0.0}


def test_a_line_that_calls_libc_may_have_the_memory_of_a_line_that_was_never_seen() -> None:
    # Among its callers nothing is lost.
    assert errors(growth(*THROUGH_LIBC), "line") == {"fill": pytest.approx(2.0)}


def test_a_line_that_calls_libc_may_have_the_memory_of_another_one() -> None:
    found = errors(growth(*THROUGH_LIBC, BESIDE), "line")
    assert found == {"fill": pytest.approx(3.0), "other": pytest.approx(3.0)}
    small = errors(growth(*THROUGH_LIBC, BESIDE._replace(error=0.1)), "line")
    assert small == {"fill": pytest.approx(2.0), "other": pytest.approx(0.1, abs=1e-5)}


def test_a_row_of_a_page_has_the_error_of_that_row() -> None:
    data = profile_data(growth(*THROUGH_LIBC, BESIDE), Query(by="line"))
    doubt = data["doubt"]
    assert isinstance(doubt, dict)
    assert sum(doubt["variance"]) == pytest.approx((3.0 * MIB) ** 2 * 2)


@pytest.mark.parametrize(
    ("pattern", "off"), [("", 0.0), ("touch", 0.0), ("fill", 9.0), ("one", 6.0), ("memset", 0.0)]
)
def test_an_expectation_is_uncertain_by_what_its_pattern_does_not_settle(pattern: str, off: float) -> None:
    diff = growth(*OWN) if pattern == "one" else growth(*OWN, *THROUGH_LIBC, BESIDE)
    judgement = judge(Expectation("a", "b", Position(9, 5), path=pattern, at_most=1), diff).judgement
    assert judgement.measured is not None and judgement.high is not None
    assert (judgement.high - judgement.measured) / MIB == pytest.approx(off)
