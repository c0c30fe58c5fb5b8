"""Reports that are tables: their sums are those that the tools print, whole and cut."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import InputError
from gdbmem.model.calltree import BYTES_MISSING
from gdbmem.text import format_size
from tests.unit.report_files import REPORTS, read_cut
from tests.unit.stack_files import read, tree


def kib(pattern: str, name: str) -> int:
    """Return the sum of what *pattern* finds in a capture, in bytes."""
    return sum(int(size) << 10 for size in re.findall(pattern, (REPORTS / name).read_text(), re.M))


def last(pattern: str, name: str) -> int:
    """Return the last number that *pattern* finds in a capture."""
    return int(re.findall(pattern, (REPORTS / name).read_text())[-1])


def malloc_info(name: str) -> dict[str, int]:
    held = last(r'<system type="current" size="(\d+)"', name) + last(
        r'type="mmap" count="\d+" size="(\d+)"', name
    )
    free = sum(last(rf'<total type="{kind}" count="\d+" size="(\d+)"', name) for kind in ("fast", "rest"))
    return {"held": held, "in-use": held - free, "free": free}


def malloc_stats(name: str) -> dict[str, int]:
    return {"held": last(r"system bytes += +(\d+)", name), "in-use": last(r"in use bytes += +(\d+)", name)}


# The format of each capture, and what its tool says that it holds, by metric.
TOTALS = {
    "kept.mtrace": ("mtrace", {"in-use": 103140}),  # as the program printed
    "arenas.xml": ("malloc_info", {"held": 999424 + 1654784, "in-use": 2654208 - 56675, "free": 56675}),
    "arenas.txt": ("malloc_stats", {"held": 2654208, "in-use": 2593488, "free": 2654208 - 2593488}),
    "java.histogram": ("java-histogram", {"in-use": 3699864}),
    "java.nmt": ("java-native", {}),
    "java-bytes.nmt": ("java-native", {}),
    "sleep.smaps": (
        "smaps",
        {name: kib(rf"^{field}: +(\d+)", "sleep.smaps")
         for name, field in (("resident", "Rss"), ("pss", "Pss"), ("mapped", "Size"))},
    ),
    "sleep.rollup": ("smaps", {"resident": kib(r"^Rss: +(\d+)", "sleep.rollup")}),
    "sleep.pmap": ("pmap", {"mapped": kib(r"total +(\d+)K", "sleep.pmap")}),
    "sleep.pmap-d": ("pmap", {"mapped": kib(r"mapped: (\d+)K", "sleep.pmap-d")}),
    "sleep.pmap-x": ("pmap", {"mapped": kib(r"total kB +(\d+)", "sleep.pmap-x"),
                              "resident": kib(r"total kB +\d+ +(\d+)", "sleep.pmap-x")}),
    "sleep.pmap-X": ("pmap", {"mapped": kib(r"^ +(\d+) .* KB", "sleep.pmap-X"),
                              "resident": kib(r"^ +\d+ +(\d+) .* KB", "sleep.pmap-X")}),
    "sleep.pmap-XX": ("pmap", {"mapped": kib(r"^ +(\d+) .* KB", "sleep.pmap-XX")}),
    "alloc.tcmalloc": ("tcmalloc-stats", {"held": 40370176, "in-use": 25757960, "reserved": 40370176,
                                          "free": 286720 + 7791576 + 2607872 + 1304608}),
    "alloc.jemalloc": ("jemalloc-stats", {"resident": 40361984, "in-use": 26948800}),
    "alloc.jemalloc.json": ("jemalloc-stats", {"resident": 40361984, "in-use": 26948800}),
    "alloc.mimalloc": ("mimalloc-stats", {"committed": 64 << 20, "reserved": 64 << 20}),
    "map.mtrace": ("mtrace", {"in-use": 11805}),  # as mtrace adds them up
    "threads-0.xml": ("malloc_info", malloc_info("threads-0.xml")),
    "threads-3.xml": ("malloc_info", malloc_info("threads-3.xml")),
    "threads-0.txt": ("malloc_stats", malloc_stats("threads-0.txt")),
    "threads-3.txt": ("malloc_stats", malloc_stats("threads-3.txt")),
    "java-serial.histogram": ("java-histogram", {"in-use": 1155632}),
    "java-serial.nmt": ("java-native", {"committed": 437947163, "reserved": 7773825819}),
    "java-z.nmt": ("java-native", {"committed": 487216614, "reserved": 313451455974}),
    "bash.pmap-x": ("pmap", {"mapped": 5248 << 10, "resident": 4376 << 10}),
    "bash.pmap-X": ("pmap", {"mapped": kib(r"^ +(\d+) .* KB", "bash.pmap-X"),
                             "resident": kib(r"^ +\d+ +(\d+) .* KB", "bash.pmap-X")}),
    "python.rollup": ("smaps", {"resident": kib(r"^Rss: +(\d+)", "python.rollup")}),
    "perl-1.tcmalloc": ("tcmalloc-stats", {"held": last(r"= +(\d+) .* Actual", "perl-1.tcmalloc")}),
    "perl-2.tcmalloc": ("tcmalloc-stats", {"held": 8781824, "in-use": 5358000}),
    "perl.jemalloc": ("jemalloc-stats", {"resident": 8900608, "in-use": 5863768}),
    "perl.jemalloc.json": ("jemalloc-stats", {"resident": 8900608, "in-use": 5863768}),
    "gawk.jemalloc": ("jemalloc-stats", {"resident": 4427776, "in-use": 1893408}),
    "perl.mimalloc": ("mimalloc-stats", {"committed": 32 << 20, "reserved": 32 << 20}),
    "gawk.mimalloc": ("mimalloc-stats", {}),
    "words.mtrace": ("mtrace", {"in-use": 20173}),  # as mtrace adds them up
    "java-25.histogram": ("java-histogram", {"in-use": 1947400}),
    "short.torch": ("torch-summary", {"reserved": 9000, "in-use": 6000}),
    "odd.torch": ("torch-summary", {"reserved": 8583 << 20, "in-use": 5722 << 20}),
    "summary.torch": ("torch-summary", {"reserved": 9000 << 20, "in-use": 6000 << 20}),
}  # fmt: skip


@pytest.mark.parametrize("name", TOTALS)
def test_the_rows_of_a_report_add_up_to_its_own_totals(name: str) -> None:
    kind, totals = TOTALS[name]
    profile = read(REPORTS / name)
    assert profile.source_format == kind
    assert [notice.slug for notice in profile.notices if notice.slug == BYTES_MISSING] == []
    for metric in profile.metrics:
        found = tree(read(REPORTS / name, metric))
        assert found.bytes[0] == totals.get(metric, found.bytes[0])
    assert set(totals) <= set(profile.metrics)


@pytest.mark.parametrize("name", TOTALS)
def test_a_cut_report_is_refused_or_says_that_rows_are_missing(name: str, tmp_path: Path) -> None:
    whole = dict(rows(REPORTS / name))
    for _, profile in read_cut((REPORTS / name).read_bytes(), tmp_path):
        if profile.source_format != "mtrace":  # frees may be missing
            left = rows(Path(profile.source))
            assert all(size <= whole[row] for row, size in left if not row.startswith("rounded"))


def rows(path: Path) -> list[tuple[str, int]]:
    found = tree(read(path))
    sums: dict[str, int] = {}
    for node in range(1, len(found)):
        if found.parent[node] == 0 and (frame := found.frame_of(node)) is not None:
            key = frame.function or frame.file or ""
            sums[key] = sums.get(key, 0) + found.bytes[node]
    return list(sums.items())


def test_the_native_memory_of_java_has_the_total_and_categories_of_jcmd() -> None:
    found = dict(rows(REPORTS / "java-bytes.nmt"))
    text = (REPORTS / "java-bytes.nmt").read_text()
    total = re.search(r"Total: reserved=\d+, committed=(\d+)", text)
    assert total and tree(read(REPORTS / "java-bytes.nmt")).bytes[0] == int(total[1])
    heap = re.search(r"Java Heap \(reserved=\d+, committed=(\d+)\)", text)
    assert heap and found["Java Heap"] == int(heap[1])
    assert abs(sum(found.values()) - tree(read(REPORTS / "java.nmt")).bytes[0]) < 40 << 10, "rounded"


def test_arrays_of_java_have_the_names_of_the_language() -> None:
    found = dict(rows(REPORTS / "java.histogram"))
    assert found["byte[] (java.base@17.0.19)"] == 1076568
    assert found["java.lang.Object[] (java.base@17.0.19)"] == 187336


def test_a_total_that_the_rows_exceed_is_refused_and_one_that_they_do_not_reach_is_explained(
    tmp_path: Path,
) -> None:
    text = (REPORTS / "java.histogram").read_text()
    file = tmp_path / "file"
    file.write_text(text.replace("3699864", "3699863"))
    with pytest.raises(InputError) as caught:
        read(file)
    assert caught.value.slug == "totals-differ"
    lines = text.splitlines(keepends=True)
    file.write_text("".join([*lines[:12], lines[-1]]))  # as with head and tail
    profile = read(file)
    assert (tree(profile).bytes[0], [one.slug for one in profile.notices]) == (3699864, [BYTES_MISSING])


def test_malloc_stats_whose_counters_passed_4_gib_is_refused(tmp_path: Path) -> None:
    text = (REPORTS / "arenas.txt").read_text()
    file = tmp_path / "file"
    file.write_text(text.replace("system bytes     =    2654208", "system bytes     =       4208"))
    with pytest.raises(InputError) as caught:
        read(file)
    assert caught.value.slug == "totals-differ"
    # A block of 5 GiB, as glibc 2.36 counts it.
    file.write_text(
        "Arena 0:\nsystem bytes     =     135168\nin use bytes     =        656\nTotal (incl. mmap):\n"
        "system bytes     = 1073881088\nin use bytes     = 1073746576\nmax mmap regions =          1\n"
        "max mmap bytes   = 5368713216\n"
    )
    with pytest.raises(InputError, match="32 bits"):
        read(file)
    assert "counts-in-32-bits" in {notice.slug for notice in read(REPORTS / "arenas.txt").notices}


def test_mtrace_forgets_what_was_freed_and_what_realloc_moved(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(
        "= Start\n@ ./a:(main+0x12)[0x1112] + 0x10 0x8\n@ ./a:[0x1113] + 0x20 0x100\n@ ./a:[0x1114] - 0x20\n"
        "@ ./a:[0x1115] < 0x10\n@ ./a:[0x1115] > 0x40 0x20\n@ ./a:[0x1116] - 0x999\n= End\n"
    )
    assert rows(file) == [("0x1115", 32)]
    assert tree(read(file, "allocated")).bytes[0] == 8 + 256 + 32


@pytest.mark.parametrize("name", ["arenas.xml", "sleep.pmap-X", "java.histogram"])
def test_reports_are_shown_compared_and_written_as_json(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(REPORTS / name)
    total = tree(read(REPORTS / name)).bytes[0]
    assert main(["show", path]) == 0
    shown = capsys.readouterr().out
    assert format_size(total) in shown and "???" not in shown and "no source known" not in shown
    assert main(["diff", path, path]) == 0
    capsys.readouterr()
    assert main(["show", "--json", path]) == 0
    assert json.loads(capsys.readouterr().out)["peak"]["total_bytes"] == total
    assert main(["export", "--to", "folded", path]) == 0
    assert ":0)" not in capsys.readouterr().out


@pytest.mark.parametrize("name", TOTALS)
def test_a_report_that_is_in_a_file_twice_is_not_added_up(name: str, tmp_path: Path) -> None:
    data = (REPORTS / name).read_bytes()
    file = tmp_path / "file"
    file.write_bytes(data + data)
    try:
        found = tree(read(file))
    except InputError as error:
        assert error.slug in ("several-dumps", "totals-differ", "unknown-line", "profile-truncated")
    else:
        assert found.bytes[0] == tree(read(REPORTS / name)).bytes[0]


@pytest.mark.parametrize("name", ["perl.jemalloc", "perl-1.tcmalloc", "perl.mimalloc"])
def test_glibcs_zeros_do_not_hide_the_allocator_that_took_its_place(name: str, tmp_path: Path) -> None:
    counts = "system bytes     =          0\nin use bytes     =          0\n"
    most = "max mmap regions =          0\nmax mmap bytes   =          0\n"
    zeros = f"Arena 0:\n{counts}Total (incl. mmap):\n{counts}{most}"
    (tmp_path / "log").write_text(zeros + (REPORTS / name).read_text())
    ours, plain = read(tmp_path / "log"), read(REPORTS / name)
    assert ours.source_format == plain.source_format
    assert ours.snapshots[0].total_bytes == plain.snapshots[0].total_bytes > 0


def test_smaps_can_be_read_where_the_kernel_has_it() -> None:
    assert read(Path("/proc/self/smaps")).snapshots[0].total_bytes > 1 << 20
