"""Opening files by what is in them: compressed, of another format, or no file at all."""

from __future__ import annotations

import bz2
import gzip
import os
import re
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gdbmem.errors import InputError
from gdbmem.formats import opening
from gdbmem.formats.opening import OpenOptions, open_profile
from tests.unit.massif_files import CAPTURES, HEADER, capture, snapshot


def refusal(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        open_profile(path)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("name", ["massif.out.1", "x.gz", "no suffix"])
def test_a_name_says_nothing_about_what_is_in_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(capture("shop"))
    profile = open_profile(path)
    assert (profile.source, profile.source_format, profile.command) == (str(path), "massif", "./shop")


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
@pytest.mark.parametrize("mapped_from", [1 << 10, 1 << 24])
def test_compressed_and_mapped_files_read_like_plain_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: object, mapped_from: int
) -> None:
    assert callable(compress)
    monkeypatch.setattr(opening, "_MAPPED_FROM_BYTES", mapped_from)
    plain, packed = tmp_path / "a", tmp_path / "b"
    plain.write_bytes(capture("threshold"))
    packed.write_bytes(compress(capture("threshold")))
    ours, theirs = open_profile(plain), open_profile(packed)
    assert ours.snapshots == theirs.snapshots
    assert [ours.tree(t.index) for t in ours.snapshots] == [theirs.tree(t.index) for t in theirs.snapshots]


def test_a_gzip_file_of_several_members_is_read_to_its_end(tmp_path: Path) -> None:
    text = (HEADER + snapshot(0)).encode(), snapshot(1).encode()
    path = tmp_path / "a.gz"
    path.write_bytes(b"".join(gzip.compress(part) for part in text))
    assert len(open_profile(path).snapshots) == 2


@pytest.mark.slow
@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_a_compressed_file_that_was_cut_gives_what_it_holds_with_a_notice(
    tmp_path: Path, compress: object
) -> None:
    assert callable(compress)
    # bzip2 unpacks block by block (900 kB): one of them must be whole.
    data = (HEADER + "".join(snapshot(number) for number in range(20_000))).encode()
    packed = compress(data)
    path = tmp_path / "a"
    path.write_bytes(packed[: len(packed) * 3 // 4])
    profile = open_profile(path)
    assert 100 < len(profile.snapshots) < 20_000
    assert "compressed-file-truncated" in {notice.slug for notice in profile.notices}
    assert profile.snapshots[50].time == 500 and profile.tree(50) is not None


def test_a_damaged_compressed_file_is_an_error_that_reports_it(tmp_path: Path) -> None:
    for number, packed in enumerate((gzip.compress(capture("shop")), bz2.compress(capture("shop")))):
        damaged = bytearray(packed)
        damaged[len(damaged) // 2 : len(damaged) // 2 + 40] = b"\xff" * 40
        path = tmp_path / str(number)
        path.write_bytes(damaged)
        assert refusal(path).slug == "file-unreadable"


@pytest.mark.slow
def test_a_small_file_that_unpacks_without_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_LIMIT_BYTES", 10 << 20)
    path = tmp_path / "bomb.bz2"
    path.write_bytes(bz2.compress(b"desc: x\n" + bytes(90 << 20)))
    assert path.stat().st_size < 10_000
    tracemalloc.start()
    try:
        error = refusal(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 45 << 20, "a few times what it may unpack to, not what it would"
    assert error.slug == "compressed-file-too-big"
    assert "unpacks to more than 10.0 MiB" in error.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert (
        refusal(tmp_path / "massif.out.1").message
        == f"cannot read {tmp_path}/massif.out.1: No such file or directory"
    )


def test_names_that_no_file_can_have_are_errors_like_others() -> None:
    assert refusal(Path("a\0b")).slug == "file-unreadable"
    assert refusal(Path("x" * 5000)).slug == "file-unreadable"


def test_folders_devices_and_fifos_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert f"{tmp_path}/fifo is a FIFO" in refusal(tmp_path / "fifo").message
    assert "is a folder" in refusal(tmp_path).message
    assert "is a device" in refusal(Path("/dev/null")).message


def test_an_empty_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    assert "is empty; most tools write their files when the program ends" in str(refusal(tmp_path / "a"))
    (tmp_path / "b").write_bytes(gzip.compress(b""))
    assert refusal(tmp_path / "b").slug == "empty-file"


@contextmanager
def without_root() -> Iterator[None]:
    """root reads everything: become the user nobody for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_may_not_be_read_is_an_error_not_a_traceback(scratch: Path) -> None:
    path = scratch / "secret"
    path.write_bytes(capture("shop"))
    scratch.chmod(0o755)
    path.chmod(0)
    with without_root():
        assert refusal(path).message == f"cannot read {path}: Permission denied"


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (b"\x7fELF\x02\x01\x01", "a program, library or core file"),
        (b"\xfd7zXZ\0", "compressed with xz"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"PK\x03\x04", "zip archive"),
        (b"\x04\x22\x4d\x18 lz4", "compressed with lz4"),
        (b"--- heapz 1 ---\nformat = java\n", "a Java agent's heap samples"),
        (b"CMDLINE python x.py\nMEM 1.2 17.5\n", "a record of mprof"),
        (b"CMDLINE python -c x = []; print 3\nMEM 1.2 17.5\n", "a record of mprof"),
        (b"==123== Massif, a heap profiler\n", "a log of valgrind's"),
        (b"\x80\x04\x95\x12\0\0\0\0\0\0\0", "a Python pickle (tracemalloc writes such files)"),
        (b"Dear diary,\n", "has no format known to gdbmem"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_of_another_format_is_called_by_its_name(
    tmp_path: Path, start: bytes, named: str, pack: object
) -> None:
    assert callable(pack)
    path = tmp_path / "x"
    path.write_bytes(pack(start + b"rest\n" * 3))
    error = refusal(path)
    assert named in error.message
    assert error.slug == "format-unreadable"
    assert error.hint


def test_a_path_cannot_command_the_terminal_through_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2J"
    path.write_bytes(b"nothing")
    assert "\x1b" not in str(refusal(path))
    path.write_bytes((HEADER + "junk\n" + snapshot()).encode())
    assert "\x1b" not in str(refusal(path))
    path.write_bytes((HEADER + snapshot())[:-10].encode())
    assert not re.search("\x1b", open_profile(path).notices[0].message)


def test_opening_parses_no_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    monkeypatch.setattr(
        "gdbmem.formats.valgrind.massif.parse_tree", lambda area, texts: parsed.append(area.start)
    )
    profile = open_profile(CAPTURES / "sqlite.massif.gz")
    assert parsed == []
    profile.tree(next(totals.index for totals in profile.snapshots if totals.has_tree))
    assert len(parsed) == 1


def test_a_small_file_may_be_written_anew_while_its_profile_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(capture("shop"))
    profile = open_profile(path)
    path.write_bytes(b"")
    assert profile.peak_tree_index is not None and profile.tree(profile.peak_tree_index) is not None


def test_no_file_stays_open_for_a_small_profile(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    profiles = [open_profile(CAPTURES / f"{name}.massif.gz") for name in ("shop", "sqlite")]
    refusal(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert profiles


def test_every_format_that_is_read_is_in_the_reference() -> None:
    from gdbmem.formats.opening import FORMATS

    page = (Path(__file__).parents[3] / "docs" / "reference" / "formats.md").read_text()
    assert [name for name in FORMATS if f"| `{name}` |" not in page] == []


def test_the_way_from_tracemalloc_that_the_reference_shows_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import re
    import sys
    import textwrap
    import tracemalloc

    page = (Path(__file__).parents[3] / "docs" / "reference" / "formats.md").read_text()
    match = re.search(r"^  ```python\n(.*?)^  ```$", page, re.M | re.S)
    assert match
    tracemalloc.start(5)
    kept = bytearray(777_777)
    snapshot = tracemalloc.take_snapshot()
    tracemalloc.stop()
    assert kept
    snapshot.dump(str(tmp_path / "pickle"))
    monkeypatch.setattr(sys, "argv", ["convert", str(tmp_path / "pickle")])
    exec(textwrap.dedent(match[1]), {})
    folded = tmp_path / "folded"
    folded.write_text(capsys.readouterr().out)
    found = open_profile(folded, OpenOptions("folded"))
    tree = found.tree(0)
    assert tree is not None and tree.bytes[0] == sum(trace.size for trace in snapshot.traces)
    files = {tree.frames[tree.frame[node]].file for node in range(1, len(tree)) if tree.bytes[node] > 700_000}
    assert __file__ in files
