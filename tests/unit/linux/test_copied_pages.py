"""The inherited memory that forked processes have copied, also those whose PSS was never read."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest

from gdbmem.linux.monitoring.children import CopiedPages
from gdbmem.linux.monitoring.sampling import ProcessFiles, StatmSample
from gdbmem.linux.process.process import Counts, Stat
from gdbmem.model.series import ProcessSample

MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
PARENT, HELD = 1, 400 * MIB


class _Files:
    """A process that shares 400 MiB with its parent."""

    def __init__(self, pid: int, program: bytes = b"python") -> None:
        self.pid = pid
        self.program = program
        self.held = HELD

    def image(self) -> tuple[bytes, ...]:
        return (self.program,)

    def statm(self) -> StatmSample:
        return StatmSample(self.held, 0)


class _Tree:
    """A parent and what it forks, as a monitor looks at them."""

    def __init__(self) -> None:
        self.copied = CopiedPages()
        self.parent = _Files(PARENT)
        self.waited = 0
        self.look(0.0)

    def look(self, t: float, *, faults: int = 0, of: Any = ()) -> None:
        self.copied.saw(cast(ProcessFiles, self.parent), _stat(PARENT, waited=self.waited), t)
        for files in of:
            self.copied.saw(cast(ProcessFiles, files), _stat(files.pid, faults=faults), t)
        self.copied.total()  # as at the end of each look

    def fork(self, pid: int, t: float, *, taken: int = 0) -> _Files:
        """It has *taken* memory of its own before it is first seen."""
        files = _Files(pid)
        files.held += taken
        self.copied.born(pid, cast(ProcessFiles, files), cast(ProcessFiles, self.parent), t, now=True)
        return files

    def read(self, files: _Files, faults: int, copied: int) -> None:
        reading = ProcessSample(
            rss_bytes=files.held, shared_bytes=0, minor_faults=faults, private_dirty_bytes=copied
        )
        self.copied.read(files.pid, cast(ProcessFiles, files), reading)

    def end(self, files: _Files, t: float, faults: int) -> None:
        """It dies, and its parent has waited for it, which reports its *faults*."""
        self.waited += faults
        self.copied.saw(cast(ProcessFiles, self.parent), _stat(PARENT, waited=self.waited), t)
        self.copied.died(files.pid)
        self.copied.total()


def _stat(pid: int, *, faults: int = 0, waited: int = 0) -> Stat:
    return Stat("python", "S", PARENT, Counts(faults, 0, 0.0), Counts(waited, 0, 0.0), 1, pid)


def test_a_worker_that_lived_between_two_reads_of_pss_counts_as_its_siblings_do() -> None:
    tree = _Tree()
    for pid in (10, 11):
        worker = tree.fork(pid, float(pid))
        tree.look(pid + 0.2, faults=10, of=[worker])
        if pid == 10:
            tree.read(worker, faults=10_000, copied=8_000 * PAGE)
        tree.end(worker, pid + 0.9, faults=10_000)
    size, copiers = tree.copied.total()
    assert size == pytest.approx(16_000 * PAGE, rel=0.01)
    assert copiers == 2


def test_a_child_that_has_executed_something_else_has_copied_nothing_whatever_its_siblings_did() -> None:
    tree = _Tree()
    worker = tree.fork(10, 10.0)
    tree.look(10.2, faults=10, of=[worker])
    tree.read(worker, faults=10_000, copied=8_000 * PAGE)
    other = tree.fork(11, 10.3)
    other.program = b"ls"
    tree.look(10.5, faults=500, of=[worker, other])
    tree.end(other, 10.6, faults=600)
    tree.end(worker, 10.9, faults=10_000)
    assert tree.copied.total() == (8_000 * PAGE, 1)


def test_a_child_that_was_gone_before_it_could_have_executed_something_is_not_guessed_at() -> None:
    tree = _Tree()
    worker = tree.fork(10, 10.0)
    tree.look(10.2, faults=10, of=[worker])
    tree.read(worker, faults=10_000, copied=8_000 * PAGE)
    tree.end(worker, 10.5, faults=10_000)
    brief = tree.fork(11, 11.0)
    tree.look(11.001, faults=5, of=[brief])
    tree.end(brief, 11.01, faults=600)
    assert tree.copied.total() == (8_000 * PAGE, 1)


def test_a_worker_can_not_have_copied_more_than_it_has_inherited() -> None:
    tree = _Tree()
    for pid in (10, 11):
        worker = tree.fork(pid, float(pid))
        tree.look(pid + 0.2, faults=10, of=[worker])
        if pid == 10:
            tree.read(worker, faults=100, copied=100 * PAGE)
        tree.end(worker, pid + 0.9, faults=100 if pid == 10 else 10**7)
    assert tree.copied.total() == (100 * PAGE + HELD, 2)


def test_memory_that_a_child_took_before_it_was_first_seen_is_no_copy() -> None:
    tree = _Tree()
    worker = tree.fork(10, 10.0, taken=4 * MIB)
    tree.look(10.2, faults=1100, of=[worker])
    tree.read(worker, faults=1200, copied=4 * MIB + 100 * PAGE)
    assert tree.copied.total() == (100 * PAGE, 1)


def test_what_was_copied_outlives_the_parent_and_never_falls() -> None:
    tree = _Tree()
    worker, other = tree.fork(10, 1.0), tree.fork(11, 1.0)
    tree.look(1.5, faults=1000, of=[worker, other])
    tree.read(worker, faults=1000, copied=500 * PAGE)
    sizes = [tree.copied.total()[0]]
    assert sizes == [1000 * PAGE]  # the other one, alike, has had as many faults
    tree.read(other, faults=1000, copied=100 * PAGE)
    sizes.append(tree.copied.total()[0])
    for pid in (10, 11, PARENT):
        tree.copied.died(pid)
        sizes.append(tree.copied.total()[0])
    assert sizes == sorted(sizes)


def test_a_look_is_due_soon_after_a_birth_for_that_alone() -> None:
    tree = _Tree()
    assert tree.copied.next_look is None
    worker = tree.fork(10, 5.0)
    due = tree.copied.next_look
    assert due is not None and 5.0 < due < 5.5
    tree.look(due, faults=10, of=[worker])
    assert tree.copied.next_look is None
