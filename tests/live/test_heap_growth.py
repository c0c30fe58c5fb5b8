"""`gdbmem heap --save` and `--since`: what grew, and what is lost since, equal what the program did."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gdbmem import api
from gdbmem.api.heaps import read_heap
from tests.conftest import Program
from tests.live.explaining import Running, gdbmem, running, unexpected
from tests.live.test_memexplain import gdb
from tests.live.test_recipes_live import play
from tests.live.user import GDBMEM

pytestmark = pytest.mark.needs("gdb", "g++")

COUNT = 500
EXACT = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
ENTRY, TASK = 224, 160  # bytes of a block of each, with malloc's header


@pytest.fixture
def moments(program: Program) -> Path:
    return program("heap_moments")


def told(target: Running, word: str) -> tuple[int, ...]:
    """Have the program do *word*; return the numbers that it prints."""
    found: tuple[int, ...] = ()
    for line in target.type(f"{word}\n"):
        if line == "ready\n":
            break
        found = tuple(map(int, line.split()[1:]))
    return found


def growth(*words: object, status: int = 0) -> dict[str, Any]:
    done = gdbmem("heap", "--json", *words)
    assert done.returncode == status, done.stderr
    document = json.loads(done.stdout)
    assert document["kind"] == "heap-growth"
    return dict(document)


def test_what_grew_and_what_is_lost_since_is_what_the_program_did_live_in_cores_and_between_them(
    moments: Path, tmp_path: Path
) -> None:
    first = tmp_path / "first.json"
    with running([moments, COUNT], EXACT) as target:
        assert gdbmem("heap", target.pid, "--save", first).returncode == 0
        told(target, "grow")
        grown = growth(target.pid, "--since", first)
        count, size = told(target, "forget")
        again = gdbmem("heap", target.pid, "--since", first, "--save", tmp_path / "second.json")
        more, extra = told(target, "lose")
        command = ["gcore", "-o", str(tmp_path / "core"), str(target.pid)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    (core,) = tmp_path.glob("core.*")
    last = growth("--core", core, moments, "--since", tmp_path / "second.json")
    whole = growth("--core", core, moments, "--since", first)
    held = {one["name"]: one["after_bytes"] - one["before_bytes"] for one in grown["holders"]}
    assert held["cache"] == 3 * COUNT * ENTRY
    assert held["tasks"] == COUNT * TASK
    assert grown["is_one_process"]
    assert grown["lost"] == {"least_bytes": 0, "most_bytes": 0, "blocks": 0, "groups": []}
    blocks = {one["block_bytes"]: one["after_blocks"] - one["before_blocks"] for one in grown["types"]}
    assert blocks[ENTRY - 8] == 3 * COUNT
    # Of what is lost half was there before, and its holder is named.
    assert re.search(
        rf"^Lost since: {count:,} blocks, .*: no word leads to them any more\.$", again.stdout, re.M
    )
    assert re.search(rf" {count // 2:,}  held by cache \(heap_moments\); the largest at 0x", again.stdout)
    assert re.search(rf" {count // 2:,}  allocated since; the largest at 0x", again.stdout)
    assert (last["lost"]["blocks"], last["lost"]["least_bytes"], last["lost"]["most_bytes"]) == (
        more,
        extra,
        extra,
    )
    assert [one["holder"] for one in last["lost"]["groups"]] == [None]
    assert whole["lost"]["least_bytes"] == size + extra
    assert {one["holder"] and one["holder"]["name"] for one in whole["lost"]["groups"]} == {"cache", None}


def test_a_gate_passes_what_did_not_grow_fails_what_did_and_says_where_it_cannot_judge(
    moments: Path, tmp_path: Path
) -> None:
    first, other = tmp_path / "first.json", tmp_path / "other.json"

    def status(*limits: str, words: tuple[object, ...] = ()) -> tuple[int, str]:
        done = gdbmem(
            "heap", *(words or (target.pid, "--since", first)), *(f"--fail-on={one}" for one in limits)
        )
        return done.returncode, unexpected(done.stderr)

    with running([moments, COUNT], EXACT) as target, running([moments, COUNT // 2], EXACT) as second:
        gdbmem("heap", target.pid, "--save", first)
        gdbmem("heap", second.pid, "--save", other)
        same = status("leaked=0", "0", "cache=0")
        told(target, "grow")
        grown = status("leaked=0", "1MiB", "cache=10KiB")
        told(target, "lose")
        lost = status("leaked=0")
        alone = status("leaked=1B", words=(target.pid, "--leaks"))
        unknown = status("leaked=1MiB", "nobody=0")
        two = status("leaked=1GiB", "cache=0", words=(target.pid, "--since", other))
        twice = status("0", words=(target.pid, "--since", tmp_path / "none.json"))
        back = gdbmem("heap", target.pid, "--since", first, "--fail-on=leaked=1GiB", "--json")
    assert same == (0, "")
    assert grown[0] == 4
    assert re.fullmatch(
        r"gdbmem: not met: what cache retains changed by \+[\d.]+ KiB.*; --fail-on allows 10\.0 KiB\n",
        grown[1],
    )
    assert (lost[0], alone[0], two[0]) == (4, 4, 4)
    assert "of blocks are lost since; --fail-on allows 0 B" in lost[1]
    assert unknown[0] == 125
    assert "no holder of this heap is called 'nobody'" in unknown[1]
    assert twice[0] == 125
    assert "not judged" in twice[1]
    (judged,) = json.loads(back.stdout)["judgements"]
    assert (judged["judged"], judged["limit"], judged["measured"]) == ("met", 1 << 30, COUNT * 48)


def test_a_file_named_after_columns_has_all_live_blocks_and_no_other_file_is_called_so(
    moments: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow", reason="an optional dependency: pip install pyarrow")
    from pyarrow import feather

    with running([moments, COUNT], EXACT) as target:
        done = gdbmem("heap", target.pid, "-o", tmp_path / "blocks.feather", "--save", tmp_path / "heap.json")
        refused = gdbmem("heap", target.pid, "-o", tmp_path / "lost.parquet", "--leaks")
    assert done.returncode == 0, done.stderr
    view = json.loads((tmp_path / "heap.json").read_text())
    table = feather.read_table(tmp_path / "blocks.feather")
    assert (table.num_rows, sum(table["size_bytes"].to_pylist())) == (view["live_blocks"], view["live_bytes"])
    assert (refused.returncode, (tmp_path / "lost.parquet").exists()) == (2, False)
    assert "is about all live blocks, --leaks about something else" in refused.stderr


def test_files_are_written_although_nobody_reads_what_is_printed(moments: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    drawn = ("--map", str(tmp_path / "map.svg"), "--html", str(tmp_path / "page.html"))
    with running([moments, COUNT], EXACT) as target:
        for words in (("heap", "--save", str(tmp_path / "saved.json")), ("explain", *drawn)):
            command = [GDBMEM, *words, str(target.pid)]
            done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
            assert (done.returncode, unexpected(done.stderr)) == (128 + 13, "")
    os.close(writing)
    assert read_heap(str(tmp_path / "saved.json")).view.live_blocks > COUNT
    assert (tmp_path / "map.svg").read_text().endswith("</svg>\n")
    assert "</html>" in (tmp_path / "page.html").read_text()


def test_the_heap_of_another_process_is_compared_by_name_and_a_moment_with_itself_is_not_judged(
    moments: Path, tmp_path: Path
) -> None:
    first, other = tmp_path / "first.json", tmp_path / "other.json"
    with running([moments, COUNT], EXACT) as target, running([moments, 2 * COUNT], EXACT) as second:
        api.write_heap(api.whole_heap(target.pid), first)
        found = growth(second.pid, "--since", first, "--save", other)
    held = {one["name"]: one["after_bytes"] - one["before_bytes"] for one in found["holders"]}
    assert held["cache"] == 3 * COUNT * ENTRY
    assert not found["is_one_process"]
    assert found["lost"]["blocks"] is None
    assert {one["slug"] for one in found["warnings"]} == {"two-processes"}
    done = gdbmem("diff", first, other, "--json")
    assert json.loads(done.stdout)["holders"] == found["holders"]
    itself = gdbmem("diff", first, first, "--fail-on", "0")
    assert itself.returncode == 125
    assert "the same moment" in itself.stderr
    assert gdbmem("diff", first, other, "--fail-on", "1KiB").returncode == 4
    several = gdbmem("diff", first, other, "--fail-on", "leaked=1MiB", "--fail-on", "cache=10KiB")
    assert several.returncode == 4
    assert re.fullmatch(
        r"gdbmem: not met: what cache retains changed by \+.*; --fail-on allows 10\.0 KiB\n", several.stderr
    )
    assert gdbmem("diff", first, other, "--fail-on", "leaked=1MiB").returncode == 0
    nobody = gdbmem("diff", first, other, "--fail-on", "nobody=0")
    assert (nobody.returncode, "no holder of this heap is called 'nobody'" in nobody.stderr) == (125, True)
    shown = gdbmem("show", first).stdout
    assert re.search(r"^ *[\d.]+ KiB .* 1,500  cache \(heap_moments\)", shown, re.M)


def test_a_saved_heap_that_was_changed_is_refused_by_one_sentence(moments: Path, tmp_path: Path) -> None:
    first, answer, changed = tmp_path / "first.json", tmp_path / "answer.json", tmp_path / "changed.json"
    with running([moments, COUNT], EXACT) as target:
        gdbmem("heap", target.pid, "--save", first)
        gdbmem("heap", target.pid, "--json", "-o", answer)
        again = gdbmem("heap", target.pid, "--save", first)
        document = json.loads(first.read_text())
        for column, value in (("addresses", "AAAA"), ("blocks", 1 << 40), ("holders", "%"), ("blocks", -1)):
            blocks = {**document["saved"]["blocks"], column: value}
            changed.write_text(json.dumps({**document, "saved": {**document["saved"], "blocks": blocks}}))
            done = gdbmem("heap", target.pid, "--since", changed)
            assert re.match(r"gdbmem: .*\[bad-heap\]\n$", unexpected(done.stderr)), done.stderr
        whole = gdbmem("heap", target.pid, "--since", answer)
        part = gdbmem("heap", target.pid, "--since", first, "--leaks")
        no_run = gdbmem("heap", target.pid, "--save", tmp_path / "none:loaded")
    assert "--save FILE" in whole.stderr
    assert "[output-exists]" in again.stderr
    assert part.returncode == 2
    assert no_run.returncode == 2


RECIPE = """
engine: none
args: ["500"]
env: {GLIBC_TUNABLES: glibc.malloc.tcache_count=0}
stdin: words
points:
  - {at: scrub, name: idle, do: [heap]}
diff: [["idle#1", "idle#2"], ["idle#1", idle]]
expect:
  - {between: ["idle#1", "idle#2"], metric: leaked, at_most: 0}
  - {between: ["idle#1", "idle#2"], retained: cache, at_most: 1KiB}
  - {between: ["idle#1", "idle#2"], retained: cache, at_least: 100KiB}
  - {between: ["idle#2", idle], metric: leaked, at_most: 0}
  - {between: ["idle#1", "idle#2"], retained: cahce, at_most: 1MiB}
"""


def test_a_recipe_judges_what_is_lost_and_what_a_holder_retains(moments: Path, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("grow\nforget\nlose\n")
    played = play(RECIPE, tmp_path, "--json", "--run", "run", "--junit", "verdicts.xml", program=moments)
    found = json.loads(played.out)
    (point,) = found["points"]
    assert point["heaps"] == ["idle", "idle#2", "idle#3", "idle#4"]
    met = [one["met"] for one in found["expectations"]]
    assert met == [True, False, True, False, None]
    assert played.status == 4
    lost = found["expectations"][3]
    assert re.fullmatch(r"lost blocks from idle#2 to idle#4: \+679\.[67] KiB \(at most 0 B\)", lost["text"])
    # A stale word on the stack may lead to the last of the blocks of 48 bytes (with glibc 2.43).
    assert lost["measured"] in (6 * COUNT * ENTRY + COUNT * 48, 6 * COUNT * ENTRY + (COUNT - 1) * 48)
    assert "no holder of this heap is called 'cahce'" in found["expectations"][4]["text"]
    assert [(one["metric"], one["holder"]) for one in found["expectations"][:2]] == [
        ("leaked", None),
        ("retained", "cache"),
    ]
    suite = (tmp_path / "verdicts.xml").read_text()
    assert 'name="retained cache from idle#1 to idle#2 at_most 1024 B' in suite
    assert 'name="leaked from idle#1 to idle#2 at_most 0 B' in suite
    assert (suite.count("<failure"), suite.count("<error")) == (2, 1)
    grown, whole = found["heap_diffs"]
    assert grown["between"] == ["idle#1", "idle#2"]
    assert whole["lost"]["least_bytes"] == lost["measured"]
    assert {one["holder"] and one["holder"]["name"] for one in whole["lost"]["groups"]} == {"cache", None}
    listed = gdbmem("show", tmp_path / "run").stdout
    assert re.search(r"^heap at ", listed, re.M)
    shown = gdbmem("show", f"{tmp_path / 'run'}:idle#1").stdout
    assert "retained by cache (heap_moments)" in shown
    compared = gdbmem("diff", f"{tmp_path / 'run'}:idle#1", f"{tmp_path / 'run'}:idle#2", "--fail-on", "1KiB")
    assert compared.returncode == 4
    report = gdbmem("report", tmp_path / "run", "-o", tmp_path / "page.html")
    assert report.returncode == 0, report.stderr
    assert "The heap at idle" in (tmp_path / "page.html").read_text()


def test_a_saved_heap_is_a_page_and_a_profile_whose_paths_add_up_to_the_live_blocks(
    moments: Path, tmp_path: Path
) -> None:
    first, second, page = tmp_path / "first.json", tmp_path / "second.json", tmp_path / "page.html"
    with running([moments, COUNT], EXACT) as target:
        gdbmem("heap", target.pid, "--save", first)
        told(target, "grow")
        told(target, "lose")
        gdbmem("heap", target.pid, "--save", second)
    for saved in (first, second):
        profile = api.open_profile(saved)
        (totals,) = profile.snapshots
        assert profile.source_format == "heap"
        assert totals.heap_bytes == json.loads(saved.read_text())["live_bytes"]
    folded = gdbmem("export", second, "--to", "folded").stdout
    assert f"cache (in heap_moments);blocks of 216 bytes {6 * COUNT * ENTRY}\n" in folded
    assert f"lost;beginning with blocks of 40 bytes {COUNT * 48}\n" in folded
    assert gdbmem("report", second, "-o", page).returncode == 0
    text = page.read_text()
    assert "Who holds the heap" in text
    assert "blocks of 216 bytes" in text
    assert gdbmem("report", first, second, "-o", page, "--force").returncode == 0
    assert "live blocks +" in page.read_text()


def test_memheap_saves_in_the_run_and_shows_what_changed_since(moments: Path, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("grow\n")
    done = gdb(
        tmp_path, moments, "break scrub", f"run {COUNT} < words > out", "memheap --save loaded --top 1", "continue",
        "memheap --since loaded", "memheap --since nothing", "memheap --json -o growth.json --since loaded",
        environment=EXACT,
    )  # fmt: skip
    found = json.loads((tmp_path / "growth.json").read_text())
    held = {one["name"]: one["after_bytes"] - one["before_bytes"] for one in found["holders"]}
    assert held["cache"] == 3 * COUNT * ENTRY
    assert "heap saved as loaded" in done.stdout
    assert re.search(r"live blocks \+[\d.]+ KiB from loaded to now: ", done.stdout)
    assert "no heap was saved as 'nothing'" in done.stdout + done.stderr
    (run,) = tmp_path.glob("gdbmem.*")
    listed = gdbmem("show", run).stdout
    assert "loaded" in listed


KEEPS = """

#include <cstdio>
struct Task { char weight[200]; };
Task *tasks[300]; char *names[500];
__attribute__((noinline)) void make_task(int i) { tasks[i] = new Task; }
__attribute__((noinline)) void make_name(int i) { names[i] = new char[77]; }
int main() {
    for (int i = 0; i < 500; i++) { if (i < 300) make_task(i); make_name(i); }
    puts("ready"); fflush(stdout); getchar();
}
"""


@pytest.mark.needs("heaptrack")
def test_who_allocated_what_a_holder_retains_is_joined_by_size_with_a_profile(tmp_path: Path) -> None:
    source = tmp_path / "keeps.cpp"
    source.write_text(KEEPS)
    subprocess.run(["g++", "-g", "-O1", source, "-o", tmp_path / "keeps"], check=True)
    subprocess.run(
        ["heaptrack", "-o", tmp_path / "profile", tmp_path / "keeps"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=60,
    )  # fmt: skip
    (profile,) = tmp_path.glob("profile*")
    with running([tmp_path / "keeps"]) as target:
        done = gdbmem("heap", target.pid, "--paths", profile, "--json")
        text = gdbmem("heap", target.pid, "--paths", profile).stdout
        refused = gdbmem("heap", target.pid, "--paths", profile, "--block", "0x1000").stderr
    assert done.returncode == 0, done.stderr
    found = {
        one["block_bytes"]: (one["blocks"], one["holder"], [path["blocks"] for path in one["paths"]])
        for one in json.loads(done.stdout)["allocated_by"]["sizes"]
    }
    assert found[200] == (300, "tasks (keeps)", [300])
    assert found[88] == (500, "names (keeps)", [500])  # 77 were asked for
    assert re.search(r"^ +300 +200 +300  tasks \(keeps\): keeps\.cpp:6 \(make_task\)$", text, re.M)
    assert re.search(r"^ +500 +88 +500  names \(keeps\): keeps\.cpp:7 \(make_name\)$", text, re.M)
    assert "--paths is about the rows of a heap" in refused


@pytest.mark.needs("valgrind")
def test_what_massif_counted_is_joined_where_one_path_has_the_bytes_of_all_blocks_of_a_size(
    tmp_path: Path,
) -> None:
    source, profile = tmp_path / "keeps.cpp", tmp_path / "massif.out"
    source.write_text(KEEPS)
    subprocess.run(["g++", "-g", "-O1", source, "-o", tmp_path / "keeps"], check=True)
    massif = [
        "valgrind",
        "--tool=massif",
        "--threshold=0",
        "--peak-inaccuracy=0",
        f"--massif-out-file={profile}",
    ]
    subprocess.run(
        [*massif, tmp_path / "keeps"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=60,
    )  # fmt: skip
    with running([tmp_path / "keeps"]) as target:
        done = gdbmem("heap", target.pid, "--paths", f"{profile}:peak", "--json")
        text = gdbmem("heap", target.pid, "--paths", f"{profile}:peak").stdout
    assert done.returncode == 0, done.stderr
    heap = json.loads(done.stdout)
    found = {
        one["block_bytes"]: [(path["blocks"], path["block_bytes"]) for path in one["paths"]]
        for one in heap["allocated_by"]["sizes"]
    }
    assert found[200] == [(300, 200)]
    assert found[88] == [(500, 77)]
    allocated = heap["allocated_by"]
    assert allocated["joined_blocks"] + allocated["unknown_blocks"] == heap["live_blocks"]
    assert allocated["joined_bytes"] + allocated["unknown_bytes"] == heap["live_bytes"]
    assert allocated["joined_blocks"] >= 800
    assert "counts bytes alone" in text
