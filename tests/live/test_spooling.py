"""Profiles that come through a pipe: read once, as from a file, and refused in one sentence where they can't be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gdbmem import files
from gdbmem.files import spool_fifo

CAPTURES = Path(__file__).parent.parent / "captures"
PERL = CAPTURES / "massif" / "perl.massif.gz"
GO = CAPTURES / "stacks" / "go1.pb.gz"
GDBMEM = f"{sys.executable} -m gdbmem.cli.main"


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    root = Path(__file__).parents[2]
    command = ["bash", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment, timeout=60)


def printed(script: str, folder: Path) -> str:
    ended = shell(script, folder)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    assert list(folder.iterdir()) == [], "no copy is left"
    return ended.stdout


@pytest.mark.parametrize("file", [PERL, GO, CAPTURES / "stacks" / "ht.zst"])
def test_show_prints_the_same_from_a_pipe_as_from_the_file(file: Path, tmp_path: Path) -> None:
    expected = printed(f"{GDBMEM} show {file}", tmp_path)
    piped = printed(f"cat {file} | {GDBMEM} show -", tmp_path)
    substituted = printed(f"{GDBMEM} show <(cat {file})", tmp_path)
    assert piped.replace("standard input", str(file)).splitlines()[1:] == expected.splitlines()[1:]
    assert substituted.splitlines()[1:] == expected.splitlines()[1:]


def test_a_diff_of_two_pipes_is_that_of_their_files(tmp_path: Path) -> None:
    first, second = (CAPTURES / "stacks" / f"go{n}.pb.gz" for n in (1, 2))
    expected = printed(f"{GDBMEM} diff {first} {second} --by function", tmp_path)
    piped = printed(f"{GDBMEM} diff - <(cat {second}) --by function <{first}", tmp_path)
    assert "from standard input to first input;" in piped.splitlines()[0]
    assert piped.splitlines()[1:] == expected.splitlines()[1:]


def test_pipes_are_named_in_their_order(tmp_path: Path) -> None:
    out = printed(f"{GDBMEM} diff <(zcat {PERL}):peak <(zcat {PERL}):peak", tmp_path)
    assert "from first input:" in out and "to second input:" in out and "/dev/fd" not in out


def test_a_snapshot_of_standard_input_is_named_behind_a_colon(tmp_path: Path) -> None:
    out = printed(f"zcat {PERL} | {GDBMEM} export /dev/stdin:peak --to folded", tmp_path)
    assert out == printed(f"{GDBMEM} export {PERL}:peak --to folded", tmp_path)
    diff = printed(f"zcat {PERL} | {GDBMEM} diff /dev/stdin:peak /dev/stdin:peak", tmp_path)
    assert "did not change" in diff, "one copy serves both"


def test_report_of_standard_input_has_a_name(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    ended = shell(f"export PYTHONPATH=$PWD; cd {here}; {GDBMEM} report - <{PERL}", tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert [file.name for file in here.iterdir()] == ["standard_input.html"]


def test_a_series_is_read_from_a_pipe(tmp_path: Path) -> None:
    rows = "\\n".join(f"{t},{1000 + t}" for t in range(30))
    out = printed(f"printf 't,rss\\n{rows}\\n' | {GDBMEM} show -", tmp_path)
    assert "recorded in standard input" in out


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("</dev/null", "standard input is empty"),
        ("< <(printf 'what is this\\n')", "standard input has no format"),
        ("< <(head -c 3000 /dev/urandom)", "standard input has no format"),
    ],
)
def test_what_is_no_profile_is_refused_by_name(script: str, message: str, tmp_path: Path) -> None:
    ended = shell(f"{GDBMEM} show - {script}", tmp_path)
    assert ended.returncode == 1
    assert message in ended.stderr and ended.stderr.count("\n") <= 2


def test_more_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LARGEST_COPY_BYTES", 1000)
    reader, writer = os.pipe()
    os.write(writer, b"x" * 1001)
    os.close(writer)
    with pytest.raises(Exception, match="holds more than 1,000 B") as caught:
        spool_fifo(f"/proc/self/fd/{reader}")
    os.close(reader)
    assert caught.value.slug == "file-too-big"  # type: ignore[attr-defined]


def test_a_terminal_is_not_waited_for(tmp_path: Path) -> None:
    ended = shell(f"script -qec '{GDBMEM} show -' /dev/null </dev/null", tmp_path)
    assert "the standard input is a terminal" in ended.stdout
