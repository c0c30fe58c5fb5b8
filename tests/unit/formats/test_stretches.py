"""A stretch of a recording: what was allocated in it and not freed, by the moments that the file has; and threads."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

from gdbmem.api.profiles import ReadOptions, as_growth, read_shown
from gdbmem.cli.main import main
from gdbmem.formats.heap_profilers import heaptrack
from gdbmem.model.calltree import Stretch
from gdbmem.model.diff import Diff
from gdbmem.page.explorer import profile_data
from gdbmem.profiles.paths import Query
from gdbmem.profiles.tree_from_main import large_paths
from gdbmem.runs.run import Run
from tests.unit.massif_texts import massif, path
from tests.unit.memray_reader import Reader, Record, memray_file
from tests.unit.stack_files import CAPTURES

# Two functions; "a" allocates 100 bytes each, "b" 7. Times in ms: 10 (a), 20 (1e), 30 (28).
HEAPTRACK = """\
v 10400 3
X ./server
s 3 app
s 1 a
s 1 b
i 10 1 2
i 20 1 3
t 1 0
t 2 0
a 64 1
a 7 2
+ 0
+ 0
c a
+ 0
+ 1
- 1
- 0
c 14
+ 1
+ 1
c 1e
- 0
# strings: 3
"""


@pytest.fixture
def recording(tmp_path: Path) -> str:
    file = tmp_path / "heaptrack.server.1"
    file.write_text(HEAPTRACK)
    return str(file)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["show", "--json", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def changes(document: dict[str, Any]) -> dict[str, tuple[int, Optional[int]]]:
    rows = document["paths"] if "paths" in document else document["sites"]["paths"]
    return {row["site"]["function"]: (row["delta_bytes"], row["delta_blocks"]) for row in rows}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--to", "10ms"], {"a": (200, 2)}),
        (["--from", "0.01s", "--to", "20ms"], {"a": (0, 0)}),
        (["--from", "11ms", "--to", "21ms"], {"b": (14, 2)}),  # the next times that the file has: 20 and 30
        (["--from", "10ms"], {"a": (-100, -1), "b": (14, 2)}),
        (["--from", "10ms", "--to", "20ms", "--metric", "allocated"], {"a": (100, 1), "b": (7, 1)}),
        (["--from", "10ms", "--to", "20ms", "--metric", "temporary"], {"b": (7, 1)}),
        (["--from", "20ms", "--metric", "allocated"], {"b": (14, 2)}),
    ],
)
def test_what_heaptrack_recorded_between_two_moments_is_counted_exactly(
    words: list[str],
    expected: dict[str, tuple[int, int]],
    recording: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = {name: pair for name, pair in changes(shown(capsys, recording, *words)).items() if any(pair)}
    assert found == {name: pair for name, pair in expected.items() if any(pair)}


def test_stretches_side_by_side_add_up_to_the_whole(recording: str) -> None:
    whole = read_shown(recording, ReadOptions(end="1h"))
    assert isinstance(whole, Diff)
    parts = []
    for begin, end in ((None, "10ms"), ("10ms", "20ms"), ("20ms", "30ms"), ("30ms", None)):
        found = read_shown(recording, ReadOptions(begin=begin, end=end))
        assert isinstance(found, Diff)
        parts.append(found.delta_bytes)
    assert parts == [200, 0, 14, -100] and sum(parts) == whole.delta_bytes


@pytest.mark.parametrize("milliseconds", [141, 43, 204, 251])  # of which 0.001 makes a bit more or less
def test_a_moment_is_the_time_that_the_file_has_for_it(
    milliseconds: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "heaptrack.a.1"
    lines = (
        HEAPTRACK.replace("c a\n", f"c {milliseconds:x}\n").replace("c 14\n", "c fff\n").replace("c 1e\n", "")
    )
    file.write_text(lines)
    found = shown(capsys, str(file), "--to", f"{milliseconds}ms")
    assert found["delta_bytes"] == 200 and found["stretch"]["to"] == milliseconds / 1000
    found = shown(capsys, str(file), "--from", f"{milliseconds}ms", "--metric", "allocated")
    assert found["stretch"]["from"] == milliseconds / 1000


@pytest.mark.parametrize(
    ("words", "slug"),
    [
        (["--from", "31ms"], "empty-stretch"),
        (["--from", "2s"], "empty-stretch"),
        (["--from", "20ms", "--to", "10ms"], "empty-stretch"),
        (["--from", "20ms", "--to", "0.02s"], "empty-stretch"),
        (["--to", "0"], "empty-stretch"),
        (["--from", "11ms", "--to", "12ms"], "empty-stretch"),
        (["--from", "5"], "bad-moment"),
        (["--from=-1s"], "bad-moment"),
        (["--to", "1e3s"], "bad-moment"),
        (["--from", "1000i"], "bad-moment"),
        (["--to", "10MiB"], "bad-moment"),
        (["--to", "\x1b[31ms"], "bad-moment"),
        (["--to", "10ms", "--metric", "peak"], "no-such-metric"),
    ],
)
def test_a_stretch_that_is_none_is_refused_and_never_empty(
    words: list[str], slug: str, recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", recording, *words]) in (1, 2)
    said = capsys.readouterr().err
    assert f"[{slug}]" in said and "\x1b" not in said


def test_a_stretch_that_goes_on_after_the_recording_says_so(
    recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = shown(capsys, recording, "--from", "10ms", "--to", "1min")
    assert [one["slug"] for one in found["warnings"]] == ["stretch-cut"]
    assert found["stretch"] == {"from": 0.01, "to": 0.03, "time_unit": "s"}


def test_a_file_without_times_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(CAPTURES / "dhat.json"), "--from", "1s"]) == 1
    assert "[no-stretch]" in capsys.readouterr().err


def test_diff_and_page_show_a_stretch_too(
    recording: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", recording, "--from", "10ms", "--to", "30ms", "--fail-on", "13B"]) == 4
    assert "grew by 14 B from 0.010 s to 0.030 s of heaptrack.server.1" in capsys.readouterr().out
    page = tmp_path / "page.html"
    assert main(["report", recording, "--from", "10ms", "--to", "30ms", "-o", str(page)]) == 0
    assert "from 0.010 s to 0.030 s of heaptrack.server.1" in page.read_text()


def test_massif_compares_the_snapshots_at_both_moments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "massif.out.1"
    small, large = path(100, "f (a.cpp:1)"), [*path(100, "f (a.cpp:1)"), *path(50, "g (a.cpp:9)")]
    file.write_text(massif(None, small, None, large, sizes=(0, 100, 120, 150)))
    found = shown(capsys, str(file), "--from", "1500i", "--to", "3000i")
    assert changes(found)["g"] == (50, None) and changes(found)["f"] == (0, None)
    assert found["stretch"] == {"from": 1000.0, "to": 3000.0, "time_unit": "i"}
    assert shown(capsys, str(file), "--to", "1000i")["delta_bytes"] == 100
    for words in (["--from", "1000i", "--to", "2999i"], ["--from", "3000i"], ["--from", "1s"]):
        assert main(["show", str(file), *words]) in (1, 2)
        assert "[empty-stretch]" in (said := capsys.readouterr().err) or "[bad-moment]" in said


@pytest.fixture
def memray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    return memray_file(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--from", "10ms", "--to", "20ms"], {"late": (50, 5)}),
        (["--from", "10ms", "--to", "30ms"], {"late": (40, 4)}),
        (["--from", "10ms"], {"late": (40, 4), "finally": (1000, 1)}),
        (["--to", "15ms"], {"early": (250, 3), "late": (50, 5)}),
        (["--from", "20ms", "--to", "30ms", "--metric", "in-use"], {"early": (-200, -2), "late": (-10, -1)}),
    ],
)
def test_what_memray_says_was_allocated_and_not_freed_is_shown(
    words: list[str], expected: dict[str, tuple[int, int]], memray: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert changes(shown(capsys, memray, *words)) == expected


def test_threads_have_rows_and_their_names_do_nothing_to_the_terminal(
    memray: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = shown(capsys, memray, "--by", "thread")
    rows = {row["thread"]: row["after_bytes"] for row in found["sites"]["paths"]}
    assert rows == {"thread 1": 50, "wor\x1b]8;;ker (thread 2)": 40}
    assert main(["show", memray, "--by", "thread", "--from", "10ms", "--to", "20ms"]) == 0
    text = capsys.readouterr().out
    assert "(thread 2)" in text and "\x1b" not in text and "1.0 KiB" not in text


def test_the_page_lists_threads_where_there_are_several(
    memray: str, recording: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["report", memray, "-o", str(page)]) == 0
    text = page.read_text()
    assert "thread that allocated" in text and "(thread 2)" in text and "\x1b" not in text
    assert main(["report", memray, "--from", "10ms", "-o", str(page), "--force"]) == 0
    assert "thread that allocated" not in page.read_text(), "only one of them did, since then"
    assert main(["report", memray, memray, "-o", str(page), "--force"]) == 0
    assert "thread that allocated" in page.read_text()
    assert main(["report", recording, "-o", str(page), "--force"]) == 0
    assert "thread that allocated" not in page.read_text()


def test_the_page_has_the_thread_of_each_path_and_each_path_once(
    memray: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def records(self: Reader, merge_threads: bool) -> Iterator[Record]:
        yield Record("same", 1, "", size=5)
        yield Record("same", 2, "", size=70)
        yield Record("late", 2, "", size=40)

    monkeypatch.setattr(Reader, "get_leaked_allocation_records", records)
    shown = read_shown(memray, ReadOptions(with_threads=True))
    assert not isinstance(shown, Diff)
    growth = as_growth(shown.snapshot)
    data = profile_data(growth, Query())
    assert data["threads"] == {"names": ["thread 2", "thread 1"], "of": [1, 0, 0]}
    assert data["parent"] == [0, 1, 2], "two calls, whichever thread made them"
    assert data["ends"] == [1, 0, 1]
    merged = large_paths(growth, Query(), most=1, least_share=1)
    assert profile_data(merged.diff, Query())["threads"] == {"names": ["thread 2"], "of": [0, -1]}


def test_a_memray_that_reads_no_times_is_named(
    memray: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(Reader, "get_temporal_allocation_records")
    assert main(["show", memray, "--from", "10ms"]) == 1
    assert "[no-stretch]" in capsys.readouterr().err


def test_a_file_that_does_not_know_threads_is_refused(
    recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (recording, str(CAPTURES / "dhat.json")):
        assert main(["show", file, "--by", "thread"]) == 1
        assert "[no-threads]" in capsys.readouterr().err


@pytest.mark.parametrize("thread", ["malloc", "operator new(unsigned long)", "xmalloc-pool", "main(int)", ""])
def test_a_thread_is_no_function_whatever_it_is_called(
    thread: str, memray: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def records(self: Reader, merge_threads: bool) -> Iterator[Record]:
        return (Record(f"caller{'x' * n}", 7, thread, size=100 - n) for n in range(20))

    monkeypatch.setattr(Reader, "get_leaked_allocation_records", records)
    answers = []
    for by in ("line", "thread"):
        assert main(["show", memray, "--by", by]) == 0
        answers.append(capsys.readouterr().out.splitlines()[0])
    assert answers[0] == answers[1] and "app.py:6 (caller)" in answers[0]


def test_the_answer_is_the_same_by_size_and_by_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = ["v 10400 3", "X a", "s 3 app", "s 7 request"]
    lines += [f"s {len(f'caller{n}'):x} caller{n}" for n in range(12)]
    lines += ["i 10 1 2", *(f"i {20 + n:x} 1 {3 + n:x}" for n in range(12))]
    lines += [f"t {2 + n:x} 0" for n in range(12)] + [f"t 1 {1 + n:x}" for n in range(12)]
    lines += [f"a 40 {13 + n:x}" for n in range(12)] + [f"+ {n:x}" for n in range(12)] + ["# strings: e", ""]
    file = tmp_path / "heaptrack.a.1"
    file.write_text("\n".join(lines))
    answers = []
    for by in ("line", "size"):
        assert main(["show", str(file), "--by", by]) == 0
        answers.append(capsys.readouterr().out.splitlines()[0])
    assert answers[0] == answers[1]


def test_a_stretch_of_a_run_is_shown_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = Run.create("server", parent=tmp_path, pid=1, folder=tmp_path / "run")
    made.update(program="server", engine="heaptrack", status=0)
    relative = made.next_file("heaptrack")
    (made.folder / relative).write_text(HEAPTRACK)
    made.append("whole", file=relative, engine="heaptrack")
    for operand in ("run", "run:whole"):
        assert changes(shown(capsys, operand, "--from", "11ms", "--to", "30ms"))["b"] == (14, 2)
        assert main(["diff", operand, "--from", "11ms", "--to", "30ms", "--fail-on", "13B"]) == 4
        assert main(["report", operand, "--from", "11ms", "-o", "page.html", "--force"]) == 0
        capsys.readouterr()


def test_a_stretch_of_one_moment_is_refused(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["show"], ["diff"], ["report", "-o", "-"]):
        assert main([*words, f"{recording}:0", "--from", "10ms"]) == 1
        assert "[no-stretch]" in capsys.readouterr().err


def test_a_stretch_of_a_cut_recording_passes_no_gate(
    recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(recording).write_text(HEAPTRACK.replace("# strings: 3\n", ""))
    assert main(["diff", recording, "--from", "10ms", "--fail-on", "1MiB"]) == 125
    assert "its end was cut off" in capsys.readouterr().err


# Three functions, which allocate 16, 17 and 18 bytes.
HEAD = "v 10400 3|X a|s 3 app|s 2 f0|s 2 f1|s 2 f2|i 1 1 2|i 2 1 3|i 3 1 4|t 1 0|t 2 0|t 3 0|a 10 1|a 11 2|a 12 3"


def random_events(chance: random.Random) -> list[str]:
    """Return the events of a recording of HEAD, with times."""
    live, time, body = [0, 0, 0], 0, []
    for _ in range(chance.randrange(5, 120)):
        n = chance.randrange(4)
        if n == 3:
            time += chance.randrange(30)
            body.append(f"c {time:x}")
        elif live[n] and chance.random() < 0.5:
            live[n] -= 1
            body.append(f"- {n:x}")
        else:
            live[n] += 1
            body.append(f"+ {n:x}")
    return body


@pytest.mark.parametrize("numpy_from", [1, 1 << 30])
@pytest.mark.parametrize("seed", range(20))
def test_random_stretches_are_what_a_loop_over_the_lines_counts(
    seed: int, numpy_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    body = random_events(chance)
    monkeypatch.setattr(heaptrack, "NUMPY_FROM_BYTES", numpy_from)
    monkeypatch.setattr(heaptrack, "_PIECE_BYTES", chance.choice([40, 200, 1 << 17]))
    data = "\n".join([*HEAD.split("|"), *body, "# strings: 3", ""]).encode()
    times = [int(line[2:], 16) for line in body if line[:1] == "c"]
    for _ in range(8):
        begin, end = (
            chance.randrange(0, max(times, default=0) + 2),
            chance.randrange(1, max(times, default=0) + 9),
        )
        places = [
            next(
                (at for at, line in enumerate(body) if line[:1] == "c" and int(line[2:], 16) >= moment),
                len(body),
            )
            if moment
            else 0
            for moment in (begin, end)
        ]
        if begin >= end or begin > max(times, default=0) or places[0] >= places[1]:
            continue
        stretch = Stretch.read(f"{begin}ms", f"{end}ms")
        found = heaptrack.read_heaptrack(data, "x", "allocated", stretch=stretch)
        inside = body[places[0] : places[1]]
        assert found.total_bytes == sum((16 + int(line[2:], 16)) for line in inside if line[:1] == "+")
        change = heaptrack.read_heaptrack(data, "x", "in-use", stretch=stretch)
        assert change.earlier is not None
        net = sum((16 + int(line[2:], 16)) * {"+": 1, "-": -1}.get(line[:1], 0) for line in inside)
        assert change.total_bytes - change.earlier.total_bytes == net


def test_an_export_has_the_stretch_that_diff_and_show_have(
    recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [recording, "--from", "10ms", "--until", "30ms"]
    changed = shown(capsys, *words)
    assert changed == shown(capsys, recording, "--from", "10ms", "--to", "30ms"), "the same word"
    assert main(["export", *words, "--to", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert sum(int(row["delta_bytes"]) for row in rows) == changed["delta_bytes"] == 14
    assert main(["export", *words, "--metric", "allocated", "--to", "folded"]) == 0
    total = sum(int(line.rpartition(" ")[2]) for line in capsys.readouterr().out.splitlines())
    allocated = changes(shown(capsys, *words, "--metric", "allocated"))
    assert total == sum(size for size, _ in allocated.values()) > 14


def test_what_memray_allocated_since_a_moment_and_kept_is_exported(
    memray: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "since.pb.gz"
    assert main(["export", memray, "--from", "10ms", "--to", "pprof", "-o", str(target)]) == 0
    assert changes(shown(capsys, str(target))) == {"late": (40, 4), "finally": (1000, 1)}


@pytest.mark.parametrize("words", [["--to", "perfetto"], ["--to", "pyroscope", "-o", "http://localhost:1"]])
def test_an_export_over_time_says_that_it_takes_no_stretch(
    words: list[str], recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", recording, "--from", "10ms", *words]) == 2
    assert "takes no --from and --until" in capsys.readouterr().err
