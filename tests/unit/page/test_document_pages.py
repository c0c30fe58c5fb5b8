"""`gdbmem report` of what --json wrote: the page has the document's numbers, and no bad file makes a traceback."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gdbmem.api.pools import answer_failed, read_pools
from gdbmem.cli.main import main
from gdbmem.cli.report_documents import PAGES
from gdbmem.errors import GdbmemError
from gdbmem.page.page import Section, exact_pieces, render
from gdbmem.pools.explanation import headline
from gdbmem.profiles.paths import Query
from gdbmem.text import printable

CAPTURES = Path(__file__).parents[2] / "captures" / "documents"
FULL, THIN = CAPTURES / "churn-full.json", CAPTURES / "churn-thin.json"
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m"
ONE_OF_A_KIND = {
    "bfc": "pools.json",
    "comparison": "comparison.json",
    "ledger": "churn-thin.json",
    "python-objects": "objects-second.json",
    "steps": "steps.json",
}


class Values(HTMLParser):
    """The exact values of a page: those of text, and those of each picture's parts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.values: list[float] = []
        self.bars: list[list[int]] = []
        self.drawn: list[int] = []  # of other pictures
        self.picture = ""
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        held = dict(attrs)
        if tag == "svg":
            self.picture = held.get("class") or "another"
            self.bars += [[]] * (self.picture == "bars")
        value = held.get("data-value")
        if value is not None and self.picture not in ("", "bars"):
            self.drawn.append(int(value))
        elif value is not None and tag == "rect":
            self.bars[-1] = [*self.bars[-1], int(value)]
        elif value is not None:
            self.values.append(float(value))

    def handle_endtag(self, tag: str) -> None:
        self.picture = "" if tag == "svg" else self.picture

    def handle_data(self, data: str) -> None:
        self.text += data


def page(tmp_path: Path, *operands: Path) -> Values:
    target = tmp_path / "page.html"
    assert main(["report", *map(str, operands), "-o", str(target), "--force"]) == 0
    return Values(target.read_text())


def spoken(tmp_path: Path) -> list[tuple[float, str]]:
    """Return value and text of each number in the first sentence of the page."""
    sentence = re.search(r'<p class="sentence".*?</p>', (tmp_path / "page.html").read_text())
    assert sentence is not None
    found = re.findall(r'<span data-value="([^"]*)">([^<]*)</span>', sentence[0])
    return [(float(value), text) for value, text in found]


def said(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_bar_of_a_ledger_adds_up_to_the_resident_set_and_its_entries_have_the_values_of_json(
    tmp_path: Path,
) -> None:
    document, found = said(THIN), page(tmp_path, THIN)
    sizes = [entry["resident_bytes"] for entry in document["entries"] if entry["resident_bytes"]]
    assert sum(found.bars[0]) == document["rss_bytes"]
    assert not Counter(found.bars[0]) - Counter(sizes)
    assert not Counter([*sizes, document["rss_bytes"]]) - Counter(found.values)
    assert "can't be returned" in found.text and found.tags["script"] == 0
    predicted = [one["predicted_bytes"] for one in document["remedies"] if one["predicted_bytes"]]
    assert not set(predicted) - set(found.values)
    assert {one["rss_bytes"] for one in document["mappings"]} - {0} <= set(found.values)


def test_two_ledgers_make_a_page_of_what_changed_on_one_scale(tmp_path: Path) -> None:
    before, after = said(FULL), said(THIN)
    found = page(tmp_path, FULL, THIN)
    old = {(one["category"], one["label"]): one["resident_bytes"] for one in before["entries"]}
    new = {(one["category"], one["label"]): one["resident_bytes"] for one in after["entries"]}
    changed = [new.get(key, 0) - old.get(key, 0) for key in {**old, **new}]
    assert {delta for delta in changed if delta} <= set(found.values)
    assert sum(found.bars[0]) == before["rss_bytes"] + after["rss_bytes"]
    assert "resident set" in found.text and "from churn-full.json to churn-thin.json" in found.text


def test_the_types_of_python_objects_have_the_values_of_json_and_the_bar_is_their_sum(tmp_path: Path) -> None:
    document, found = said(CAPTURES / "objects-second.json"), page(tmp_path, CAPTURES / "objects-second.json")
    assert sum(found.bars[0]) == document["bytes"]
    listed = Counter(value for one in document["types"] for value in (one["bytes"], one["count"]))
    assert not listed - Counter(found.values)
    assert f"{document['count']:,} Python objects hold" in found.text


def test_what_came_and_went_of_python_objects_is_what_since_reports(tmp_path: Path) -> None:
    files = [CAPTURES / f"objects-{name}.json" for name in ("first", "second")]
    before, after = ({one["type"]: one for one in said(file)["types"]} for file in files)
    found = page(tmp_path, *files)
    changed = {after[name]["bytes"] - before[name]["bytes"] for name in before} - {0}
    assert changed <= set(found.values) and {one for one in changed if one > 500_000}
    assert "most in Row: +562.5 KiB in +9,000 objects" in found.text


def test_the_lines_of_a_file_stand_in_its_order_with_what_they_changed_in_the_margin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = said(CAPTURES / "steps.json")
    monkeypatch.chdir(tmp_path)
    local = tmp_path / "steps.json"
    (tmp_path / "churn.c").write_text((CAPTURES / "churn.c").read_text())
    local.write_text((CAPTURES / "steps.json").read_text().replace("/tmp/churn/", f"{tmp_path}/"))
    found = page(tmp_path, local)
    deltas = [one["delta_bytes"] for one in sorted(document["sums"], key=lambda one: one["line"])]
    rows = found.values[2:]  # after the two numbers of the sentence
    assert [value for value in rows if value in deltas and value % 4096 == 0][: len(deltas)] == deltas
    assert "memset(block" not in found.text, "its source was not asked for"
    assert main(["report", "steps.json", "-o", "page.html", "--force", "--embed-source"]) == 0
    text = Values(Path("page.html").read_text()).text
    place = [text.index(word) for word in ("static void fill", "malloc(size)", "memset(block")]
    assert place == sorted(place) and "this page holds lines of 1 source file" in text
    assert "resident memory: +16.0 KiB in 60 steps" in text


def test_the_differences_of_a_comparison_have_the_values_of_json(tmp_path: Path) -> None:
    document, found = said(CAPTURES / "comparison.json"), page(tmp_path, CAPTURES / "comparison.json")
    wanted = {row[name] for row in document["differences"] for name in ("first", "second", "value")}
    assert wanted <= set(found.values)
    assert document["conclusion"] in found.text
    assert all(
        run["run"] in found.text and run["verdict"]["evidence"] in found.text for run in document["runs"]
    )


def test_what_page_faults_explain_stands_beside_the_resident_set(tmp_path: Path) -> None:
    file = CAPTURES.parent / "faults" / "alive.faults"
    (account,) = said(file)["gdbmem_faults"]["totals"]["accounts"]
    found = page(tmp_path, file)
    assert account["after_bytes"] - account["before_bytes"] in found.values
    assert round(account["grown_bytes"]) in found.values and "each of them sampled" in found.text


def test_names_of_a_stranger_are_text_on_the_page_of_a_ledger(tmp_path: Path) -> None:
    document = said(THIN)
    document["program"] = EVIL
    document["mappings"][0]["name"] = EVIL
    document["entries"][0]["label"] = EVIL
    old = document["entries"][0]["category"]
    for mapping in document["mappings"]:
        for part in mapping["parts"]:
            part["label"] = EVIL if part["category"] == old else part["label"]
    evil = tmp_path / "evil.json"
    evil.write_text(json.dumps(document))
    found = page(tmp_path, evil)
    assert found.tags["script"] == 0 and found.tags["img"] == 0
    assert "<script>alert(1)" in found.text and "\x1b" not in found.text


def test_a_picture_of_a_page_is_a_file_that_stands_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(THIN), "--svg", "bar.svg"]) == 0
    drawn = ElementTree.parse("bar.svg").getroot()
    values = [int(one.get("data-value") or 0) for one in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    assert sum(values) == said(THIN)["rss_bytes"] and not Path("churn-thin.json.html").exists()
    assert main(["report", str(THIN), "--svg", "no.svg", "--picture", "nothing"]) != 0
    assert "no picture is named 'nothing'; there are 'Resident memory'" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bar.svg"]


def test_the_picture_in_the_docs_is_what_the_command_draws(tmp_path: Path) -> None:
    drawn = tmp_path / "ledgers.svg"
    words = ["report", str(FULL), str(THIN), "--svg", str(drawn), "--picture", "What changed"]
    assert main(words) == 0
    assert drawn.read_text() == (CAPTURES.parents[2] / "docs/how-to/ledgers.svg").read_text(), (
        "scripts/picture"
    )


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each value in *value*, the first of a list standing for the others."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from paths(value[0], (*path, 0))


def replaced(value: Any, path: Sequence[Any], by: object) -> Any:
    """Return a copy of *value* that has *by* at *path*, and shares with it all that is off the path."""
    if not path:
        return by
    copied = value.copy()
    copied[path[0]] = replaced(value[path[0]], path[1:], by)
    return copied


@pytest.mark.slow  # all together
@pytest.mark.parametrize("kind", ONE_OF_A_KIND)
def test_a_document_with_any_value_of_another_kind_is_a_page_or_one_sentence(
    kind: str, tmp_path: Path
) -> None:
    whole = said(CAPTURES / ONE_OF_A_KIND[kind])
    file = tmp_path / "changed.json"
    refused = 0
    for path in list(paths(whole))[1:]:
        for value in (None, "x", [1], 10**40):
            file.write_text(json.dumps(replaced(whole, path, value)))
            try:
                made = PAGES[kind]([str(file)], Query())
            except GdbmemError as error:
                refused += 1
                assert error.hint
            else:
                assert all(isinstance(section, Section) for section in made.sections)
    assert refused > 10
    render(PAGES[kind]([str(CAPTURES / ONE_OF_A_KIND[kind])], Query()))


def test_the_numbers_of_a_sentence_have_the_values_of_json(tmp_path: Path) -> None:
    page(tmp_path, CAPTURES / "steps.json")
    document = said(CAPTURES / "steps.json")
    assert [value for value, _ in spoken(tmp_path)] == [document["total_bytes"], len(document["steps"])]
    page(tmp_path, CAPTURES / "comparison.json")
    shown = [one["value"] for one in said(CAPTURES / "comparison.json")["differences"] if one["is_shown"]]
    assert [value for value, _ in spoken(tmp_path)] == shown != []
    page(tmp_path, CAPTURES / "pools.json")
    (pool,) = said(CAPTURES / "pools.json")["allocators"]
    names = ("pool_bytes", "in_use_bytes", "free_bytes", "free_chunks", "largest_free_bytes")
    assert [value for value, _ in spoken(tmp_path)] == [pool[name] for name in names]
    page(tmp_path, CAPTURES / "objects-second.json")
    objects = said(CAPTURES / "objects-second.json")
    first = objects["types"][0]
    values = [objects["count"], objects["bytes"], first["bytes"], first["count"]]
    assert [value for value, _ in spoken(tmp_path)] == values
    page(tmp_path, THIN)
    assert spoken(tmp_path)[0][0] == said(THIN)["rss_bytes"]


def test_a_percent_has_the_exact_part_of_the_whole(tmp_path: Path) -> None:
    document, found = said(THIN), page(tmp_path, THIN)
    whole = document["rss_bytes"]
    shares = {100 * entry["resident_bytes"] / whole for entry in document["entries"]}
    assert shares - {0.0} <= set(found.values)


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ([("1.0 MiB", 1 << 20)], [1 << 20, 1 << 20]),
        ([("1.0 MiB", 1048576), ("1.0 MiB", 1048577)], [1048576, 1048577]),
        ([("1.0 MiB", 1048575), ("1.0 MiB", 1048576), ("1.0 MiB", 1048577)], []),  # which of them isn't clear
        ([("2 pieces", 2), ("1.0 MiB", 7), ("2 p", 9), ("5 MiB", 1)], [7, 2, 7]),
    ],
)
def test_a_number_of_a_sentence_has_a_value_only_if_it_is_clear_which(
    numbers: list[tuple[str, int]], found: list[int]
) -> None:
    sentence = "1.0 MiB in 2 pieces, 11.0 MiB, 1.0 MiB/s, -1.0 MiB, <b>1.5 MiB</b>; 1.0 MiB."
    pieces = exact_pieces(sentence, numbers)
    assert "".join(text for text, _ in pieces) == sentence
    assert [value for _, value in pieces if value is not None] == found


def test_a_cut_document_and_one_without_a_page_are_refused_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text(THIN.read_text()[:3000])
    assert main(["report", str(cut), "-o", "-"]) != 0
    assert "holds no ledger that this gdbmem can read" in capsys.readouterr().err
    other = tmp_path / "other.json"
    other.write_text('{"format_version": 1, "kind": "doctor", "warnings": []}')
    assert main(["report", str(other), "-o", "-"]) != 0
    assert "which gdbmem report does not support" in capsys.readouterr().err
    assert main(["report", str(THIN), str(other), "-o", "-"]) != 0
    assert "can't be compared" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["tensorflow-2.21.log", "tensorflow-2.21-first.pb"])
def test_the_page_of_a_pool_draws_the_refused_request_beside_each_chunk(name: str, tmp_path: Path) -> None:
    made = page(tmp_path, CAPTURES.parent / "bfc" / name)
    pools = read_pools(CAPTURES.parent / "bfc" / name).allocators
    assert made.tags["svg"] == len(pools) > 0
    for pool in pools:
        assert printable(pool.name) in made.text
        decision = answer_failed(pool)
        assert headline(pool, decision) in made.text
        assert ("the request of" in made.text) == (pool.asked_bytes is not None)
        sums = {pool.pool_bytes, pool.in_use_bytes, pool.free_bytes, pool.largest_free_bytes}
        assert sums <= set(made.values)
        assert {region.size_bytes for region in pool.regions} <= set(made.drawn)
    if len(pools) == 1:  # each chunk is large enough to be seen, or several are one part
        assert made.tags["rect"] >= sum(region.count > 0 for region in pools[0].regions)


def test_a_page_of_a_hostile_log_has_no_script_of_it(tmp_path: Path) -> None:
    log = (CAPTURES.parent / "bfc" / "tensorflow-2.21.log").read_text()
    evil = tmp_path / "evil.log"
    evil.write_text(log.replace("bfc_cpu_allocator_for_gpu", EVIL.replace(")", "").replace("(", "")))
    made = page(tmp_path, evil)
    assert made.tags["script"] == 0 and made.tags["img"] == 0 and "alert" in made.text
