"""What a launch learns of valgrind's files, from the kernel."""

import select
from pathlib import Path

import pytest

from gdbmem.launch.supervisor import NewFiles


def test_files_made_and_written_are_named_once_each(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "old").touch()
    watched = NewFiles(tmp_path, run)
    try:
        assert list(watched.names()) == []
        (tmp_path / "vgdb-pipe").touch()
        (tmp_path / "vgdb-pipe").write_text("not told in this folder")
        (run / "old").write_text("more")
        (run / "ö").touch()
        assert select.select([watched], [], [], 0)[0]
        assert list(watched.names()) == ["vgdb-pipe", "old", "ö"]
    finally:
        watched.close()


def test_a_folder_that_is_gone_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No such file"):
        NewFiles(tmp_path, tmp_path / "gone")
