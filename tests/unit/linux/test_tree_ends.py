"""The samples of a tree whose last process ends."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import cast

import pytest

from gdbmem.linux.monitoring import sampling
from gdbmem.linux.monitoring.cgroup import Family
from gdbmem.linux.monitoring.sampling import ProcessFiles, ProcessGone
from gdbmem.linux.monitoring.tree import Tree
from gdbmem.model.series import TREE

MIB = 1 << 20


def test_memory_that_the_kernel_takes_from_an_ended_program_is_no_fall_of_the_series(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its cgroup has less from sample to sample while that lasts: half, then nothing."""
    sizes = iter([10 * MIB] * 2 + [5 * MIB, MIB, 0, 0])
    family = cast(
        Family, SimpleNamespace(held_bytes=lambda: next(sizes), kernel_bytes=lambda: 0, folder=None)
    )
    tree = Tree(lambda: {os.getpid()}, events=None, follow=False, roots_are_known=True, family=family)
    monkeypatch.setattr(sampling, "_DYING_AT_MOST", 60.0)
    before = dict(tree.look(0.0, sweep=False).readings)
    assert before[TREE].family_bytes == 10 * MIB

    def gone(files: ProcessFiles) -> None:
        raise ProcessGone

    monkeypatch.setattr(ProcessFiles, "stat", gone)
    for moment in (1.0, 2.0):
        look = tree.look(moment, sweep=False)
        assert [reading.family_bytes for line, reading in look.readings if line == TREE] in ([None], [])
    assert tree.alive == 0
    tree.close()
