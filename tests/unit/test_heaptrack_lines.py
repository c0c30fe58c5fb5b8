"""The two ways to count heaptrack's lines say the same, of sound lines and of damaged ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gdbmem.formats import heaptrack, heaptrack_lines
from gdbmem.formats.heaptrack_lines import ArrayLines, BadLineError, PlainLines, take_apart
from tests.unit.stack_files import CAPTURES, read, tree


def piece(chance: random.Random, known: int, count: int) -> bytes:
    lines = []
    for _ in range(count):
        kind = chance.randrange(20)
        index = chance.randrange(known)
        if kind < 17:
            lines.append(b"%s %x" % (chance.choice((b"+", b"-")), index))
        else:
            lines.append(chance.choice((b"c 1f", b"R 20", b"s 1 f", b"t 1 0", b"a 8 1", b"# +", b"")))
    return b"".join(line + b"\n" for line in lines)


@pytest.mark.parametrize("known", [1, 9, 16, 17, 300, 70_000])
def test_counting_at_once_and_one_by_one_agree(known: int) -> None:
    chance = random.Random(known)
    sizes = [chance.randrange(1 << 20) for _ in range(known)]
    for count in (0, 1, 2, 500):
        data = piece(chance, known, count)
        plain, arrays = PlainLines(data), ArrayLines(data)
        assert len(plain) == len(arrays) == count
        assert list(plain.definitions()) == list(arrays.definitions())
        for first in (None, 0, count // 2):
            assert plain.events(known, first) == arrays.events(known, first)
        if count:
            assert plain.peak(sizes, 1 << 40) == arrays.peak(sizes, 1 << 40)


BAD = [
    b"+",
    b"+ ",
    b"- g",
    b"+ 1 2",
    b"+1",
    b"-  1",
    b"+ 123456789",
    b"+ 5",
    b"+ -1",
    b"+ :",
    b"+ A",
    b"- `",
    b"+ \xff",
    b"+\t1",
]


@pytest.mark.parametrize("bad", BAD)
def test_a_damaged_line_is_found_both_ways(bad: bytes) -> None:
    data = b"+ 1\n- 4\n" + bad + b"\n+ 2\n"
    for lines in (PlainLines(data), ArrayLines(data)):
        with pytest.raises(BadLineError) as caught:
            lines.events(5)
        assert caught.value.args[0] == bad


def test_a_whole_file_reads_alike_with_and_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for least in (0, 1 << 60):
        monkeypatch.setattr(heaptrack_lines, "_NUMPY_FROM_BYTES", least)
        made = type(take_apart(b"+ 0\n", whole_bytes=4))
        profiles = [read(CAPTURES / "ht.zst", metric) for metric in ("in-use", "peak", "allocated")]
        found.append((made, [(tree(one).bytes, tree(one).blocks) for one in profiles]))
    assert [made for made, _ in found] == [ArrayLines, PlainLines]
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize("least", [0, 1 << 60])
def test_a_whole_file_reads_alike_in_pieces_of_any_size(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heaptrack_lines, "_NUMPY_FROM_BYTES", least)
    found = []
    for size in (1 << 30, 4096, 100):
        monkeypatch.setattr(heaptrack, "_PIECE_BYTES", size)
        profiles = [read(CAPTURES / "ht.zst", metric) for metric in ("in-use", "peak", "allocated")]
        found.append([(tree(one).bytes, tree(one).blocks) for one in profiles])
    assert found[0] == found[1] == found[2]


def test_where_numpy_is_missing_lines_are_counted_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "numpy", None)
    assert isinstance(take_apart(b"+ 0\n", whole_bytes=1 << 40), PlainLines)


def test_a_trace_whose_caller_is_a_negative_number_is_refused(tmp_path: Path) -> None:
    from gdbmem.errors import InputError

    for line in (b"t 1 -1", b"a 8 -1", b"a -8 1"):
        file = tmp_path / "negative"
        file.write_bytes(b"v 10400 3\nX ./a\ns 1 f\ni 10 1 1\nt 1 0\n" + line + b"\na 8 1\n+ 0\n")
        with pytest.raises(InputError) as caught:
            tree(read(file))
        assert caught.value.slug == "unknown-line"
