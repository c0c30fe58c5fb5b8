"""A massif file written by the installed valgrind, compared with the output of the installed ms_print."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Callable

import pytest

from gdbmem.formats.opening import open_profile
from gdbmem.formats.valgrind.massif import read_sites, read_totals
from tests.ms_print_output import assert_same

pytestmark = [
    pytest.mark.needs("valgrind", "ms_print", "g++"),
    pytest.mark.usefixtures("valgrind_of_users"),
]


def record(program: Path, folder: Path, *options: str) -> Path:
    path = folder / "massif.out"
    words = ["valgrind", "-q", "--tool=massif", f"--massif-out-file={path}", *options, str(program)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=100)
    return path


@pytest.mark.parametrize(
    "options",
    [
        ("--threshold=0", "--time-unit=B", "--fullpath-after="),
        ("--time-unit=ms", "--stacks=yes"),
        ("--pages-as-heap=yes",),
    ],
    ids=" ".join,
)
def test_the_installed_valgrind_s_files_read_as_its_ms_print_prints_them(
    program: Callable[..., Path], tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = record(program("leaky_map"), tmp_path, *options)
    printed = subprocess.run(
        ["ms_print", "--threshold=0", str(path)], check=True, capture_output=True, cwd=tmp_path
    ).stdout
    profile = open_profile(path)
    assert any(totals.has_tree for totals in profile.snapshots)
    assert not profile.notices
    assert_same(profile, printed)


def test_a_snapshot_with_a_tree_gives_the_totals_and_sites_that_its_whole_tree_gives(
    program: Callable[..., Path], tmp_path: Path
) -> None:
    path = record(program("leaky_map"), tmp_path, "--threshold=0", "--detailed-freq=1")
    data = path.read_bytes()
    profile = open_profile(path)
    assert read_totals(data).heap_bytes == profile.snapshots[0].heap_bytes
    first = next(totals for totals in profile.snapshots if totals.has_tree)
    assert sum(read_sites(data, lambda frame: 1, own=1).values()) == first.heap_bytes
