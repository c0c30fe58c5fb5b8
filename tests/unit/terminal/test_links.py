"""Links to sources open the file that is there, and no name of a stranger's leaves them."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.errors import InputError
from gdbmem.terminal.console import make_console
from gdbmem.terminal.drawing import LINK, Links, Table, Text

ESCAPE = re.compile(r"\x1b\]8;;([^\x1b]*)\x1b\\")
HOSTILE = [
    "a b.c",
    "a;b.c",
    'a"><script>.c',
    "a\x1b]8;;http://e\x07.c",
    "a\nb.c",
    "a%41{line}.c",
    "\udcff.c",
    "ä.c",
]


def test_an_editor_or_an_address_makes_links_and_anything_else_is_refused() -> None:
    links = Links.read("vscode", "x")
    assert links is not None and links.address("/a/b.c", 7) == "vscode://file/a/b.c:7"
    assert links.address("/a/b.c", None) == "vscode://file/a/b.c:1"
    own = Links.read("my+ed.1:open?f={path}&l={line}", "x")
    assert own is not None and own.address("/b.c", 7) == "my+ed.1:open?f=/b.c&l=7"
    assert Links.read("", "x") is None and Links.read("none", "x") is None
    for text in ("code", "file:///x", "javascript:{path}", "JavaScript:{path}", "data:{path}", "x://{path} ",
                 'x://"{path}', "x://{path}\x1b", "x://{path}{user}", "{path}", "x://{path.__class__}"):  # fmt: skip
        with pytest.raises(InputError, match="is no address that opens a file"):
            Links.read(text, "x")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_of_a_file_ends_or_changes_its_address(name: str) -> None:
    for editor in ("vscode", "kitty", "idea"):
        links = Links.read(editor, "x")
        assert links is not None
        address = links.address(f"/src/{name}", 3)
        assert re.fullmatch(r"[!#-;=?-_a-z~]+", address) and address.isascii()
        assert address.count("{") == 0 and address.count("3") >= 1


def test_a_link_is_around_its_text_also_where_that_is_wrapped() -> None:
    table = Table()
    table.add_column("where")
    table.add_row(Text.assemble(("a/very/long/name.c:7", f"bold {LINK}x:/name.c:7"), "  f"))
    stream = io.StringIO()
    console = make_console(stream, width=40, color=True)
    console.width = 12
    console.print(table)
    text = stream.getvalue()
    assert ESCAPE.findall(text)[::2].count("x:/name.c:7") == len(ESCAPE.findall(text)) // 2
    for line in text.splitlines():
        ends = ESCAPE.findall(line)
        assert ends[1::2] == [""] * (len(ends) // 2), "no link goes on in the next line"


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "a b<x>.c").write_text("\nkeep();\n")
    file = tmp_path / "profile.folded"
    places = [f"{tmp_path}/a b<x>.c:2", "/etc/passwd:1", f"{tmp_path}/gone.c:2"]
    file.write_text("".join(f"main ({place});f{n} ({place}) 9\n" for n, place in enumerate(places)))
    return str(file)


def test_only_sources_that_may_be_shown_become_links_and_only_on_a_terminal(
    profile: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GDBMEM_LINKS", "vscode")
    assert main(["show", profile]) == 0
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setattr("gdbmem.terminal.console._is_terminal", lambda stream: True)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["show", profile]) == 0
    addresses = {one for one in ESCAPE.findall(capsys.readouterr().out) if one}
    assert addresses == {f"vscode://file{Path.cwd()}/a%20b%3Cx%3E.c:2"}
    assert main(["show", profile, "--no-color"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setenv("GDBMEM_LINKS", "nonsense")
    assert main(["show", profile]) == 1
    assert "[bad-links]" in capsys.readouterr().err


def test_a_page_has_links_only_if_they_are_asked_for(profile: str) -> None:
    for words, count in (([], 0), (["--links", "vscode"], 1), (["--links", "none"], 0)):
        assert main(["report", profile, "-o", "page.html", "--force", *words]) == 0
        found = re.findall(r'<a href="([^"]*)">', Path("page.html").read_text())
        assert found == [f"vscode://file{Path.cwd()}/a%20b%3Cx%3E.c:2"] * count


def test_a_page_links_to_files_that_only_source_finds(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/keep.c").write_text("\nkeep();\n")
    file = tmp_path / "profile.folded"
    file.write_text("main;keep (keep.c:2) 9\n")
    words = ["report", str(file), "-o", str(tmp_path / "page.html"), "--source", str(tmp_path / "elsewhere")]
    assert main(words) == 2, "nothing on the page would come of it"
    assert main([*words, "--links", "vscode"]) == 0
    found = re.findall(r'<a href="([^"]*)">', (tmp_path / "page.html").read_text())
    assert found == [f"vscode://file{tmp_path}/elsewhere/keep.c:2"]
