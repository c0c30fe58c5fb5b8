"""Series that other tools have recorded get the verdict that the same numbers get as our own."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Callable

import pytest

from gdbmem.api.series import summarize
from gdbmem.errors import InputError
from gdbmem.formats.series import read_series, series_tool
from tests.live.user import GDBMEM, shell

MIB = 1 << 20
LEAK = [(t / 5, (50 + t / 10) * MIB) for t in range(300)]  # half a MiB a second
LEVEL = [(t, 50 * MIB + 4096 * (int(t * 5) % 3)) for t, _ in LEAK]
Points = Sequence[tuple[float, float]]


def mprof(points: Points) -> str:
    rows = [f"MEM {size / MIB:.6f} {1.7e9 + t:.4f}" for t, size in points]
    return "\n".join(["CMDLINE python train.py", *rows[:3], "FUNC main 3.5 1700000000.1", *rows[3:], ""])


def mprof_of_several(points: Points) -> str:
    """Return what mprof writes with -M: a third of each size is that of the process, the rest of two children."""
    rows = []
    for t, size in points:
        rows.append(f"MEM {size / 3 / MIB:.6f} {1.7e9 + t:.4f}")
        rows += [f"CHLD {child} {size / 3 / MIB:.6f} {1.7e9 + t + 0.01:.4f}" for child in (1, 2)]
    return "\n".join(["CMDLINE python train.py", *rows, ""])


def psrecord_csv(points: Points) -> str:
    rows = [f"{t:.3f},3,7.5,{size / MIB:.3f},900.0" for t, size in points]
    return "\n".join(["elapsed_time,nproc,cpu,mem_real,mem_virtual", *rows, ""])


def psrecord(points: Points) -> str:
    head = "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)"
    return "\n".join(
        [head, *(f"{t:12.3f} {7.5:12.3f} {size / MIB:12.3f} {900:12.3f}" for t, size in points), ""]
    )


def sheet(points: Points) -> str:
    return "\n".join(["time,host,rss_mb,cpu", *(f"{1.7e9 + t},a,{size / MIB},1" for t, size in points), ""])


def prometheus(points: Points) -> str:
    values = [[1.7e9 + t, str(size)] for t, size in points]
    data = {"resultType": "matrix", "result": [{"metric": {"job": "x"}, "values": values}]}
    return json.dumps({"status": "success", "data": data})


FORMATS = {"mprof": mprof, "psrecord": psrecord, "CSV": sheet, "Prometheus": prometheus}


@pytest.mark.parametrize("tool", FORMATS)
def test_each_tools_numbers_and_times_are_read_as_they_are(tmp_path: Path, tool: str) -> None:
    file = tmp_path / "series"
    file.write_text(FORMATS[tool](LEAK))
    assert series_tool(file) == tool
    found = read_series(file).points
    assert len(found) == len(LEAK)
    for (t, size), (truth, bytes_) in zip(found, LEAK):
        assert t == pytest.approx(truth, abs=1e-3)
        assert size == pytest.approx(bytes_, abs=1024)


@pytest.mark.parametrize(("write", "tool"), [(mprof_of_several, "mprof"), (psrecord_csv, "psrecord")])
def test_the_children_of_mprof_and_the_columns_of_psrecord_count(
    write: Callable[[Points], str], tool: str, tmp_path: Path
) -> None:
    file = tmp_path / "series"
    file.write_text(write(LEAK))
    assert series_tool(file) == tool
    found = read_series(file)
    assert len(found.points) == len(LEAK)
    assert all(size == pytest.approx(truth, abs=1024) for (_, size), (_, truth) in zip(found.points, LEAK))
    assert found.target == ("python train.py and its children" if tool == "mprof" else "series")


@pytest.mark.parametrize("tool", ["mprof", "psrecord"])
def test_a_line_that_was_cut_is_left_out(tmp_path: Path, tool: str) -> None:
    text = FORMATS[tool](LEAK)
    for cut in (1, 9, 21, 40):
        file = tmp_path / f"cut{cut}"
        file.write_text(text[:-cut])
        points = read_series(file).points
        assert len(LEAK) - 3 <= len(points) < len(LEAK)
        assert points[-1][1] == pytest.approx(LEAK[len(points) - 1][1], abs=1024)


@pytest.mark.parametrize("tool", FORMATS)
def test_a_byte_order_mark_and_lines_of_windows_change_nothing(tmp_path: Path, tool: str) -> None:
    text = FORMATS[tool](LEAK)
    (tmp_path / "plain").write_text(text)
    (tmp_path / "windows").write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
    plain, windows = (read_series(tmp_path / name) for name in ("plain", "windows"))
    assert series_tool(tmp_path / "windows") == series_tool(tmp_path / "plain")
    assert windows.points == plain.points


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["level", "leak", "--fail-on", "growing"], 4),
        (["leak", "level", "--fail-on", "growing"], 0),
        (["level", "leak", "--fail-on", "growing:1GiB/s"], 0),
        (["level", "leak"], 0),
    ],
)
def test_compare_fails_a_build_by_the_second_group_only(
    tmp_path: Path, words: list[str], status: int
) -> None:
    (tmp_path / "leak").write_text(psrecord(LEAK))
    (tmp_path / "level").write_text(psrecord(LEVEL))
    done = shell(GDBMEM, "compare", *words, folder=tmp_path)
    assert done.returncode == status, done.stdout + done.stderr


def test_they_are_judged_and_compared_as_our_own(tmp_path: Path) -> None:
    (tmp_path / "leak.dat").write_text(mprof(LEAK))
    (tmp_path / "level.log").write_text(psrecord(LEVEL))
    words = [GDBMEM, "show", "--json", "leak.dat"]
    shown = json.loads(shell(*words, folder=tmp_path, check=True).stdout)
    assert shown["verdict"]["kind"] == "growing"
    assert shown["verdict"]["slope_bytes_per_second"] == pytest.approx(MIB / 2, rel=0.02)
    words = [GDBMEM, "compare", "level.log", "leak.dat", "--fail-on", "growing", "--plot", "both.svg"]
    compared = shell(*words, folder=tmp_path)
    assert compared.returncode == 4, compared.stderr
    assert "leak.dat" in compared.stdout
    assert "thread" not in compared.stdout, "neither tool counts them"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both.svg", "leak.dat", "level.log"]


def test_the_time_to_watch_is_not_denied_by_what_is_detectable_beside_it(tmp_path: Path) -> None:
    chance = random.Random(1)
    noisy = [(t, size + chance.gauss(0, MIB / 5)) for t, size in LEVEL]
    (tmp_path / "level").write_text(psrecord(noisy))
    shown = shell(GDBMEM, "monitor", "level", "--json", folder=tmp_path, check=True)
    detectable = json.loads(shown.stdout)["verdict"]["resolution_bytes_per_second"]
    words = [GDBMEM, "monitor", "level", "--resolve", f"{int(detectable * 60 * 1.2 / 1024)}KiB/min"]
    text = shell(*words, folder=tmp_path, check=True).stdout
    assert "a slope above" in text and "would have shown" in text
    assert re.search(r"^to call \S+ MiB/h growing: watch for about ", text, re.MULTILINE), text


def test_a_comparison_of_single_runs_does_not_promise_what_only_several_give(tmp_path: Path) -> None:
    for name in ("one", "other"):
        chance, drift, rows = random.Random(name), 0.0, []
        for t, size in LEVEL:
            drift = 0.9 * drift + chance.gauss(0, MIB / 4)
            rows.append((t, size + drift))
        (tmp_path / name).write_text(psrecord(rows))
    words = [GDBMEM, "compare", "one", "other"]
    text = shell(*words, folder=tmp_path, check=True).stdout
    assert "one run on a side" in text and "by chance one in twenty comparisons" not in text


def test_samples_without_a_number_are_left_out_and_counted(tmp_path: Path) -> None:
    values = [[t, "NaN" if t in (5, 6) else "+Inf" if t == 9 else "1e8"] for t in range(40)]
    document = {"data": {"resultType": "matrix", "result": [{"values": values}]}}
    (tmp_path / "prometheus.json").write_text(json.dumps(document))
    rows = [f"{t} 0 {'nan' if t in (5, 6, 9) else 100} 200\n" for t in range(40)]
    (tmp_path / "psrecord.txt").write_text(
        "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n" + "".join(rows)
    )
    for name in ("prometheus.json", "psrecord.txt"):
        series = read_series(tmp_path / name)
        assert (len(series.points), series.unknown) == (37, 3)
        assert [t for t, _ in series.points] == [t for t in range(40) if t not in (5, 6, 9)]
        notices = summarize(tmp_path / name).notices
        assert [n.message for n in notices if n.slug == "no-number"] == [
            "3 samples without a number left out"
        ]


@pytest.mark.parametrize(
    "text",
    [
        "CMDLINE x\nMEM a b\n",
        "CMDLINE x\n",
        "CMDLINE x\nMEM nan 1\n",
        "CMDLINE x\nMEM 1e300 1\n",
        "# Elapsed time  Real\n1 2\n",
        "time,rss\n1\n",
        "time,rss\nnever,2\n",
        '{"resultType": "matrix"}',
        '{"data": {"resultType": "matrix", "result": []}}',
        '{"data": {"resultType": "matrix", "result": [{"values": [[1]]}]}}',
    ],
)
def test_what_is_damaged_is_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "series"
    file.write_text(text)
    assert series_tool(file) is not None
    with pytest.raises(InputError, match="can't be read as a series"):
        read_series(file)


def at_once(series: dict[str, Points], head: str = "time,pid,rss") -> str:
    rows = [(t, name, size) for name, points in series.items() for t, size in points]
    return "\n".join([head, *(f"{t},{name},{size}" for t, name, size in sorted(rows)), ""])


@pytest.mark.parametrize("shift", [0.0, 0.1])
@pytest.mark.parametrize("head", ["time,pid,rss", "time,host,rss", "t,name,pss"])
def test_a_leak_of_one_of_several_processes_in_a_file_does_not_vanish_behind_the_others(
    tmp_path: Path, head: str, shift: float
) -> None:
    file = tmp_path / "two.csv"
    level = [(t + shift, size) for t, size in LEVEL]
    file.write_text(at_once({"1": LEAK, "2": level}, head))
    with pytest.raises(InputError, match="several series at the same time"):
        summarize(file)
    status, printed = judged(file)
    assert status == 125, printed
    assert "give each its own file" in printed


def judged(file: Path) -> tuple[int, str]:
    done = shell(GDBMEM, "monitor", "--fail-on", "growing:1MiB/h", str(file))
    return done.returncode, done.stdout + done.stderr


def test_one_process_or_one_after_another_is_one_series(tmp_path: Path) -> None:
    one, after = tmp_path / "one.csv", tmp_path / "after.csv"
    one.write_text(at_once({"1": LEVEL}))
    later = [(t + 60.0, size) for t, size in LEVEL]
    after.write_text(at_once({"7": LEVEL, "8": later}))
    assert summarize(one).verdict.kind == "plateau"
    assert len(read_series(after).points) == 2 * len(LEVEL)


@pytest.mark.parametrize("factor", [1e3, 1e6, 1e9])
def test_a_leak_is_as_steep_whatever_the_unit_of_its_times(tmp_path: Path, factor: float) -> None:
    file = tmp_path / "epoch.csv"
    rows = [f"{round((1.7e9 + t) * factor)},{size}" for t, size in LEAK]
    file.write_text("\n".join(["timestamp,rss", *rows, ""]))
    slope = summarize(file).verdict.slope
    assert slope is not None
    assert slope.value == pytest.approx(MIB / 2, rel=0.01)


@pytest.mark.parametrize(
    ("head", "factor"), [("elapsed_ms", 1e3), ("time (us)", 1e6), ("t [min]", 1 / 60), ("time", 1)]
)
def test_the_unit_in_the_name_of_the_column_of_times_counts(tmp_path: Path, head: str, factor: float) -> None:
    file = tmp_path / "named.csv"
    file.write_text("\n".join([f"{head},rss", *(f"{t * factor},{size}" for t, size in LEAK), ""]))
    assert read_series(file).points[-1][0] == pytest.approx(LEAK[-1][0])


def test_samples_of_a_coarse_clock_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "coarse.csv"
    file.write_text("\n".join(["time,rss", *(f"{int(t)},{size}" for t, size in LEAK), ""]))
    points = read_series(file).points
    assert len(points) == len(LEAK)
    assert points == [pytest.approx(point) for point in LEAK]


def test_kib_of_ps_without_a_unit_are_not_taken_for_bytes(tmp_path: Path) -> None:
    file = tmp_path / "ps.csv"
    pages = [(t, int(size) // MIB * 1024 + 4) for t, size in LEAK]
    file.write_text("\n".join(["time,rss", *(f"{t},{size}" for t, size in pages), ""]))
    with pytest.raises(InputError, match="call the column rss_kib"):
        summarize(file)
    file.write_text(file.read_text().replace("rss", "rss_kib", 1))
    assert summarize(file).verdict.kind == "growing"
