"""What the text of a recording says of memory that the processes' sizes don't show, and of readings that were few."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.cli.monitor_reporting import next_commands
from gdbmem.model.series import TREE, ProcessSample, SeriesFacts, SeriesLine
from gdbmem.series.store import Recording, SeriesWriter
from gdbmem.series.summary import summarize
from gdbmem.series.text import details

MIB = 1 << 20
Sizes = Sequence[ProcessSample]


def recorded(
    folder: Path, samples: Sizes, *, limit: Optional[int] = None, workers: Sizes = (), respawns: int = 0
) -> Recording:
    """Record a sample of the tree each second, and with it one of its second process, of *workers*."""
    (folder / "run.json").write_text("{}")
    whose = "the machine" if limit is None else "the cgroup"
    writer = SeriesWriter(folder, SeriesFacts("server", 1.0, 1.7e9, "boot", 0.0, limit or 64 << 30, whose))
    lines = [SeriesLine(1, 100, 1, "server", "./server", TREE, 0.0)]
    if workers:
        lines.append(SeriesLine(2, 101, 2, "worker", "./server", 1, 0.0, respawns=respawns))
    for t, sample in enumerate(samples):
        further = [(2, workers[t])] if workers else []
        writer.append(float(t), [(1, sample), *further, (TREE, sample)], [] if t else lines)
    writer.close()
    return Recording(folder)


def test_few_readings_of_pss_are_not_called_few_samples_beside_many(tmp_path: Path) -> None:
    samples = [ProcessSample(pss_bytes=MIB if t in (0, 41) else None) for t in range(42)]
    summary = summarize(recorded(tmp_path, samples, workers=samples))
    assert summary.samples == 42
    said = "only 2 readings of the total (PSS) to judge; another 6 min 50 s may settle it"
    assert summary.verdict.evidence == said


def test_the_last_sample_of_a_program_that_has_ended_is_not_counted_in_one_line_and_left_out_in_the_next(
    tmp_path: Path,
) -> None:
    samples = [*[ProcessSample(rss_bytes=MIB + t) for t in range(3)], ProcessSample()]
    summary = summarize(recorded(tmp_path, samples))
    assert summary.samples == 4
    assert summary.verdict.evidence.startswith("only 3 samples to judge; ")


def test_files_in_memory_that_fill_a_cgroup_are_told_and_when_its_limit_comes(tmp_path: Path) -> None:
    samples = [
        ProcessSample(
            rss_bytes=8 * MIB,
            cgroup_bytes=(20 + 4 * t) * MIB,
            cgroup_cache_bytes=MIB,
            cgroup_shmem_bytes=4 * t * MIB,
            cgroup_limit_bytes=300 * MIB,
        )
        for t in range(41)
    ]
    summary = summarize(recorded(tmp_path, samples, limit=300 * MIB))
    assert summary.verdict.kind == "plateau"
    said = " ".join(details(summary))
    assert "of it 1.0 MiB cache that can be dropped and 160.0 MiB files in memory (/dev/shm, memfds)" in said
    assert (
        "the cgroup grows by 4.0 MiB/s; at this rate the limit of the cgroup, 300.0 MiB, is reached in 30"
        in said
    )


def test_a_cgroup_that_stays_the_same_reaches_no_limit(tmp_path: Path) -> None:
    same = ProcessSample(rss_bytes=8 * MIB, cgroup_bytes=20 * MIB, cgroup_limit_bytes=300 * MIB)
    assert summarize(recorded(tmp_path, [same] * 41, limit=300 * MIB)).seconds_to_limit is None


@pytest.mark.parametrize(("grows", "respawns", "told"), [(3, 0, True), (1, 0, False), (3, 2, False)])
def test_workers_that_leak_beside_what_they_copy_are_told(
    tmp_path: Path, grows: int, respawns: int, told: bool
) -> None:
    tree = [
        ProcessSample(rss_bytes=MIB, pss_bytes=(50 + t) * MIB, copied_bytes=t * MIB, copiers=1)
        for t in range(40)
    ]
    worker = [ProcessSample(rss_bytes=MIB, private_dirty_bytes=grows * t * MIB) for t in range(40)]
    said = " ".join(details(summarize(recorded(tmp_path, tree, workers=worker, respawns=respawns))))
    assert "forked processes have copied 39.0 MiB" in said
    assert ("own memory grew by at least 78.0 MiB" in said) == told


def test_growth_of_hugetlb_pages_is_in_the_sizes_and_named(tmp_path: Path) -> None:
    samples = [ProcessSample(rss_bytes=8 * MIB, hugetlb_bytes=2 * t * MIB) for t in range(41)]
    summary = summarize(recorded(tmp_path, samples))
    assert (summary.first_bytes, summary.last_bytes) == (8 * MIB, 88 * MIB)
    assert summary.beside == ["hugetlb pages"]
    assert summary.verdict.kind == "growing"
    assert "this includes hugetlb pages +80.0 MiB, which RSS lacks" in summary.verdict.evidence


def test_hugetlb_pages_neither_fill_the_machine_nor_are_seen_by_massif(tmp_path: Path) -> None:
    samples = [ProcessSample(rss_bytes=8 * MIB, hugetlb_bytes=2 * t * MIB) for t in range(41)]
    recording = recorded(tmp_path, samples)
    summary = summarize(recording)
    assert summary.seconds_to_limit is None
    assert not any("massif" in command for command in next_commands(recording, summary, ["./server"]))
