"""The two ways to count heaptrack's lines agree, on sound lines and on damaged ones."""

from __future__ import annotations

import gzip
import os
import random
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest

from gdbmem.arrays import import_numpy
from gdbmem.errors import InputError
from gdbmem.formats.heap_profilers import heaptrack
from gdbmem.formats.heap_profilers.heaptrack import (
    ArrayLines,
    BadLineError,
    EventCounts,
    Events,
    HeaptrackLines,
    PlainLines,
    take_apart,
)
from tests.unit.stack_files import CAPTURES, read, tree


def events(lines: HeaptrackLines, known: int) -> Events:
    tally = EventCounts()
    lines.count(tally, known)
    return tally.events(known)


def temporaries(data: bytes, known: int, last: int) -> array[int]:
    """Return how often each allocation is freed by the next event, found by looking at pairs of neighbours."""
    order = [line.split() for line in data.decode().splitlines() if line[:2] in ("+ ", "- ")]
    before = [["+-"[last & 1], f"{last >> 1:x}"], *order] if last >= 0 else order
    found = array("q", bytes(8 * known))
    for (kind, index), (then, same) in zip(before, before[1:]):
        found[int(index, 16)] += (kind, then) == ("+", "-") and index == same
    return found


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
    sizes = array("q", [chance.randrange(1 << 20) for _ in range(known)])
    for count in (0, 1, 2, 500):
        data = piece(chance, known, count)
        plain, arrays = PlainLines(data), ArrayLines(data)
        assert list(plain.definitions()) == list(arrays.definitions())
        assert events(plain, known) == events(arrays, known)
        for last in (-1, 0, 1, 2 * known - 2):
            told = []
            for lines in (plain, arrays):
                tally = EventCounts()
                told.append((lines.temporaries(tally, known, last), tally.events(known)))
            assert told[0] == told[1]
            assert told[0][1].made == temporaries(data, known, last)
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
            events(lines, 5)
        assert caught.value.args[0] == bad


def test_a_whole_file_reads_alike_with_and_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for least in (0, 1 << 60):
        monkeypatch.setattr(heaptrack, "NUMPY_FROM_BYTES", least)
        made = type(take_apart(b"+ 0\n", is_big=least == 0))
        profiles = [
            read(CAPTURES / "ht.zst", metric) for metric in ("in-use", "peak", "allocated", "temporary")
        ]
        found.append((made, [(tree(one).bytes, tree(one).blocks) for one in profiles]))
    assert [made for made, _ in found] == [ArrayLines, PlainLines]
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize("least", [0, 1 << 60])
def test_a_whole_file_reads_alike_in_pieces_of_any_size(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heaptrack, "NUMPY_FROM_BYTES", least)
    found = []
    for size in (1 << 30, 4096, 100):
        monkeypatch.setattr(heaptrack, "_PIECE_BYTES", size)
        profiles = [
            read(CAPTURES / "ht.zst", metric) for metric in ("in-use", "peak", "allocated", "temporary")
        ]
        found.append([(tree(one).bytes, tree(one).blocks) for one in profiles])
    assert found[0] == found[1] == found[2]


def test_where_numpy_is_missing_lines_are_counted_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "numpy", None)
    assert isinstance(take_apart(b"+ 0\n", is_big=True), PlainLines)


def test_a_trace_whose_caller_is_a_negative_number_is_refused(tmp_path: Path) -> None:
    for line in (b"t 1 -1", b"a 8 -1", b"a -8 1"):
        file = tmp_path / "negative"
        use = b"\na 8 2\n+ 0\n" if line[:1] == b"t" else b"\n+ 0\n"
        file.write_bytes(b"v 10400 3\nX ./a\ns 1 f\ni 10 1 1\nt 1 0\n" + line + use)
        with pytest.raises(InputError) as caught:
            tree(read(file))
        assert caught.value.slug == "unknown-line"


HEAD = b"v 10400 3\nX ./a\ns 1 f\ni 10 1 1\nt 1 0\na 10 1\n"
MANY = b"+ 0\n- 0\n" * 300_000  # some blocks, unpacked


def test_a_damaged_line_far_into_a_compressed_file_is_named_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "packed.gz"
    file.write_bytes(gzip.compress(HEAD + MANY + b"+ 0\n+ 1\n" + MANY, 1))
    with pytest.raises(InputError) as caught:
        tree(read(file))
    assert f"{file}:{6 + 600_000 + 2}: " in str(caught.value)


@pytest.mark.parametrize("metric", ["in-use", "peak"])
def test_a_compressed_file_that_ends_early_gives_what_is_there_and_reports_it_once(
    tmp_path: Path, metric: str
) -> None:
    whole = gzip.compress(HEAD + b"+ 0\n+ 0\n" + MANY, 1)
    file = tmp_path / "packed.gz"
    file.write_bytes(whole[: len(whole) // 2])
    profile = read(file, metric)
    assert tree(profile).bytes[0] in (32, 48)
    slugs = [notice.slug for notice in profile.notices]
    assert slugs.count("compressed-file-truncated") == 1 and len(set(slugs)) == len(slugs)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("events", [1, 700_000])
def test_where_a_file_was_cut_is_reported_by_the_number_of_its_line(
    tmp_path: Path, events: int, *, packed: bool
) -> None:
    data = HEAD + b"+ 0\n" * events + b"+"
    file = tmp_path / "cut"
    file.write_bytes(gzip.compress(data, 1) if packed else data)
    (notice,) = read(file).notices
    assert notice.message.endswith(f"cut was truncated at line {6 + events + 1}")


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heaptrack, "_LONGEST_LINE_BYTES", 3 << 20)
    file = tmp_path / "endless.gz"
    file.write_bytes(gzip.compress(HEAD + b"s 9 " + b"x" * (9 << 20), 1))
    with pytest.raises(InputError, match=r"endless\.gz:7: expected a line of up to 3\.0 MiB, found 's 9 xxx"):
        tree(read(file))


def test_damaged_compressed_data_is_a_sentence(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(HEAD + MANY, 1))
    whole[-8] ^= 1  # of the checksum
    file = tmp_path / "packed.gz"
    file.write_bytes(bytes(whole))
    with pytest.raises(InputError, match="cannot read"):
        tree(read(file))


@pytest.mark.parametrize("packed", [False, True])
def test_only_what_follows_the_attaching_counts_wherever_in_the_file_it_stands(
    tmp_path: Path, *, packed: bool
) -> None:
    data = HEAD + b"+ 0\n" * 100 + MANY + b"A\n" + b"+ 0\n" * 3 + MANY + b"- 0\n"
    file = tmp_path / "attached"
    file.write_bytes(gzip.compress(data, 1) if packed else data)
    totals = {
        metric: tree(read(file, metric)).bytes[0] for metric in ("in-use", "peak", "allocated", "temporary")
    }
    assert totals == {
        "in-use": 2 * 16,
        "peak": 4 * 16,
        "allocated": (3 + 300_000) * 16,
        "temporary": 300_000 * 16,
    }


def test_importing_numpy_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setattr("builtins.__import__", _no_numpy(__import__))
    with pytest.raises(ImportError):
        import_numpy()
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def _no_numpy(real: Any) -> Any:
    def importing(name: str, *arguments: Any) -> Any:
        if name == "numpy":
            assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
            raise ImportError(name)
        return real(name, *arguments)

    return importing


def definitions(chance: random.Random, count: int) -> list[bytes]:
    """Return lines that define *count* addresses, traces and allocations, mixed, each named once it is there."""
    lines = [b"v 10400 3", b"X ./a", b"s 1 f", b"i 10 1 1", b"t 1 0", b"a 10 1"]
    addresses = traces = 1
    for _ in range(count):
        kind = chance.randrange(6)
        if kind == 0:
            lines.append(b"i %x 1 1" % chance.randrange(1 << 48))
            addresses += 1
        elif kind < 4:
            lines.append(b"t %x %x" % (chance.randrange(addresses) + 1, chance.randrange(traces + 1)))
            traces += 1
        else:
            lines.append(
                b"a %x %x" % (chance.randrange(1 << chance.randrange(50)), chance.randrange(traces) + 1)
            )
            lines.append(b"+ %x" % (sum(line[:1] == b"a" for line in lines) - 1))
    return lines


def outcome(file: Path, least: int, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(heaptrack, "NUMPY_FROM_BYTES", least)
    try:
        found = tree(read(file))
    except InputError as error:
        return str(error)
    return found.bytes, found.blocks, found.parent, found.frame


ODD = b"""\
t 1|t 1 |t  1 0|t 1 0 0|t 0 0|t g 0|t 1 -1|t 1 123456789abcdef01|t A 0|t 1 ffffff|t ffffff 0|t\
|a 8|a  8 1|a 8  1|a 8 ffffff|a ffffffffffffffff 1|a|q 1 2|i 1 9999""".split(b"|")


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_definition_is_read_or_refused_alike_wherever_it_stands(
    odd: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(str(odd))
    for size in (100, 1 << 17):
        monkeypatch.setattr(heaptrack, "_PIECE_BYTES", size)
        lines = definitions(chance, 60)
        lines.insert(chance.randrange(4, len(lines) + 1), odd)
        file = tmp_path / f"odd.{size}"
        file.write_bytes(b"".join(line + b"\n" for line in lines))
        assert outcome(file, 0, monkeypatch) == outcome(file, 1 << 60, monkeypatch)


def test_a_definition_may_only_name_what_stands_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = [b"v 10400 3", b"X ./a", b"s 1 f", b"i 10 1 1", b"t 1 0", b"i 20 1 1", b"t 2 1", b"a 8 2", b"+ 0"]
    for later, named in ((6, 5), (7, 6), (4, 3)):
        lines = list(sound)
        lines.insert(named, lines.pop(later))
        file = tmp_path / f"early.{later}"
        file.write_bytes(b"".join(line + b"\n" for line in lines))
        found = [outcome(file, least, monkeypatch) for least in (0, 1 << 60)]
        assert f"{file}:{named + 1}: " in str(found[0])
        assert found[0] == found[1]


def test_stacks_that_differ_only_in_addresses_of_the_same_line_are_one(tmp_path: Path) -> None:
    frames = b"v 10400 3|X ./a|s 4 work|s 4 main|s 3 a.c|i 10 0 1 3 7|i 20 0 1 3 7|i 30 0 2 3 9"
    blocks = b"t 3 0|t 1 1|t 2 1|a 8 2|a 10 3|+ 0|+ 1|+ 1|"
    file = tmp_path / "same"
    file.write_bytes((frames + b"|" + blocks).replace(b"|", b"\n"))
    found = tree(read(file))
    assert found.blocks is not None
    assert (list(found.bytes), list(found.blocks)) == ([40, 40, 40], [3, 3, 3])
