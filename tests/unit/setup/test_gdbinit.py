"""The user's gdbinit keeps every byte that is not ours, in any form."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gdbmem.errors import InputError
from gdbmem.setup import gdbinit

FOLDER = Path("/opt/gdbmem/gdbinit")
BLOCK = gdbinit.block(FOLDER, auto_load=False)

CONTENTS = [
    b"",
    b"\n",
    b"set pagination off\n",
    b"set pagination off",
    b"set pagination off\r\nset width 0\r\n",
    b"set pagination off\r\nset width 0",
    b"a\r\nb\nc",
    b"# caf\xe9 \xff\xfe\x00\n\n\n",
    b"python\nprint('# >>> other >>>')\nend",
    b"\xef\xbb\xbfset width 0\n",
]


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("auto_load", [False, True])
def test_uninstall_gives_back_the_very_bytes(content: bytes, auto_load: bool) -> None:
    installed = gdbinit.with_block(content, gdbinit.block(FOLDER, auto_load=auto_load))
    assert installed.startswith(content)
    assert b"directory /opt/gdbmem/gdbinit" in installed
    assert (b"source gdbmem" in installed) is auto_load
    assert gdbinit.without_block(installed) == content


@pytest.mark.parametrize("content", CONTENTS)
def test_installing_twice_changes_nothing_more(content: bytes) -> None:
    once = gdbinit.with_block(content, BLOCK)
    assert gdbinit.with_block(once, BLOCK) == once


@pytest.mark.parametrize("content", CONTENTS)
def test_what_the_user_adds_after_the_block_stays(content: bytes) -> None:
    installed = gdbinit.with_block(content, BLOCK) + b"set confirm off\n"
    moved = gdbinit.with_block(installed, gdbinit.block(Path("/elsewhere"), auto_load=True))
    assert moved.endswith(b"set confirm off\n")
    assert b"/opt/gdbmem" not in moved
    # A line end that the last line lacked is needed now: there is something behind it.
    assert gdbinit.without_block(moved).replace(b"\r", b"").replace(b"\n", b"") == (
        content + b"set confirm off"
    ).replace(b"\r", b"").replace(b"\n", b"")


def test_a_file_with_windows_line_ends_gets_a_block_with_them() -> None:
    installed = gdbinit.with_block(b"set width 0\r\n", BLOCK)
    assert installed.count(b"\r\n") == installed.count(b"\n") == 4


def test_copies_of_the_block_are_all_removed() -> None:
    twice = BLOCK + b"set width 0\n" + BLOCK
    assert gdbinit.without_block(twice) == b"set width 0\n"
    assert gdbinit.with_block(twice, BLOCK) == BLOCK + b"set width 0\n"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"a\n" + BLOCK.splitlines(keepends=True)[0] + b"b\n", 2),
        (b"a\nb\n# <<< gdbmem <<<\n", 3),
        (BLOCK.splitlines(keepends=True)[0] * 2 + b"# <<< gdbmem <<<\n", 2),
    ],
)
def test_a_block_that_somebody_cut_is_not_guessed_at(content: bytes, line: int) -> None:
    for change in (gdbinit.without_block, lambda text: gdbinit.with_block(text, BLOCK)):
        with pytest.raises(InputError, match=f"is damaged at line {line}; remove by hand"):
            change(content)


@pytest.mark.parametrize(
    ("folder", "written"),
    [
        ('/a b/it\'s "x"', rb"""directory /a\ b/it\'s\ \"x\" """),
        ("/a\\b/$HOME/#x;y", rb"directory /a\\b/\$HOME/\#x\;y "),
        ("/caf\udce9", b"directory /caf\xe9 "),
    ],
)
def test_unusual_folders_are_written_as_gdb_reads_them(folder: str, written: bytes) -> None:
    assert gdbinit.block(Path(folder), auto_load=False).splitlines()[1] == written[:-1]


@pytest.mark.parametrize(("folder", "name"), [("/a:b", "a colon"), ("/a\nb", "a line break")])
def test_a_folder_that_gdb_cannot_search_is_refused_with_what_to_do(folder: str, name: str) -> None:
    with pytest.raises(InputError, match=f"the path holds {name}; install gdbmem in a folder without it"):
        gdbinit.block(Path(folder), auto_load=False)


def test_the_file_is_the_one_that_gdb_reads(private_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = private_home / ".gdbinit", private_home / ".config/gdb/gdbinit"
    assert gdbinit.users_gdbinit("13.1") == old
    old.touch()
    new.parent.mkdir(parents=True)
    new.touch()
    assert gdbinit.users_gdbinit("13.1") == new
    assert gdbinit.users_gdbinit("10.1.90") == old
    assert gdbinit.users_gdbinit("Fedora 14.2") == new
    monkeypatch.setenv("XDG_CONFIG_HOME", str(private_home / "cfg"))
    # gdb then looks there and no longer in ~/.config.
    assert gdbinit.users_gdbinit("13.1") == old
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    with pytest.raises(InputError, match=r"\$HOME is not set"):
        gdbinit.users_gdbinit("13.1")


def test_a_link_stays_a_link_and_the_mode_stays(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "gdbinit"
    real.parent.mkdir()
    real.write_bytes(b"a\n")
    real.chmod(0o600)
    link = tmp_path / ".gdbinit"
    link.symlink_to("dotfiles/gdbinit")
    gdbinit.write(link, b"b\n")
    assert link.is_symlink()
    assert real.read_bytes() == b"b\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".gdbinit", "dotfiles", "gdbinit"]


def test_a_device_or_fifo_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match="fifo is not a file"):
        gdbinit.write(tmp_path / "fifo", b"directory /\n")
    assert (tmp_path / "fifo").is_fifo()


def test_a_gdbinit_that_cannot_be_written_is_one_sentence_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write .*: (File exists|Not a directory); name a gdbinit"):
        gdbinit.write(tmp_path / "file" / "gdbinit", b"x")
    folder = tmp_path / ".gdbinit"
    folder.mkdir()
    with pytest.raises(InputError, match="Is a directory"):
        gdbinit.write(folder, b"x")
    with pytest.raises(InputError, match="cannot read"):
        gdbinit.read(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".gdbinit", "file"]


def test_only_a_file_that_install_made_and_nobody_touched_is_ours() -> None:
    ours = gdbinit.with_block(b"", BLOCK, new_file=True)
    assert gdbinit.is_our_file(ours)
    assert not gdbinit.is_our_file(ours + b"set width 0\n")
    assert not gdbinit.is_our_file(gdbinit.with_block(b"", BLOCK))


def test_the_difference_shows_escapes_and_never_sends_them(tmp_path: Path) -> None:
    before = b"set prompt \x1b[31m\xff\n"
    shown = gdbinit.difference(tmp_path / "f", before, gdbinit.with_block(before, BLOCK))
    assert "\x1b" not in shown
    assert " set prompt \\x1b[31m\\xff\n" in shown
    assert "\n+directory /opt/gdbmem/gdbinit\n" in shown
