"""`gdbmem report`: one file that agrees with diff and show, and in which no untrusted code runs."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.model.calltree import Frame, Frames
from gdbmem.page.explorer import _frames
from gdbmem.page.page import MarginLine, Page, Section, render
from gdbmem.runs.run import Run
from tests.unit.massif_files import capture
from tests.unit.massif_texts import massif, path

EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m&lt;"
LOAD = path(300, "load (load.cpp:7)", "main (main.cpp:9)")
LEAK = path(5000, "remember (decoder.cpp:120)", "main (main.cpp:9)")
VOID = {"meta", "br", "img", "link", "input"}


class Parsed(HTMLParser):
    """A page as elements: checks that they nest, and keeps their names, attributes and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.paths = ""  # what stands in the rows' boxes of frames
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data
        if "pre" in self.open:
            self.paths += data


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def page(*words: str) -> Parsed:
    assert main(["report", *words, "-o", "page.html", "--force"]) == 0
    return Parsed(Path("page.html").read_text())


def write_run(*snapshots: tuple[str, str], **facts: object) -> Run:
    run = Run.create("decoder", parent=Path.cwd(), pid=1, folder=Path("run"))
    run.update(program="/bin/decoder", arguments=["--fast"], **facts)
    for number, (name, text) in enumerate(snapshots):
        relative = run.next_file("massif")
        (run.folder / relative).write_text(text)
        run.append(
            name, file=relative, engine="massif", seconds=float(number), heap_bytes=300 + 5000 * number
        )
    return run


def test_the_answer_of_diff_is_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    Path("before.ms").write_text(massif(LOAD))
    Path("after.ms").write_text(massif([*LOAD, *LEAK]))
    text = page("before.ms", "after.ms").text
    assert main(["diff", "before.ms", "after.ms"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] in text
    assert "decoder.cpp:120" in text and "+4.9 KiB" in text


def test_the_page_states_by_which_rule_a_caller_is_named_and_mine_overrules_it() -> None:
    Path("one.ms").write_text(massif(path(300, "xmalloc (app.c:9)", "load (app.c:20)", "main (app.c:30)")))
    shown = page("one.ms").text
    assert "xmalloc works for the caller; --mine REGEX makes frames your own" in " ".join(shown.split())
    assert "from app.c:20 (load)" in shown
    mine = page("one.ms", "--mine", "xmalloc").text
    assert "works for the caller" not in mine and "from app.c:9 (xmalloc)" in mine


def test_a_run_shows_its_course_its_snapshots_and_what_grew_between_them() -> None:
    write_run(("loaded", massif(LOAD)), ("reset", massif([*LOAD, *LEAK])))
    found = page("run")
    assert "svg" in found.tags
    assert (
        "heap grew by 4.9 KiB from loaded to reset; all of it from decoder.cpp:120 (remember)" in found.text
    )
    assert "/bin/decoder --fast" in found.text


def test_a_run_of_a_recipe_opens_on_the_pair_that_its_first_sentence_compares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded, grown = massif(LOAD), massif([*LOAD, *LEAK])
    texts = [("loaded", grown), ("reset", loaded), ("reset", loaded), ("reset", grown)]
    write_run(*texts, recipe={"diffs": [["reset#1", "reset#3"]]})
    opened: list[object] = []

    def packed(*_: object, shown: object, **__: object) -> str:
        opened.append(shown)
        return ""

    monkeypatch.setattr("gdbmem.page.explorer.packed", packed)
    text = page("run").text
    assert "heap grew by 4.9 KiB from reset#1 to reset#3" in text
    assert opened == [(1, 3)], "the snapshots are loaded, reset#1, reset#2, reset#3"


def test_how_it_was_measured_stands_on_the_page_of_a_file_of_a_pair_and_of_a_run() -> None:
    Path("one.ms").write_text(massif(LOAD).replace("desc: ", "desc: --depth=7 ", 1))
    found = " ".join(page("one.ms").text.split())
    for words in (
        "fileone.ms",
        "--depth=7",
        "exact heap bytes per call path",
        "valgrind runs one at a time",
    ):
        assert words in found
    Path("two.ms").write_text(massif([*LOAD, *LEAK]))
    found = " ".join(page("one.ms", "two.ms").text.split())
    assert "fileone.ms" in found and "filetwo.ms" in found and "valgrind runs one at a time" in found
    write_run(("loaded", massif(LOAD)), ("reset", massif(LOAD)), engine="gperftools",
              machine="Linux 6.1.0 x86_64, 2 processors", versions={"gdbmem": "0.1.0"},
              starts=[{"argv": ["valgrind", "--threshold=0"]}])  # fmt: skip
    found = " ".join(page("run").text.split())
    for words in (
        "Linux 6.1.0 x86_64, 2 processors",
        "valgrind --threshold=0",
        "version of gdbmem0.1.0",
        "a program that has its own allocator",
    ):
        assert words in found


def test_a_verdict_of_a_recipe_is_on_the_page() -> None:
    write_run(
        ("loaded", massif(LOAD)), ("reset", massif(LOAD)),
        expectations=[{"met": False, "text": "heap from loaded to reset: too much"}],
    )  # fmt: skip
    assert re.search(r"NOT MET\s*heap from loaded to reset: too much", page("run").text)


def test_the_lines_add_up_to_the_total_that_stands_below_them() -> None:
    Path("perl.ms").write_bytes(capture("perl"))
    html = Path("page.html")
    assert main(["report", "perl.ms", "-o", "page.html"]) == 0
    text = Parsed(html.read_text()).text
    assert "peak:" in text and "instructions" in text and "total" in text


def test_names_of_a_stranger_stay_text(capsys: pytest.CaptureFixture[str]) -> None:
    bad = path(700, f"{EVIL} (evil.cpp:1)", "main (main.cpp:9)")
    write_run((EVIL, massif(LOAD)), ("b", massif([*LOAD, *bad])), command=["gdbmem", EVIL], engine=EVIL)
    found = page("run", "--title", EVIL)
    assert "img" not in found.tags
    assert found.tags.count("script") == 4, "the profile, the course, and what draws them"
    assert not any(name.startswith("on") for name in found.attributes)
    assert "\x1b" not in Path("page.html").read_text()
    assert "<script>alert(1)</script>" in found.text
    assert "\x1b" not in capsys.readouterr().err


def test_source_lines_are_in_a_page_only_where_asked_for_which_it_states_and_they_are_text() -> None:
    source = Path("evil.cpp").resolve()
    source.write_text(f'int a;\nchar* p = leak("{EVIL}"); // </mark><script>\nint b;\n')
    Path("one.ms").write_text(massif(path(700, f"leak ({source}:2)", "main (main.cpp:9)")))
    assert "char* p = leak(" not in page("one.ms").text, "it was not asked for"
    found = page("one.ms", "--embed-source")
    assert "char* p = leak(" in found.text and "int b;" in found.text
    assert "this page holds lines of 1 source file" in found.text
    assert found.tags.count("script") == 2, "the profile, and what draws it"
    assert found.tags.count("mark") == 1


def test_a_very_deep_call_path_makes_a_page_that_nests_no_deeper_than_a_browser_likes() -> None:
    deep = path(700, *[f"f{n} (deep.cpp:{n + 1})" for n in range(400)], "main (main.cpp:9)")
    Path("deep.ms").write_text(massif(deep))
    assert page("deep.ms").tags.count("details") < 150


def test_a_damaged_snapshot_hides_none_of_the_others() -> None:
    run = write_run(("a", massif(LOAD)), ("b", "no massif file\n"), ("c", massif([*LOAD, *LEAK])))
    assert len(run.snapshots) == 3
    text = page("run").text
    assert "heap grew by 4.9 KiB from a to c" in text
    assert "0002.massif" in text


def test_an_empty_run_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    write_run()
    assert main(["report", "run", "-o", "page.html"]) == 1
    assert "run holds nothing to report" in capsys.readouterr().err
    assert not Path("page.html").exists()


def test_nothing_is_replaced_unasked_and_the_page_is_named_after_what_it_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("one.ms").write_text(massif(LOAD))
    assert main(["report", "one.ms"]) == 0
    assert "the report is one.ms.html" in capsys.readouterr().err
    assert main(["report", "one.ms"]) == 1
    assert "one.ms.html exists" in capsys.readouterr().err


def test_blocks_that_are_asked_for_are_what_the_page_answers() -> None:
    file = str(Path(__file__).parents[2] / "captures" / "stacks" / "dhat.json")
    assert "; most blocks at " in page(file, "--metric", "blocks").text
    assert "; most blocks at " not in page(file).text


@pytest.mark.slow
def test_what_a_cut_file_leaves_out_is_called_that_on_the_page() -> None:
    file = str(Path(__file__).parents[2] / "captures" / "stacks" / "many.0001.heap.gz")
    text = page(file).text
    assert "call sites that the file leaves out" in text and "threshold" not in text


def test_a_row_opened_shows_its_paths_with_their_bytes_and_how_many_more_there_are() -> None:
    lines = []
    for number in range(7):
        lines += path(100 * (number + 1), "grow (tree.c:5)", f"caller{number} (tree.c:{20 + number})")
    Path("a.ms").write_text(massif(lines))
    text = page("a.ms").text
    shown = [number for number in range(7) if re.search(rf"caller{number}\b", page("a.ms").paths)]
    assert shown == [2, 3, 4, 5, 6], "the largest"
    assert [size for size in (700, 600, 500, 400, 300) if f"{size} B" not in text] == []
    assert "and 2 more, 300 B" in text


def test_a_series_of_files_tells_which_line_grows_steadily_and_draws_each_course() -> None:
    for number in range(4):
        lines = [
            *path(300 * number + 100, "leak (leak.cpp:7)"),
            *path(5000 * (number == 2) + 9, "spike (spike.cpp:9)"),
        ]
        Path(f"{number}.ms").write_text(massif(lines))
    found = page("0.ms", "1.ms", "2.ms", "3.ms")
    assert "(4 snapshots); steadily at leak.cpp:7 (leak), +900 B" in found.text
    assert found.tags.count("polyline") == 2, "the lines that changed"
    assert found.attributes.count("data-snapshot") == 4


def test_a_profile_without_a_tree_is_a_page_with_its_course(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.ms").write_text(massif(None, None, sizes=(100, 300)))
    assert "peak: 300 B in snapshot 1" in page("a.ms").text
    Path("b.ms").write_text(massif(None, sizes=(100,)))
    assert "peak: 100 B in snapshot 0" in page("b.ms").text
    assert main(["show", "b.ms"]) == 0
    assert "peak: 100 B in snapshot 0" in capsys.readouterr().out, (
        "one snapshot without a tree is not an empty answer"
    )


def test_a_disk_that_is_full_while_the_page_is_written_is_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("one.ms").write_text(massif(LOAD))
    assert main(["report", "one.ms", "-o", "/dev/full"]) != 0
    assert "writing /dev/full failed: No space left on device" in capsys.readouterr().err


def test_a_difference_that_only_shrank_and_one_of_nothing_are_pages() -> None:
    Path("before.ms").write_text(massif([*LOAD, *LEAK]))
    Path("after.ms").write_text(massif(LOAD))
    shrank = page("before.ms", "after.ms")
    assert "heap shrank by 4.9 KiB" in shrank.text and "-4.9 KiB" in shrank.text
    assert "heap did not change" in page("after.ms", "after.ms").text


def test_names_that_are_no_utf_8_make_a_page_that_is(here: Path) -> None:
    Path("odd.folded").write_bytes(b"main;f\xff\xfeg 700\nmain;\xe2\x28\xa1 9\n")
    assert main(["report", "odd.folded", "-o", "page.html"]) == 0
    text = (here / "page.html").read_bytes().decode("utf-8")
    assert "700 B" in text


def test_a_name_that_climbs_out_of_the_folder_names_no_file_elsewhere(here: Path) -> None:
    Path("one.ms").write_text(massif(LOAD))
    odd = here / "..%2f..%2fetc;x`y`.ms"
    odd.write_text(massif(LOAD))
    assert main(["report", odd.name]) == 0
    (made,) = here.glob(".*.html")
    assert made.parent == here and set(made.name) <= set("._%2fetcxyhmls")


def brightness(color: str) -> float:
    """Return the relative luminance of *color*, as WCAG defines it."""
    digits = color.lstrip("#")
    digits = "".join(digit * 2 for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_each_colour_of_source_can_be_read_on_the_marked_line_in_light_and_dark() -> None:
    page = Page("x", sections=[Section("y", margin=[MarginLine("1", text="int z;")])])
    style = re.findall(r"<style>(.*?)</style>", render(page), re.DOTALL)[0]
    light, dark = re.findall(r"--mark: (#\w+)", style)
    rules, dark_rules = style.partition(".source .s-")[2].rsplit("@media", 1)
    for mark, these in ((light, rules), (dark, dark_rules)):
        colors = dict(re.findall(r"\.s-(\w+) \{[^}]*?\bcolor: (#\w+)", these))
        assert len(colors) > 20
        for name, color in colors.items():
            low, high = sorted((brightness(mark), brightness(color)))
            assert name == "w" or (high + 0.05) / (low + 0.05) >= 4.5, (mark, name, color)


def test_a_page_without_source_has_no_colours_for_it() -> None:
    assert ".source .s-" not in render(
        Page("x", sections=[Section("y", margin=[MarginLine("1", function="f")])])
    )


def test_a_histogram_shows_how_many_blocks_have_each_size_and_its_table_adds_up(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "captures" / "stacks" / "ht.zst"
    words = ["report", str(file), "--metric", "allocated"]
    assert main([*words, "--svg", str(tmp_path / "s.svg"), "--picture", "Blocks by size"]) == 0
    bars = re.findall(r'data-value="(\d+)"><title>(.*?): ', (tmp_path / "s.svg").read_text())
    found = {name: int(count) for count, name in bars if int(count)}
    assert found == {
        "up to 64 B": 4,
        "up to 128 B": 300,
        "up to 256 B": 100,
        "up to 1.0 KiB": 100,
        "up to 4.0 KiB": 1,
        "up to 8.0 KiB": 1,
        "up to 128.0 KiB": 1,
        "up to 512.0 KiB": 1,
    }
    assert len(bars) == 14, "also sizes in between that no block has"
    assert main([*words, "-o", str(tmp_path / "p.html")]) == 0
    (tmp_path / "empty").write_text("v 10400 3\nX ./p\n# strings: 0\n")
    assert main(["report", str(tmp_path / "empty"), "-o", str(tmp_path / "e.html")]) == 0
    assert "508 blocks, 735.9 KiB; 300 of them of up to 128 B each" in re.sub(
        "<[^>]*>", "", (tmp_path / "p.html").read_text()
    )


def test_two_reports_of_a_file_are_the_same_bytes() -> None:
    files = [f"file{number}.c" for number in range(40)]
    strings: dict[str, int] = {}
    _frames(Frames.of([Frame("f", file=file, line=1) for file in files]), [0] * len(files), strings)
    assert [text for text in strings if text != "f"] == files, "in the order of the file, not of a set"
