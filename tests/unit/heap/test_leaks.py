"""memcheck's leak searches: real answers against what the program counted itself, cut and hostile ones, reports."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import GdbmemError, InputError
from gdbmem.formats.opening import OpenOptions, open_profile
from gdbmem.formats.valgrind.memcheck import read_blocks, read_leak_search, read_place, read_pointers
from gdbmem.heap.leaks import (
    blocks_json,
    holding_json,
    leak_answer,
    leaks_json,
    lost_bytes,
    print_blocks,
    print_holding,
    print_leaks,
    ranked,
    with_changes,
)
from gdbmem.model.calltree import DEFINITELY, INDIRECTLY, POSSIBLY, REACHABLE, Frame, memory_noun
from gdbmem.model.leaks import Block, BlockHolders, Holder, LeakRecord
from gdbmem.profiles.diff import diff_snapshots
from gdbmem.runs.operand import load_from_profile
from gdbmem.terminal.console import make_console
from tests.unit.stack_files import read, tree

CAPTURES = Path(__file__).parents[2] / "captures" / "memcheck"
LINES = (CAPTURES.parents[1] / "programs" / "loses.cpp").read_text().splitlines()


def capture(name: str) -> bytes:
    return (CAPTURES / name).read_bytes()


def counted(after: int) -> dict[str, int]:
    """Return what the program had counted when it was in round *after*."""
    line = (CAPTURES / "counted.txt").read_text().splitlines()[after]
    return {word: int(number) for word, number in re.findall(r"(lost|indirect|kept) (\d+)", line)}


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(LINES, start=1) if text in line)


def test_what_is_lost_is_what_the_program_lost_to_the_byte() -> None:
    search = read_leak_search(capture("any.txt"))
    search.check()
    assert search.sums[DEFINITELY].bytes == counted(2)["lost"]
    assert search.sums[INDIRECTLY].bytes == counted(2)["indirect"]
    assert search.sums[POSSIBLY] == (300, 1), "the block that only a pointer into its middle holds"
    assert lost_bytes(search) == counted(2)["lost"] + counted(2)["indirect"]


def test_each_record_names_the_users_line_without_valgrinds_malloc() -> None:
    records = {(r.kind, r.frames[0].line): r for r in read_leak_search(capture("any.txt")).records}
    record = records[DEFINITELY, line_of("the line that loses")]
    assert (record.bytes, record.blocks) == (6000, 6)
    assert [frame.function for frame in record.frames] == ["lose(int)", "main"]
    direct = records[DEFINITELY, line_of("new Node")]
    assert (direct.bytes, direct.indirect_bytes) == (3 * 112, 12 * 112), "nothing counts twice"


def test_what_has_changed_since_the_search_before_is_reported_per_record() -> None:
    search = with_changes(
        read_leak_search(capture("any.txt")),
        read_leak_search(capture("changed.txt")),
        since="the last snapshot",
    )
    lost = [record for record in search.records if record.kind in (DEFINITELY, INDIRECTLY)]
    grown = {word: counted(2)[word] - counted(1)[word] for word in ("lost", "indirect")}
    assert sum(record.delta_bytes or 0 for record in lost) == grown["lost"] + grown["indirect"]
    (possibly,) = [record for record in search.records if record.kind == POSSIBLY]
    assert (possibly.delta_bytes, possibly.delta_blocks) == (0, 0), "not listed as changed: as it was"


def test_the_records_are_listed_by_what_mending_their_line_would_free() -> None:
    kinds = [(r.kind, r.bytes + r.indirect_bytes) for r in ranked(read_leak_search(capture("any.txt")))]
    assert kinds == [(DEFINITELY, 6000), (DEFINITELY, 1680), (POSSIBLY, 300), (INDIRECTLY, 1344)]


def test_the_heap_by_path_and_the_leak_search_agree_with_each_other() -> None:
    profile = read(CAPTURES / "heap.ms")
    assert (profile.source_format, profile.metric, profile.metrics) == ("xtree", "in-use", ["in-use"])
    found = tree(profile)
    search = read_leak_search(capture("any.txt"))
    assert found.bytes[0] == sum(total.bytes for total in search.sums.values())
    assert found.blocks is not None
    assert found.blocks[0] == sum(total.blocks for total in search.sums.values())
    by_line = {frame.line: found.bytes[node] for node in range(1, len(found)) if (frame := found.frame_of(node))
               and found.parent[node] == 0}  # fmt: skip
    assert by_line[line_of("the line that keeps")] == 1500
    assert by_line[line_of("the line that loses")] == 6000


def test_a_log_of_memchecks_is_a_profile_by_kind() -> None:
    path = CAPTURES / "end.log"
    sizes = {kind: tree(read(path, kind)).bytes[0] for kind in read(path).metrics}
    assert sizes[DEFINITELY] == counted(2)["lost"] and sizes[POSSIBLY] == 300
    assert read(path).command == "./loses"
    assert any("lists 0 of the 1,344 bytes" in notice.message for notice in read(path, INDIRECTLY).notices), (
        "at the end memcheck does not list what is lost indirectly, unless it is told to"
    )


def test_lost_memory_is_not_called_heap_nor_compared_with_it() -> None:
    log, heap = (
        load_from_profile(open_profile(CAPTURES / name), None).snapshot for name in ("end.log", "heap.ms")
    )
    assert memory_noun(log.unit) == "lost memory"
    with pytest.raises(InputError, match="bytes lost"):
        diff_snapshots(log, heap)


def test_inlined_functions_are_marked_and_told_from_recursion() -> None:
    text = (
        "==7== 8 bytes in 1 blocks are definitely lost in loss record 1 of 1\n"
        "==7==    at 0x48417B4: malloc (in /usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so)\n"
        "==7==    by 0x10: inner (a.c:3)\n==7==    by 0x10: outer (a.c:9)\n"
        "==7==    by 0x20: again (a.c:20)\n==7==    by 0x20: again (a.c:20)\n==7== \n==7== LEAK SUMMARY:\n"
        "==7==    definitely lost: 8 bytes in 1 blocks\n"
    )
    (record,) = read_leak_search(text.encode()).records
    assert [(frame.function, frame.inlined) for frame in record.frames] == [
        ("inner", True), ("outer", False), ("again", False), ("again", False),
    ]  # fmt: skip


def test_a_heap_without_blocks_has_no_leaks_and_is_no_error() -> None:
    search = read_leak_search(b"==7== All heap blocks were freed -- no leaks are possible\n")
    assert lost_bytes(search) == 0 and search.sums[DEFINITELY] == (0, 0)
    assert leak_answer(search).startswith("nothing is lost")


def test_the_last_of_several_searches_counts() -> None:
    both = capture("changed.txt") + capture("any.txt")
    assert read_leak_search(both).records == read_leak_search(capture("any.txt")).records


def test_a_log_without_a_leak_search_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("==7== Memcheck, a memory error detector\n==7== ERROR SUMMARY: 0 errors\n")
    with pytest.raises(InputError, match="without a leak search"):
        open_profile(path)
    with pytest.raises(InputError, match="contains no leak search"):
        open_profile(path, OpenOptions(format="memcheck"))


def test_a_log_cut_at_any_line_is_reported_or_refused(tmp_path: Path) -> None:
    path, data = tmp_path / "log", capture("any.txt")
    whole = read_leak_search(data)
    for end in [at + 1 for at, byte in enumerate(data) if byte == 10][:-1]:
        path.write_bytes(data[:end])
        try:
            profile = read(path, DEFINITELY, format="memcheck")
        except GdbmemError:
            continue
        assert profile.notices or tree(profile).bytes[0] == whole.sums[profile.metric].bytes


@pytest.mark.parametrize(
    "line",
    [
        "99999999999999999999 bytes in 1 blocks are definitely lost in loss record 1 of 1",
        "x bytes in 1 blocks are definitely lost in loss record 1 of 1",
        "8 bytes in 1 blocks are somehow lost in loss record 1 of 1",
    ],
)
def test_a_damaged_record_is_an_error_with_its_line(line: str) -> None:
    with pytest.raises(InputError, match=r"the\.log:2"):
        read_leak_search(f"==7== Command: a\n==7== {line}\n".encode(), "the.log")


def test_a_name_with_an_escape_sequence_reaches_no_terminal() -> None:
    text = (
        b"==7== 8 bytes in 1 blocks are definitely lost in loss record 1 of 1\n"
        b"==7==    by 0x10: evil\x1b[2J (\x1b]0;x.c:3)\n==7== LEAK SUMMARY:\n"
        b"==7==    definitely lost: 8 bytes in 1 blocks\n"
    )
    out = io.StringIO()
    print_leaks(read_leak_search(text), make_console(out, width=100), top=5)
    assert "evil" in out.getvalue() and "\x1b" not in out.getvalue()


@pytest.mark.parametrize("name", ["heap.ms"])
def test_an_execution_tree_cut_at_any_line_is_reported_or_refused(name: str, tmp_path: Path) -> None:
    path, data = tmp_path / name, capture(name)
    whole = read(CAPTURES / name).total_bytes
    for end in [at + 1 for at, byte in enumerate(data) if byte == 10][:-1]:
        path.write_bytes(data[:end])
        try:
            profile = read(path)
            found = tree(profile)
        except GdbmemError:
            continue
        assert profile.notices and found.bytes[0] == whole


def test_blocks_are_listed_with_what_only_they_keep() -> None:
    blocks = read_blocks(capture("blocks.txt").decode())
    direct = [block for block in blocks if not block.depth]
    assert {block.bytes for block in blocks} == {112}
    assert len(direct) == 12 + 3, "of the record of the lost ones, and of those that only these point to"
    assert max(block.depth for block in blocks) == 4, "a list of five"
    assert read_blocks("invalid loss record nr\n") == []


def test_pointers_to_a_block_are_read_with_their_place() -> None:
    table, local, inside = read_pointers(capture("pointers.txt").decode())
    assert table.place is not None and "data symbol" in table.place.text and table.inside_bytes == 0
    assert local.place is not None and "thread 1's stack" in local.place.text
    assert inside.inside_bytes == 10


def test_registers_are_read_with_their_thread() -> None:
    said = "tid 1 register RAX pointing at 0x4d6e2b0\ntid 2 register R9 interior pointing 16 bytes inside 0x4d6e2b0\n"
    found = [(p.register, p.thread, p.inside_bytes, p.place) for p in read_pointers(said)]
    assert found == [("RAX", 1, 0, None), ("R9", 2, 16, None)]


def test_an_address_is_reported_with_its_block_and_where_that_was_allocated() -> None:
    place = read_place(capture("place.txt").decode())
    assert place is not None and place.block is not None
    assert (place.block.bytes, place.address - place.block.address) == (500, 7)
    assert place.frames[0].line == line_of("the line that keeps")
    freed = read_place(
        " Address 0x10 is 0 bytes inside a block of size 16 free'd\n==1==    at 0x1: free (a.c:1)\n"
    )
    assert freed is not None and freed.block is None
    assert read_place("") is None


def test_the_json_of_a_search_holds_its_numbers() -> None:
    found = json.loads(leaks_json(read_leak_search(capture("any.txt"))))
    assert (found["kind"], found["lost_bytes"]) == ("leaks", counted(2)["lost"] + counted(2)["indirect"])
    assert found["sums"][REACHABLE]["bytes"] == read_leak_search(capture("any.txt")).sums[REACHABLE].bytes
    assert [record["bytes"] for record in found["records"]] == [6000, 336, 300, 1344]
    blocks = json.loads(blocks_json(4, [Block(16, 8)], is_whole=True))
    assert blocks["blocks"] == [{"address": 16, "bytes": 8, "depth": 0, "record": None}]


def test_a_text_of_a_search_states_how_much_since_when_and_where() -> None:
    search = with_changes(
        read_leak_search(capture("any.txt")),
        read_leak_search(capture("changed.txt")),
        since="the last memleaks",
    )
    out = io.StringIO()
    print_leaks(search, make_console(out, width=120), top=2)
    text = out.getvalue()
    assert text.startswith(
        "7.5 KiB can't be reached by any pointer, +3.5 KiB since the last memleaks; most at loses.cpp:"
    )
    assert "2 records more; --top N lists more" in text
    assert "definitely lost 6.2 KiB" in text


def test_a_list_of_blocks_that_was_limited_reports_it() -> None:
    out = io.StringIO()
    print_blocks(4, [Block(0x10, 112), Block(0x20, 112, 1, 3)], make_console(out, width=100), is_whole=False)
    assert out.getvalue() == (
        "loss record 4: 1 block, 112 B\n0x10  112 B\n  0x20  112 B, of record 3\n"
        "there may be more; --limit N lists more\n"
    )


NODE = Holder("block", 0x108, 0, "", block=Block(0x100, 32), frames=[Frame("grow", "a.c", 7)])
ROOT = Holder("global", 0x10, 8, "table")


@pytest.mark.parametrize(
    ("holders", "chain", "whole", "said", "reached"),
    [
        (
            (NODE,),
            (NODE, ROOT),
            True,
            "is held by the global table at 0x10 (a pointer to byte 8 of it)",
            True,
        ),
        ((NODE,), (), True, "only other lost blocks point to it", False),
        ((), (), True, "no pointer to it was found: it is lost", False),
        ((NODE,), (), False, "and was stopped", None),
    ],
)
def test_who_keeps_a_block_alive_is_reported_in_sentences(
    holders: tuple[Holder, ...], chain: tuple[Holder, ...], whole: bool, said: str, reached: object
) -> None:
    holding = BlockHolders(Block(0x200, 64), [Frame("make", "a.c", 3)], holders, chain, is_whole=whole)
    out = io.StringIO()
    print_holding(holding, make_console(out, width=100))
    assert (
        out.getvalue().startswith("block 0x200 of 64 B, allocated at a.c:3 (make)\n")
        and said in out.getvalue()
    )
    found = json.loads(holding_json(holding))
    assert found["is_reached"] is reached and len(found["chain"]) == len(chain)


def test_records_that_do_not_add_up_are_noticed() -> None:
    search = read_leak_search(capture("any.txt"))
    with pytest.raises(ValueError, match="definitely-lost"):
        type(search)([LeakRecord(1, DEFINITELY, 5, 1, [])], search.sums).check()


@pytest.mark.parametrize("kind", [DEFINITELY, INDIRECTLY, POSSIBLY, REACHABLE])
def test_what_the_leak_summary_counts_is_lost_also_where_no_record_lists_it(kind: str) -> None:
    listed, counted_only = (
        open_profile(CAPTURES / name, OpenOptions(metric=kind)) for name in ("end.log", "summary.log")
    )
    search = read_leak_search(capture("end.log"))
    for profile in (listed, counted_only):
        assert profile.snapshots[0].heap_bytes == search.sums[kind].bytes
        made = profile.tree(0)
        assert made is not None and made.bytes[0] == search.sums[kind].bytes
        assert made.blocks is not None and made.blocks[0] == search.sums[kind].blocks


@pytest.mark.parametrize(
    ("limit", "more", "status", "said"),
    [
        ("1KiB", [], 4, "not met: it grew by 7.5 KiB"),
        ("8KiB", [], 0, ""),
        # Whether a known path holds the bytes is unknown.
        ("1KiB", ["--known", "known.txt"], 125, "not judged: it grew by 3.8 KiB, give or take 3.8 KiB"),
        ("8KiB", ["--known", "known.txt"], 0, ""),
    ],
)
def test_a_gate_does_not_pass_with_a_leak_that_only_the_summary_counts(
    limit: str, more: list[str], status: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("known.txt").write_text("nobody_calls_this\n")
    clean = (CAPTURES / "no-leaks.log").read_text().replace("Command: true", "Command: ./loses")
    Path("no-leaks.log").write_text(clean)
    words = ["diff", "no-leaks.log", str(CAPTURES / "summary.log"), "--fail-on", limit, *more]
    assert main(words) == status
    shown = capsys.readouterr()
    assert "lost memory grew by 7.5 KiB" in shown.out
    assert said in shown.err


def test_sizes_of_nothing_but_commas_are_no_blocks_and_end_nothing() -> None:
    said = "==1== 0x4D6E4F0[,]\n==1== 0x4D6E5A0[112] indirect loss record ,\n==1== 0x4D6E650[16]\n"
    assert [block.bytes for block in read_blocks(said)] == [112, 16]
