"""What the kernel writes about a process, decoded; a tree followed through births and deaths."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gdbmem.linux import processes
from gdbmem.linux.monitoring import cgroup
from gdbmem.linux.monitoring.clock import clock_of, series_clock
from gdbmem.linux.monitoring.exited_usage import Tally
from gdbmem.linux.monitoring.process_events import Started
from gdbmem.linux.monitoring.sampling import Counts, ProcessFiles, ProcessGone, Stat, Statm, parse_stat
from gdbmem.linux.monitoring.tree import Tree
from gdbmem.linux.rollup import parse_rollup
from gdbmem.model.series import TREE, SeriesFacts
from gdbmem.monitoring.recorder import Plan, Recorder
from gdbmem.report.series.live import PlainView
from gdbmem.series.store import Recording, SeriesWriter

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


@contextmanager
def child() -> Iterator[int]:
    """Yield a forked process that sleeps; it is gone afterwards."""
    pid = os.fork()
    if pid == 0:
        while True:
            time.sleep(60)
    try:
        yield pid
    finally:
        end(pid)


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def test_a_process_that_dies_between_two_reads_is_gone_not_an_error() -> None:
    with child() as pid:
        files = ProcessFiles(pid)
        assert files.statm().rss_bytes > 0
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # a zombie
        with pytest.raises(ProcessGone):
            files.stat()
        end(pid)
        with pytest.raises(ProcessGone):
            files.statm()
        with pytest.raises(ProcessGone):
            files.rollup()
        files.close()


def test_a_tree_notes_a_death_and_reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with child() as one, child() as two:
        tree = Tree(lambda: {one, two} & set(processes.pids()), events=None)
        assert len(tree.look(0.0).readings) == 3
        end(one)
        look = tree.look(0.2)
        assert look.alive == 1
        assert [(line.pid, line.gone) for line in look.changed_lines] == [(one, 0.2)]
        tree.close()


def test_a_child_that_was_seen_and_then_waited_for_is_counted_once_and_the_count_never_falls() -> None:
    def stat(parent: int, own: float, waited: float = 0.0) -> Stat:
        return Stat("x", "S", parent, Counts(0, 0, own), Counts(0, 0, waited), 1, 1)

    tally = Tally()
    assert tally.total([(1, stat(0, 1.0, 5.0)), (2, stat(1, 3.0))]).cpu_seconds == 9.0
    tally.bury(2, stat(1, 3.0), threads_started=7, parent_is_followed=True)
    assert tally.total([(1, stat(0, 1.0, 5.0))]).cpu_seconds == 9.0, "not waited for yet"
    assert tally.total([(1, stat(0, 1.0, 8.5))]).cpu_seconds == 9.5, "and half a second after the last look"
    tally.bury(1, stat(0, 2.0, 8.5), threads_started=0, parent_is_followed=False)
    assert tally.total([]).cpu_seconds == 10.5
    assert tally.dead_threads == 7
    alone = Tally(counts_children=False)
    assert alone.total([(1, stat(0, 1.0, 5.0))]).cpu_seconds == 1.0


def test_a_reused_pid_is_another_process_and_the_kept_descriptors_know() -> None:
    hint = Path("/proc/sys/kernel/ns_last_pid")
    try:
        hint.write_text(hint.read_text())
    except OSError:
        pytest.skip("only root may choose the next pid")
    with child() as first:
        files = ProcessFiles(first)
        ticks = files.stat().start_ticks
        end(first)
        time.sleep(0.03)  # the start is counted in hundredths of a second
        for _ in range(50):
            hint.write_text(str(first - 1))
            with child() as second:
                if second == first:
                    stat = processes.stat_of(second)
                    assert stat is not None
                    assert stat.start_ticks != ticks
                    with pytest.raises(ProcessGone):
                        files.stat()
                    break
        else:
            pytest.skip("others took the number each time")
        files.close()


def test_a_respawned_worker_keeps_its_line() -> None:
    with child() as first:
        wanted = {first}
        tree = Tree(lambda: wanted & set(processes.pids()), events=None)
        tree.look(0.0)
        end(first)
        tree.look(1.5)
        with child() as second:
            wanted.add(second)
            look = tree.look(3.0)
            (line,) = [line for line in look.changed_lines if line.gone is None]
            assert (line.number, line.pid, line.respawns) == (1, second, 1)
        tree.close()


def test_the_total_of_several_processes_has_a_pss_and_no_sum_of_rss() -> None:
    with child() as one, child() as two:
        tree = Tree(lambda: {one, two}, events=None)
        readings = dict(tree.look(0.0, sweep=True).readings)
        total = readings.pop(TREE)
        assert total.rss_bytes is None
        assert total.pss_bytes == sum(reading.pss_bytes or 0 for reading in readings.values())
        tree.close()


def test_pss_is_read_as_often_as_the_budget_allows_and_rss_each_time() -> None:
    with child() as pid:
        tree = Tree(lambda: {pid}, events=None, budget=1e-9)
        assert tree.look(0.0).swept
        look = tree.look(0.1)
        assert not look.swept
        reading = dict(look.readings)[1]
        assert reading.rss_bytes is not None
        assert reading.pss_bytes is None
        tree.close()


def test_forbidden_pss_is_told_once_and_rss_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(_: ProcessFiles) -> None:
        raise PermissionError

    monkeypatch.setattr(ProcessFiles, "rollup", forbidden)
    with child() as pid:
        tree = Tree(lambda: {pid}, events=None)
        for t in (0.0, 1.0, 2.0):
            reading = dict(tree.look(t, sweep=True).readings)[1]
            assert reading.rss_bytes is not None
            assert reading.pss_bytes is None
            assert reading.anonymous_bytes is not None, "status is readable for everybody"
        assert tree.denied == 1
        tree.close()


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
    plan, view = Plan(0.01, 0.05), PlainView(said, quiet=True)
    Recorder(tree, writer, plan, view, clock=series_clock(began)).run()
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
    assert not processes.proc_is_hidden()
    monkeypatch.setattr(processes, "stat_of", lambda pid: None)
    assert processes.proc_is_hidden()


@pytest.mark.parametrize("limit", ["max\n", "104857600\n"])
def test_a_cgroup_says_its_usage_its_limit_and_its_events(tmp_path: Path, limit: str) -> None:
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


def test_processes_are_found_by_name_and_never_ourselves() -> None:
    import re

    with child() as pid:
        found = processes.by_name(re.compile("pytest|python"))
        assert os.getpid() not in found
        assert pid in found


def test_a_process_that_has_just_given_its_memory_back_is_of_unknown_size_not_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProcessFiles, "statm", lambda _: Statm(0, 0))
    tree = Tree(lambda: {os.getpid()}, events=None, budget=0)
    try:
        found = dict(tree.look(0.0).readings)
    finally:
        tree.close()
    assert found[1].rss_bytes is None and found[1].shared_bytes is None
    assert found[1].threads is not None
