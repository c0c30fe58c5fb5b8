"""What continuous integration is told by --ci: lines, numbers and outcomes, all from the same judgements."""

from __future__ import annotations

import json
import re
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from gdbmem.errors import InputError
from gdbmem.gates.reports import (
    FILES,
    CiFile,
    Gate,
    GrownLine,
    Judged,
    Place,
    Repository,
    bencher,
    benchmark,
    ci_reports,
    github_annotations,
    gitlab,
    gitlab_metrics,
    markdown,
    parse_ci,
    rendered,
    sarif,
)
from gdbmem.model.judgement import MET, NOT_JUDGED, Judgement, Unseen

GREW = Judgement("heap from a to b", "heap from a to b: +843.8 KiB", 65536, 864_000, 860_000, 868_000)
KEPT = Judgement("heap from b to c", "heap from b to c: 0 B", 65536, 0, 0, 0)
BLIND = Judgement("rss", "rss", 1, unseen=(Unseen("program-failed", "the program was ended by SIGKILL"),))
NUMBER = Judgement("peak", "its peak was 1 MiB", None, 1 << 20, 1 << 20, 1 << 20)
LINES = [
    GrownLine(Place("/build/in/a/container/app/decoder.cpp", 261), "Decoder::finish", 800_000),
    GrownLine(Place("/usr/include/c++/12/bits/stl_map.h", 511), "operator[]", 60_000),
    GrownLine(Place("app/other.c", 7), "fill", 4_000),
]
NASTY = "f<a|b>`x`@you\n::error ::%0A,:[l](http://e)\x1b[31m_*"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    (tmp_path / "app").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("app/decoder.cpp", "app/other.c", "leak.yaml"):
        (tmp_path / name).write_text("\n" * 300)
    monkeypatch.chdir(tmp_path)
    return Repository()


def gate() -> Gate:
    origin = Place("leak.yaml", 9)
    return Gate(
        "leak",
        [Judged(GREW, LINES, origin, "first"), Judged(KEPT), Judged(BLIND, (), origin), Judged(NUMBER)],
    )


def test_files_of_a_build_elsewhere_are_found_in_the_checkout_and_system_headers_are_not(
    checkout: Repository, tmp_path: Path
) -> None:
    assert checkout.path("/build/in/a/container/app/decoder.cpp") == "app/decoder.cpp"
    assert checkout.path(str(tmp_path / "app/other.c")) == "app/other.c"
    assert checkout.path("app/../app/other.c") == "app/other.c"
    assert checkout.path("/usr/include/c++/12/bits/stl_map.h") is None
    (tmp_path / "string.h").touch()
    assert checkout.path("/usr/include/string.h") is None and checkout.path("/src/string.h") == "string.h"
    (tmp_path / "link.c").symlink_to("/etc/passwd")
    assert checkout.path("link.c") is None and checkout.path("\0") is None


def test_github_marks_the_lines_that_grew_and_the_recipe_where_nothing_was_seen(checkout: Repository) -> None:
    marked = github_annotations(gate(), checkout)
    assert marked == [
        "::error file=app/decoder.cpp,line=261,title=gdbmem leak%3A not met::"
        "Decoder::finish grew by 781.2 KiB; heap from a to b: +843.8 KiB",
        "::error file=leak.yaml,line=9,title=gdbmem leak%3A not judged::"
        "rss: could not be judged, the program was ended by SIGKILL",
        "::error file=app/other.c,line=7,title=gdbmem leak%3A not met::"
        "fill grew by 3.9 KiB; heap from a to b: +843.8 KiB",
    ]


def test_github_shows_ten_annotations_of_a_step_so_no_more_are_made_and_each_failure_has_one(
    checkout: Repository,
) -> None:
    many = Gate("leak", [Judged(GREW._replace(name=str(n)), LINES) for n in range(8)])
    marked = github_annotations(many, checkout)
    assert len(marked) == 10 and sum("decoder.cpp" in line for line in marked) == 8


def test_names_from_a_program_command_no_runner_and_draw_no_link(checkout: Repository) -> None:
    judgement = GREW._replace(name=NASTY, text="it grew")
    nasty = Gate("leak", [Judged(judgement, [GrownLine(Place("app/other.c", 7), NASTY, 4)])])
    (line,) = github_annotations(nasty, checkout)
    assert "\n" not in line and line.count("::error") == 2 and line.startswith("::error file=app/other.c")
    assert "%250A" in line and "\x1b" not in line
    table = markdown(nasty, checkout)
    assert "\x1b" not in table and "@you" not in re.sub(r"`+ .*? `+", "", table)
    rows = [row for row in table.splitlines() if row.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) in (3, 5) for row in rows), rows
    assert "](http:" not in table.replace("`", "", 0).split("Lines that grew")[0].replace("\\]", "")


def test_the_summary_lists_every_judgement_and_the_lines_of_failures(checkout: Repository) -> None:
    text = markdown(gate(), checkout)
    assert "| ❌ not met | first | +843.8 KiB (+839.8 KiB to +847.7 KiB) | ≤ +64.0 KiB |" in text
    assert "| ✅ met |" in text and "| ⚠️ not judged | rss |" in text and "SIGKILL" in text
    assert "|  | peak | +1.0 MiB |" in text, "a number without a limit has no outcome"
    assert "`app/decoder.cpp:261` `Decoder::finish`" in text and "stl_map.h:511" in text


def test_a_summary_that_github_would_drop_is_cut(tmp_path: Path, checkout: Repository) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("x" * (1 << 20))
    long = [Judged(GREW._replace(name=f"{n} " + "n" * 200)) for n in range(6000)]
    for _ in range(2):
        with ci_reports([CiFile("github", str(summary))], "leak") as made:
            made.judged += long
        assert summary.stat().st_size <= 1 << 20
        summary.write_text("earlier\n")
    with ci_reports([CiFile("github", str(summary))], "leak") as made:
        made.judged += long
    text = summary.read_text()
    assert text.startswith("earlier\n") and text.endswith("(cut: a summary has room for 1 MiB)\n")


def test_gitlab_and_sarif_have_an_issue_for_each_line_that_stays_the_same_when_lines_move(
    checkout: Repository,
) -> None:
    issues = gitlab(gate(), checkout)
    assert [(one["location"]["path"], one["location"]["lines"]["begin"]) for one in issues] == [
        ("app/decoder.cpp", 261),
        ("app/other.c", 7),
        ("leak.yaml", 9),
    ]
    assert [one["severity"] for one in issues] == ["major", "major", "minor"]
    moved = [line._replace(place=line.place._replace(line=300)) for line in LINES]
    again = gitlab(Gate("leak", [Judged(GREW._replace(measured=900_000), moved)]), checkout)
    assert [one["fingerprint"] for one in again] == [one["fingerprint"] for one in issues[:2]]
    assert len({one["fingerprint"] for one in issues}) == 3
    (run,) = sarif(gate(), checkout)["runs"]
    assert [one["ruleId"] for one in run["results"]] == ["memory-grew", "memory-grew", "not-judged"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "app/decoder.cpp" and place["region"] == {"startLine": 261}


def test_sarif_names_the_address_that_the_package_was_released_with(
    checkout: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def driver() -> Any:
        return sarif(gate(), checkout)["runs"][0]["tool"]["driver"]

    package = Message()
    monkeypatch.setattr("importlib.metadata.metadata", lambda _: package)
    assert "informationUri" not in driver()
    package["Project-URL"] = "Source, https://github.com/somebody/gdbmem"
    assert driver()["informationUri"] == "https://github.com/somebody/gdbmem"


def test_numbers_have_the_ends_of_their_intervals_and_unknown_ones_are_left_out() -> None:
    report = bencher(gate())
    assert report == {
        "leak: heap from a to b": {
            "bytes": {"value": 864_000, "lower_value": 860_000, "upper_value": 868_000}
        },
        "leak: heap from b to c": {"bytes": {"value": 0, "lower_value": 0, "upper_value": 0}},
        "leak: peak": {"bytes": {"value": 1 << 20, "lower_value": 1 << 20, "upper_value": 1 << 20}},
    }
    rows = benchmark(Gate("leak", [Judged(GREW), Judged(GREW._replace(high=float("inf")))]))
    assert [(row["name"], row.get("range")) for row in rows] == [
        ("leak: heap from a to b", "± 4000"),
        ("leak: heap from a to b (2)", None),
    ]


def test_gitlab_reads_the_numbers_as_open_metrics_and_no_unknown_one_as_zero() -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    rate = Judgement("growth", "", None, 0.123456, 0, 1, unit="per_second")
    nasty = Judgement(NASTY + '"\\', "", None, 1e15 + 0.4, 0, 1)
    text = gitlab_metrics(Gate("leak", [Judged(GREW), Judged(BLIND), Judged(rate), Judged(nasty)]))
    found = {
        (sample.name, sample.labels["name"].partition(": ")[2][:6]): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found == {
        ("gdbmem_measured_bytes", "heap f"): 864_000,
        ("gdbmem_measured_per_second", "growth"): 0.123,
        ("gdbmem_measured_bytes", "f<a|b>"): 10**15,
    }
    assert " 864000\n" in text and "\x1b" not in text and gitlab_metrics(Gate("leak")) == "# EOF\n"


@pytest.mark.parametrize("kind", [kind for kind in FILES if kind != "github"])
def test_a_command_that_fails_leaves_no_report_of_an_earlier_run(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.write_text("passed")
    with (
        pytest.raises(InputError, match="no program"),
        ci_reports([CiFile(kind, str(file))], "leak") as made,
    ):
        made.judged.append(Judged(KEPT))
        raise InputError("there is no program ./decoder", slug="x")
    text = file.read_text()
    assert "passed" not in text
    told = {"gitlab", "sarif", "junit", "markdown"}
    assert ("there is no program ./decoder" in text) == (kind in told)


def test_what_was_judged_is_reported_although_the_reader_of_the_result_has_gone(tmp_path: Path) -> None:
    file = tmp_path / "report.xml"
    with pytest.raises(BrokenPipeError), ci_reports([CiFile("junit", str(file))], "leak") as made:
        made.judged.append(Judged(KEPT))
        raise BrokenPipeError
    assert KEPT.name in file.read_text()


def test_every_kind_is_written_and_is_valid_json_where_it_is_json(checkout: Repository) -> None:
    for kind in FILES:
        text = rendered(kind, gate(), checkout) if kind != "github" else "[]"
        if kind not in ("junit", "markdown", "gitlab-metrics"):
            found: Any = json.loads(text)
            assert found is not None
    assert rendered("junit", gate(), checkout).count("<testcase") == 3, "a number is no test case"


def test_a_kind_that_nobody_reads_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/tmp/summary")
    assert parse_ci("github") == CiFile("github", "/tmp/summary")
    assert parse_ci("sarif=a=b.sarif") == CiFile("sarif", "a=b.sarif")
    assert parse_ci("gitlab").file == "gl-code-quality-report.json"
    with pytest.raises(InputError, match="'jenkins' is not a kind of report"):
        parse_ci("jenkins=x")


def test_a_gate_without_anything_to_judge_is_no_pass(checkout: Repository) -> None:
    assert "Nothing was judged" in markdown(Gate("leak"), checkout)
    assert Judged(Judgement("a", "b", outcome=MET)).judgement.judged == MET
    assert Judged(Judgement("a", "b", outcome=NOT_JUDGED)).judgement.judged == NOT_JUDGED
