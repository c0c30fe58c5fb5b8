"""The call graph and the table of a report, as used by a recipient of the page."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gdbmem.cli.main import main
from gdbmem.text import format_size
from tests.unit.massif_texts import massif, path
from tests.unit.memray_reader import memray_file

pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")

from playwright.sync_api import Browser

from tests.browser.explorer import CAPTURES, massif_capture, opened, report

pytestmark = pytest.mark.needs("chromium")

AXE = Path(__file__).parents[2] / ".cache/axe-core/package/axe.min.js"
EVIL = "</script><script>document.title='ran'</script><img src=x onerror=document.title='ran'>"
STACKS = (
    "dhat.json",
    "ht.zst",
    "go2.pb.gz",
    "tc.0002.heap",
    "exact-second.jeheap",
    "samples.heap.gz",
    "xtree.kcg",
)
PAIRS = (("tc.0001.heap", "tc.0002.heap"), ("go1.pb.gz", "go2.pb.gz"))


def as_json(capsys: pytest.CaptureFixture[str], *words: str) -> list[tuple[int, int, int]]:
    """Return change, before and after of each row that gdbmem's JSON lists, largest first."""
    capsys.readouterr()
    assert main([*words, "--json", "--by", "line"]) == 0
    said = json.loads(capsys.readouterr().out)
    rows = said["sites"]["paths"] if said["kind"] == "profile" else said["paths"]
    return sorted((row["delta_bytes"], row["before_bytes"], row["after_bytes"]) for row in rows)


@pytest.mark.parametrize("name", ["perl", "python", "cc1", "sqlite", "shop"])
def test_every_row_of_a_massif_file_has_the_value_that_json_has(
    name: str, browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = massif_capture(tmp_path, name)
    with opened(browser, report(tmp_path, file)) as page:
        assert sorted(row for row in page.rows() if any(row)) == as_json(capsys, "show", file)
        shares = page.page.locator("#rows tbody tr").evaluate_all(
            "rows => rows.map(row => [...row.cells].slice(0, 2).map(cell => Number(cell.dataset.value)))"
        )
        whole = sum(change for change, _ in shares)
        assert [share for _, share in shares] == [100 * change / whole for change, _ in shares]
        assert page.complaints == []


@pytest.mark.parametrize("name", STACKS)
def test_every_row_of_a_profile_has_the_value_that_json_has(
    name: str, browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(CAPTURES / "stacks" / name)
    with opened(browser, report(tmp_path, file)) as page:
        assert sorted(page.rows()) == as_json(capsys, "show", file)


@pytest.mark.parametrize("pair", PAIRS)
def test_every_row_of_a_difference_has_the_value_that_json_has(
    pair: tuple[str, str], browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(CAPTURES / "stacks" / name) for name in pair]
    with opened(browser, report(tmp_path, *files)) as page:
        listed = sorted(row for row in page.rows() if row[0])
        assert listed == [row for row in as_json(capsys, "diff", *files) if row[0]]


def test_two_snapshots_that_are_chosen_are_compared_as_diff_does(
    browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = massif_capture(tmp_path, "sqlite")
    with opened(browser, report(tmp_path, file)) as page:
        picks = page.page.locator("[data-snapshot]")
        names = page.page.locator("#after option").all_inner_texts()
        first, last = names[0].partition(",")[0], names[-1].partition(",")[0]
        picks.first.focus()
        page.page.keyboard.press("Enter")
        picks.last.focus()
        page.page.keyboard.press("Enter")
        assert page.page.inner_text("#explored").startswith(f"from {first} to {last}: ")
        capsys.readouterr()
        words = [f"{file}:{name.rpartition(':')[2]}" for name in (first, last)]
        assert main(["diff", *words, "--json"]) == 0
        assert page.number("#explored") == json.loads(capsys.readouterr().out)["delta_bytes"]
        rows = page.rows()
        assert sum(row[0] for row in rows) == page.number("#explored")
        shares = page.page.locator("#rows tbody td:nth-child(2)").all_inner_texts()
        assert sum(float(text.split()[0]) for text in shares) <= 100 + 0.05 * len(shares)
        assert page.page.inner_text("#share") == "of all changes"


def test_how_far_a_pair_may_be_off_stands_beside_its_rows_and_in_the_graph(
    browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = massif_capture(tmp_path, "threshold")
    with opened(browser, report(tmp_path, file)) as page:
        names = page.page.locator("#after option").all_inner_texts()
        first, second = (name.partition(",")[0].rpartition(":")[2] for name in names[1:3])
        for at in (1, 2):
            page.page.locator("[data-snapshot]").nth(at).focus()
            page.page.keyboard.press("Enter")
        capsys.readouterr()
        assert main(["diff", f"{file}:{first}", f"{file}:{second}", "--json", "--by", "line"]) == 0
        rows = json.loads(capsys.readouterr().out)["paths"]
        doubts = [row["uncertain_bytes"] for row in rows if row["uncertain_bytes"]]
        shown = page.page.locator("#rows tbody td:first-child").all_inner_texts()
        assert sorted(text.partition(" ± ")[2] for text in shown if "±" in text) == sorted(
            map(format_size, doubts)
        )
        assert page.page.locator("#unbounded").is_hidden()
        page.page.focus("#graph canvas")
        page.page.keyboard.press("ArrowDown")
        assert " ± " in page.page.inner_text("#voice").replace(",", " ")
        assert page.complaints == []


def test_a_search_states_how_much_came_through_what_it_finds(browser: Browser, tmp_path: Path) -> None:
    lines = [
        *path(300, "load (load.cpp:7)", "main (main.cpp:9)"),
        *path(500, "keep (keep.cpp:3)", "main (main.cpp:9)"),
    ]
    file = tmp_path / "a.ms"
    file.write_text(massif(lines))
    with opened(browser, report(tmp_path, str(file))) as page:
        page.page.fill("#search", "^lo.d$")
        assert page.number("#found") == 300
        assert "37.5 %" in page.page.inner_text("#found")
        page.page.fill("#search", "keep\\.cpp")
        assert page.number("#found") == 500


def test_the_graph_is_used_with_the_keyboard_alone(browser: Browser, tmp_path: Path) -> None:
    lines = [
        *path(300, "load (load.cpp:7)", "main (main.cpp:9)"),
        *path(500, "keep (keep.cpp:3)", "main (main.cpp:9)"),
    ]
    file = tmp_path / "a.ms"
    file.write_text(massif(lines))
    with opened(browser, report(tmp_path, str(file))) as page:
        page.page.focus("#graph canvas")
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
            page.page.keyboard.press(key)
        assert page.page.inner_text("#route").split("\n")[-1] == "load  load.cpp:7"
        assert page.page.inner_text("#voice").startswith("load, load.cpp:7, 300 B")
        page.page.keyboard.press("Escape")
        assert page.page.inner_text("#route") == "main  main.cpp:9"


def test_a_click_zooms_to_the_call_under_the_pointer(browser: Browser, tmp_path: Path) -> None:
    lines = [
        *path(300, "load (load.cpp:7)", "main (main.cpp:9)"),
        *path(500, "keep (keep.cpp:3)", "main (main.cpp:9)"),
    ]
    file = tmp_path / "a.ms"
    file.write_text(massif(lines))
    with opened(browser, report(tmp_path, str(file))) as page:
        box = page.page.locator("#graph canvas").bounding_box()
        assert box is not None
        page.page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 2 * 18 + 9)
        assert page.page.inner_text("#tip").split("\n")[:3] == ["load", "load.cpp:7", "300 B"]
        page.page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + 2 * 18 + 9)
        assert page.page.inner_text("#route").split("\n")[-1] == "load  load.cpp:7"


def test_an_opened_row_shows_all_its_paths_with_their_bytes(browser: Browser, tmp_path: Path) -> None:
    lines = []
    for number in range(30):
        lines += path(
            100 + number,
            "grow (tree.c:5)",
            f"caller{number % 6} (tree.c:9)",
            f"top{number} (tree.c:{20 + number})",
        )
    file = tmp_path / "a.ms"
    file.write_text(massif(lines))
    with opened(browser, report(tmp_path, str(file))) as page:
        page.page.locator(".opener").first.click()
        shown = page.page.locator("#rows pre").all_inner_texts()
        assert sum("caller" in text for text in shown) >= 10
        page.page.get_by_text("and 20 more paths").click()
        values = page.page.locator("#rows td p[data-value]").evaluate_all(
            "all => all.map(one => Number(one.dataset.value))"
        )
        assert sum(values) == sum(range(100, 130))


def test_the_table_is_saved_as_csv(
    browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = massif_capture(tmp_path, "perl")
    with opened(browser, report(tmp_path, file)) as page:
        with page.page.expect_download() as held:
            page.page.click("#csv")
        rows = list(csv.DictReader(io.StringIO(Path(held.value.path()).read_text())))
        found = sorted(
            tuple(int(row[f"{which}_bytes"]) for which in ("delta", "before", "after")) for row in rows
        )
    assert found == as_json(capsys, "show", file)


def test_nothing_of_a_strangers_names_runs_and_nothing_is_fetched(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / f"{EVIL[:30].replace('/', '')}.ms"
    file.write_text(massif([*path(700, f"{EVIL} (evil.cpp:1)", "main (main.cpp:9)"), *path(9, "b (b.c:1)")]))
    target = report(tmp_path, str(file))
    with opened(browser, target) as page:
        assert page.page.title() != "ran"
        assert page.page.locator("img").count() == 0 and page.page.locator("script").count() == 2
        page.page.locator(".opener").first.click()
        page.page.fill("#search", EVIL)
        page.page.locator("#graph canvas").hover(position={"x": 300, "y": 27})
        assert EVIL in page.page.inner_text("#rows")
        assert page.page.title() != "ran" and page.page.locator("img").count() == 0
        assert page.requests == [target.as_uri()]
        assert page.complaints == []


def test_without_javascript_the_answer_the_pictures_and_the_table_are_there(
    browser: Browser, tmp_path: Path
) -> None:
    target = report(tmp_path, massif_capture(tmp_path, "sqlite"))
    with opened(browser, target, java_script_enabled=False) as page:
        text = page.text()
        assert "heap holds" in text and "Explore" not in text
        assert page.page.locator("svg.icicle rect").count() > 10
        assert page.page.locator("svg.stack path.curve").nth(3).is_visible(), "the largest lines over time"
        assert page.page.locator("#choosing").is_hidden(), "there is no script to choose with"
        assert page.page.locator("details.row").count() > 5


def test_an_old_browser_learns_what_it_lacks_and_shows_the_rest(browser: Browser, tmp_path: Path) -> None:
    target = report(tmp_path, massif_capture(tmp_path, "sqlite"))
    with opened(browser, target, color_scheme="light") as page:
        page.page.add_init_script("delete window.DecompressionStream")
        page.page.reload()
        page.page.locator("#explored").wait_for(state="visible")
        assert "The call graph can't be shown: this browser can't unpack it" in page.page.inner_text(
            "#explored"
        )
        assert page.page.locator("svg.icicle").first.is_visible()


def test_a_page_of_files_with_long_paths_can_be_read_at_400_pixels(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / ("nightly_build_of_the_trainer" * 7)
    folder.mkdir()
    profile = massif_capture(folder, "perl")
    target = report(tmp_path, profile, profile)
    with opened(browser, target) as page:
        page.page.set_viewport_size({"width": 400, "height": 800})
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 400


PAGES_OF_ALL_KINDS = {
    "graph": ["cut.ms"],
    "ledger": [str(CAPTURES / "documents" / f"churn-{name}.json") for name in ("full", "thin")],
    "objects": [str(CAPTURES / "documents" / f"objects-{name}.json") for name in ("first", "second")],
    "steps": [str(CAPTURES / "documents" / "steps.json")],
    "comparison": [str(CAPTURES / "documents" / "comparison.json")],
    "faults": [str(CAPTURES / "faults" / "alive.faults")],
    "difference": [str(CAPTURES / "stacks" / name) for name in PAIRS[1]],
    "pools": [str(CAPTURES / "documents" / "pools.json")],
    "series": ["mprofile.dat"],
    "course": ["series.ms"],
}

# Pixels that the letters of a page's pictures are high, of those that are shown.
LETTERS = """[...document.querySelectorAll("svg text")].filter(text => text.checkVisibility() && text.textContent)
    .map(text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)"""
# Sizes without their exact value, except axes, prose and terminal output.
WITHOUT_VALUES = """[...document.querySelectorAll("body *")].filter(one =>
    [...one.childNodes].some(part => part.nodeType === 3 && /\\d (B|[KMGT]iB)\\b/.test(part.data))
    && !one.closest("[data-value], .levels, .times, .timeline, text[text-anchor=end], text[font-weight=bold]")
    && !one.closest("script, p:not(.row p), li, pre[tabindex], .facts, td:last-child"))
    .map(one => one.outerHTML.slice(0, 200))"""
WITH_COLORS = ("course", "steps")


@pytest.mark.parametrize("kind", PAGES_OF_ALL_KINDS)
def test_a_page_has_no_serious_fault_for_people_who_do_not_see_it_and_fits_400_pixels(
    kind: str, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core, which scripts/setup unpacks where npm is, is not here")
    monkeypatch.chdir(tmp_path)
    lines = [
        *path(300, "load (load.cpp:7)", "main (m.cpp:9)"),
        *path(500, "keep (keep.cpp:3)", "main (m.cpp:9)"),
    ]
    Path("cut.ms").write_text(massif(lines))
    Path("series.ms").write_text(massif(lines[:2], lines, lines[2:]))
    samples = "".join(f"MEM {20 + at % 9 + at // 40 * 8}.5 {1.6e9 + at / 10:.4f}\n" for at in range(200))
    Path("mprofile.dat").write_text(f"CMDLINE python app.py\n{samples}")
    with opened(browser, report(tmp_path, *PAGES_OF_ALL_KINDS[kind]), bypass_csp=True) as page:
        if page.page.locator(".opener").count():
            page.page.locator(".opener").first.click()
        page.page.add_script_tag(path=str(AXE))
        serious = []
        # Colours are costly to check, and of one style sheet.
        colored = "{}" if kind in WITH_COLORS else "{rules: {'color-contrast': {enabled: false}}}"
        dark = "{runOnly: ['color-contrast']}" if kind in WITH_COLORS else ""
        for rules in filter(None, (colored, dark)):
            page.page.emulate_media(color_scheme="dark" if rules == dark else "light")
            found = page.page.evaluate(f"axe.run({rules})")
            serious += [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        assert page.page.evaluate(WITHOUT_VALUES) == []
        page.page.set_viewport_size({"width": 400, "height": 800})
        found = page.page.evaluate("axe.run({runOnly: ['scrollable-region-focusable']})")
        serious += found["violations"]
        assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious] == []
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 400
        heights = page.page.evaluate(LETTERS)
        assert not heights or min(heights) > 8, "letters in pictures can be read"
        assert page.complaints == []


@pytest.mark.parametrize(
    "lines", [path(0, "main (main.cpp:9)"), path(700, "main (main.cpp:9)")], ids=["nothing", "one"]
)
def test_a_profile_of_one_node_and_of_none_is_a_page(
    lines: list[tuple[int, int, str]], browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "a.ms"
    file.write_text(massif(lines))
    with opened(browser, report(tmp_path, str(file))) as page:
        assert page.complaints == []


def test_a_stack_of_2000_frames_is_drawn_and_scrolled(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "deep.ms"
    file.write_text(
        massif(path(700, *[f"f{n} (deep.cpp:{n + 1})" for n in range(2000)], "main (main.cpp:9)"))
    )
    with opened(browser, report(tmp_path, str(file))) as page:
        page.page.focus("#graph canvas")
        for _ in range(5):
            page.page.keyboard.press("ArrowDown")
        page.page.locator("#graph canvas").evaluate(
            "canvas => { for (let n = 0; n < 95; n++)"
            " canvas.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown'})); }"
        )
        assert page.page.locator("#graph").evaluate("graph => graph.scrollTop") > 1000
        assert page.complaints == []


def test_a_name_of_100_kilobytes_is_cut_in_the_graph(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "long.ms"
    file.write_text(massif(path(700, f"{'x' * 100_000} (a.cpp:1)", "main (main.cpp:9)")))
    with opened(browser, report(tmp_path, str(file))) as page:
        assert len(page.page.inner_text("#rows")) < 5000
        assert page.complaints == []


def test_a_page_that_is_served_shows_the_next_snapshot_by_itself(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "a.ms"
    file.write_text(massif(path(700, "first (first.cpp:1)", "main (main.cpp:9)")))
    command = [sys.executable, "-m", "gdbmem.cli.main", "serve", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as served:
        assert served.stderr is not None
        address = served.stderr.readline().split()[1]
        page = browser.new_context(bypass_csp=True).new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(address)
        if AXE.exists():
            page.add_script_tag(path=str(AXE))
            assert page.evaluate("axe.run()")["violations"] == [], "in the index"
        page.click("a")
        page.get_by_text("first.cpp:1").first.wait_for(state="visible")
        file.write_text(massif(path(900, "second (second.cpp:2)", "main (main.cpp:9)")))
        page.get_by_text("second.cpp:2").first.wait_for(state="visible")
        page.keyboard.press("Shift")
        file.write_text(massif(path(950, "third (third.cpp:3)", "main (main.cpp:9)")))
        page.get_by_text("there is more now").click()
        page.get_by_text("third.cpp:3").first.wait_for(state="visible")
        assert complaints == []
        served.send_signal(signal.SIGINT)
        assert served.wait(timeout=20) == 0
        page.get_by_text("gdbmem serve has ended").wait_for(state="visible")
        page.context.close()


@pytest.mark.thorough  # 10 s; benchmarks/bench_page.py opens as many
def test_a_million_calls_are_a_page_that_adds_up_and_is_searched(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "million.folded"
    stacks = 170_000  # of six calls each that no other has
    lines = (f"main;{';'.join(f'f{n}_{depth}' for depth in range(6))} {n % 97 + 1}" for n in range(stacks))
    file.write_text("\n".join(lines))
    total = sum(n % 97 + 1 for n in range(stacks))
    target = report(tmp_path, str(file))
    assert target.stat().st_size < 6e6
    with opened(browser, target) as page:
        assert page.number("#explored") == page.number("#sum") == total
        page.page.fill("#search", "^f96_3$")
        assert page.number("#found") == 97
        page.page.focus("#graph canvas")
        for key in ("ArrowDown", "Enter"):
            page.page.keyboard.press(key)
        assert page.page.inner_text("#route") == "140,000 smaller paths, each of at most 80 B"
        assert "show the 140,000 smallest paths" in page.text()
        assert page.complaints == []


def test_the_graph_and_the_table_show_one_thread_alone(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = memray_file(tmp_path, monkeypatch)
    with opened(browser, report(tmp_path, file)) as page:
        assert sorted(page.rows()) == [(40, 0, 40), (50, 0, 50)]
        names = page.page.locator("#thread option").all_inner_texts()
        assert names == ["all", "thread 1", "wor\\x1b]8;;ker (thread 2)"]
        page.page.select_option("#thread", names[2])
        assert page.rows() == [(40, 0, 40)] and page.number("#explored") == page.number("#sum") == 40
        assert page.page.inner_text("#explored").endswith(f"40 B (bytes of heap), of {names[2]}")
        page.page.fill("#search", "early|late")
        assert page.number("#found") == 40
        page.page.select_option("#thread", "all")
        assert page.number("#explored") == page.number("#found") == 90
        page.page.locator("#rows .opener").first.click()
        assert "50 B, thread 1" in page.text()
        assert page.complaints == []
    with opened(browser, report(tmp_path, str(CAPTURES / "stacks/dhat.json"))) as page:
        assert not page.page.locator("#threads").is_visible()
