"""Massif files cut again at a larger threshold than they were recorded with, as massif itself would have: by hand

python -m tests.unit.recutting FILE      on a file recorded with --threshold=0: how many rows have the truth within ±
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from gdbmem.formats.valgrind.massif import MassifProfile, read_massif
from gdbmem.model.calltree import Snapshot
from gdbmem.profiles.diff import diff_snapshots
from gdbmem.profiles.paths import Query
from gdbmem.profiles.ranking import Row, rank
from gdbmem.profiles.timeline import APPEARED, VANISHED

_NODE = re.compile(rb"( *)n(\d+): (\d+) (.*)")


class _Node(NamedTuple):
    size: int
    text: bytes
    children: list[_Node]


def cut_again(data: bytes, percent: float) -> bytes:
    """Return *data*, a whole massif file of threshold 0, with what massif leaves out at *percent* left out."""
    found: list[bytes] = []
    total = 0
    lines = iter(data.splitlines())
    tree: list[bytes] = []
    for line in lines:
        if _NODE.fullmatch(line):
            tree.append(line)
            continue
        found += _cut(tree, total, percent)
        tree = []
        if line.startswith(b"mem_heap_B="):
            total = 0
        if line.startswith(b"mem_"):
            total += int(line.partition(b"=")[2])
        found.append(line)
    return b"\n".join([*found, *_cut(tree, total, percent)]) + b"\n"


def _cut(lines: Sequence[bytes], total: int, percent: float) -> Iterator[bytes]:
    if not lines:
        return
    stack: list[_Node] = []
    for line in lines:
        match = _NODE.fullmatch(line)
        assert match is not None
        node = _Node(int(match[3]), match[4], [])
        depth = len(match[1])
        del stack[depth:]
        if stack:
            stack[-1].children.append(node)
        stack.append(node)
    yield from _lines(stack[0], 0, int(total * percent / 100), percent)


def _lines(node: _Node, depth: int, significant: int, percent: float) -> Iterator[bytes]:
    kept = [child for child in node.children if child.size >= significant]
    merged = [child for child in node.children if child.size < significant]
    if merged:
        what = b"in %d place%s below massif's threshold (%.2f%%)" % (
            len(merged), b"s, all" if len(merged) > 1 else b",", percent,
        )  # fmt: skip
        kept.append(_Node(sum(child.size for child in merged), what, []))
    yield b"%sn%d: %d %s" % (b" " * depth, len(kept), node.size, node.text)
    for child in sorted(kept, key=lambda child: -child.size):
        yield from _lines(child, depth + 1, significant, percent)


class Judged(NamedTuple):
    """Comparison of the rows of cut files with those of whole ones."""

    rows: int
    outside: list[str]  # rows whose truth isn't within ±
    wrong: list[str]  # "appeared" or "vanished" that did not
    doubtful: int  # rows with a ±


def judge(whole: bytes, percent: float, by: str) -> Judged:
    """Compare each two trees of *whole* with the same two cut at *percent*, row by row."""
    true, cut = (read_massif(data, "file.ms") for data in (whole, cut_again(whole, percent)))
    trees = [totals.index for totals in true.snapshots if totals.has_tree and totals.heap_bytes]
    judged = Judged(0, [], [], 0)
    for first, second in combinations(trees, 2):
        judged = _judge_pair(true, cut, (first, second), by, judged)
    return judged


def _judge_pair(
    true: MassifProfile, cut: MassifProfile, pair: tuple[int, int], by: str, so_far: Judged
) -> Judged:
    # Which functions only allocate is found out from each file anew: here all frames count as the program's own.
    query = Query(by=by, all_frames=by == "path", mine=re.compile("."))
    truth = {_key(row, by): row.amount for row in rank(diff_snapshots(*_sides(true, pair)), query).rows}
    rows, outside, wrong, doubtful = so_far
    for row in rank(diff_snapshots(*_sides(cut, pair)), query).rows:
        if row.site is None or (row.is_pruned and by == "path"):
            continue
        rows += 1
        doubtful += row.amount.uncertain_bytes > 0
        known = truth.get(_key(row, by))
        delta = known.delta_bytes if known is not None else 0
        if abs(row.amount.delta_bytes - delta) > row.amount.uncertain_bytes:
            outside.append(
                f"{pair} {_key(row, by)}: {row.amount.delta_bytes} ± {row.amount.uncertain_bytes}, not {delta}"
            )
        if (
            row.amount.change in (APPEARED, VANISHED)
            and known is not None
            and known.change != row.amount.change
        ):
            wrong.append(f"{pair} {_key(row, by)}: {row.amount.change}")
    return Judged(rows, outside, wrong, doubtful)


def _sides(profile: MassifProfile, pair: tuple[int, int]) -> list[Snapshot]:
    sides = []
    for index in pair:
        tree = profile.tree(index)
        assert tree is not None
        sides.append(Snapshot(profile.source, str(index), profile.snapshots[index], tree))
    return sides


def _key(row: Row, by: str) -> object:
    if by == "path":
        return tuple(frame.key for frame in row.frames)
    site = row.site
    if site is None:
        return None
    if by == "function":
        return site.function or site.object
    return (site.file, site.line) if site.file is not None else (site.object, site.function)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for share in (1.0, 5.0):
            for grouping in ("path", "line", "function"):
                result = judge(Path(name).read_bytes(), share, grouping)
                print(
                    f"{name} at {share:g} %, by {grouping}: {result.rows} rows, {result.doubtful} with ±,",
                    end=" ",
                )
                print(f"{len(result.outside)} outside, {len(result.wrong)} falsely new or gone")
                for line in result.outside[:3]:
                    print("   ", line[:220])
