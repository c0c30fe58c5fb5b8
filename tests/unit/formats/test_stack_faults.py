"""Files that are cut, damaged or hostile: an error or a notice, never a wrong number, never a traceback."""

from __future__ import annotations

import gzip
import json
import os
import random
import struct
import sys
import tracemalloc
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import GdbmemError
from gdbmem.formats import stacks
from gdbmem.formats.json_profiles import encode_faults, encode_own
from gdbmem.formats.opening import FORMATS, OpenOptions, open_profile
from gdbmem.formats.stacks import StackProfile
from gdbmem.model.calltree import Frame
from gdbmem.model.faults import FaultTotals, NamedFaults, NamedStack
from tests.cover import cover
from tests.unit.stack_files import capture, read, tree

CUT = [
    "tc.0002.heap",
    "exact-second.jeheap",
    "sampled-second.jeheap",
    "xtleak.kcg",
    "dhat.json",
    "ht.zst",
    "go2.txt",
    "tc.raw",
    "growth.heap",
    "growing.heap",
    "perl.growth.heap",
    "lost.kcg",
    "lost.log",
]


def totals(data: bytes, folder: Path) -> int:
    path = folder / "profile"
    path.write_bytes(data)
    profile = read(path)
    tree(profile)
    return profile.snapshots[0].total_bytes


def whole_or_said(data: bytes, folder: Path, whole: int) -> None:
    """A cut file is refused, or reported as cut, or has all the bytes."""
    path = folder / "profile"
    path.write_bytes(data)
    try:
        profile = read(path)
        tree(profile)
    except GdbmemError as error:
        assert "\n" not in str(error)
        return
    assert profile.snapshots[0].total_bytes == whole or profile.notices


@pytest.mark.slow
# A heaptrack that was killed leaves whole lines: what there was until then is not a cut file.
@pytest.mark.parametrize("name", [name for name in CUT if name != "ht.zst"])
def test_a_file_cut_after_any_line_is_never_taken_for_a_whole_one(tmp_path: Path, name: str) -> None:
    data = capture(name)
    whole = totals(data, tmp_path)
    ends = [at for at, byte in enumerate(data) if byte == 10]
    for end in ends[:: max(1, len(ends) // 200)]:  # of most files each
        if end + 1 < len(data):
            whole_or_said(data[: end + 1], tmp_path, whole)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(  # tests/fuzz has the others, too
    "name", cover([*CUT, "go2.pb.gz"], lambda name: name.endswith((".zst", ".pb.gz", ".txt")))
)
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
    lines = b"t 1 9|t 9 0|t 1|a 8 9|+ 5|s 9 x|+ zz|i 10 7"
    for line in lines.split(b"|"):
        use = {b"t": b"a 8 2\n+ 1\n", b"a": b"+ 1\n", b"i": b"t 2 0\na 8 2\n+ 1\n"}.get(line[:1], b"")
        error = refused(tmp_path, head + line + b"\n" + use)
        assert error.slug == "unknown-line" and "profile:7: expected" in error.message


@pytest.mark.parametrize("what", ["location", "function", "name", "file", "unit", "values", "mapping"])
def test_what_a_protobuf_does_not_hold_is_refused(tmp_path: Path, what: str) -> None:
    from gdbmem.formats.protobuf_schema import profile_message

    profile = profile_message()()
    profile.string_table.extend([b"", b"space", b"bytes", b"f"])
    profile.sample_type.add(type=1, unit=99 if what == "unit" else 2)
    profile.function.add(id=1, name=-1 if what == "name" else 3, filename=99 if what == "file" else 0)
    profile.location.add(id=1).line.add(function_id=9 if what == "function" else 1, line=1)
    sample = profile.sample.add(location_id=[9 if what == "location" else 1])
    sample.value.extend([7, 7] if what == "values" else [7])
    if what == "mapping":
        profile.mapping.add(id=1, filename=99)
    assert refused(tmp_path, profile.SerializeToString(), "pprof").slug == "index-out-of-range"


def test_a_name_that_an_execution_tree_never_gave_is_refused(tmp_path: Path) -> None:
    text = b"# callgrind format\nversion: 1\ncreator: xtree-1\nevents: curB\nfn=(7)\n1 7\ntotals: 7\n"
    assert "a name that was given before" in refused(tmp_path, text).message


def test_a_trace_that_calls_itself_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, b"v 10400 3\nX ./a\ns 1 f\ni 10 1 1\nt 1 1\na 8 1\n+ 0\n").slug == "unknown-line"


def test_freeing_what_was_never_allocated_is_refused(tmp_path: Path) -> None:
    assert (
        refused(tmp_path, b"v 10400 3\nX ./a\ns 1 f\ni 10 1 1\nt 1 0\na 8 1\n- 0\n").slug == "negative-count"
    )


def test_a_leak_search_whose_sums_name_no_kind_that_is_lost_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("==1== LEAK SUMMARY:\n==1==    still reachable: 300 bytes in 1 blocks\n")
    with pytest.raises(GdbmemError) as caught:
        read(log)
    assert caught.value.slug == "no-leak-search"


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


@pytest.mark.slow
def test_a_zstd_bomb_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zstandard

    from gdbmem.formats import opening

    monkeypatch.setattr(opening, "_LIMIT_BYTES", 10 << 20)
    packed = zstandard.compress(bytes(200 << 20))
    tracemalloc.start()
    try:
        assert refused(tmp_path, packed).slug == "compressed-file-too-big"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 << 20, "a piece of it, not all that it would unpack to"


@pytest.mark.slow
def test_a_zstd_file_that_was_cut_reports_it(tmp_path: Path) -> None:
    import zstandard

    lines = b"".join(b"main;f%d %d\n" % (n, n) for n in range(200_000))
    packed = zstandard.compress(lines)
    path = tmp_path / "cut"
    path.write_bytes(packed[: len(packed) // 2])
    profile = read(path)
    assert isinstance(profile, StackProfile)
    assert "compressed-file-truncated" in {notice.slug for notice in profile.notices}


NAMES = sorted(FORMATS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", ["elf", "zeroes", "noise", "newlines", "nested"])
def test_what_is_forced_into_a_wrong_format_ends_in_a_sentence(
    tmp_path: Path, name: str, content: str
) -> None:
    data = {
        "elf": Path(sys.executable).resolve().read_bytes()[:20_000],
        "zeroes": bytes(5000),
        "noise": random.Random(1).randbytes(5000),
        "newlines": b"\n" * 5000,
        "nested": b"[" * 200_000,
    }[content]
    path = tmp_path / "profile"
    path.write_bytes(data)
    try:
        profile = open_profile(path, OpenOptions(name))
        profile.tree(0) if profile.snapshots else None
    except GdbmemError as error:
        assert "\n" not in str(error) and "\x1b" not in str(error)
    else:
        # Blank lines are folded stacks of nothing; zeroes may be taken for a protobuf's padding.
        assert not profile.snapshots or not profile.snapshots[0].total_bytes


@pytest.mark.parametrize("name", NAMES)
def test_no_format_reads_folders_fifos_and_empty_files(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "empty.gz").write_bytes(gzip.compress(b""))
    for file, slug in (
        (tmp_path, "not-a-file"), (tmp_path / "fifo", "not-a-file"), (tmp_path / "empty", "empty-file"),
        (tmp_path / "empty.gz", "empty-file"),
    ):  # fmt: skip
        with pytest.raises(GdbmemError) as caught:
            open_profile(file, OpenOptions(name))
        assert caught.value.slug == slug


DEEP = 10_000
NAME = "n" * (1 << 20)


def deep(name: str, frames: int = DEEP) -> bytes:
    """A profile of one stack of *frames* frames that holds 7 bytes."""
    addresses = b"".join(b" 0x%x" % n for n in range(1, frames + 1))
    numbers = range(frames)
    texts = {
        "gperftools": b"heap profile: 1: 7 [1: 7] @ heapprofile\n1: 7 [1: 7] @%s\n\nMAPPED_LIBRARIES:\n" % addresses,
        "jemalloc": b"heap_v2/1\n  t*: 1: 7 [0: 0]\n@%s\n  t*: 1: 7 [0: 0]\n\nMAPPED_LIBRARIES:\n" % addresses,
        "folded": b";".join(b"f%d" % n for n in numbers) + b" 7\n",
        "faults": encode_faults(NamedFaults(
            "", FaultTotals(1, 1, 1, 0, 1, 1, sees_kernel_mode=True, broken_paths=0), {},
            [Frame(f"f{n}") for n in numbers], [NamedStack(numbers, 1, 1, 7, 7, 1, 0, 0)],
        )),
        "tracemalloc": encode_own("tracemalloc", {
            "command": "", "own_bytes": 0, "rss_bytes": None, "unread_blocks": 0, "cut_tracebacks": 0, "deepest": 1,
            "frames": [["a.py", n] for n in numbers], "stacks": [[7, 1, list(numbers)]],
        }),
        "heap": json.dumps({
            "format_version": 1, "kind": "heap", "warnings": [], "program": "a",
            "saved": {"tree": [[n - 1, f"f{n}", "", 7 * (n == frames - 1), 0] for n in numbers]},
        }).encode(),
        "speedscope": json.dumps({
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "shared": {"frames": [{"name": f"f{n}"} for n in numbers]},
            "profiles": [{
                "type": "sampled", "unit": "bytes", "name": "", "startValue": 0, "endValue": 7,
                "samples": [list(reversed(numbers))], "weights": [7],
            }],
        }).encode(),
        "heaptrack": b"v 10400 3\nX a\ns 1 f\ni 10 1 1\n"
        + b"".join(b"t 1 %x\n" % n for n in numbers) + b"a 7 %x\n+ 0\n" % frames,
        "dhat": json.dumps({
            "dhatFileVersion": 2, "mode": "heap", "pps": [{"tb": 7, "tbk": 1, "fs": list(numbers)}],
            "ftbl": [f"f{n} (a.c:{n})" for n in numbers],
        }).encode(),
        "callgrind": b"# callgrind format\nversion: 1\ncreator: xtree-1\npositions: line\nevents: curB curBk\n"
        + b"".join(b"fn=f%d\n%d\ncfn=f%d\ncalls=0 1\n1 7 1\n" % (n, n + 1, n + 1) for n in range(frames - 1))
        + b"fn=f%d\n1 7 1\ntotals: 7 1\n" % (frames - 1),
        "memcheck": b"==7== 7 bytes in 1 blocks are definitely lost in loss record 1 of 1\n"
        + b"".join(b"==7==    by 0x%X: f%d (a.c:%d)\n" % (n + 1, n, n + 1) for n in numbers)
        + b"==7== LEAK SUMMARY:\n==7==    definitely lost: 7 bytes in 1 blocks\n",
        "memcheck-xml": b"<valgrindoutput><error><kind>Leak_DefinitelyLost</kind><xwhat><text>7 bytes in 1 blocks are "
        + b"definitely lost in loss record 1 of 1</text></xwhat><stack>"
        + b"".join(b"<frame><ip>0x%X</ip><fn>f%d</fn></frame>" % (n + 1, n) for n in numbers)
        + b"</stack></error></valgrindoutput>",
        "sanitizer": b"Direct leak of 7 byte(s) in 1 object(s) allocated from:\n"
        + b"".join(b"    #%d 0x%x in f%d a.c:%d:1\n" % (n, n + 1, n, n + 1) for n in numbers)
        + b"\nSUMMARY: AddressSanitizer: 7 byte(s) leaked in 1 allocation(s).\n",
        "pprof-raw": b"--- symbol\n---\n--- profile\n"
        + struct.pack(f"<{7 + frames}Q", 0, 3, 0, 1, 0, 7, frames, *range(1, frames + 1)),
    }  # fmt: skip
    return texts[name]


# One blank a frame makes such a stack 50 MB; valgrind keeps 500 frames at the most.
_LIMITED = ("massif", "ms_print", "xtree")
_ELSEWHERE = ("pprof", "memray", "torch")
# Without call paths, or with such that the tool limits.
_FLAT = (
    "pprof-callgrind", "mtrace", "malloc_info", "malloc_stats", "smaps", "pmap", "java-histogram", "java-native",
    "heapsnapshot", "heapprofile", "tcmalloc-stats", "jemalloc-stats", "mimalloc-stats", "torch-summary",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in (*_LIMITED, *_ELSEWHERE, *_FLAT)])
def test_ten_thousand_frames_on_a_stack_are_read_by_every_format(tmp_path: Path, name: str) -> None:
    path = tmp_path / "deep"
    path.write_bytes(deep(name))
    found = tree(read(path))
    assert len(found) == DEEP + 1
    assert found.bytes[0] == 7


@pytest.mark.parametrize(
    "name",
    ["dhat", "faults", "gperftools", "sanitizer", "jemalloc", "pprof-raw", "tracemalloc", "heap"],
)
def test_a_stack_that_is_too_deep_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "DEEPEST", 20)
    path = tmp_path / "deep"
    path.write_bytes(deep(name, 20))
    assert len(tree(read(path))) == 21
    path.write_bytes(deep(name, 21))
    with pytest.raises(GdbmemError) as caught:
        tree(read(path))
    assert caught.value.slug == "stack-too-deep"


@pytest.mark.slow
def test_ten_thousand_frames_and_a_name_of_a_megabyte_are_read_from_a_protobuf(tmp_path: Path) -> None:
    from gdbmem.formats.protobuf_schema import profile_message

    profile = profile_message()()
    profile.sample_type.add(type=1, unit=2)
    profile.string_table.extend([b"", b"inuse_space", b"bytes", NAME.encode(), b"\xff\x1b[2J"])
    for n in range(1, DEEP + 1):
        profile.function.add(id=n, name=3 if n > 1 else 4, filename=0)
        profile.location.add(id=n).line.add(function_id=n, line=n)
    profile.sample.add(location_id=range(1, DEEP + 1)).value.extend([7])
    path = tmp_path / "deep"
    path.write_bytes(profile.SerializeToString())
    found = tree(read(path))
    assert found.bytes[0] == 7 and found.frames[found.frame[1]].function == "\udcff\x1b[2J"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dhat", "heaptrack", "callgrind", "pprof-raw", "gperftools"])
def test_long_names_and_hostile_bytes_are_kept_and_printed_safely(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = b"\xff\x1b[2J\xe2\x80\xae" + NAME.encode()
    texts = {
        "dhat": b'{"dhatFileVersion":2,"mode":"heap","pps":[{"tb":7,"tbk":1,"fs":[0]}],"ftbl":["\\u001b[2J'
        + NAME.encode() + b'"]}',
        "heaptrack": b"v 10400 3\nX a\ns %x %s\ni 10 0 1\nt 1 0\na 7 1\n+ 0\n" % (len(evil), evil),
        "callgrind": b"# callgrind format\nversion: 1\ncreator: xtree-1\nevents: curB\nfn=%s\n1 7\ntotals: 7\n" % evil,
        "pprof-raw": b"--- symbol\n0x1 %s\n---\n--- profile\n" % evil + struct.pack("<8Q", 0, 3, 0, 1, 0, 7, 1, 1),
        "gperftools": b"--- symbol\n0x1 %s\n---\n--- heap\nheap profile: 1: 7 [1: 7] @ heapprofile\n"
        b"1: 7 [1: 7] @ 0x1\n\nMAPPED_LIBRARIES:\n" % evil,
    }  # fmt: skip
    path = tmp_path / "evil"
    path.write_bytes(texts[name])
    assert main(["show", str(path), "--top", "1"]) == 0
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err and "\u202e" not in shown.out + shown.err


@pytest.mark.parametrize("name", ["pprof-raw", "dhat", "heaptrack", "callgrind"])
@pytest.mark.parametrize("count", [1 << 64, 1 << 63, -1])
def test_counts_that_no_memory_has_are_refused_by_every_format(tmp_path: Path, name: str, count: int) -> None:
    if name == "pprof-raw":
        words = struct.pack("<8Q", 0, 3, 0, 1, 0, max(count % (1 << 64), 1 << 63), 1, 1)
        data = b"--- symbol\n---\n--- profile\n" + words
    else:
        data = {
            "dhat": json.dumps({"dhatFileVersion": 2, "mode": "heap", "pps": [{"tb": count, "tbk": 1, "fs": [0]}],
                                "ftbl": ["f"]}),
            "heaptrack": f"v 10400 3\nX a\ns 1 f\ni 10 1 1\nt 1 0\na {count:x} 1\n+ 0\n",
            "callgrind": f"# callgrind format\nversion: 1\ncreator: xtree-1\nevents: curB\nfn=f\n1 {count}\n",
        }[name].encode()  # fmt: skip
    assert refused(tmp_path, data, name).slug in ("count-too-big", "negative-count", "unknown-line")


@pytest.mark.slow
def test_many_equal_lines_take_no_more_memory_than_one(tmp_path: Path) -> None:
    file = tmp_path / "folded.gz"
    file.write_bytes(gzip.compress(b"main;allocate 2\n" * 50_000 + b"main;other 1\n"))
    tracemalloc.start()
    try:
        profile = read(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert tree(profile).bytes[0] == 100_001
    assert peak < 5 * 16 * 50_000, "the text itself, a few times over while it is unpacked"


@pytest.mark.slow
def test_a_file_of_different_stacks_takes_no_object_for_each_frame(tmp_path: Path) -> None:
    file = tmp_path / "folded"
    file.write_text("".join(f"main;a{n};b{n} 10\n" for n in range(30_000)))
    tracemalloc.start()
    try:
        assert tree(read(file)).bytes[0] == 300_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * file.stat().st_size, "30 times with a tuple for each stack"


def test_folded_stacks_are_read_some_lines_at_once_and_an_error_names_its_own(tmp_path: Path) -> None:
    file = tmp_path / "folded"
    lines = [f"main;a{n % 1500} 1\n" for n in range(3000)]
    file.write_text("".join(lines) + "main;cut")
    profile = read(file)
    found = tree(profile)
    assert (found.bytes[0], len(found)) == (3000, 1 + 2 * 1500)
    assert profile.notices[0].message == f"{file} was truncated at line 3001"
    assert [notice.slug for notice in profile.notices] == ["bytes-missing", "unit-assumed"]
    file.write_text("".join([*lines[:2500], "main;no number\n", *lines]))
    with pytest.raises(GdbmemError, match="folded:2501: expected"):
        read(file)
    file.write_text("".join([*lines, ";".join(["f"] * 100_001), " 1\n"]))
    with pytest.raises(GdbmemError, match="folded:3001: a stack of 100001 frames"):
        read(file)


def test_what_does_not_fit_into_memory_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    (tmp_path / "stacks").write_text("main;allocate 2\n")
    monkeypatch.setattr("gdbmem.formats.flame_graphs.read_folded", full)
    assert main(["show", str(tmp_path / "stacks")]) == 1
    assert capsys.readouterr().err.startswith("gdbmem: not enough memory")


def test_a_line_number_with_leading_zeroes_is_that_line(tmp_path: Path) -> None:
    file = tmp_path / "xtree"
    file.write_text(
        "# callgrind format\nversion: 1\ncreator: xtree-1\nevents: curB\nfl=a.c\nfn=f\n0012 7\ntotals: 7\n"
    )
    found = tree(read(file))
    frame = found.frame_of(1)
    assert found.bytes[0] == 7 and frame is not None and frame.line == 12
