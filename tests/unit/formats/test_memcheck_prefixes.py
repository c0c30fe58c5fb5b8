"""Logs of memcheck as valgrind's options and collectors of logs mark their lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable

import pytest

from gdbmem.formats.opening import OpenOptions, open_profile
from tests.unit.stack_files import CAPTURES, tree

LOG = (CAPTURES / "lost.log").read_text()

MARKS: dict[str, Callable[[str], str]] = {
    "time stamps": lambda line: re.sub(r"^==(\d+)==", r"==00:00:00:04.079 \1==", line),
    "journald": lambda line: f"Nov 27 02:43:25 host server[19027]: {line}",
    "kubernetes": lambda line: f"2026-11-27T02:43:25.123456789Z stderr F {line}",
    "kubectl": lambda line: f"[pod/server-0/main] {line}",
    "docker compose": lambda line: f"server-1  | {line}",
    "colours": lambda line: f"\x1b[1;31m{line}\x1b[0m",
    "both": lambda line: re.sub(
        r"==(\d+)==", r"==00:00:00:04.079 \1==", f"server-1  | \x1b[31m{line}\x1b[0m"
    ),
}


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("metric", ["definitely-lost", "reachable", None])
def test_a_log_with_marks_is_the_log(mark: str, metric: str | None, tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text("".join(f"{MARKS[mark](line)}\n" for line in LOG.splitlines()))
    plain, found = (open_profile(path, OpenOptions(metric=metric)) for path in (CAPTURES / "lost.log", file))
    assert found.source_format == "memcheck"
    assert tree(found).bytes[0] == tree(plain).bytes[0] > 0  # type: ignore[arg-type]
    assert tree(found).frames == tree(plain).frames  # type: ignore[arg-type]
    assert [one.slug for one in found.notices] == [one.slug for one in plain.notices]


def test_containers_whose_processes_have_the_same_number_are_not_taken_for_one(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    lines = [re.sub(r"==\d+==", "==1==", line) for line in LOG.splitlines()]
    file.write_text("".join(f"server-{number}  | {line}\n" for number in (1, 2) for line in lines))
    messages = [one.message for one in open_profile(file).notices if one.slug == "bytes-missing"]
    assert any("several processes with the number 1" in one for one in messages), messages


def test_valgrinds_own_malloc_heads_no_path_with_its_source_or_without(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text(re.sub(r"\(in \S*vgpreload_memcheck\S*\)", "(vg_replace_malloc.c:446)", LOG))
    assert "vg_replace_malloc.c" in file.read_text()
    plain, found = (open_profile(path) for path in (CAPTURES / "lost.log", file))
    assert tree(found).frames == tree(plain).frames  # type: ignore[arg-type]
