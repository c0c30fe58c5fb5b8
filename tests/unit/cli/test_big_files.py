"""The cost of a big file: linear in its nodes, never quadratic, and only what is shown is made."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Callable

import pytest

from gdbmem.cli.main import main
from gdbmem.formats.opening import open_profile
from gdbmem.model.calltree import Frame, Frames
from gdbmem.profiles import ranking
from tests.unit.massif_texts import massif, path

GENEROUS = 12  # times as long for four times as much: half of what its square would take


def cost(work: Callable[[int], object], size: int) -> float:
    best = float("inf")
    for _ in range(2):
        begin = time.process_time()
        work(size)
        best = min(best, time.process_time() - begin)
    return best


def grows_with_its_size(work: Callable[[int], object], size: int) -> bool:
    return cost(work, 4 * size) < GENEROUS * max(cost(work, size), 0.02)


def chain_of_traces(count: int) -> str:
    lines = ["v 10400 3", "X ./p", "I 1000 10", "s 1 m"]
    for number in range(1, count + 1):
        lines += [f"i {number + 0x1000:x} 1 1", f"t {number:x} {number - 1:x}", f"a 10 {number:x}"]
        lines.append(f"+ {number - 1:x}")
    return "\n".join([*lines, "", f"# strings: 1\n# ips: {count}\n"])


def test_a_chain_of_traces_is_not_unrolled_into_its_square(tmp_path: Path) -> None:
    file = tmp_path / "heaptrack.chain"
    file.write_text(chain_of_traces(4_000))
    profile = open_profile(file)
    tree = profile.tree(0)
    assert tree is not None
    assert tree.bytes[0] == 4_000 * 16, "all bytes are there"
    assert len(tree) <= 64 * 4_000 + 1
    assert [notice.slug for notice in profile.notices] == ["stacks-cut"], "and what is left out is said"


def test_a_short_chain_of_traces_is_shown_whole(tmp_path: Path) -> None:
    file = tmp_path / "heaptrack.chain"
    file.write_text(chain_of_traces(500))
    profile = open_profile(file)
    tree = profile.tree(0)
    assert tree is not None and not profile.notices
    assert max(depth for _, depth in tree.walk()) == 500 or len(tree.frames) == 1


def test_only_the_frames_of_stacks_that_hold_memory_are_made(tmp_path: Path) -> None:
    lines = ["v 10400 3", "X ./p", "s 1 m"]
    for number in range(1, 1_001):
        lines += [
            f"s 5 f{number:04}",
            f"i {number:x} 1 {number + 1:x}",
            f"t {number:x} 0",
            f"a 10 {number:x}",
        ]
        lines += [f"+ {number - 1:x}", f"- {number - 1:x}"]
    file = tmp_path / "heaptrack.freed"
    file.write_text("\n".join([*lines, "+ 2a", "# strings: 1\n"]))
    tree = open_profile(file).tree(0)
    assert tree is not None
    assert [frame.function for frame in tree.frames] == ["f0043"]


def wide(count: int) -> str:
    return massif([line for n in range(count) for line in path(10, f"f{n} (a.c:{n + 1})")])


@pytest.mark.parametrize(
    "words", [["show"], ["show", "--by", "path"], ["report", "--force", "-o", "page.html"]]
)
def test_rows_are_made_for_what_is_shown_only(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wide.ms").write_text(wide(2_000))
    made: list[int] = []
    make = ranking.GroupedPaths.row

    def counted(self: ranking.GroupedPaths, group: int) -> object:
        made.append(group)
        return make(self, group)

    monkeypatch.setattr(ranking.GroupedPaths, "row", counted)
    assert main([*words, "wide.ms"]) == 0
    assert len(made) < 400


def test_frames_are_made_for_what_is_shown_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wide.ms").write_text(wide(2_000))
    made: list[str] = []
    make = Frames._make

    def counted(function: str, *words: object) -> object:
        made.append(function)
        return make(function, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(Frames, "_make", staticmethod(counted))
    assert main(["show", str(tmp_path / "wide.ms")]) == 0
    assert 0 < len(made) < 400


def test_one_grouping_serves_the_answer_and_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wide.ms").write_text(wide(10))
    times: list[str] = []
    begin = ranking.GroupedPaths.__init__

    def counted(self: ranking.GroupedPaths, *words: object) -> None:
        times.append("once")
        begin(self, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(ranking.GroupedPaths, "__init__", counted)
    assert main(["show", str(tmp_path / "wide.ms")]) == 0
    assert times == ["once"]


@pytest.mark.slow
def test_the_page_of_many_snapshots_grows_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def work(count: int) -> None:
        Path("many.ms").write_text(massif(*([None] * count), sizes=range(count)))
        assert main(["report", "many.ms", "--force", "-o", "page.html"]) == 0

    assert grows_with_its_size(work, 1_500)


def test_a_run_of_calls_without_branches_is_not_drawn_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "deep.folded"
    file.write_text(";".join(f"f{n}" for n in range(5_000)) + " 1000\n")
    assert main(["show", "--inverted", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") < 100
    assert "f0" in out and "f4999" in out, "both ends of it are there"
    assert "more calls" in out


@pytest.mark.parametrize(
    ("start", "is_refused"), [(b"\x0a\x04\x08\x01\x10\x02", True), (b"v 10400 3\n", False)]
)
def test_a_file_that_would_take_more_memory_than_there_is_is_refused(
    start: bytes, is_refused: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "huge"
    with file.open("wb") as stream:
        stream.write(start)
        stream.truncate((1 << 30) + 1 if is_refused else 1 << 20)
    assert main(["show", str(file)]) in ((1,) if is_refused else (0, 1))
    assert ("larger than 1.0 GiB" in capsys.readouterr().err) == is_refused


def test_folded_stacks_make_frames_for_what_is_shown_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wide.folded"
    file.write_text("".join(f"main;a{n};b{n} (b.c:{n}) 10\n" for n in range(1, 2_000)))
    monkeypatch.setattr(Frames, "of", classmethod(_made_of_columns))
    assert main(["show", str(file)]) == 0
    assert "b.c:1  b1" in capsys.readouterr().out


def _made_of_columns(cls: type[Frames], frames: object) -> Frames:
    assert isinstance(frames, Frames) or not frames, "a list of that many frames was made"
    return frames if isinstance(frames, Frames) else Frames((), (), (), (), b"")


def test_a_line_that_no_file_has_is_unknown() -> None:
    assert list(Frames.of([Frame("f", "a.c", 1 << 70)])) == [Frame("f", "a.c", None)]
