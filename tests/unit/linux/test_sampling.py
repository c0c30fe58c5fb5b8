"""Decoding of the kernel's data on a process."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import cast

import pytest

from gdbmem.linux.memory.maps import parse_rollup
from gdbmem.linux.monitoring import cgroup, sampling
from gdbmem.linux.monitoring.children import ExitedUsage, Started, StoppedTime
from gdbmem.linux.monitoring.sampling import ProcessFiles, StatmSample, clock_of, matters, series_clock
from gdbmem.linux.monitoring.tree import Tree
from gdbmem.linux.process import process
from gdbmem.linux.process.process import Counts, Stat, parse_stat
from gdbmem.model.series import TREE, ProcessSample, SeriesFacts
from gdbmem.recording.recording import SamplingPlan, SeriesRecorder
from gdbmem.series.store import Recording, SeriesWriter
from gdbmem.series.views import PlainView

MIB = 1 << 20

STAT = (
    b"4711 (a) b (c) S 1 4711 4711 0 -1 4194560 53 21 7 4 225 968 67 11 20 0 3 0 987654 50798592 4675 "
    b"18446744073709551615 1 1 0 0 0 0 0 4096 1256 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)
ROLLUP = b"""55d0-7fff ---p 00000000 00:00 0 [rollup]
Rss:                1784 kB
Pss:                 207 kB
Pss_Anon:            112 kB
Shared_Clean:       1632 kB
Shared_Dirty:          8 kB
Private_Clean:        40 kB
Private_Dirty:       112 kB
Anonymous:           120 kB
Swap:                  4 kB
"""


def test_a_process_name_with_blanks_and_parentheses_shifts_no_column() -> None:
    stat = parse_stat(STAT)
    assert stat.name == "a) b (c"
    assert (stat.state, stat.parent, stat.threads, stat.start_ticks) == ("S", 1, 3, 987654)
    assert (stat.own.minor_faults, stat.own.major_faults) == (53, 7)
    assert (stat.waited.minor_faults, stat.waited.major_faults) == (21, 4)


def test_uss_is_private_clean_and_private_dirty() -> None:
    rollup = parse_rollup(ROLLUP)
    assert rollup.uss_bytes == 152 * 1024
    assert rollup.pss_bytes == 207 * 1024
    assert rollup.shared_dirty_bytes == 8 * 1024
    assert rollup.pss_shmem_bytes is None, "a kernel that doesn't say is not one that says 0"


class CopyBeingReleased:
    """A copy of a process of which the kernel releases the pages: it has no memory any more, but maps pages still."""

    pid = 4712
    is_gone = False

    def exit_signal(self) -> int:
        return 0

    def statm(self) -> StatmSample:
        return StatmSample(*[0] * len(StatmSample._fields))

    def stat(self) -> Stat:
        return parse_stat(STAT)._replace(state="Z" if self.is_gone else "R", threads=1)

    def close(self) -> None:
        pass


def test_pss_is_not_read_while_the_kernel_still_releases_the_pages_of_a_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling, "status_fields", lambda pid: {"TracerPid": "1"})
    copies, files = sampling.Copies(), CopyBeingReleased()
    assert copies.take(cast(ProcessFiles, files))
    assert copies.are_there(), "its pages are shared, so their parent's PSS is too low"
    files.is_gone = True
    assert not copies.are_there()


def test_a_child_that_was_seen_and_then_waited_for_is_counted_once_and_the_count_never_falls() -> None:
    def stat(parent: int, own: float, waited: float = 0.0) -> Stat:
        return Stat("x", "S", parent, Counts(0, 0, own), Counts(0, 0, waited), 1, 1)

    tally = ExitedUsage()
    assert tally.total([(1, stat(0, 1.0, 5.0)), (2, stat(1, 3.0))]).cpu_seconds == 9.0
    tally.bury(2, stat(1, 3.0), threads_started=7, parent_is_followed=True)
    assert tally.total([(1, stat(0, 1.0, 5.0))]).cpu_seconds == 9.0, "not waited for yet"
    assert tally.total([(1, stat(0, 1.0, 8.5))]).cpu_seconds == 9.5, "and half a second after the last look"
    tally.bury(1, stat(0, 2.0, 8.5), threads_started=0, parent_is_followed=False)
    assert tally.total([]).cpu_seconds == 10.5
    assert tally.dead_threads == 7
    alone = ExitedUsage(counts_children=False)
    assert alone.total([(1, stat(0, 1.0, 5.0))]).cpu_seconds == 1.0


def test_a_count_of_threads_is_not_called_exact_once_the_kernel_has_dropped_events(tmp_path: Path) -> None:
    class Overrun:
        lost = False

        def drain(self) -> list[Started]:
            self.lost = True
            return []

        def fileno(self) -> int:
            return silent

    silent, other = os.pipe()
    tree = Tree(lambda: {os.getpid()}, events=Overrun())  # type: ignore[arg-type]  # plays ProcessEvents
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    exact = SeriesFacts("x", 0.2, 0.0, "", began, exact_threads=True)
    writer, said = SeriesWriter(tmp_path, exact), io.StringIO()
    plan, view = SamplingPlan(0.01, 0.05), PlainView(said, quiet=True)
    SeriesRecorder(tree, writer, plan, view, clock=series_clock(began)).run()
    tree.close()
    writer.close()
    os.close(silent)
    os.close(other)
    assert not Recording(tmp_path).facts.exact_threads
    assert said.getvalue().count("dropped process events") == 1


def test_time_in_a_series_does_not_jump_with_the_calendar(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = series_clock(time.clock_gettime(time.CLOCK_BOOTTIME))
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= clock() < 5


def test_after_a_reboot_a_series_goes_on_by_the_calendar() -> None:
    facts = SeriesFacts("x", 1.0, time.time() - 5000, "another boot", 123.0)
    assert clock_of(facts)() == pytest.approx(5000, abs=5)


def test_hidden_proc_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not process.proc_is_hidden()
    monkeypatch.setattr(process, "stat_of", lambda pid: None)
    assert process.proc_is_hidden()


@pytest.mark.parametrize("limit", ["max\n", "104857600\n"])
def test_a_cgroup_states_its_usage_its_limit_and_its_events(tmp_path: Path, limit: str) -> None:
    (tmp_path / "memory.current").write_text("52428800\n")
    (tmp_path / "memory.max").write_text(limit)
    (tmp_path / "memory.stat").write_text("anon 1000\ninactive_file 8192\nactive_file 3\n")
    (tmp_path / "memory.events").write_text("low 0\nhigh 3\nmax 7\noom 0\noom_kill 1\n")
    memory = cgroup.read_cgroup(tmp_path)
    assert memory.usage_bytes == 50 << 20
    assert memory.limit_bytes == (None if limit == "max\n" else 100 << 20)
    assert memory.events["oom_kill"] == 1
    assert memory.cache_bytes == 8192


def test_an_old_cgroup_without_a_limit_has_none(tmp_path: Path) -> None:
    (tmp_path / "memory.usage_in_bytes").write_text("4096\n")
    (tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    memory = cgroup.read_cgroup(tmp_path)
    assert memory.usage_bytes == 4096
    assert memory.limit_bytes is None


def test_a_process_that_has_just_given_its_memory_back_is_of_unknown_size_not_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProcessFiles, "statm", lambda _: StatmSample(0, 0))
    tree = Tree(lambda: {os.getpid()}, events=None, budget=0)
    try:
        found = dict(tree.look(0.0).readings)
    finally:
        tree.close()
    assert found[1].rss_bytes is None and found[1].shared_bytes is None
    assert found[1].threads is not None


def test_what_a_family_holds_belongs_to_the_midst_of_the_round_of_pss_that_it_is_compared_with() -> None:
    class Growing:
        held = 0

        def members(self) -> list[int]:
            return []

        def kernel_bytes(self) -> None:
            return None

        def held_bytes(self) -> int:
            self.held += 100
            return self.held

    tree = Tree(lambda: {os.getpid()}, events=None, family=Growing())  # type: ignore[arg-type]  # plays Family
    look = tree.look(0.0, sweep=True)
    tree.close()
    assert dict(look.readings)[TREE].family_bytes == 150, "100 when it began, 200 when it ended"


def forked(private: int, shared: int, processes: int) -> ProcessSample:
    """Return the reading of one of *processes* that share *shared* bytes with each other."""
    return ProcessSample(
        pss_bytes=private + shared // processes,
        uss_bytes=private,
        private_dirty_bytes=private,
        shared_dirty_bytes=shared,
    )


def test_a_round_of_pss_is_torn_by_as_much_as_the_forks_in_it_can_move() -> None:
    parent, child = forked(MIB // 4, 4 * MIB, 81), forked(5 * MIB // 4, 4 * MIB, 81)
    tree = {1: parent, **dict.fromkeys(range(2, 82), child)}
    assert not matters(tree, parents=[1] * 10), "each takes one share of 81, and half of little"
    assert matters(tree, parents=[2] * 20), "a child with more of its own"
    assert matters(tree, changes=20), "it may have been the largest one"
    first = {1: forked(100 * MIB, 0, 1), 2: forked(MIB, 0, 1)}
    assert matters(first, parents=[1]), "the first fork shares all that was private"
    assert not matters(first, parents=[2])


@pytest.mark.parametrize(
    ("states", "works", "seconds"),
    [("TTTT", False, 3.0), ("tttt", False, 3.0), ("DDDD", False, 3.0), ("DDDD", True, 0.0), ("TSTT", False, 1.0),
     ("SSSS", False, 0.0), ("DTTD", False, 3.0)],
)  # fmt: skip
def test_stopped_and_frozen_time_adds_up_and_waiting_for_a_disk_does_not(
    states: str, works: bool, seconds: float
) -> None:
    stopped = StoppedTime()
    for t, state in enumerate(states):
        stopped.add(float(t), [state, state], [t if works else 0])
    assert stopped.seconds == seconds
