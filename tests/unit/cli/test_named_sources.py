"""A stranger's profile names files: only sources beneath folders that the user named come into what is printed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gdbmem.cli.main import main


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a profile in the current folder that names a key, a private source, links to both and a source here."""
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    (home / "id_rsa").write_text("head\nSECRET KEY\n")
    (home / "private.c").write_text("head\nSECRET SOURCE\n")
    (here / "own.c").write_text("head\nthe own line\n")
    (here / "key.c").symlink_to(home / "id_rsa")
    (here / "link.c").symlink_to(home / "private.c")
    os.mkfifo(here / "fifo.c")
    names = [
        home / "id_rsa",
        home / "private.c",
        *(here / f"{one}.c" for one in ("own", "key", "link", "fifo")),
    ]
    lines = [f"main (m.c:1);f{n} ({name}:2) {1000 + n}\n" for n, name in enumerate(names)]
    (here / "s.folded").write_text("".join(lines))
    monkeypatch.chdir(here)
    return here / "s.folded"


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["show", "diff", "report"])
def test_no_line_of_a_file_elsewhere_is_shown_and_that_is_reported(
    command: str, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (profile.parent / "none.folded").write_text("main (m.c:1);f (m.c:2) 1\nmain (m.c:1);g (m.c:3) 1\n")
    words = {
        "show": ["show", profile.name],
        "diff": ["diff", "none.folded", profile.name],
        "report": ["report", profile.name, "-o", "-", "--embed-source"],
    }[command]
    text = said(words, capsys)
    assert "SECRET" not in text and "own" in text and "line" in text
    assert "lines of 2 source files outside the current folder" in " ".join(text.split())


def test_a_folder_that_is_named_is_shown(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["show", profile.name, "--source", "../home"], capsys)
    assert "SECRET SOURCE" in text and "SECRET KEY" not in text
    assert "outside the current folder" not in text


def test_sources_of_the_checkout_that_one_is_in_are_shown(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (profile.parent.parent / ".git").mkdir()
    text = said(["show", profile.name], capsys)
    assert "SECRET SOURCE" in text and "SECRET KEY" not in text
