"""How DHAT's blocks were used, beside what valgrind's own viewer says of the same file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gdbmem.cli.main import main

pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")

from playwright.sync_api import Browser

from tests.browser.explorer import CAPTURES

pytestmark = pytest.mark.needs("chromium")

VIEWER = next(
    (one for folder in ("libexec", "lib") if (one := Path(f"/usr/{folder}/valgrind/dh_view.html")).exists()),
    None,
)
FILE = CAPTURES / "stacks/dhat.json"
_FACTS = re.compile(
    r"Total: +([0-9,]+) bytes .* in ([0-9,]+) blocks .*avg lifetime ([0-9,.]+) instrs"
    r"|Reads: +([0-9,]+) bytes|Writes: +([0-9,]+) bytes"
)


@pytest.mark.skipif(VIEWER is None, reason="dh_view, which valgrind installs, is not here")
def test_lifetimes_reads_and_writes_are_those_of_dh_view(
    browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    page = browser.contexts[0].pages[0]
    assert VIEWER is not None
    page.goto(VIEWER.as_uri())
    page.set_input_files("input[type=file]", str(FILE))
    page.locator("body", has_text="PP 1/1").wait_for()
    nodes = page.inner_text("body").split("PP ")[1:]
    # A call without callers is a path; those of less than 1 % are one, "insignificant".
    paths = [node for node in nodes if not re.match(r"[0-9./]+ \(", node) and "insignificant" not in node]
    facts = ([part for found in _FACTS.findall(node) for part in found if part] for node in paths)
    theirs = {tuple(float(one.replace(",", "")) for one in found) for found in facts if found}
    words = ["show", str(FILE), "--metric", "allocated", "--by", "path", "--all-frames", "--json"]
    assert main(words) == 0
    ours = set()
    for row in json.loads(capsys.readouterr().out)["sites"]["paths"]:
        use = row["use"]
        assert use["time_unit"] == "instructions" and use["bytes"] == row["delta_bytes"]
        lifetime = round(use["mean_lifetime"], 2)
        ours.add((use["bytes"], use["blocks"], lifetime, use["read_bytes"], use["written_bytes"]))
    assert len(theirs) > 3 and not theirs - ours
