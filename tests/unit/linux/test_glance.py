"""Glances: RSS between two whole looks, kept in a journal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gdbmem.linux.memory.maps import PAGE
from gdbmem.linux.monitoring.sampling import FRAME, Glance, unpack_glances
from gdbmem.model.series import TREE, ProcessSample, SeriesFacts
from gdbmem.series.store import Recording, SeriesWriter, set_aside

ONE = b"2000 100 50 10 0 80 0\n"
TWO = b"9000 700 60 10 0 80 0\n"


def facts() -> SeriesFacts:
    return SeriesFacts("server", 0.1, 1.7e9, "boot", 1000.0)


def test_glances_of_a_killed_monitor_are_read_and_taken_over(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, facts())
    writer.append(0.0, [(1, ProcessSample(rss_bytes=1, threads=2)), (TREE, ProcessSample(rss_bytes=1))])
    writer.glance(Glance(0.1, b"1", ONE))
    writer.glance(Glance(0.2, b"1", TWO))
    seen = [(0.0, 1), (0.1, 100 * PAGE), (0.2, 700 * PAGE)]
    assert list(Recording(tmp_path).points(TREE, "rss_bytes")) == seen, "also while it is being written"
    os.close(writer._lock)  # all that a SIGKILL does
    again = SeriesWriter(tmp_path)
    again.append(0.3, [(1, ProcessSample(rss_bytes=4)), (TREE, ProcessSample(rss_bytes=4))])
    assert list(Recording(tmp_path).points(1, "rss_bytes")) == [*seen, (0.3, 4)]
    again.close()
    assert list(Recording(tmp_path).points(1, "rss_bytes")) == [*seen, (0.3, 4)]


def test_more_glances_than_the_journal_had_room_for_outlive_a_killed_monitor(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, facts())
    for number in range(4000):  # three times the room
        writer.glance(Glance(number / 10, b"1 2", ONE + TWO))
    assert (tmp_path / "series.glances").stat().st_size > 1 << 17
    assert len(Recording(tmp_path).looks()) == 4000
    os.close(writer._lock)  # all that a SIGKILL does
    SeriesWriter(tmp_path).close()
    assert len(Recording(tmp_path).looks()) == 4000
    assert (tmp_path / "series.glances").stat().st_size == 0


@pytest.mark.parametrize("lost", range(1, len(TWO) + 8))
def test_a_glance_torn_by_a_kill_in_the_middle_of_writing_is_left_out(tmp_path: Path, lost: int) -> None:
    writer = SeriesWriter(tmp_path, facts())
    writer.glance(Glance(0.1, b"1", ONE))
    writer.glance(Glance(0.2, b"1", TWO))
    journal = tmp_path / "series.glances"
    data = journal.read_bytes()
    end = data.index(b"\0")
    journal.write_bytes(data[: end - lost] + bytes(len(data) - end + lost))
    assert Recording(tmp_path).looks() == [0.1]
    os.close(writer._lock)
    again = SeriesWriter(tmp_path)
    again.glance(Glance(0.3, b"1", ONE))
    assert Recording(tmp_path).looks() == [0.1, 0.3]
    again.close()
    assert Recording(tmp_path).looks() == [0.1, 0.3]


def test_a_tree_of_many_was_looked_at_but_has_no_rss(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, facts())
    writer.glance(Glance(0.1, b"1 2", ONE + TWO))
    writer.close()
    recording = Recording(tmp_path)
    assert recording.looks() == [0.1]
    assert list(recording.points(TREE, "rss_bytes")) == []
    assert list(recording.points(2, "shared_bytes")) == [(0.1, 60 * PAGE)]


@pytest.mark.parametrize("lost", range(1, len(TWO) + 12))
def test_a_glance_cut_short_by_a_full_disk_is_left_out_and_the_next_one_counts(lost: int) -> None:
    first, cut, last = Glance(1.0, b"1 2", ONE + TWO), Glance(2.5, b"1", TWO), Glance(3.25, b"1", ONE)
    data = FRAME % first + (FRAME % cut)[:-lost] + FRAME % last
    assert unpack_glances(data) == [first, last]


def test_the_journal_of_a_damaged_series_is_not_mixed_into_the_next_one(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, facts())
    writer.glance(Glance(0.1, b"1", ONE))
    os.close(writer._lock)
    set_aside(tmp_path)
    SeriesWriter(tmp_path, facts()).close()
    assert Recording(tmp_path).looks() == []
