"""Leak reports of LeakSanitizer and AddressSanitizer: the captures add up to the sums that the tools print."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import InputError
from gdbmem.model.calltree import BYTES_MISSING, Frame
from tests.unit.report_files import REPORTS, read_cut
from tests.unit.stack_files import flat, read, tree

LOGS = sorted(path.name for path in REPORTS.glob("*.log") if path.name != "traced.log")
WHOLE = [name for name in LOGS if name != "max-leaks.log"]


def sums(data: bytes) -> tuple[int, int]:
    found = re.findall(rb"(\d+) byte\(s\) leaked in (\d+) allocation", data)
    return sum(int(size) for size, _ in found), sum(int(count) for _, count in found)


def records(data: bytes, kind: bytes = b"") -> int:
    return sum(int(size) for size in re.findall(kind + rb"[a-z]+ leak of (\d+) byte\(s\)[^\n]*:\n", data))


@pytest.mark.parametrize("name", WHOLE)
def test_the_records_of_a_report_add_up_to_its_sum_by_every_metric(name: str) -> None:
    data = (REPORTS / name).read_bytes()
    profile = read(REPORTS / name)
    found = tree(profile)
    assert (profile.source_format, profile.metric) == ("sanitizer", "lost")
    assert found.blocks is not None
    assert (found.bytes[0], found.blocks[0]) == sums(data)
    assert BYTES_MISSING not in {notice.slug for notice in profile.notices}
    for metric, kind in (("definitely-lost", b"D"), ("indirectly-lost", b"I")):
        if metric in profile.metrics:
            assert tree(read(REPORTS / name, metric)).bytes[0] == records(data, kind)


@pytest.mark.parametrize("name", [name for name in LOGS if name.startswith("leaks")])
def test_each_leak_is_at_the_line_of_the_program_not_in_the_sanitizers_malloc(name: str) -> None:
    sizes = flat(tree(read(REPORTS / name)))
    assert {re.sub(r"\(.*", "", function): size for function, size in sizes.items()}.items() >= {
        "leak_array": 123456,
        "make_list": 1600,
        "main": 5000 + 640 + 8,
    }.items()
    frames = {(Path(frame.file or "").name, frame.line) for frame in tree(read(REPORTS / name)).frames}
    assert {("leaks.cc", 49), ("leaks.cc", 20), ("leaks.cc", 61)} <= frames


@pytest.mark.parametrize("name", ["leaks-g++-address.log", "leaks-clang++-leak.log", "forks-g++-leak.log"])
def test_a_cut_report_never_has_leaks_that_it_does_not_list(tmp_path: Path, name: str) -> None:
    whole = flat(tree(read(REPORTS / name)))
    for left, profile in read_cut((REPORTS / name).read_bytes(), tmp_path):
        assert tree(profile).bytes[0] == records(left)
        assert sum(flat(tree(profile)).get(function, 0) > size for function, size in whole.items()) == 0


def test_leaks_that_max_leaks_left_out_are_counted_in_a_row_of_their_own() -> None:
    data = (REPORTS / "max-leaks.log").read_bytes()
    profile = read(REPORTS / "max-leaks.log")
    found = tree(profile)
    assert found.blocks is not None
    assert (found.bytes[0], found.blocks[0]) == sums(data)
    assert found.bytes[0] > records(data)
    assert [notice.slug for notice in profile.notices] == [BYTES_MISSING]


def test_leaks_without_names_are_told_apart_by_their_places_in_the_program() -> None:
    frames = tree(read(REPORTS / "nameless.log")).frames
    assert Frame("0x33981", object="/tmp/shop/leaks") in frames
    assert "0x31ea8" not in flat(tree(read(REPORTS / "nameless.log"))), "operator new[]"


def test_processes_whose_lines_are_mixed_are_added_up(tmp_path: Path) -> None:
    data = (REPORTS / "forks-clang++-address.log").read_bytes()
    heads, rest = re.findall(rb"==\d+==ERROR[^\n]*\n", data), re.sub(rb"==\d+==ERROR[^\n]*\n", b"", data)
    mixed = tmp_path / "mixed"
    mixed.write_bytes(b"".join(heads) + rest)
    assert tree(read(mixed)).bytes[0] == sums(data)[0]


def test_a_report_that_a_process_repeats_counts_once_and_that_of_another_container_twice(
    tmp_path: Path,
) -> None:
    data = (REPORTS / "leaks-g++-leak.log").read_bytes()
    file = tmp_path / "file"
    early = data.replace(b"5000 byte", b"4000 byte")
    early = re.sub(
        rb"SUMMARY: LeakSanitizer: \d+", b"SUMMARY: LeakSanitizer: %d" % (sums(data)[0] - 1000), early
    )
    file.write_bytes(early + data)
    assert tree(read(file)).bytes[0] == sums(data)[0]
    assert "repeated-reports" in {notice.slug for notice in read(file).notices}
    file.write_bytes(data.replace(b" 0x5", b" 0x6").replace(b" 0x7", b" 0x8") + data)
    assert tree(read(file)).bytes[0] == 2 * sums(data)[0]


def test_a_report_whose_records_exceed_its_sum_is_refused(tmp_path: Path) -> None:
    data = (REPORTS / "leaks-g++-leak.log").read_bytes()
    (tmp_path / "file").write_bytes(data.replace(b"Direct leak of 5000", b"Direct leak of 5001"))
    with pytest.raises(InputError) as caught:
        read(tmp_path / "file")
    assert caught.value.slug == "totals-differ"


def test_a_search_that_gdb_prevented_is_explained() -> None:
    with pytest.raises(InputError) as caught:
        read(REPORTS / "traced.log")
    assert (caught.value.slug, "detect_leaks=0" in str(caught.value.hint)) == ("sanitizer-traced", True)


def test_reports_are_compared_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    before, after = (str(REPORTS / f"leaks-g++-{kind}.log") for kind in ("address", "leak"))
    assert main(["diff", before, after]) == 0
    assert "lost memory" in capsys.readouterr().out
    assert main(["show", "--json", after]) == 0
    assert '"unit": "bytes lost"' in json.dumps(json.loads(capsys.readouterr().out))
