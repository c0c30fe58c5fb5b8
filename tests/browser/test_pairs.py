"""Any snapshot of a page, and any two compared: their rows are those of `gdbmem show` and `gdbmem diff`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from gdbmem.api.profiles import ReadOptions, diff, open_profile
from gdbmem.cli.main import main
from gdbmem.model.diff import Diff
from gdbmem.page.explorer import profile_data
from gdbmem.profiles.paths import Query
from tests.browser.explorer import CAPTURES, massif_capture
from tests.unit.stack_files import capture

PRINTING = Path(__file__).parent / "web/pairs.mjs"
STACKS = CAPTURES / "stacks"
# Both count the same quantity, so that each pair can be compared.
SERIES = {
    "sampled": ("sampled-first.jeheap", "sampled-second.jeheap", "sampled-first.jeheap"),
    "scaled": ("go1.pb.gz", "go2.pb.gz", "go1.pb.gz"),
    "mixed": ("samples.heap.gz", "tc.0001.heap", "samples.heap.gz"),
}

Cells = tuple[int, int, int, int]  # change, before, after, uncertain


def rows_of_page(found: Diff, tmp_path: Path) -> dict[tuple[int, int], list[Cells]]:
    """Return what the page's table has for each snapshot, -1 before it, and each pair."""
    if shutil.which("node") is None:
        pytest.skip("node, which runs the page's script here, is not installed")
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(profile_data(found, Query())))
    done = subprocess.run(["node", str(PRINTING), str(file)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return {
        (one["before"], one["after"]): sorted(tuple(row) for row in one["rows"])
        for one in json.loads(done.stdout)
    }


def rows_of_diff(before: str, after: str, capsys: pytest.CaptureFixture[str]) -> list[Cells]:
    capsys.readouterr()
    assert main(["diff", before, after, "--json", "--by", "line"]) == 0
    words = ("delta_bytes", "before_bytes", "after_bytes", "uncertain_bytes")
    return sorted(tuple(row[word] for word in words) for row in json.loads(capsys.readouterr().out)["paths"])


def rows_of_show(operand: str, capsys: pytest.CaptureFixture[str]) -> list[tuple[int, ...]]:
    capsys.readouterr()
    assert main(["show", operand, "--json", "--by", "line"]) == 0
    found = json.loads(capsys.readouterr().out)
    paths = found["sites"]["paths"] if found["kind"] == "profile" else found["paths"]
    return sorted((row["delta_bytes"], row["before_bytes"], row["after_bytes"]) for row in paths)


def check(
    operands: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], every: int = 1
) -> list[Cells]:
    """Compare each of *operands* and pairs, one of *every* so many; return the rows of all that may be off."""
    found = rows_of_page(diff(*operands, options=ReadOptions()), tmp_path)
    for number, operand in list(enumerate(operands))[:: -(-every // 4)]:
        assert [row[:3] for row in found[-1, number]] == rows_of_show(operand, capsys), number
    pairs = {both: rows for both, rows in found.items() if both[0] >= 0}
    assert len(pairs) == len(operands) * (len(operands) - 1) // 2
    for before, after in list(pairs)[::every]:
        assert pairs[before, after] == rows_of_diff(operands[before], operands[after], capsys), (
            before,
            after,
        )
    return [row for rows in pairs.values() for row in rows if row[3]]


@pytest.mark.parametrize(
    ("name", "every"),
    [("threshold", 1), ("fine", 1), ("pages", 1), ("cc1", 40), ("python", 40), ("stacks", 40), ("perl", 60)],
)
def test_any_two_snapshots_of_a_massif_file_are_as_uncertain_as_diff_reports(
    name: str, every: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = massif_capture(tmp_path, name)
    detailed = [one.index for one in open_profile(Path(file)).snapshots if one.has_tree]
    assert check([f"{file}:{number}" for number in detailed], tmp_path, capsys, every)


@pytest.mark.parametrize("name", SERIES)
def test_any_two_profiles_that_are_sampled_are_as_uncertain_as_diff_reports(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check([str(STACKS / file) for file in SERIES[name]], tmp_path, capsys)


def test_any_two_moments_of_one_recording_share_their_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.loads((CAPTURES / "faults/alive.faults").read_text())
    stacks = whole["gdbmem_faults"]["stacks"]
    for row in stacks:  # as if one fault of eight had been sampled
        row["seen_variance"] = row["grown_variance"] = 8 * 4096.0 * row["grown_bytes"]
    whole["gdbmem_faults"]["totals"]["longest_period"] = 8
    operands = []
    for share in (0.4, 0.7, 1.0, 0.6):
        whole["gdbmem_faults"].update(stacks=stacks[: int(share * len(stacks))], recording="one")
        file = tmp_path / f"{share}.faults"
        file.write_text(json.dumps(whole, separators=(",", ":")))
        operands.append(str(file))
    assert check(operands, tmp_path, capsys)


def test_any_two_files_that_were_cut_are_as_uncertain_as_diff_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = capture("many.0001.heap.gz").split(b"\n")
    rows = [line for line in lines[1:] if b"] @ 0x" in line][:300]
    total = sum(int(row.split()[1]) for row in rows)
    head = b"heap profile: %d: %d [%d: %d] @ heapprofile\n" % (len(rows), total, len(rows), total)
    operands = []
    for left in (250, 200, 300):
        file = tmp_path / f"{left}.heap"
        file.write_bytes(head + b"\n".join(rows[:left]) + b"\n\nMAPPED_LIBRARIES:\n")
        operands.append(str(file))
    assert check(operands, tmp_path, capsys)


def test_snapshots_that_hide_nothing_are_certain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = massif_capture(tmp_path, "shop")
    detailed = [one.index for one in open_profile(Path(file)).snapshots if one.has_tree]
    assert check([f"{file}:{number}" for number in detailed], tmp_path, capsys, 3) == []
