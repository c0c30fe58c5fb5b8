"""How much of files is in the page cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.linux.memory.pagemap import cached_files


def test_cached_pages_are_counted_and_nothing_else_is_opened(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "written").write_bytes(b"x" * 1_000_001)
    with (tmp_path / "hole").open("wb") as hole:
        hole.truncate(3 << 30)
        hole.seek(2 << 30)
        hole.write(b"x")
    os.mkfifo(tmp_path / "fifo")  # opening it would wait for a writer
    (tmp_path / "link").symlink_to(tmp_path / "below" / "written")
    (tmp_path / "round").symlink_to(tmp_path)
    page = os.sysconf("SC_PAGE_SIZE")
    found = {Path(file.path).name: file.cached_bytes for file in cached_files(tmp_path)}
    assert found.pop("written") == -(-1_000_001 // page) * page
    assert page <= (found.pop("hole") or 0) <= 1 << 21  # with what the file system caches around it
    assert not found


@pytest.mark.parametrize("name", ["nothing", "file"])
def test_a_folder_that_is_none_is_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "file").touch()
    if not Path("/sys/fs/cgroup").is_dir():
        pytest.skip("no cgroups here")
    assert main(["explain", "--container", str(os.getpid()), "--files", str(tmp_path / name)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
