"""A JVM below its largest heap is not called growing: whether it leaks can't be decided yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from gdbmem.model.series import TREE, ProcessSample, SeriesFacts, SeriesLine
from gdbmem.recording.recording import verdict_so_far
from gdbmem.series.levelling import beside_heap, heap_bytes
from gdbmem.series.store import SeriesWriter
from gdbmem.series.verdict import judge
from tests.series_set import MIB

TIMES = [0.2 * n for n in range(300)]
GROWING = [40 * MIB + 0.8 * MIB * t for t in TIMES]  # to 88 MiB


@pytest.mark.parametrize(
    ("command", "size"),
    [
        ("java -Xmx128m -jar server.jar", 128 * MIB),
        ("/opt/jdk/bin/java -Xms1g -Xmx2G Main", 2048 * MIB),
        ("java -Xmx1g -Xmx134217728 Main", 128 * MIB),
        ("java -XX:MaxHeapSize=65536k Main", 64 * MIB),
        ("java Main -Dtext=-Xmx1", 250 * MIB),
        ("java -XX:MaxRAMPercentage=75.0 Main", 750 * MIB),
        ("javac Main.java", None),
        ("python3 java.py -Xmx128m", None),
        ("cat /usr/bin/java", None),
        ("./java-like -Xmx128m", None),
    ],
)
def test_the_largest_heap_is_what_the_jvm_itself_takes_for_it(command: str, size: int) -> None:
    assert heap_bytes(command, 1000 * MIB) == size


def test_a_jvm_that_fills_its_heap_is_left_open_with_the_time_until_it_is_full() -> None:
    verdict = judge(TIMES, GROWING)
    assert verdict.kind == "growing"
    last = GROWING[-1]
    found = beside_heap(verdict, name="java", heap=128 * MIB, change_bytes=48 * MIB, last_bytes=last)
    assert found.kind == "inconclusive" and not found.grows
    assert found.needs_seconds == pytest.approx((192 * MIB - last) / (0.8 * MIB), rel=0.02)
    assert "128.0 MiB at most" in found.evidence and "java holds 87.8 MiB" in found.evidence
    assert [regime.kind for regime in found.regimes][-1] == "inconclusive"


def test_growth_beyond_the_heap_or_of_another_process_is_growth() -> None:
    verdict = judge(TIMES, GROWING)
    beyond = beside_heap(verdict, name="java", heap=20 * MIB, change_bytes=48 * MIB, last_bytes=GROWING[-1])
    others = beside_heap(verdict, name="java", heap=128 * MIB, change_bytes=4 * MIB, last_bytes=50 * MIB)
    none = beside_heap(verdict, name="x", heap=None, change_bytes=48 * MIB, last_bytes=GROWING[-1])
    assert beyond == others == none == verdict


@pytest.mark.parametrize(("command", "grows"), [("java -Xmx128m -jar server.jar", False), ("./server", True)])
def test_neither_the_chart_nor_a_trigger_calls_a_jvm_growing_that_fills_its_heap(
    tmp_path: Path, command: str, *, grows: bool
) -> None:
    # Both ask verdict_so_far(), while the recording is still written.
    writer = SeriesWriter(tmp_path, SeriesFacts("server", 0.2, 1.7e9, "boot", 0.0, 8 << 30, "the machine"))
    line = SeriesLine(1, 4711, 7, "server", command, 0, 0.0)
    for number, (t, size) in enumerate(zip(TIMES, GROWING)):
        reading = ProcessSample(rss_bytes=int(size), pss_bytes=int(size))
        writer.append(t, [(1, reading), (TREE, reading)], [] if number else [line])
    assert verdict_so_far(tmp_path).grows is grows
    writer.close()


def test_a_run_folder_that_is_gone_ends_no_chart_and_no_trigger(tmp_path: Path) -> None:
    verdict = verdict_so_far(tmp_path / "gone")
    assert verdict.kind == "inconclusive" and not verdict.grows
    assert "holds no series" in verdict.evidence
