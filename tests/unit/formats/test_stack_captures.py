"""Real files of gperftools, jemalloc, valgrind, heaptrack and Go, compared with the output of their own readers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import InputError, Notice
from gdbmem.formats.addresses import Binary
from gdbmem.formats.opening import OpenOptions, open_profile
from gdbmem.model.calltree import PRUNED, Frame
from gdbmem.profiles.diff import as_growth, diff_snapshots
from gdbmem.profiles.paths import Query
from gdbmem.profiles.ranking import rank
from gdbmem.runs.operand import load_from_profile
from tests.unit.stack_files import CAPTURES, capture, flat, read, tree

FILES = [
    "tc.0001.heap", "tc.0002.heap", "many.0001.heap.gz", "exact-first.jeheap", "exact-second.jeheap",
    "sampled-first.jeheap", "sampled-second.jeheap", "xtree.kcg", "xtleak.kcg", "dhat.json",
    "dhat-1.json", "ht.zst", "heaptrack.ls.zst", "lost.kcg", "lost.log",
    "go1.pb.gz", "go2.pb.gz", "go1.txt", "go2.txt", "tc.raw", "growth.heap", "samples.heap.gz",
    "growing.heap", "perl.growth.heap",
]  # fmt: skip


def peer(name: str) -> str:
    return (CAPTURES / f"{name}.peer").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_metric_of_every_capture_adds_up(name: str) -> None:
    for metric in read(CAPTURES / name).metrics:
        tree(read(CAPTURES / name, metric))


@pytest.mark.parametrize("name", ["tc.0001", "tc.0002", "growth", "growing", "perl.growth"])
def test_gperftools_totals_are_those_of_google_pprof(name: str) -> None:
    total = int(re.search(r"Total: (\d+) B", peer(name))[1])  # type: ignore[index]
    assert tree(read(CAPTURES / f"{name}.heap")).bytes[0] == total


def test_tcmallocs_own_samples_have_the_total_of_google_pprof_and_stand_for_what_the_program_holds() -> None:
    total = int(re.search(r"Total: (\d+) B", peer("samples"))[1])  # type: ignore[index]
    profile = read(CAPTURES / "samples.heap.gz")
    assert abs(tree(profile).bytes[0] - total) <= 2, "rounded once for each of two stacks"
    stacks = profile.load(profile).stacks
    held = {1_000: 300_000, 1_000_000: 50}
    assert len(stacks) == 2
    for stack in stacks:
        assert stack.blocks is not None
        block = min(held, key=lambda size: abs(size - stack.bytes / stack.blocks))
        assert abs(stack.bytes / block - stack.blocks) <= 0.5, "bytes and blocks are of the same estimate"
        assert abs(stack.bytes - block * held[block]) <= 3 * stack.variance**0.5


@pytest.mark.parametrize("name", ["exact-first", "exact-second", "sampled-first", "sampled-second"])
def test_jemalloc_totals_are_those_of_jeprof(name: str) -> None:
    total = int(re.search(r"Total: (\d+) B", peer(name))[1])  # type: ignore[index]
    ours = tree(read(CAPTURES / f"{name}.jeheap")).bytes[0]
    # jeprof rounds once for all stacks, we once for each.
    assert abs(ours - total) <= len(capture(f"{name}.jeheap").split(b"@"))


@pytest.mark.parametrize("name", ["go1", "go2"])
@pytest.mark.parametrize(("metric", "index"), [("in-use", "inuse_space"), ("allocated", "alloc_space")])
@pytest.mark.parametrize(("form", "suffix"), [("pb", ".pb.gz"), ("txt", ".txt")])
def test_go_profiles_have_the_totals_and_rows_of_go_tool_pprof(
    name: str, metric: str, index: str, form: str, suffix: str
) -> None:
    text = peer(f"{name}.{form}.{index}")
    found = tree(read(CAPTURES / f"{name}{suffix}", metric))
    assert found.bytes[0] == int(re.search(r"of (\d+)B total", text)[1])  # type: ignore[index]
    if form == "txt":
        return  # there pprof asks the binary, and takes an inlined function for its caller; the file knows better
    rows = re.findall(r"^ *(\d+)B .*?%  (\S+)(?: \(inline\))?$", text, re.M)
    theirs = {function: int(size) for size, function in rows if int(size)}
    ours = flat(found)
    for function, size in theirs.items():
        assert ours.get(function) == size, function


def test_what_pprof_writes_for_callgrind_has_its_rows_by_function_and_by_line(tmp_path: Path) -> None:
    profile = read(CAPTURES / "go1.callgrind")
    assert (profile.source_format, [notice.slug for notice in profile.notices]) == (
        "pprof-callgrind",
        ["no-call-paths"],
    )
    ours, whole = flat(tree(profile)), flat(tree(read(CAPTURES / "go1.pb.gz")))
    assert ours == {function: size for function, size in whole.items() if size}
    lines = {(frame.file, frame.line) for frame in tree(profile).frames}
    assert {("/tmp/shop/hp.go", 11), ("/usr/lib/go-1.19/src/runtime/proc.go", 4076)} <= lines
    in_kb = tmp_path / "in_kb"
    in_kb.write_bytes(capture("go1.callgrind").replace(b"(B)", b"(kB)"))
    assert tree(read(in_kb)).bytes[0] == 1024 * sum(ours.values())
    assert "may be almost one too small" in read(in_kb).notices[0].message


def test_what_pprof_writes_for_callgrind_is_read_with_relative_lines_and_refused_where_it_counts_no_bytes(
    tmp_path: Path,
) -> None:
    start = b"positions: instr line\nevents: inuse_space(B)\n\nfl=(1) a.c\nfn=(1) f\n0x10 7 5\n+4 +2 6\n"
    file = tmp_path / "file"
    file.write_bytes(start + b"cfn=(2) g\ncalls=0 * 9\n* * 1000\n* -8 1\nfn=(2)\n-9 0x20 3\n")
    found = tree(read(file))
    rows = {
        (frame.function, frame.line): found.bytes[at]
        for at in range(1, len(found))
        if (frame := found.frame_of(at))
    }
    assert rows == {("f", 7): 5, ("f", 9): 6, ("f", 1): 1, ("g", 32): 3}
    for text, slug in (
        (start.replace(b"(B)", b"(count)"), "no-memory-counts"),
        (start + b"* * -7\n", "negative-count"),
        (start + b"* *\n", "unknown-line"),
        (start + b"fn=(9)\n", "unknown-line"),
    ):
        file.write_bytes(text)
        with pytest.raises(InputError) as caught:
            read(file)
        assert caught.value.slug == slug


def test_heaptrack_numbers_are_those_of_heaptrack_print() -> None:
    text = peer("ht")
    leaked = re.search(r"total memory leaked: ([\d.]+)K", text)
    peak = re.search(r"peak heap memory consumption: ([\d.]+)K", text)
    calls = re.search(r"calls to allocation functions: (\d+)", text)
    assert leaked and peak and calls
    assert f"{tree(read(CAPTURES / 'ht.zst')).bytes[0] / 1000:.2f}" == leaked[1]
    assert f"{tree(read(CAPTURES / 'ht.zst', 'peak')).bytes[0] / 1000:.2f}" == peak[1]
    allocated = tree(read(CAPTURES / "ht.zst", "allocated"))
    assert allocated.blocks is not None and allocated.blocks[0] == int(calls[1])


@pytest.mark.parametrize(
    ("name", "leaked", "peak", "calls"),  # as heaptrack_print's last lines have them
    [("heaptrack.ls.zst", "33.79", "138.76", 240), ("heaptrack.sort.zst", "12.19", "922.49", 222)],
)
def test_the_totals_of_stripped_programs_are_those_of_heaptrack_print(
    name: str, leaked: str, peak: str, calls: int
) -> None:
    assert f"{tree(read(CAPTURES / name)).bytes[0] / 1000:.2f}" == leaked
    assert f"{tree(read(CAPTURES / name, 'peak')).bytes[0] / 1000:.2f}" == peak
    allocated = tree(read(CAPTURES / name, "allocated"))
    assert allocated.blocks is not None and allocated.blocks[0] == calls


def test_temporary_allocations_are_those_of_heaptrack_print_but_for_its_first_allocation() -> None:
    section = peer("ht").split("MOST TEMPORARY ALLOCATIONS")[1]
    theirs = re.findall(
        r"^(\d+) temporary allocations of \d+ allocations in total \(\S+ from\n(.+)$", section, re.M
    )
    found = tree(read(CAPTURES / "ht.zst", "temporary"))
    assert found.blocks is not None
    ours = {"churn(unsigned long)": 0, "malloc": 0}
    for node, number in enumerate(found.frame):
        name = found.frames[number].function if number >= 0 else None
        above = found.frame[found.parent[node]]
        is_first = above < 0 or (found.frames[above].function or "").startswith(
            "operator new"
        )  # left out there
        if name in ours and is_first:
            ours[name] += found.blocks[node]
    # It takes a free of its first allocation, by libstdc++'s start, for one directly after that.
    assert [row for row in theirs if not row[1].startswith("0x")] == [
        (str(n), name) for name, n in ours.items()
    ]
    total = re.search(r"temporary memory allocations: (\d+)", section)
    assert total and int(total[1]) == found.blocks[0] + 1


@pytest.mark.parametrize("name", ["dhat.json", "dhat-1.json"])
def test_dhat_tells_which_blocks_are_short_lived_never_read_or_never_written(name: str) -> None:
    document = json.loads(capture(name))
    points = document.get("pps") or document["aps"]
    life = "tl" if "pps" in document else "tli"
    for metric, chosen in {
        "never-read": [point for point in points if not point["rb"]],
        "never-written": [point for point in points if not point["wb"]],
        "short-lived": [point for point in points if point[life] / point["tbk"] <= 500],
    }.items():
        found = tree(read(CAPTURES / name, metric))
        expected = (sum(point["tb"] for point in chosen), sum(point["tbk"] for point in chosen))
        assert found.blocks is not None and (found.bytes[0], found.blocks[0]) == expected, metric
    for metric, key in (("read", "rb"), ("written", "wb")):
        assert tree(read(CAPTURES / name, metric)).bytes[0] == sum(point[key] for point in points)


@pytest.mark.parametrize("name", ["dhat.json", "dhat-1.json"])
@pytest.mark.parametrize("by", ["path", "line"])
def test_rows_of_dhat_tell_how_long_their_blocks_lived_and_whether_they_were_used(
    name: str, by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(capture(name))
    points = document.get("pps") or document["aps"]
    words = ["show", str(CAPTURES / name), "--by", by, "--metric", "allocated", "--json"]
    assert main(words) == 0
    uses = [row["use"] for row in json.loads(capsys.readouterr().out)["sites"]["paths"]]
    assert sum(use["blocks"] for use in uses) == sum(point["tbk"] for point in points)
    lives = sum(point.get("tl", point.get("tli")) for point in points)
    assert round(sum(use["mean_lifetime"] * use["blocks"] for use in uses)) == lives
    for key, theirs in (("read_bytes", "rb"), ("written_bytes", "wb"), ("bytes", "tb")):
        assert sum(use[key] for use in uses) == sum(point[theirs] for point in points)
    assert main(["show", str(CAPTURES / name), "--metric", "short-lived"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(
        "100 blocks allocated, alive 4[12] instructions on average, never read, written 0.001 times a byte",
        said,
    )


def test_a_path_of_several_program_points_of_dhat_says_how_many_it_adds_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = str(CAPTURES / "dhat.sort.json")
    points = len(json.loads(capture("dhat.sort.json"))["pps"])
    words = ["show", file, "--metric", "allocated", "--by", "path", "--all-frames"]
    assert main([*words, "--json"]) == 0
    uses = [row["use"] for row in json.loads(capsys.readouterr().out)["sites"]["paths"]]
    assert sum(use["program_points"] for use in uses) == points == len(uses) + 1
    assert main([*words, "--top", "50"]) == 0
    assert re.findall(r"at (\d+) program points", capsys.readouterr().out) == ["2"]


def test_a_large_dhat_file_is_shown_as_fast_as_before_and_says_what_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(capture("dhat.json"))
    document["pps"] *= 5001 // len(document["pps"]) + 1
    (tmp_path / "large.json").write_text(json.dumps(document))
    assert main(["show", str(tmp_path / "large.json"), "--metric", "allocated"]) == 0
    printed = capsys.readouterr()
    assert "instructions" not in printed.out and "uses-left-out" in printed.out + printed.err


def test_a_dhat_file_without_accesses_or_lifetimes_does_not_have_these_metrics(tmp_path: Path) -> None:
    document = json.loads(capture("dhat.json"))
    for flags, missing in (
        ({"bkacc": False}, {"read", "written", "never-read", "never-written"}),
        ({"bklt": False}, {"short-lived"}),
    ):
        (tmp_path / "dhat.json").write_text(json.dumps({**document, **flags}))
        assert missing.isdisjoint(read(tmp_path / "dhat.json").metrics)


def test_a_block_without_bytes_is_a_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h").write_text(
        "v 10400 3\nX ./p\ns 1 p\ns 5 empty\ns 4 full\ni 1 1 2\ni 2 1 3\nt 1 0\nt 2 0\na 0 1\na 8 2\n+ 0\n+ 0\n+ 1\n"
        "# strings: 3\n"
    )
    assert (
        main(["show", str(tmp_path / "h"), "--metric", "allocated-blocks", "--json", "--by", "function"]) == 0
    )
    rows = json.loads(capsys.readouterr().out)["sites"]["paths"]
    assert {row["site"]["function"]: (row["delta_blocks"], row["delta_bytes"]) for row in rows} == {
        "empty": (2, 0),
        "full": (1, 8),
    }


def test_an_execution_tree_is_added_up_once_not_once_per_caller() -> None:
    totals = re.search(rb"^totals: (.*)$", capture("xtree.kcg"), re.M)
    assert totals
    numbers = [int(word) for word in totals[1].split()]
    for at, metric in enumerate(("in-use", "allocated", "freed")):
        found = tree(read(CAPTURES / "xtree.kcg", metric))
        assert found.blocks is not None
        assert (found.bytes[0], found.blocks[0]) == (numbers[2 * at], numbers[2 * at + 1])


def test_the_execution_tree_of_a_program_without_allocations_holds_nothing(tmp_path: Path) -> None:
    file = tmp_path / "none.kcg"
    file.write_text(
        "# callgrind format\nversion: 1\ncreator: xtree-1\npid: 1\ncmd: ./none\n\npositions: line\n"
        "event: curB : currently allocated Bytes\nevents: curB  curBk \n\ntotals: (null)\n"
    )
    assert tree(read(file)).bytes[0] == 0 and not read(file).notices
    with file.open("a") as stream:
        stream.write("fn=f\n1 7 1\n")
    with pytest.raises(InputError, match="have 7 bytes, but its totals are 0"):
        read(file)


def test_dhat_and_the_execution_tree_of_one_program_agree_path_by_path() -> None:
    sides = [
        load_from_profile(open_profile(CAPTURES / name), None).snapshot for name in ("dhat.json", "xtree.kcg")
    ]
    diff = diff_snapshots(*sides)
    diff.check()
    assert not rank(diff, Query(by="line")).rows


def test_columns_that_rusts_dhat_writes_are_no_lines(tmp_path: Path) -> None:
    found = json.loads((CAPTURES / "dhat.json").read_text())
    found["ftbl"][1] = "0x10b001: app::load (src/main.rs:12:5)"
    (tmp_path / "x.json").write_text(json.dumps(found))
    frames = tree(read(tmp_path / "x.json")).frames
    assert Frame("app::load", "src/main.rs", 12) in frames


def test_what_valgrind_3_16_writes_has_the_totals_that_dhat_printed_beside_it() -> None:
    metrics = {"Total": "allocated", "At t-gmax": "peak", "At t-end": "in-use"}
    said = re.findall(r"== (Total|At t-gmax|At t-end): +([\d,]+) bytes in ([\d,]+) blocks", peer("dhat-1"))
    assert len(said) == 3
    for name, *numbers in said:
        found = tree(read(CAPTURES / "dhat-1.json", metrics[name]))
        assert found.blocks is not None
        assert [found.bytes[0], found.blocks[0]] == [int(number.replace(",", "")) for number in numbers]


def test_a_leak_search_tells_what_is_lost() -> None:
    found = tree(read(CAPTURES / "xtleak.kcg"))
    assert read(CAPTURES / "xtleak.kcg").metric == "lost"
    assert found.bytes[0] == 25000
    assert set(flat(found)) == {"operator new[](unsigned long)"}
    callers = {frame.function for node in range(1, len(found)) if (frame := found.frame_of(node))}
    assert "keep(unsigned long)" in callers and "churn(unsigned long)" not in callers


@pytest.mark.parametrize("kind", ["definitely", "indirectly", "possibly", "still reachable"])
@pytest.mark.parametrize("name", ["lost.kcg", "lost.log"])
def test_each_kind_of_lost_blocks_has_the_sums_that_memcheck_printed(name: str, kind: str) -> None:
    said = re.search(rf"{kind}(?: lost)?: ([\d,]+) bytes in (\d+) blocks\n", capture("lost.log").decode())
    assert said
    found = tree(read(CAPTURES / name, "reachable" if kind == "still reachable" else f"{kind}-lost"))
    assert found.blocks is not None
    assert (found.bytes[0], found.blocks[0]) == (int(said[1].replace(",", "")), int(said[2]))


@pytest.mark.parametrize("name", ["lost.kcg", "lost.log", "../memcheck/lost.xml"])
def test_what_is_lost_is_what_is_lost_directly_and_behind_that(name: str) -> None:
    said = re.findall(r"(?:definitely|indirectly) lost: ([\d,]+) bytes", capture("lost.log").decode())
    assert len(said) == 2 and read(CAPTURES / name).metric == "lost"
    assert tree(read(CAPTURES / name)).bytes[0] == sum(int(size.replace(",", "")) for size in said)


@pytest.mark.parametrize(
    "metric", ["lost", "definitely-lost", "indirectly-lost", "possibly-lost", "reachable"]
)
def test_memchecks_log_and_its_execution_tree_name_the_same_lines(metric: str) -> None:
    sides = [
        load_from_profile(open_profile(CAPTURES / name, OpenOptions(metric=metric)), None).snapshot
        for name in ("lost.log", "lost.kcg")
    ]
    diff = diff_snapshots(*sides)
    diff.check()
    assert not rank(diff, Query(by="line")).rows and diff.after[0]


def test_what_the_lost_blocks_alone_point_to_is_named_by_who_held_it() -> None:
    said = re.findall(r"\(([\d,]+) direct, ([\d,]+) indirect\)", capture("lost.log").decode())
    found = tree(read(CAPTURES / "lost.kcg", "definitely-indirectly-lost"))
    assert found.bytes[0] == sum(int(indirect.replace(",", "")) for _, indirect in said) == 936


@pytest.mark.parametrize(
    ("costs", "increased", "decreased"),
    [
        ("50 40 50 40 0 0", 10, 0),  # all is new, most of it behind the block
        ("50 40 0 0 0 0", 0, 0),
        ("60 40 10 0 0 0", 10, 0),  # the block itself grew
        ("50 45 0 5 0 0", 0, 5),  # as much as before, more of it behind the block
        ("30 10 0 0 20 30", 10, 0),  # less, and it was all behind the block
    ],
)
def test_a_change_of_what_is_lost_directly_leaves_out_what_lies_behind_it(
    costs: str, increased: int, decreased: int, tmp_path: Path
) -> None:
    file = tmp_path / "by-hand.kcg"
    head = "# callgrind format\nversion: 1\ncreator: xtree-1\nevents: DB DIB iDB iDIB dDB dDIB\n"
    file.write_text(f"{head}fn=f\n1 {costs}\ntotals: {costs}\n")
    changes = [tree(read(file, f"{word}-definitely-lost")).bytes[0] for word in ("increased", "decreased")]
    assert changes == [increased, decreased]


@pytest.mark.parametrize(
    ("name", "in_use", "allocated"),
    [
        ("maps.heap", (100 + 50) << 20, (100 + 50 + 5) << 20),
        ("maps-only.heap", 159842304, 159842304 + (5 << 20)),
    ],
)
def test_mappings_that_gperftools_lists_beside_blocks_are_counted_once(
    name: str, in_use: int, allocated: int
) -> None:
    profile = read(CAPTURES / name)
    assert tree(profile).bytes[0] == in_use
    assert [notice.slug for notice in profile.notices] == ["lists-mappings"]
    assert tree(read(CAPTURES / name, "allocated")).bytes[0] == allocated


def test_rows_beyond_the_first_line_without_tcmallocs_own_mappings_are_damage(tmp_path: Path) -> None:
    file = tmp_path / "x.heap"
    file.write_bytes(capture("maps.heap").replace(b"libtcmalloc", b"libother"))
    with pytest.raises(InputError, match="more than its first line counts"):
        read(file)


def test_a_file_that_gperftools_cut_states_what_share_is_missing() -> None:
    profile = read(CAPTURES / "many.0001.heap.gz")
    (notice,) = profile.notices
    assert notice.slug == "profile-truncated"
    assert "54.2 % of its bytes and 4,807 of its 8,192 blocks" in notice.message
    found = tree(profile)
    assert found.bytes[0] == 155643, "the header's total, not that of the rows"
    assert found.frame[1] == PRUNED and f"{100 * found.bytes[1] / 155643:.1f}" == "54.2"
    assert found.blocks is not None and (found.blocks[0], found.blocks[1]) == (8192, 4807)


def test_what_a_full_disk_cut_off_an_exact_profile_of_jemallocs_is_counted(tmp_path: Path) -> None:
    whole = (CAPTURES / "exact-second.jeheap").read_bytes()
    lines = whole.split(b"\n")
    of_all = re.search(rb"t\*: (\d+): (\d+) ", lines[1])
    assert of_all is not None
    cut = tmp_path / "cut.heap"
    cut.write_bytes(whole[: whole.index(b"MAPPED_LIBRARIES:") * 2 // 3])
    profile = read(cut)
    assert [notice.slug for notice in profile.notices] == ["profile-truncated"]
    found = tree(profile)
    assert found.blocks is not None
    assert (found.blocks[0], found.bytes[0]) == (int(of_all[1]), int(of_all[2])), "the program's own sum"
    assert found.frame[1] == PRUNED and 0 < found.bytes[1] < found.bytes[0]


@pytest.mark.slow
def test_what_a_cut_file_leaves_out_is_not_reported_to_be_under_a_threshold(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["show", str(CAPTURES / "many.0001.heap.gz")]) == 0
    text = capsys.readouterr().out
    assert "call sites that the file leaves out" in text and "threshold" not in text


@pytest.mark.slow
def test_a_path_that_a_cut_file_may_hide_is_uncertain_not_new(tmp_path: Path) -> None:
    whole = tmp_path / "whole.heap"
    lines = capture("many.0001.heap.gz").split(b"\n")
    rows = [line for line in lines[1:] if b"] @ 0x" in line][:-1]  # the last is cut itself
    total = sum(int(row.split()[1]) for row in rows)
    head = b"heap profile: %d: %d [%d: %d] @ heapprofile\n"
    counts = (len(rows), total, len(rows), total)
    maps = b"\n\nMAPPED_LIBRARIES:\n"
    whole.write_bytes(head % counts + b"\n".join(rows) + maps)
    cut = tmp_path / "cut.heap"
    cut.write_bytes(head % counts + b"\n".join(rows[:-100]) + maps)
    sides = [load_from_profile(open_profile(path), None).snapshot for path in (cut, whole)]
    diff = diff_snapshots(*sides)
    diff.check()
    assert diff.delta_bytes == 0
    new = [row for row in rank(diff, Query(all_frames=True)).rows if row.amount.before_bytes == 0]
    assert len(new) >= 10
    assert all(row.amount.uncertain_bytes >= row.amount.delta_bytes for row in new)
    assert "cut-hides" in {notice.slug for notice in diff.notices}


def test_sampled_paths_carry_their_standard_error() -> None:
    profile = read(CAPTURES / "sampled-second.jeheap")
    growth = as_growth(load_from_profile(profile, None).snapshot)
    rows = rank(growth, Query()).rows
    # Blocks far over the rate are seen for sure; of those far under it few are.
    assert rows[0].amount.after_bytes == 524288 and rows[0].amount.uncertain_bytes == 0
    small = [row.amount for row in rows if (row.amount.delta_blocks or 0) > 1000]
    assert small and all(0 < amount.uncertain_bytes < amount.after_bytes / 5 for amount in small)
    exact = as_growth(load_from_profile(read(CAPTURES / "exact-second.jeheap"), None).snapshot)
    assert all(row.amount.uncertain_bytes == 0 for row in rank(exact, Query()).rows)


def test_the_profilers_own_frames_are_stripped_from_jemallocs_stacks() -> None:
    found = tree(read(CAPTURES / "exact-second.jeheap"))
    frames = [found.frame_of(node) for node in range(1, len(found))]
    assert not [frame for frame in frames if frame and "jemalloc" in (frame.object or "")]


def test_what_the_program_called_of_jemalloc_stays_where_it_has_a_name(tmp_path: Path) -> None:
    class Named:
        def frames(
            self, wanted: Mapping[Binary, Iterable[int]], **_: object
        ) -> tuple[Mapping[tuple[Binary, int], Sequence[Frame]], Sequence[Notice]]:
            names = {0x10: "prof_backtrace", 0x20: "malloc"}
            places = [(binary, offset) for binary, offsets in wanted.items() for offset in offsets]
            return {
                place: [Frame(names[place[1] + 1], object=place[0].path)]
                for place in places
                if place[1] + 1 in names
            }, []

        def prepare(self, wanted: Mapping[Binary, Iterable[int]]) -> None: ...
        def unloaded(self, address: int) -> None: ...

    file = tmp_path / "by-hand.jeheap"
    file.write_text(
        "heap_v2/1\n  t*: 2: 14 [0: 0]\n@ 0x1010 0x1020 0x5000\n  t*: 1: 7 [0: 0]\n"
        "@ 0x1010 0x1030 0x5000\n  t*: 1: 7 [0: 0]\n\nMAPPED_LIBRARIES:\n"
        "1000-2000 r-xp 00000000 00:00 1 /lib/libjemalloc.so.2\n"
    )
    found = tree(open_profile(file, OpenOptions(symbols=Named())))  # type: ignore[arg-type]
    paths = [[found.frames[found.frame[n]].function for n in found.path(node)] for node in found.ends or ()]
    assert sorted(paths) == [["0x5000"], ["malloc", "0x5000"]]


def test_an_unknown_metric_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(InputError) as caught:
        read(CAPTURES / "dhat.json", "blocks")
    assert "in-use, peak, allocated, own-peak" in str(caught.value)


def test_a_format_can_be_forced(tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.write_text("main 12\n")  # too little to be recognised by its content
    assert tree(read(path, format="folded")).bytes[0] == 12
    with pytest.raises(InputError, match="it reads massif, ms_print, gperftools"):
        open_profile(path, OpenOptions("nonsense"))


def test_folded_stacks_are_turned_round(tmp_path: Path) -> None:
    path = tmp_path / "folded"
    path.write_text("main;run;alloc (a.c:3) 10\nmain;run 5\n")
    found = tree(read(path))
    assert [(found.frame_of(n), found.bytes[n]) for n in range(1, 3)]
    assert flat(found) == {"alloc": 10, "run": 5}


@pytest.mark.parametrize(
    ("name", "metric", "words"),
    [
        ("go2.pb.gz", "allocated", "allocated memory: "),
        ("xtree.kcg", "freed", "freed memory: "),
        ("xtleak.kcg", "lost", "lost memory: "),
        ("xtleak.kcg", "definitely-lost", "lost memory: "),
        ("xtleak.kcg", "increased-definitely-lost", "lost memory: "),
        ("dhat.json", "own-peak", "each path's own peak: "),
        ("dhat.json", "peak", "heap holds "),
    ],
)
def test_what_no_moment_held_is_not_reported_to_be_held(
    name: str, metric: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(CAPTURES / name), "--metric", metric]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(words)
    assert (" at the peak of " in first) == (metric == "peak")


def test_a_profile_of_a_program_that_freed_all_states_what_else_it_counts(tmp_path: Path) -> None:
    file = tmp_path / "dhat"
    file.write_bytes(re.sub(rb'"eb":\d+,"ebk":\d+', b'"eb":0,"ebk":0', capture("dhat.json")))
    profile = read(file)
    tree(profile)
    (notice,) = profile.notices
    assert notice.slug == "nothing-in-use" and "--metric peak, allocated, own-peak" in notice.message
    assert not read(CAPTURES / "dhat.json").notices


def test_gos_text_names_no_address_of_gos_own_allocator(tmp_path: Path) -> None:
    file = tmp_path / "by-hand.txt"
    file.write_text(
        "heap profile: 3: 70 [3: 70] @ heap/1048576\n"
        "1: 30 [1: 30] @ 0x10 0x20 0x30 0x40 0x50\n#\t0x1f\tmain.grow+0x5a\t\t/x/a.go:11\n"
        "#\t0x3f\tmain.main+0x1\t/x/a.go:3\n\n"
        "2: 40 [2: 40] @ 0x10 0x11\n\n# runtime.MemStats\n"
    )
    found = tree(read(file))
    paths = [
        [found.frames[found.frame[n]].function for n in found.path(node)] for node in range(1, len(found))
    ]
    assert ["main.grow", "0x30", "main.main"] in paths and ["0x10", "0x11"] in paths
    assert not [path for path in paths if path[:2] == ["0x10", "main.grow"] or "0x50" in path]
    for name in ("go1.txt", "go2.txt"):
        functions = flat(tree(read(CAPTURES / name, "allocated")))
        assert not [function for function in functions if function.startswith("0x")]


@pytest.mark.parametrize(
    ("by", "named"),
    [
        ("line", "over 99 % of it from hp.go:11 (main.keep)"),
        ("function", "over 99 % of it from main.keep"),
        ("file", "all of it from hp.go"),
    ],
)
def test_the_headline_names_what_the_rows_are_grouped_by(
    by: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(CAPTURES / f"go{n}.pb.gz") for n in (1, 2)]
    assert main(["diff", *files, "--by", by]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].endswith(named) or f"{named}, give or take" in out.splitlines()[0]
    row = named.partition("from ")[2].partition(" (")[0]
    assert row in out.split("\n", 1)[1], "the table has a row of that name"
    assert main(["diff", *files, "--by", by, "--metric", "blocks"]) == 0
    assert f"; most blocks at {row}" in capsys.readouterr().out.splitlines()[0]
    assert main(["diff", *files, files[1], "--by", by]) == 0
    assert f" at {row}" in capsys.readouterr().out.splitlines()[0], "of a series, too"


def test_a_difference_and_its_page_say_how_blocks_were_used_before_and_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = CAPTURES / "dhat.json", tmp_path / "second.json"
    found = json.loads(first.read_text())
    for point in found["pps"]:
        point.update(tl=3 * point["tl"], tb=2 * point["tb"])
    second.write_text(json.dumps(found))
    asked = ["diff", str(first), str(second), "--metric", "allocated", "--by", "line"]
    assert main([*asked, "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out)["paths"] if "use" in row]
    assert rows and all(row["use_before"]["bytes"] * 2 == row["use"]["bytes"] for row in rows)
    for row in rows:
        assert row["use"]["mean_lifetime"] == pytest.approx(3 * row["use_before"]["mean_lifetime"])
        assert row["use"]["bytes"] == row["after_bytes"]
    assert main(asked) == 0
    text = capsys.readouterr().out
    lines = [line.strip() for line in text.splitlines() if "blocks allocated, alive" in line]
    assert {line.partition(":")[0] for line in lines} == {"before", "after"}
    page = tmp_path / "page.html"
    assert main(["report", str(first), str(second), "--metric", "allocated", "-o", str(page)]) == 0
    assert all(f">{line.split('average')[0]}" in page.read_text() for line in lines)
    assert main(["report", str(first), "--metric", "allocated", "-o", str(page), "--force"]) == 0
    assert ">100 blocks allocated, alive" in page.read_text()


def test_of_a_file_that_does_not_say_how_blocks_were_used_a_difference_says_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["diff", str(CAPTURES / "dhat.json"), str(CAPTURES / "xtree.kcg")]) == 0
    assert "alive" not in capsys.readouterr().out
