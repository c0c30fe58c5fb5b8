"""The series on disk: nothing is lost, one writer at a time, old rows get fewer but not flatter."""

from __future__ import annotations

import contextlib
import gc
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdbmem.errors import InputError
from gdbmem.model.series import READING_FIELDS, TREE, Mark, ProcessSample, SeriesFacts, SeriesLine
from gdbmem.runs.run import DATABASE
from gdbmem.series import store
from gdbmem.series.store import Damaged, Recording, SeriesWriter, add_mark, is_being_written, set_aside
from gdbmem.series.summary import counted, summarize

MIB = 1 << 20


def facts(interval: float = 1.0) -> SeriesFacts:
    return SeriesFacts("server", interval, 1.7e9, "boot", 1000.0, 8 << 30, "the machine", exact_threads=True)


def line(number: int = 1, name: str = "server") -> SeriesLine:
    return SeriesLine(number, 4000 + number, 77, name, f"./{name} --port 80", 0, 0.0)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[SeriesWriter]:
    opened = SeriesWriter(tmp_path, facts())
    yield opened
    opened.close()


def fill(writer: SeriesWriter, count: int, *, start: int = 0) -> None:
    for number in range(start, start + count):
        reading = ProcessSample(rss_bytes=(50 + number % 7) * MIB, threads=3)
        assert (
            writer.append(float(number), [(1, reading), (TREE, reading)], [line()] if number == 0 else [])
            == ""
        )


def test_what_was_written_is_read_back_while_the_writer_goes_on(writer: SeriesWriter, tmp_path: Path) -> None:
    fill(writer, 20)
    writer.mark(Mark(3.5, "epoch 1"))
    recording = Recording(tmp_path)
    assert len(list(recording.samples())) == 40
    assert recording.lines == [line()]
    assert recording.marks == [Mark(3.5, "epoch 1")]
    assert recording.facts == facts()
    sample = next(recording.samples())
    assert sample.reading.pss_bytes is None, "what was not read is unknown, not 0"


def test_a_second_writer_is_refused_in_one_sentence(writer: SeriesWriter, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another monitor"):
        SeriesWriter(tmp_path)
    assert is_being_written(tmp_path)
    writer.close()
    assert not is_being_written(tmp_path)
    SeriesWriter(tmp_path).close()


def test_a_mark_set_by_another_process_is_seen_by_the_writer(writer: SeriesWriter, tmp_path: Path) -> None:
    fill(writer, 3)
    add_mark(tmp_path, "epoch \udcff 2", 2.5)
    (mark,) = writer.marks_since(0)
    assert mark.t == 2.5
    assert mark.text.startswith("epoch ")


def test_samples_wait_in_memory_while_the_database_is_locked(writer: SeriesWriter, tmp_path: Path) -> None:
    fill(writer, 3)
    other = sqlite3.connect(tmp_path / DATABASE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    reading = ProcessSample(rss_bytes=1)
    assert "locked" in writer.append(3.0, [(1, reading)])
    assert "locked" in writer.append(4.0, [(1, reading)])
    other.execute("COMMIT")
    other.close()
    assert writer.append(5.0, [(1, reading)]) == ""
    assert [t for t, _ in Recording(tmp_path).points(1, "rss_bytes")] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@contextlib.contextmanager
def locked_for(seconds: float, folder: Path) -> Iterator[None]:
    """Hold the lock of the database in *folder*, as a reader that recovers it or a slow disk does."""
    other = sqlite3.connect(folder / DATABASE, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(seconds, other.rollback)
    release.start()
    try:
        yield
    finally:
        release.join()
        other.close()


@pytest.mark.slow
def test_a_database_that_is_locked_for_a_second_is_waited_for_and_not_called_damaged(tmp_path: Path) -> None:
    SeriesWriter(tmp_path, facts()).close()
    with locked_for(0.8, tmp_path):
        SeriesWriter(tmp_path).close()
    with locked_for(0.8, tmp_path):
        add_mark(tmp_path, "meanwhile", 1.0)
    assert [mark.text for mark in Recording(tmp_path).marks] == ["meanwhile"]


def test_a_database_that_stays_locked_is_in_use_and_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SeriesWriter(tmp_path, facts()).close()
    monkeypatch.setattr(store, "_OPENING_SECONDS", 0.1)
    other = sqlite3.connect(tmp_path / DATABASE)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(InputError) as resumed:
        SeriesWriter(tmp_path)
    with pytest.raises(InputError) as marked:
        add_mark(tmp_path, "meanwhile", 1.0)
    other.close()
    for caught in (resumed, marked):
        assert not isinstance(caught.value, Damaged)
        assert caught.value.slug == "series-in-use"


def test_samples_wait_in_memory_while_the_disk_is_full(writer: SeriesWriter, tmp_path: Path) -> None:
    fill(writer, 3)
    pages = writer._connection.execute("PRAGMA page_count").fetchone()[0]
    writer._connection.execute(f"PRAGMA max_page_count = {pages}")
    many = [(1, ProcessSample(rss_bytes=number)) for number in range(1)]
    t, reason = 3.0, ""
    while not reason:
        reason = writer.append(t, many)
        t += 1
        assert t < 10_000, "it never got full"
    assert "full" in reason
    writer._connection.execute("PRAGMA max_page_count = 1000000")
    assert writer.append(t, many) == ""
    assert len(list(Recording(tmp_path).points(1, "rss_bytes"))) == int(t) + 1


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["garbage", "cut", "middle"])
def test_a_damaged_database_is_one_sentence_and_can_be_set_aside(tmp_path: Path, damage: str) -> None:
    writer = SeriesWriter(tmp_path, facts())
    fill(writer, 2000)
    writer.close()
    path = tmp_path / DATABASE
    data = path.read_bytes()
    if damage == "garbage":
        path.write_bytes(b"no database at all " * 500)
    elif damage == "cut":
        path.write_bytes(data[:5000])
    else:
        path.write_bytes(data[:4096] + b"\xff" * 20_000 + data[24_096:])
    with pytest.raises(Damaged, match="can't be read"):
        SeriesWriter(tmp_path)
    with pytest.raises(Damaged):
        list(Recording(tmp_path).samples())
    aside = set_aside(tmp_path)
    assert aside.exists()
    fresh = SeriesWriter(tmp_path, facts())
    fill(fresh, 3)
    fresh.close()
    assert len(list(Recording(tmp_path).samples())) == 6


def test_a_series_that_is_just_being_made_is_none_yet_and_no_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    prepare = store._prepare

    def read_meanwhile(connection: sqlite3.Connection) -> None:
        for step in (lambda _: None, prepare):  # before its tables are made, and after
            step(connection)
            try:
                Recording(tmp_path).close()
            except InputError as error:
                seen.append(error.slug)

    monkeypatch.setattr(store, "_prepare", read_meanwhile)
    SeriesWriter(tmp_path, facts()).close()
    assert seen == ["no-series", "no-series"], "then it is whole"


@pytest.mark.slow
def test_old_rows_get_fewer_and_the_extremes_stay(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, facts())
    for number in range(3000):
        size = 900 * MIB if number == 1234 else MIB if number == 777 else (50 + number % 3) * MIB
        writer.append(
            float(number), [(TREE, ProcessSample(rss_bytes=size, threads=1))], [line()] if number == 0 else []
        )
    dropped = sum(writer.thin(3000.0 + 3600.0) for _ in range(10))
    writer.close()
    recording = Recording(tmp_path)
    values = [value for _, value in recording.points(TREE, "rss_bytes")]
    assert dropped + len(values) == 3000
    assert len(values) < 1000
    assert max(values) == 900 * MIB
    assert min(values) == MIB


def test_rows_of_the_last_hour_are_all_kept(writer: SeriesWriter) -> None:
    fill(writer, 500)
    assert writer.thin(3000.0) == 0


@pytest.mark.slow
def test_a_week_at_one_second_would_stay_far_under_200_megabytes(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, facts())
    full = ProcessSample(**dict.fromkeys(READING_FIELDS, 123_456_789))
    for number in range(7200):
        writer.append(float(number), [(1, full), (TREE, full)], [line()] if number == 0 else [])
    before_bytes = (tmp_path / DATABASE).stat().st_size
    while writer.thin(7200.0 + 100_000):
        pass
    writer.close()
    kept = len(list(Recording(tmp_path).points(1, "rss_bytes")))
    bytes_a_row = before_bytes / 14_400
    hour, day, week = 3600, 86_400, 7 * 86_400
    rows = hour + (day - hour) / 10 * 5 + (week - day) / 60 * 5
    assert kept <= 7200 / 60 * 5
    assert rows * 2 * bytes_a_row < 200e6


def test_a_gap_is_a_gap(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, facts())
    fill(writer, 50)
    fill(writer, 50, start=500)
    writer.close()
    summary = summarize(Recording(tmp_path))
    assert list(summary.gaps) == [(49.0, 500.0)]
    assert [notice.slug for notice in summary.notices] == ["series-gap"]


def test_a_counter_that_begins_anew_with_the_next_process_never_counts_down() -> None:
    assert counted([0, 10, 20, 3, 5]) == 25


def test_threads_of_more_processes_than_get_a_row_are_counted(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, facts())
    lines = [SeriesLine(n, 100 + n, 1, "worker", "", 0, 0.0) for n in range(1, 301)]
    each = [(line.number, ProcessSample(threads_started=2, pss_bytes=MIB)) for line in lines]
    writer.append(1.0, [*each, (TREE, ProcessSample(threads_started=600, pss_bytes=300 * MIB))], lines)
    writer.close()
    assert summarize(Recording(tmp_path)).threads_started == 600


def test_a_tree_without_readable_pss_is_judged_by_its_biggest_process(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, facts())
    for number in range(60):
        small, big = ProcessSample(rss_bytes=MIB, threads=1), ProcessSample(rss_bytes=90 * MIB, threads=1)
        writer.append(
            float(number), [(1, small), (2, big), (TREE, ProcessSample(threads=2))], [line(1), line(2)]
        )
    writer.close()
    summary = summarize(Recording(tmp_path))
    assert summary.metric == "rss_bytes"
    assert summary.peak_bytes == 90 * MIB
    said = next(notice.message for notice in summary.notices if notice.slug == "no-pss")
    tops = [str(one.pid) for one in (line(1), line(2)) if not one.parent]
    assert said.endswith(f"sudo gdbmem monitor {' '.join(tops)}"), said


def test_nobody_is_sent_to_root_for_what_was_not_asked_for(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, facts()._replace(reads_pss=False))
    for number in range(60):
        one = ProcessSample(rss_bytes=MIB, threads=1)
        writer.append(
            float(number), [(1, one), (2, one), (TREE, ProcessSample(threads=2))], [line(1), line(2)]
        )
    writer.close()
    said = next(one.message for one in summarize(Recording(tmp_path)).notices if one.slug == "no-pss")
    assert "could not be read" not in said and said.endswith("leave out --pss-budget 0"), said


def test_a_folder_without_a_series_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no series"):
        Recording(tmp_path)


def test_a_recording_of_an_older_version_is_read_and_gone_on_with(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, facts())
    fill(writer, 3)
    writer.close()
    columns = ", ".join(READING_FIELDS[: READING_FIELDS.index("gpu_bytes")])
    with sqlite3.connect(tmp_path / DATABASE) as old:
        old.execute(f"CREATE TABLE kept AS SELECT line, t, {columns} FROM sample")
        old.execute("DROP TABLE sample")
        old.execute("ALTER TABLE kept RENAME TO sample")
        known = "number INTEGER PRIMARY KEY, pid, start_ticks, name, command, parent, born, gone, respawns"
        old.execute(f"CREATE TABLE old_line ({known})")
        old.execute(f"INSERT INTO old_line SELECT {known.replace(' INTEGER PRIMARY KEY', '')} FROM line")
        old.execute("DROP TABLE line")
        old.execute("ALTER TABLE old_line RENAME TO line")
        old.execute("UPDATE fact SET value = 1 WHERE name = 'version'")
    old.close()
    recording = Recording(tmp_path)
    assert [sample.reading.threads for sample in recording.samples()] == [3] * 6
    assert list(recording.points(TREE, "cgroup_bytes")) == []
    assert summarize(recording).cgroup is None
    (before,) = recording.lines
    assert before.names == before.name
    recording.close()
    again = SeriesWriter(tmp_path)
    around = ProcessSample(cgroup_bytes=5, cgroup_limit_bytes=20, cgroup_cache_bytes=1)
    again.append(3.0, [(TREE, around)], [before._replace(name="b", earlier="a")])
    again.close()
    assert [line.names for line in Recording(tmp_path).lines] == ["a, then b"]
    cgroup = summarize(Recording(tmp_path)).cgroup
    assert cgroup is not None
    assert (cgroup.last_bytes, cgroup.free_bytes, cgroup.kills) == (5, 16, None)


def test_a_recording_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    SeriesWriter(tmp_path, facts()).close()
    with sqlite3.connect(tmp_path / DATABASE) as new:
        new.execute("UPDATE fact SET value = 99 WHERE name = 'version'")
    new.close()
    for opens in (SeriesWriter, Recording):
        with pytest.raises(InputError, match="newer gdbmem") as raised:
            opens(tmp_path)
        assert not isinstance(raised.value, Damaged), "it would be set aside"


def test_a_damaged_database_that_is_refused_leaves_no_descriptor_open(tmp_path: Path) -> None:
    SeriesWriter(tmp_path, facts()).close()
    (tmp_path / DATABASE).write_bytes(b"no database at all " * 500)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(Damaged) as written:
        SeriesWriter(tmp_path)
    with pytest.raises(Damaged) as read:
        Recording(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before  # though what was raised is still here
    assert written.value.slug == read.value.slug


def test_recordings_that_are_read_one_after_the_other_leave_no_descriptor_open(tmp_path: Path) -> None:
    SeriesWriter(tmp_path, facts()).close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    gc.disable()
    try:
        assert [list(Recording(tmp_path).samples()) for _ in range(5)] == [[]] * 5
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    finally:
        gc.enable()


def test_a_finished_recording_is_one_file_also_after_it_has_been_read(tmp_path: Path) -> None:
    writer = SeriesWriter(tmp_path, facts())
    fill(writer, 20)
    writer.close()
    with contextlib.closing(Recording(tmp_path)) as recording:
        assert len(list(recording.samples())) == 40
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(("-wal", "-shm"))]
    again = SeriesWriter(tmp_path)  # as --resume does
    assert again.append(30.0, [(1, ProcessSample(rss_bytes=MIB))], []) == ""
    again.close()
    assert len(list(Recording(tmp_path).samples())) == 41
