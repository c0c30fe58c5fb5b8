"""`gdbmem monitor --when CONDITION --do ACTION`: what is there in the morning of what was at three at night."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from gdbmem.errors import InputError
from gdbmem.model.series import FiredTrigger
from gdbmem.recording.triggers import main, parse_condition, steps
from gdbmem.series.text import trigger_text
from tests.live.test_monitor import monitor

pytestmark = pytest.mark.usefixtures("no_process_left")

# Between two bundles it waits for the monitor to have looked, however busy the machine is.
SWINGS = """
import glob, mmap, os, time
def written():
    return [os.stat(name).st_mtime_ns for name in sorted(glob.glob("run/series.*"))]
for bundle in ("0001", "0002"):
    kept = mmap.mmap(-1, 100 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000)
    while not os.path.exists(f"run/triggers/{bundle}/series.csv"): time.sleep(0.05)
    kept.close()
    looks, last = 0, written()
    while looks < 5:
        time.sleep(0.02)
        looks, last = looks + (written() != last), written()
"""


@pytest.mark.needs("gdb")
def test_a_bundle_is_made_each_time_that_the_condition_comes_true_and_kept_in_the_run(scratch: Path) -> None:
    words = ["-q", "--interval", "100ms", "--run", "run", "--when", "rss > 80MiB", "--do", "bundle"]
    done = monitor(*words, "--", sys.executable, "-c", SWINGS, folder=scratch)
    assert re.search(r"^after .*, when rss > 80MiB \(rss is \d+\.\d MiB\): bundle of process \d+, in triggers/0002$",
                     done.stdout, re.M), done.stdout  # fmt: skip
    assert sorted(path.name for path in (scratch / "run" / "triggers").iterdir()) == ["0001", "0002"]
    bundle = scratch / "run" / "triggers" / "0002"
    assert "100.0 MiB" in (bundle / "explain.txt").read_text()
    sizes = [int(size) for size in re.findall(r"^Rss: +(\d+) kB", (bundle / "smaps.txt").read_text(), re.M)]
    assert sum(sizes) > 100 << 10
    assert "#0 " in (bundle / "stacks.txt").read_text()
    assert (bundle / "series.csv").read_text().startswith("seconds,")
    document = json.loads(monitor("--json", "run", folder=scratch).stdout)
    assert [trigger["folder"] for trigger in document["triggers"]] == ["triggers/0001", "triggers/0002"]
    assert len(document["marks"]) == 2


def test_the_stacks_of_a_bundle_are_shown_by_the_gdb_that_the_user_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "other-gdb").symlink_to(sys.executable)
    monkeypatch.setenv("GDBMEM_GDB", str(tmp_path / "other-gdb"))
    assert dict(steps("bundle", 1, tmp_path, tmp_path))["stacks.txt"][0] == str(tmp_path / "other-gdb")
    monkeypatch.setenv("GDBMEM_GDB", str(tmp_path / "none"))
    assert "stacks.txt" not in dict(steps("bundle", 1, tmp_path, tmp_path))


AT_ONCE = """
import mmap, os, time
kept = mmap.mmap(-1, 100 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000)
found = [f"run/triggers/{name}/explain.txt" for name in ("0002", "0003")]
end = time.monotonic() + 30
while time.monotonic() < end and not all(os.path.exists(f) and os.path.getsize(f) for f in found): time.sleep(0.05)
"""


@pytest.mark.needs("gdb")
def test_actions_of_one_moment_wait_for_each_other(scratch: Path) -> None:
    # Each stops the process: one beside another is refused.
    words = ["-q", "--interval", "100ms", "--run", "run", "--when", "rss > 80MiB", "--do", "bundle"]
    words += ["--when", "rss > 81MiB", "--do", "explain", "--when", "rss > 82MiB", "--do", "explain"]
    done = monitor(*words, "--", sys.executable, "-c", AT_ONCE, folder=scratch)
    for folder in ("0001", "0002", "0003"):
        assert "100.0 MiB" in (scratch / "run" / "triggers" / folder / "explain.txt").read_text(), done.stdout
    assert "failed" not in done.stdout


def test_an_action_that_fails_is_not_reported_as_done(tmp_path: Path) -> None:
    assert main(["explain", str(2**22 + 1), str(tmp_path), str(tmp_path)]) == 1
    assert (tmp_path / "explain.txt.errors").stat().st_size
    fired: FiredTrigger = {"t": 3.0, "when": "rss > 1GiB", "value": "rss is 2.0 GiB", "do": "explain", "pid": 9,
                           "folder": "triggers/0001", "failed": True}  # fmt: skip
    assert "failed" in trigger_text(fired)
    assert "failed" not in trigger_text({**fired, "failed": False})


def test_what_cant_be_done_ends_no_recording(scratch: Path) -> None:
    script = "rm -rf run/triggers; touch run/triggers; sleep 1; exit 3"
    words = ["-q", "--interval", "100ms", "--run", "run", "--when", "rss > 1KiB", "--when", "threads < 0"]
    done = monitor(*words, "--", "sh", "-c", script, folder=scratch, status=3)
    assert "samples in " in done.stdout


@pytest.mark.parametrize(
    "text", ["", "rss", "rss > ", "rss > many", "height > 2GiB", "rss = 2GiB", "threads > 2MiB"]
)
def test_what_is_no_condition_is_refused_before_anything_starts(text: str) -> None:
    with pytest.raises(InputError):
        parse_condition(text)
