"""A program that is one of several names of a file is called by the one that it was started by."""

from __future__ import annotations

from pathlib import Path

from gdbmem.launch.attached import called


def test_a_link_beside_the_program_gives_it_its_name(tmp_path: Path) -> None:
    program = tmp_path / "redis-check-rdb"
    program.write_text("")
    (tmp_path / "redis-server").symlink_to("redis-check-rdb")
    (tmp_path / "other").write_text("")
    assert called(program, "redis-server *:6379").name == "redis-server"
    assert called(program, "/usr/bin/redis-server").name == "redis-server"
    for word in ("", "other", "nginx: worker process", "-bash", "/"):
        assert called(program, word) == program
