"""Files that are cut, damaged or hostile: an error or a notice, never a wrong number, never a traceback."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from gdbmem.errors import GdbmemError
from gdbmem.formats.stacks import StackProfile
from tests.unit.stack_files import capture, read, tree

CUT = [
    "tc.0002.heap",
    "exact-second.jeheap",
    "sampled-second.jeheap",
    "xtleak.kcg",
    "dhat.json",
    "ht.zst",
    "go2.txt",
]


def totals(data: bytes, folder: Path) -> int:
    path = folder / "profile"
    path.write_bytes(data)
    profile = read(path)
    tree(profile)
    return profile.snapshots[0].total_bytes


def whole_or_said(data: bytes, folder: Path, whole: int) -> None:
    """A cut file is refused, or says that it was cut, or holds all the bytes."""
    path = folder / "profile"
    path.write_bytes(data)
    try:
        profile = read(path)
        tree(profile)
    except GdbmemError as error:
        assert "\n" not in str(error)
        return
    assert profile.snapshots[0].total_bytes == whole or profile.notices


# A heaptrack that was killed leaves whole lines: what there was until then is no cut file.
@pytest.mark.parametrize("name", [name for name in CUT if name != "ht.zst"])
def test_a_file_cut_after_any_line_is_never_taken_for_a_whole_one(tmp_path: Path, name: str) -> None:
    data = capture(name)
    whole = totals(data, tmp_path)
    ends = [at for at, byte in enumerate(data) if byte == 10]
    for end in ends[:: max(1, len(ends) // 150)]:
        if end + 1 < len(data):
            whole_or_said(data[: end + 1], tmp_path, whole)


@pytest.mark.parametrize("name", [*CUT, "go2.pb.gz"])
def test_a_file_cut_anywhere_is_never_taken_for_a_whole_one(tmp_path: Path, name: str) -> None:
    data = capture(name)
    whole = totals(data, tmp_path)
    chance = random.Random(5)
    for _ in range(60):
        end = chance.randrange(1, len(data) - 1)
        if name == "ht.zst" and data[end - 1 : end] == b"\n":
            continue
        whole_or_said(data[:end], tmp_path, whole)


@pytest.mark.parametrize("name", [*CUT, "go2.pb.gz"])
def test_flipped_bytes_end_in_a_sentence_at_worst(tmp_path: Path, name: str) -> None:
    data = capture(name)
    chance = random.Random(7)
    for _ in range(60):
        damaged = bytearray(data)
        for _ in range(3):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path = tmp_path / "profile"
        path.write_bytes(damaged)
        try:
            tree(read(path))
        except GdbmemError as error:
            assert "\n" not in str(error)


def refused(folder: Path, data: bytes, format: str | None = None) -> GdbmemError:  # noqa: A002
    path = folder / "profile"
    path.write_bytes(data)
    with pytest.raises(GdbmemError) as caught:
        tree(read(path, format=format))
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)
    return caught.value


HEAP = b"heap profile: %s: %s [%s: %s] @ heapprofile\n%s: %s [%s: %s] @ 0x1\n\nMAPPED_LIBRARIES:\n"


@pytest.mark.parametrize("number", [b"99999999999999999999999", b"-5"])
def test_absurd_and_negative_counts_are_refused(tmp_path: Path, number: bytes) -> None:
    assert refused(tmp_path, HEAP % ((b"1", number) * 4)).slug in ("count-too-big", "negative-count")
    text = b"heap_v2/1\n t*: 1: 1 [0: 0]\n@ 0x1\n t*: 1: %s [0: 0]\n\nMAPPED_LIBRARIES:\n" % number
    assert refused(tmp_path, text).slug in ("count-too-big", "negative-count")
    assert refused(tmp_path, b"main;alloc " + number + b"\n", "folded").slug in (
        "count-too-big",
        "negative-count",
    )


def test_numbers_that_fit_one_by_one_but_not_together_are_refused(tmp_path: Path) -> None:
    lines = b"".join(b"main;f%d 4000000000000000000\n" % n for n in range(4))
    assert refused(tmp_path, lines).slug == "count-too-big"


def test_stacks_that_hold_more_than_the_header_counts_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, HEAP % (b"1", b"5", b"1", b"5", b"1", b"9", b"1", b"9")).slug == "totals-differ"


def test_indices_outside_their_tables_are_refused(tmp_path: Path) -> None:
    found = json.loads(capture("dhat.json"))
    for index in (-1, 10**9, "x"):
        found["pps"][0]["fs"][0] = index
        assert refused(tmp_path, json.dumps(found).encode()).slug == "index-out-of-range"
    head = b"v 10400 3\nX ./a\ns 1 f\ni 10 1 1\nt 1 0\na 8 1\n"
    for line in (b"i 10 7", b"t 1 9", b"t 9 0", b"a 8 9", b"+ 5", b"t 1", b"s 9 x", b"+ zz"):
        assert refused(tmp_path, head + line + b"\n").slug == "unknown-line"


def test_a_trace_that_calls_itself_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, b"v 10400 3\nX ./a\ns 1 f\ni 10 1 1\nt 1 1\na 8 1\n+ 0\n").slug == "unknown-line"


def test_freeing_what_was_never_allocated_is_refused(tmp_path: Path) -> None:
    assert (
        refused(tmp_path, b"v 10400 3\nX ./a\ns 1 f\ni 10 1 1\nt 1 0\na 8 1\n- 0\n").slug == "negative-count"
    )


def test_a_stack_of_ten_thousand_frames_needs_no_recursion(tmp_path: Path) -> None:
    path = tmp_path / "deep"
    path.write_text(";".join(f"f{n}" for n in range(10_000)) + " 7\n")
    assert len(tree(read(path))) == 10_001
    addresses = b"".join(b" 0x%x" % n for n in range(1, 10_001))
    path.write_bytes(
        b"heap profile: 1: 7 [1: 7] @ heapprofile\n1: 7 [1: 7] @" + addresses + b"\n\nMAPPED_LIBRARIES:\n"
    )
    assert len(tree(read(path))) == 10_001


def test_a_name_of_a_megabyte_and_bytes_that_are_no_utf_8_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "names"
    path.write_bytes(b"main;" + b"x" * (1 << 20) + b";\xff\x1b[2J 7\n")
    found = tree(read(path))
    names = [frame.function for frame in found.frames]
    assert "\udcff\x1b[2J" in names and "x" * (1 << 20) in names


def test_a_stack_without_frames_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"heap profile: 1: 288 [2: 296] @ heapprofile\n1: 288 [2: 296] @\n\nMAPPED_LIBRARIES:\n")
    assert tree(read(path)).bytes[0] == 288


def test_counts_of_instructions_and_of_time_are_not_taken_for_memory(tmp_path: Path) -> None:
    text = b"# callgrind format\nversion: 1\ncreator: callgrind-3.19.0\nevents: Ir\nfn=main\n1 5\ntotals: 5\n"
    assert "counts Ir, not memory" in refused(tmp_path, text).message


def test_a_heaptrack_file_without_names_is_sent_to_the_interpreter(tmp_path: Path) -> None:
    assert "heaptrack_interpret" in refused(tmp_path, b"v 10400 3\nX ./a\nx /bin/a 1 2\n").hint


def test_a_zstd_bomb_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zstandard

    from gdbmem.formats import opening

    monkeypatch.setattr(opening, "_UNPACKED_LIMIT_BYTES", 10 << 20)
    assert refused(tmp_path, zstandard.compress(bytes(200 << 20))).slug == "compressed-file-too-big"


def test_a_zstd_file_that_was_cut_says_so(tmp_path: Path) -> None:
    import zstandard

    lines = b"".join(b"main;f%d %d\n" % (n, n) for n in range(200_000))
    packed = zstandard.compress(lines)
    path = tmp_path / "cut"
    path.write_bytes(packed[: len(packed) // 2])
    profile = read(path)
    assert isinstance(profile, StackProfile)
    assert "compressed-file-truncated" in {notice.slug for notice in profile.notices}
