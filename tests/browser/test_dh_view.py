"""How DHAT's blocks were used, beside what valgrind's own viewer says of the same file."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
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
# The leaves of its tree, those too which it shows together as "insignificant": DHAT's program points.
_POINTS = """() => {
    const found = [];
    const walk = (node, above) => {
        const frames = node === gRoot ? [] : [...above, ...node._frames];
        if (node._kids) node._kids.forEach(kid => walk(kid, frames));
        else found.push([frames.map(number => gData.ftbl[number]), node._totalBytes, node._totalBlocks,
                         node._totalAvgLifetimes(), node._readsBytes, node._writesBytes]);
    };
    walk(gRoot, []);
    return found;
}"""
_FRAME = re.compile(r"(0x\w+): (.*?)(?: \((?:in (.*)|(.*):(\d+))\))?")


def path_of(frames: list[str]) -> tuple[object, ...]:
    """Return *frames* without addresses, as gdbmem's JSON has them, and without valgrind's own malloc."""
    own = len(frames) > 1 and "vgpreload_" in frames[0]
    path = []
    for text in frames[own:]:
        match = _FRAME.fullmatch(text)
        assert match is not None
        address, function, place, file, line = match.groups()
        name = address if function == "???" else function
        path.append((name, None if place == "???" else place, file, line and int(line)))
    return tuple(path)


@pytest.mark.skipif(VIEWER is None, reason="dh_view, which valgrind installs, is not here")
@pytest.mark.parametrize("name, joined", [("dhat.json", 0), ("dhat.sort.json", 1), ("dhat.perl.json.gz", 42)])
def test_lifetimes_reads_and_writes_are_those_of_dh_view_point_by_point(
    name: str, joined: int, browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = (CAPTURES / "stacks" / name).read_bytes()
    file = tmp_path / "dhat.json"
    file.write_bytes(gzip.decompress(data) if name.endswith(".gz") else data)
    page = browser.contexts[0].pages[0]
    assert VIEWER is not None
    page.goto(VIEWER.as_uri())
    page.set_input_files("input[type=file]", str(file))
    page.wait_for_function("document.body.innerText.includes('PP 1/1')", polling=50)
    theirs = defaultdict(list)
    for frames, *facts in page.evaluate(_POINTS):
        theirs[path_of(frames)].append(facts)
    words = ["show", str(file), "--metric", "allocated", "--by", "path", "--all-frames", "--json"]
    assert main(words) == 0
    rows = json.loads(capsys.readouterr().out)["sites"]["paths"]
    for row in rows:
        path = tuple((one["function"], one["object"], one["file"], one["line"]) for one in row["frames"])
        points, use = theirs.pop(path), row["use"]
        assert use["time_unit"] == "instructions" and use["bytes"] == row["delta_bytes"]
        assert use["program_points"] == len(points), "points that differ only by address are one path"
        blocks = sum(point[1] for point in points)
        lifetime = sum(point[1] * point[2] for point in points) / blocks
        assert (use["blocks"], use["mean_lifetime"]) == (blocks, pytest.approx(lifetime))
        sums = [sum(point[at] for point in points) for at in (0, 3, 4)]
        assert [use["bytes"], use["read_bytes"], use["written_bytes"]] == sums
    assert not theirs
    assert sum(row["use"]["program_points"] > 1 for row in rows) == joined
