"""Claims of a diff on files with a threshold, compared with the same run recorded without one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from gdbmem.formats.opening import open_profile
from gdbmem.model.calltree import Profile, Snapshot
from gdbmem.model.diff import Diff
from gdbmem.profiles.diff import diff_snapshots
from gdbmem.profiles.paths import frame_text
from tests.cover import cover

pytestmark = pytest.mark.needs("g++", "valgrind")

Path_ = tuple[str, ...]
_NODE = re.compile(r"( *)n\d+: (\d+) (.*)")


@pytest.fixture(scope="module")
def record(program: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("honest")
    binary = program("sliding")

    def run(threshold: str) -> Path:
        file = folder / f"threshold-{threshold}"
        if not file.exists():
            command = [
                "valgrind",
                "--tool=massif",
                "--time-unit=B",
                "--detailed-freq=1",
                f"--threshold={threshold}",
            ]
            subprocess.run(
                [*command, f"--massif-out-file={file}", str(binary)],
                check=True,
                capture_output=True,
                timeout=60,
            )
        return file

    return run


def trees_by_address(file: Path) -> list[dict[Path_, int]]:
    """Return, for each snapshot, the bytes of each path, addresses included."""
    trees = []
    for part in file.read_text(errors="surrogateescape").split("#-----------\nsnapshot=")[1:]:
        found: dict[Path_, int] = {}
        stack: list[str] = []
        for match in filter(None, map(_NODE.fullmatch, part.split("\n"))):
            depth = len(match[1])
            stack[depth:] = [match[3]]
            if depth and not match[3].startswith("in "):
                path = tuple(stack[1:])
                found[path] = found.get(path, 0) + int(match[2])
        trees.append(found)
    return trees


def without_address(entry: str) -> str:
    """Return what *entry* of a path is called: by its address where it has no name."""
    address, text = entry.split(": ", 1)
    if not text.startswith("???"):
        return text
    return text.replace("???", address, 1) if " (" in text else f"{address} (in ???)"


def claims(diff: Diff) -> Iterator[tuple[Path_, int, int]]:
    """Yield (path, delta, uncertain) of each node that is listed."""
    paths: list[Path_] = [()]
    for node in range(1, len(diff)):
        number = diff.frame[node]
        paths.append((*paths[diff.parent[node]], frame_text(diff.frames[number]) if number >= 0 else ""))
        if number >= 0:
            yield paths[node], diff.after[node] - diff.before[node], diff.uncertain[node]


def side(profile: Profile, index: int) -> Snapshot:
    tree = profile.tree(index)
    assert tree is not None
    return Snapshot(profile.source, str(index), profile.snapshots[index], tree)


@pytest.mark.parametrize("threshold", cover(["1.0", "4.0"], lambda threshold: threshold == "4.0"))
def test_no_listed_call_site_changed_by_more_than_the_diff_allows(
    threshold: str, record: Callable[[str], Path]
) -> None:
    cut, whole = open_profile(record(threshold)), open_profile(record("0"))
    assert [t.heap_bytes for t in cut.snapshots] == [t.heap_bytes for t in whole.snapshots], (
        "the same run twice"
    )
    shown, true = trees_by_address(record(threshold)), trees_by_address(record("0"))
    with_tree = [totals.index for totals in cut.snapshots if totals.has_tree]
    uncertain_count = 0
    for step in (1, 7, 20):
        for before, after in zip(with_tree, with_tree[step:]):
            truth: dict[Path_, int] = {}
            for path in {*shown[before], *shown[after]}:
                text = tuple(map(without_address, path))
                truth[text] = truth.get(text, 0) + true[after].get(path, 0) - true[before].get(path, 0)
            diff = diff_snapshots(side(cut, before), side(cut, after))
            diff.check()
            for listed, delta, uncertain in claims(diff):
                assert abs(delta - truth[listed]) <= uncertain, (before, after, listed)
                uncertain_count += uncertain > 0
    assert uncertain_count > 50, "the program is there to slide under the threshold"


def test_without_a_threshold_nothing_is_uncertain(record: Callable[[str], Path]) -> None:
    profile = open_profile(record("0"))
    with_tree = [totals.index for totals in profile.snapshots if totals.has_tree]
    assert len(with_tree) > 20
    for before, after in zip(with_tree, with_tree[5:]):
        diff = diff_snapshots(side(profile, before), side(profile, after))
        diff.check()
        assert not any(diff.uncertain)
