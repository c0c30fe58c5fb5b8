"""`--ci KIND[=FILE]` of the commands that judge: the same outcome as on the terminal and in the exit status."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gdbmem.cli.main import main
from tests.unit.massif_texts import massif, path


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "a.c").write_text("\n" * 9)
    for name, size in (("before.ms", 100), ("after.ms", 5100)):
        (tmp_path / name).write_text(massif(path(size, "grow (app/a.c:7)", "main (app/a.c:1)")))


def cases(file: str) -> list[tuple[str, str]]:
    return [(case.get("name") or "", case[0].tag) for case in ElementTree.parse(file).iter("testcase")]


def test_a_diff_tells_the_line_that_grew_to_every_service(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = [
        word for kind in ("gitlab", "sarif", "junit", "bencher", "github=s.md") for word in ("--ci", kind)
    ]
    assert main(["diff", "before.ms", "after.ms", "--fail-on", "1KiB", *kinds]) == 4
    (issue,) = json.loads(Path("gl-code-quality-report.json").read_text())
    assert issue["location"] == {"path": "app/a.c", "lines": {"begin": 7}}
    assert cases("gdbmem.junit.xml") == [("growth", "failure")]
    assert json.loads(Path("gdbmem.bencher.json").read_text())["diff: growth"]["bytes"]["value"] == 5000
    assert "`app/a.c:7` `grow`" in Path("s.md").read_text()
    assert (
        "::error file=app/a.c,line=7,title=gdbmem diff%3A not met::grow grew by 4.9 KiB"
        in capsys.readouterr().err
    )
    assert main(["diff", "after.ms", "before.ms", "--fail-on", "1KiB", "--ci", "sarif"]) == 0
    assert json.loads(Path("gdbmem.sarif").read_text())["runs"][0]["results"] == []


def test_a_diff_that_cannot_be_judged_never_leaves_a_report_that_passes() -> None:
    Path("cut.ms").write_text(Path("after.ms").read_text()[:-30])
    for other in ("cut.ms", "missing.ms", "before.ms"):
        shutil.rmtree("old", ignore_errors=True)
        Path("gdbmem.junit.xml").write_text("passed")
        words = ["diff", "before.ms", other, "--fail-on", "1GiB", "--ci", "junit"]
        assert main(words) == 125, other
        assert [tag for _, tag in cases("gdbmem.junit.xml")] == ["error"], other


def test_without_a_limit_there_are_numbers_and_nothing_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "before.ms", "after.ms", "--ci", "benchmark", "--ci", "markdown"]) == 0
    (row,) = json.loads(Path("gdbmem.benchmark.json").read_text())
    assert (row["name"], row["unit"], row["value"]) == ("diff: growth", "bytes", 5000)
    assert "met" not in Path("gdbmem.md").read_text()
    assert main(["diff", "before.ms", "after.ms", "--ci", "junit"]) == 2
    assert "--ci junit reports what passed and failed, so it needs --fail-on" in capsys.readouterr().err
    assert main(["diff", "before.ms", "after.ms", "--ci", "jenkins"]) == 2
    assert "[bad-ci]" in capsys.readouterr().err


def test_series_have_verdicts_and_peaks(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"MEM {20 + second / 10} {1000 + second}.0\n" for second in range(300)]
    Path("mprofile.dat").write_text("CMDLINE python x.py\n" + "".join(rows))
    series = "mprofile.dat"
    for fail_on, expected in (("growing", (4, "failure")), ("shrinking", (0, "system-out"))):
        words = ["monitor", series, "--fail-on", fail_on, "--ci", "junit", "--ci", "bencher"]
        status = main(words)
        ((_, tag),) = cases("gdbmem.junit.xml")
        assert (status, tag) == expected
    report = json.loads(Path("gdbmem.bencher.json").read_text())
    assert report["monitor: peak"]["bytes"]["value"] > 0
    main(["compare", series, series, "--ci", "benchmark"])
    assert any(
        row["name"] == "compare: change of peak"
        for row in json.loads(Path("gdbmem.benchmark.json").read_text())
    )
    capsys.readouterr()
