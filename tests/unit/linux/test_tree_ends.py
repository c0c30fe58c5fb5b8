"""The samples of a tree whose last process ends."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import cast

import pytest

from gdbmem.linux.monitoring import tree as trees
from gdbmem.linux.monitoring.cgroup import Family
from gdbmem.linux.monitoring.sampling import ProcessFiles, ProcessGone
from gdbmem.linux.monitoring.tree import Tree
from gdbmem.model.series import TREE

MIB = 1 << 20


def tree_of(*sizes: int) -> Tree:
    """Return a tree of this process, whose cgroup has these sizes one after the other."""
    held = iter(sizes)
    family = SimpleNamespace(held_bytes=lambda: next(held), kernel_bytes=lambda: 0, folder=None)
    roots = {os.getpid()}
    return Tree(lambda: roots, events=None, follow=False, roots_are_known=True, family=cast(Family, family))


def test_a_program_that_ends_while_it_is_read_is_not_half_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tree_of(10 * MIB, 8 * MIB, 10 * MIB, 5 * MIB)
    assert dict(tree.look(0.0, sweep=False).readings)[TREE].family_bytes == 9 * MIB, "it has shrunk itself"
    monkeypatch.setattr(trees, "has_ended", lambda files: True)
    assert dict(tree.look(1.0, sweep=False).readings)[TREE].family_bytes is None
    tree.close()


def test_memory_that_the_kernel_takes_from_an_ended_program_is_no_fall_of_the_series(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its cgroup has less from sample to sample while that lasts: half, then nothing."""
    tree = tree_of(10 * MIB, 10 * MIB, 5 * MIB, MIB, 0, 0)
    assert dict(tree.look(0.0, sweep=False).readings)[TREE].family_bytes == 10 * MIB

    def gone(files: ProcessFiles) -> None:
        raise ProcessGone

    monkeypatch.setattr(ProcessFiles, "stat", gone)
    for moment in (1.0, 2.0):
        look = tree.look(moment, sweep=False)
        assert [reading.family_bytes for line, reading in look.readings if line == TREE] in ([None], [])
    assert tree.alive == 0
    tree.close()


def test_a_process_that_is_killed_while_its_pss_is_read_has_its_last_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That takes long for a large process at its limit: the series would end an interval earlier."""
    tree = Tree(lambda: {os.getpid()}, events=None, follow=False, roots_are_known=True)
    assert tree.look(0.0, sweep=True).begun is None

    def gone(files: ProcessFiles) -> None:
        monkeypatch.setattr(ProcessFiles, "stat", gone)
        raise ProcessGone

    monkeypatch.setattr(ProcessFiles, "rollup", gone)
    look = tree.look(1.0, sweep=True)
    assert not [reading for _, reading in look.readings if reading.rss_bytes] and tree.alive == 0
    assert look.begun is not None and look.begun.t == 1.0 < look.t
    assert dict(look.begun.readings())[1].rss_bytes
    tree.close()
