"""Processes as a monitor reads them: forked children that live, sleep and die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gdbmem.linux.memory.maps import PAGE, parse_rollup
from gdbmem.linux.memory.resident import ProcessMemory
from gdbmem.linux.monitoring.cgroup import Family
from gdbmem.linux.monitoring.children import ProcessEvents
from gdbmem.linux.monitoring.gpu_and_cgroup import Surroundings
from gdbmem.linux.monitoring.sampling import Glance, ProcessFiles, ProcessGone
from gdbmem.linux.monitoring.tree import Tree
from gdbmem.linux.process import process
from gdbmem.linux.process.process import has_ended, process_facts, thread_ids
from gdbmem.linux.process.threads import thread_count
from gdbmem.model.series import TREE, ProcessSample
from tests.processes import await_no_main_thread, without_main_thread


@contextmanager
def child() -> Iterator[int]:
    """Yield a forked process that sleeps, and grows no more; it is gone afterwards."""
    ready, asleep = os.pipe()
    pid = os.fork()
    if pid == 0:
        time.sleep(0.001)
        os.write(asleep, b"x")
        while True:
            time.sleep(60)
    os.close(asleep)
    os.read(ready, 1)
    os.close(ready)
    while process.stat_of(pid).state != "S":  # type: ignore[union-attr]
        time.sleep(0.001)
    try:
        yield pid
    finally:
        end(pid)


def end(pid: int) -> None:
    """End the child *pid*, unless that was done: its number may be another's by now."""
    with suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG)[0] == 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


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


def test_a_process_whose_main_thread_has_ended_is_read_through_another() -> None:
    with without_main_thread() as pid:
        [tid] = set(thread_ids(pid)) - {pid}
        whole = parse_rollup(Path(f"/proc/{pid}/task/{tid}/smaps_rollup").read_bytes()).rss_bytes
        files = ProcessFiles(pid)
        assert files.stat().threads == 2
        assert files.statm().rss_bytes == pytest.approx(whole, abs=1 << 20) and whole > 1 << 20
        assert files.rollup().rss_bytes == pytest.approx(whole, abs=1 << 20)
        assert (
            files.status_sizes()["RssAnon"] > 0 and files.open_files() >= 3 and files.image() != (b"0",) * 3
        )
        assert process_facts(pid).anonymous_bytes > 0 and not has_ended(pid)
        memory = ProcessMemory(pid)
        assert memory.resident_bytes() == pytest.approx(whole, abs=1 << 20) and memory.parts()
        memory.close()
        tree = Tree(lambda: {pid}, events=None)
        look = tree.look(0.0, sweep=True)
        assert look.alive == 1 and look.readings[0][1].pss_bytes
        assert tree.glances.read(), "between two whole looks, too"
        tree.close()
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ProcessGone):
            files.stat()
        assert has_ended(pid)
        files.close()


def test_a_main_thread_that_ends_while_it_is_watched_ends_nothing() -> None:
    with without_main_thread(at_once=False) as pid:
        tree, memory = Tree(lambda: {pid}, events=None), ProcessMemory(pid)
        assert tree.look(0.0).alive == 1 and memory.resident_bytes()
        os.kill(pid, signal.SIGUSR1)
        await_no_main_thread(pid)
        assert tree.glances.read() == b"", "a whole look is due"
        look = tree.look(0.1)
        assert look.alive == 1 and look.readings[0][1].rss_bytes
        assert memory.resident_bytes() and memory.rollup_bytes(), "unknown would be wrong, and 0 too"
        tree.close()
        memory.close()


def test_a_peak_before_the_recording_is_not_told_as_one_between_two_samples() -> None:
    with child() as pid:
        for surroundings, is_known in ((None, False), (Surroundings(program=pid), True)):
            tree = Tree(lambda: {pid}, events=None, surroundings=surroundings)
            for t in (0.0, 1.0):
                [(_, reading), *_] = tree.look(t, sweep=True).readings
                assert (reading.peak_rss_bytes is not None) == is_known
            tree.close()


def test_a_tree_notes_a_death_and_reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with child() as one, child() as two:
        tree = Tree(lambda: {one, two} & set(process.pids()), events=None)
        assert len(tree.look(0.0).readings) == 3
        end(one)
        look = tree.look(0.2)
        assert look.alive == 1
        assert [(line.pid, line.gone) for line in look.changed_lines] == [(one, 0.2)]
        tree.close()


# In a namespace of its own: the next number of a process is everybody's, and who takes one of ours would be killed.
REUSES_A_PID = """
import os, signal, time
from gdbmem.linux.monitoring.sampling import ProcessFiles, ProcessGone
from gdbmem.linux.process.process import stat_of
def begin():
    pid = os.fork()
    if pid == 0: signal.pause()
    return pid
def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
first = begin()
files = ProcessFiles(first)
ticks = files.stat().start_ticks
end(first)
time.sleep(0.03)  # the start is counted in hundredths of a second
with open("/proc/sys/kernel/ns_last_pid", "w") as hint: hint.write(str(first - 1))
second = begin()
assert second == first and stat_of(second).start_ticks != ticks
try: files.stat()
except ProcessGone: print("gone")
end(second)
"""


def test_a_reused_pid_is_another_process_and_the_kept_descriptors_know() -> None:
    alone = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespace can be made here")
    done = subprocess.run(
        [*alone, sys.executable, "-c", REUSES_A_PID], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("gone\n", "")


def test_a_respawned_worker_keeps_its_line() -> None:
    with child() as first:
        wanted = {first}
        tree = Tree(lambda: wanted & set(process.pids()), events=None)
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


def test_forbidden_pss_is_reported_once_and_rss_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_processes_are_found_by_name_and_never_ourselves() -> None:
    import re

    with child() as pid:
        found = process.by_name(re.compile("pytest|python"))
        assert os.getpid() not in found
        assert pid in found


def test_between_two_whole_looks_only_rss_is_read() -> None:
    with child() as one, child() as two:
        tree = Tree(lambda: {one, two}, events=None, budget=0)
        assert tree.glances.until == 0.0, "the first look is a whole one"
        tree.look(0.0)
        until, lines, read, _ = tree.glances
        statm, size, before = Path(f"/proc/{one}/statm"), -1, -2
        while size != before:  # it may still be on its way into its sleep
            before = int(statm.read_text().split()[1])
            readings = dict(Glance(0.1, lines, read()).readings())
            size = int(statm.read_text().split()[1])
        assert readings[1].rss_bytes == size * PAGE
        assert readings[TREE] == ProcessSample(), "the sum of RSS is not a total"
        assert 0.1 < until < 60.0, "the time for a whole look comes"
        tree.close()


@pytest.mark.parametrize("waited_for", [True, False])
def test_a_death_is_noticed_by_the_next_glance(waited_for: bool) -> None:
    with child() as one, child() as two:
        tree = Tree(lambda: {one, two} & set(process.pids()), events=None, budget=0)
        tree.look(0.0)
        os.kill(one, signal.SIGKILL)
        os.waitid(os.P_PID, one, os.WEXITED | os.WNOWAIT)  # a zombie
        if waited_for:
            end(one)
        assert tree.glances.read() == b""
        assert tree.look(0.1).alive == 1
        end(one)
        tree.close()


def test_a_child_that_is_born_is_looked_at_at_once() -> None:
    tree = Tree(lambda: {os.getpid()}, events=None, budget=0)
    tree._lists_children = False  # not every kernel does
    tree.look(0.0)
    with child() as born:
        assert tree.has_grown(60.0)  # by then it looks again, however long the first look took
        assert born in tree.pids
        assert tree.glances.until == 60.0, "a whole look is due"
    tree.close()


def test_the_kinds_of_a_trees_memory_count_shared_pages_once() -> None:
    with child() as one, child() as two:
        tree = Tree(lambda: {one, two}, events=None)
        readings = dict(tree.look(0.0, sweep=True).readings)
        total = readings.pop(TREE)
        if total.file_bytes is None:
            pytest.skip("this kernel doesn't divide PSS by kind")
        parts = (total.anonymous_bytes or 0) + total.file_bytes + (total.shmem_bytes or 0)
        assert parts == pytest.approx(total.pss_bytes, abs=64 << 10)
        assert total.file_bytes < sum(reading.file_bytes or 0 for reading in readings.values())
        tree.close()


def test_a_process_that_has_gone_is_unknown_and_not_empty() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    memory = ProcessMemory(pid)
    assert memory.statm() is None and memory.rollup_bytes() is None and memory.parts() is None
    assert memory.present_bytes() is None and thread_count(pid) == 0


def test_a_daemon_that_left_before_it_was_seen_is_found_in_the_programs_own_cgroup() -> None:
    with child() as program, child() as daemon:
        family = SimpleNamespace(members=lambda: [daemon], kernel_bytes=lambda: None, held_bytes=lambda: 0)
        tree = Tree(lambda: {program}, events=None, family=cast(Family, family))
        tree.look(0.0, sweep=True)
        followed = tree.pids
        tree.close()
    assert followed == {program, daemon}


def test_a_daemon_is_followed_whose_parent_was_the_program_and_had_ended_before_the_first_sample() -> None:
    with child() as program, child() as daemon:
        reports = [(program, daemon, daemon)]
        events = SimpleNamespace(drain=lambda: [reports.pop()] if reports else [], lost=False)
        around = Surroundings(program=program)
        tree = Tree(set, events=cast(ProcessEvents, events), roots_are_known=True, surroundings=around)
        tree.look(0.0, sweep=True)
        followed = tree.pids
        tree.close()
    assert followed == {daemon}


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_daemon_is_followed_whose_parent_ended_between_two_reads_of_events(is_seen: bool) -> None:
    with child() as program, child() as passing, child() as daemon:
        reports = [(program, passing, passing), (passing, daemon, daemon)]

        def drain() -> list[tuple[int, int, int]]:
            if len(reports) == 2 and not is_seen:
                end(passing)
            is_due = len(reports) == 2 or passing not in tree.pids  # it was followed when it forked and ended
            return [reports.pop(0)] if reports and is_due else []

        events = cast(ProcessEvents, SimpleNamespace(drain=drain, lost=False))
        tree = Tree(lambda: {program}, events=events, roots_are_known=True)
        for moment in range(4):
            tree.look(float(moment), sweep=True)
            end(passing)
        followed = tree.pids
        tree.close()
    assert followed == {program, daemon}
