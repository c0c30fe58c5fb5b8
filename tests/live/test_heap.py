"""`gdbmem heap`: what holders retain is what malloc gets back when they are deleted; what was lost is found."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROGRAMS, Program
from tests.live.explaining import Running, gdbmem, running, unexpected
from tests.live.test_memexplain import gdb

pytestmark = pytest.mark.needs("gdb", "g++")

COUNT = 2000
# mallinfo2 counts what is in a tcache as in use.
EXACT = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}


def viewed(*words: object) -> dict[str, Any]:
    done = gdbmem("heap", "--json", *words)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["kind"] == "heap"
    assert not document["warnings"] or words[0] == "--core"
    return dict(document)


def retained(document: dict[str, Any]) -> dict[tuple[str, ...], int]:
    """Return the retained bytes by holders."""
    found: dict[tuple[str, ...], int] = {}
    for one in document["holders"]:
        names = tuple(one["holders"]) or (one["name"],)
        found[names] = found.get(names, 0) + one["retained_bytes"]
    return found


def freed(target: Running) -> dict[str, int]:
    """Have the program delete its holders, and return what malloc got back by each."""
    stream, found = target.type("d\n"), {}
    for line in stream:
        if line == "done\n":
            break
        _, name, size = line.split()
        found[name] = int(size)
    return found


def check_lost(document: dict[str, Any], target: Running) -> None:
    blocks, size, structures = target.figure(r"^lost (\d+) (\d+) (\d+)")
    leaks = document["leaks"]
    assert (leaks["least_blocks"], leaks["least_bytes"]) == (blocks, size)
    assert (leaks["most_blocks"], leaks["most_bytes"]) == (blocks, size)
    assert sum(one["structures"] for one in leaks["structures"]) == structures
    assert leaks["doubt"] is None


def check_retained(document: dict[str, Any], back: dict[str, int]) -> None:
    """Compare each owner's retained bytes with what malloc got back."""
    found = retained(document)
    for name in ("branches", "numbers", "names", "texts", "partners", "cells"):
        assert found[(name,)] == pytest.approx(back[name], rel=0.01), name
    together = sum(size for names, size in found.items() if set(names) <= {"tasks", "seen"})
    assert together == pytest.approx(back["tasks"] + back["seen"], rel=0.01)


@pytest.fixture
def owners(program: Program) -> Path:
    return program("heap_owners")


def test_retained_is_what_malloc_gets_back_and_what_was_lost_is_found_live_and_in_a_core(
    owners: Path, tmp_path: Path
) -> None:
    with running([owners, COUNT], EXACT) as target:
        live = viewed(target.pid)
        held = viewed("--hold", target.pid)
        command = ["gcore", "-o", str(tmp_path / "core"), str(target.pid)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        back = freed(target)
        for document in (live, held, viewed("--core", next(tmp_path.glob("core.*")))):
            check_retained(document, back)
            check_lost(document, target)
        assert live["pause_seconds"] < 5
        parts = {one["name"]: one["parts"] for one in live["holders"]}
        assert parts["partners"][0]["class_name"].startswith("std::_Sp_counted_ptr_inplace<Partner")
        assert parts["numbers"][0]["structure"] == "list"


def test_words_out_of_use_take_nothing_from_an_owner_nor_do_pointers_to_parents_through_a_vector(
    program: Program,
) -> None:
    with running([program("heap_stale"), COUNT], EXACT) as target:
        document = viewed(target.pid)
        back = freed(target)
    found = retained(document)
    assert {name: found.get((name,)) for name in back} == pytest.approx(back, rel=0.01)


@pytest.fixture
def heap_of_rust(tmp_path: Path) -> Path:
    if shutil.which("rustc") is None:
        pytest.skip("rustc is not installed")
    file = tmp_path / "heap_of_rust"
    # rustup finds its compilers below the user's home, which tests have not.
    home = pwd.getpwuid(os.getuid()).pw_dir
    subprocess.run(
        ["rustc", "-O", "-A", "warnings", "-o", file, PROGRAMS / "heap_of_rust.rs"],
        check=True,
        capture_output=True,
        env={**os.environ, "HOME": home},
    )
    return file


def test_what_was_taken_out_of_containers_of_rust_takes_nothing_from_an_owner(heap_of_rust: Path) -> None:
    with running([heap_of_rust, COUNT], EXACT) as target:
        found = retained(viewed(target.pid))
        back = freed(target)
    alone = {
        name.split("::")[1]: size for (name, *others), size in found.items() if "::" in name and not others
    }
    assert {name: alone.get(name) for name in back} == pytest.approx(back, rel=0.01)


@pytest.mark.parametrize("kind", ["arenas", "filled", "none"])
def test_pools_within_malloc_are_said_to_flatten_the_graph_and_only_where_there_are_some(
    program: Program, kind: str
) -> None:
    with running([program("heap_pools"), kind], EXACT) as target:
        count, size = target.figure(r"^pools (\d+) (\d+)")
        document, leaks = viewed(target.pid), viewed("--leaks", target.pid)
        text = gdbmem("heap", target.pid).stdout
    assert document["pools"] == {"blocks": count, "size_bytes": size}
    assert leaks["pools"] is None
    assert ("200 blocks, 800.0 KiB, are" in text) == bool(count)
    assert ("in use as pools" in text) == bool(count)


def test_rows_of_an_object_file_of_a_thread_and_of_a_type_are_what_is_freed_with_them(owners: Path) -> None:
    with running([owners, COUNT], EXACT) as target:
        views = {by: viewed("--by", by, target.pid) for by in ("object", "thread", "type")}
        (partner,) = {
            one["name"] for one in views["type"]["holders"] if one["name"].startswith("std::_Sp_counted")
        }
        objects = viewed("--type", partner, target.pid)
        sized = viewed("--type", "104", "--without", "texts", target.pid)
        wrong = [
            gdbmem("heap", target.pid, *words).stderr
            for words in (("--type", "Nobody"), ("--type", "104", "--leaks"), ("--by", "size", "--type", "104"),
                          ("--by", "thread", "--save", "x"))
        ]  # fmt: skip
        text = gdbmem("heap", target.pid, "--type", "104").stdout
        back = freed(target)
    rows = {by: {one["name"]: one for one in view["holders"]} for by, view in views.items()}
    assert rows["object"]["heap_owners"]["kind"] == "object"
    assert rows["object"]["heap_owners"]["retained_bytes"] == pytest.approx(sum(back.values()), rel=0.01)
    (thread,) = (one for name, one in rows["thread"].items() if name.startswith("thread "))
    assert (thread["kind"], thread["retained_bytes"] >= back["cells"]) == ("thread", True)
    variables = rows["thread"]["variables of the program and its libraries"]["retained_bytes"]
    assert variables >= 0.99 * (sum(back.values()) - back["cells"])
    assert objects["of_type"] == {
        "name": partner,
        "blocks": 2,
        "size_bytes": rows["type"][partner]["own_bytes"],
    }
    assert [(one["name"], one["retained_blocks"]) for one in objects["holders"]] == [("partners", 2)]
    assert "texts" not in {
        one["name"] for one in sized["holders"]
    }  # some are left, by words that are remainders
    assert sized["of_type"]["blocks"] == 1999
    assert re.match(
        r"1,999 live blocks of 104 bytes, .*: 218.6 KiB are retained by texts \(heap_owners\)", text
    )
    for said, slug in zip(wrong, ("no-such-type", "usage", "usage", "usage")):
        assert re.match(rf"gdbmem: .*\[{slug}\]\n$", unexpected(said)), said


def test_type_takes_what_the_table_prints_of_nodes_objects_and_sizes(owners: Path) -> None:
    with running([owners, COUNT], EXACT) as target:
        plain = viewed(target.pid)
        parts = {one["name"]: one["parts"][0] for one in plain["holders"]}
        nodes = parts["numbers"]
        asked = {
            "list": f"{nodes['blocks']:,} list nodes of {nodes['block_bytes']:,} bytes",
            "tree": f"tree nodes of {nodes['block_bytes']} bytes",
            "size": f"of {nodes['block_bytes']} bytes",
            "objects": f"2 of {parts['partners']['class_name']}",
        }
        found = {name: viewed("--type", text, target.pid) for name, text in asked.items()}
        text = gdbmem("heap", target.pid, "--type", asked["list"]).stdout
    blocks = {name: one["of_type"]["blocks"] for name, one in found.items()}
    (numbers,) = (one for one in found["list"]["holders"] if one["name"] == "numbers")
    assert numbers["retained_blocks"] == nodes["blocks"] <= blocks["list"]
    assert blocks["tree"] + blocks["list"] <= blocks["size"]
    assert blocks["objects"] == 2
    assert re.match(rf"[\d,]+ live blocks of list nodes of {nodes['block_bytes']} bytes, ", text)


def test_a_stripped_program_has_the_same_holders_by_their_addresses(owners: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped"
    shutil.copy(owners, stripped)
    subprocess.run(["strip", "-s", str(stripped)], check=True)
    symbols = subprocess.run(["nm", "-S", str(owners)], capture_output=True, text=True, check=True).stdout
    with running([stripped, COUNT], EXACT) as target:
        found = viewed(target.pid)
        check_lost(found, target)
        back = freed(target)
    for name, pattern in (("branches", "branches"), ("numbers", "_Z7numbers.*"), ("names", "_Z5names.*")):
        assert retained_at(found, symbols, pattern) == pytest.approx(back[name], rel=0.01), name


def test_a_hash_table_of_a_stripped_program_holds_its_elements_whichever_comes_first(
    program: Program, tmp_path: Path
) -> None:
    table, stripped = program("heap_table"), tmp_path / "stripped"
    subprocess.run(["strip", "-s", "-o", str(stripped), str(table)], check=True)
    symbols = subprocess.run(["nm", "-S", str(table)], capture_output=True, text=True, check=True).stdout
    with running([stripped, COUNT], EXACT) as target:
        found = viewed(target.pid)
        back = freed(target)
    assert retained_at(found, symbols, "_ZL5table.*") == pytest.approx(back["table"], rel=0.01)


def retained_at(document: dict[str, Any], symbols: str, pattern: str) -> int:
    """Return what a variable of a stripped program retains, whose name in *symbols* matches *pattern*."""
    address, size = (int(n, 16) for n in re.findall(rf"^(\w+) (\w+) . {pattern}$", symbols, re.M)[0])
    return sum(
        int(one["retained_bytes"])
        for one in document["holders"]
        if one["name"].startswith("stripped+")
        and address <= int(one["name"].partition("+")[2], 16) < address + size
    )


def test_a_stripped_program_of_rust_is_known_by_the_messages_of_its_library(
    heap_of_rust: Path, tmp_path: Path
) -> None:
    symbols = subprocess.run(
        ["nm", "-S", str(heap_of_rust)], capture_output=True, text=True, check=True
    ).stdout
    subprocess.run(["strip", "-s", "-o", str(tmp_path / "stripped"), str(heap_of_rust)], check=True)
    with running([tmp_path / "stripped", COUNT], EXACT) as target:
        document = viewed(target.pid, "--top", 100)
        back = freed(target)
    for name in ("TREE", "RING", "ROWS", "WHOLE"):  # the others are neighbours, which count as one variable
        size = retained_at(document, symbols, rf"_ZN12heap_of_rust\d+{name}17h.*")
        assert size == pytest.approx(back[name], rel=0.01), name


def test_a_ring_of_c_holds_what_is_in_its_slots_from_the_next_one_on_which_no_vector_of_rust_would(
    program: Program,
) -> None:
    with running([program("heap_ring"), COUNT]) as target:
        found = retained(viewed(target.pid))
    assert found.get(("listed", "ring")) == COUNT * 80


NEIGHBOURS = """
#include <cstdio>
struct Plain { Plain *next; long number[3]; };
struct Counts { virtual ~Counts() {} Counts *next = nullptr; long number[2] = {}; };
struct { Plain *plain; Counts *counts; } both;
int main() {
    for (int i = 0; i < 100; i++) both.plain = new Plain{both.plain, {}};
    for (int i = 0; i < 300; i++) { auto *one = new Counts; one->next = both.counts; both.counts = one; }
    printf("ready\\n"); fflush(stdout); getchar();
}
"""


def test_neighbours_without_symbols_that_lead_to_objects_of_other_classes_are_two_variables(
    tmp_path: Path,
) -> None:
    source = tmp_path / "neighbours.cpp"
    source.write_text(NEIGHBOURS)
    subprocess.run(["g++", "-O1", "-s", source, "-o", tmp_path / "neighbours"], check=True)
    with running([tmp_path / "neighbours"]) as target:
        document = viewed(target.pid)
    rows = [one["retained_blocks"] for one in document["holders"] if one["name"].startswith("neighbours+")]
    assert sorted(rows) == [100, 300]


def test_a_person_reads_the_answer_first_then_holders_then_what_is_lost(owners: Path) -> None:
    with running([owners, COUNT], EXACT) as target:
        done = gdbmem("heap", target.pid)
        sizes = gdbmem("heap", target.pid, "--by", "type", "--top", "3")
        lost = gdbmem("heap", target.pid, "--leaks")
    first, *_ = done.stdout.splitlines()
    assert re.match(r"[\d,]+ live blocks, .*: .* are retained by .*, .* by .*\.$", first), first
    assert re.search(
        r"^ *[\d.]+ KiB .* 4,095  branches \(heap_owners\): std::unique_ptr<Branch>:\s+4,095\s+of\s+56\s+bytes$",
        done.stdout,
        re.M,
    )
    assert re.search(r"^Lost: 2,501 blocks, .*: no word leads to them\.$", done.stdout, re.M)
    assert "and " in sizes.stdout
    assert "(--top)" in sizes.stdout
    assert lost.stdout.count("retained") == 0
    assert "1,001" in lost.stdout


def test_without_an_observer_the_owner_retains_what_it_frees_and_a_block_names_all_that_lead_to_it(
    owners: Path,
) -> None:
    with running([owners, COUNT], EXACT) as target:
        alone = viewed(target.pid, "--without", "seen")
        check_lost(alone, target)
        both = next(one for one in viewed(target.pid)["holders"] if set(one["holders"]) == {"tasks", "seen"})
        block = viewed(target.pid, "--block", both["address"] + 100)["block"]
        lost = gdbmem("heap", target.pid, "--block", hex(alone["leaks"]["structures"][0]["address"]))
        none = gdbmem("heap", target.pid, "--without", "nobody")
        back = freed(target)
    assert retained(alone)[("tasks",)] == pytest.approx(back["tasks"], rel=0.01)
    check_retained({**alone, "holders": [*alone["holders"], {**both, "retained_bytes": back["seen"]}]}, back)
    names = {word["holder"]["name"] or word["holder"]["parts"][0]["block_bytes"] for word in block["words"]}
    assert block["block"]["address"] == both["address"]
    assert {152} <= names  # its parent in the map, or a child; the vector's buffer, or the map itself
    assert block["path"][0]["kind"] == "data"
    assert block["dominators"] == []
    assert "is lost: no word leads to it from outside" in lost.stdout
    assert re.match(
        r"gdbmem: no holder of this heap is called 'nobody'; .*\[no-such-holder\]\n$", unexpected(none.stderr)
    )


def test_a_damaged_heap_and_a_truncated_core_give_no_lower_bound_and_no_traceback(
    owners: Path, tmp_path: Path
) -> None:
    with running([owners, COUNT], EXACT) as target:
        subprocess.run(
            ["gcore", "-o", str(tmp_path / "core"), str(target.pid)],
            check=True,
            capture_output=True,
            timeout=60,
        )
    whole = next(tmp_path.glob("core.*")).read_bytes()
    for share in (0, 100, len(whole) // 3, len(whole) - 100_000):
        (tmp_path / "cut").write_bytes(whole[:share])
        done = gdbmem("heap", "--core", tmp_path / "cut", "--json")
        assert "Traceback" not in done.stderr
        if done.returncode:
            assert re.match(r"gdbmem: .*\[[\w-]+\]\n$", done.stderr), done.stderr
        else:
            assert json.loads(done.stdout)["leaks"]["least_blocks"] == 0
    damaged = whole.replace(b"t" * 100 + b"\0", b"t" * 300 + b"\0")  # over the next one's header
    (tmp_path / "damaged").write_bytes(damaged[: len(whole)])
    done = gdbmem("heap", "--core", tmp_path / "damaged", "--json")
    assert "Traceback" not in done.stderr
    assert done.returncode or json.loads(done.stdout)["leaks"]["least_blocks"] == 0


@pytest.mark.parametrize("number", [0, 1, 1000])
def test_blocks_behind_damage_are_not_said_to_be_none(owners: Path, number: int) -> None:
    with running([owners, COUNT], EXACT) as target:
        maps = Path(f"/proc/{target.pid}/maps").read_text(encoding="utf-8")
        address = int(re.findall(r"^(\w+)-\w+ .*\[heap\]$", maps, re.M)[0], 16)
        with Path(f"/proc/{target.pid}/mem").open("r+b", buffering=0) as memory:
            for _ in range(number):
                memory.seek(address + 8)
                address += int.from_bytes(memory.read(8), "little") & -8
            memory.seek(address + 8)
            memory.write(bytes(8))
        done = gdbmem("heap", target.pid)
        leaks = gdbmem("heap", target.pid, "--leaks")
        document = gdbmem("heap", target.pid, "--leaks", "--json")
    if not number:
        assert re.search(
            r"heap of this process can't be read: the heap is inconsistent: .*\[heap-unread\]$", done.stderr
        )
        return
    assert re.match(r".* \(all that could be read: the heap is damaged\)", done.stdout)
    found = json.loads(document.stdout)
    assert (found["holder_count"], found["holders"]) == (None, [])
    assert (found["leaks"]["most_bytes"], found["leaks"]["most_blocks"]) == (None, None)
    assert f"at most {found['leaks']['of_read_blocks']:,} block" in leaks.stdout
    for text in (done.stdout, leaks.stdout):
        assert (
            "How much is lost is unknown: the heap is damaged; of the blocks that could be read, at most"
            in text
        )


def test_memheap_answers_in_gdb_from_the_process_and_from_its_core(owners: Path, tmp_path: Path) -> None:
    done = gdb(
        tmp_path, owners, "tbreak fgets", f"run {COUNT} < /dev/null > out", "memheap --json -o live.json --top 100",
        "generate-core-file core.here", "memheap --block *(long*)&seen", "memheap --block nothing_here", "kill",
        "memheap", "core-file core.here", "memheap --json -o core.json --top 100", environment=EXACT,
    )  # fmt: skip
    live, core = (json.loads((tmp_path / name).read_text()) for name in ("live.json", "core.json"))
    lost = re.findall(r"^lost (\d+) (\d+) (\d+)", (tmp_path / "out").read_text())
    for document in (live, core):
        leaks = document["leaks"]
        assert (str(leaks["least_blocks"]), str(leaks["least_bytes"])) == lost[0][:2]
        assert document["holders"][0]["retained_bytes"] > 0
    held = retained(live)
    assert sorted(held.values()) == sorted(retained(core).values())
    assert held[("branches",)] == 4095 * 64
    assert re.search(r"^The block of [\d,]+ bytes at 0x\w+ is reached from variables", done.stdout, re.M)
    assert "--block can't use nothing_here" in done.stdout + done.stderr
    assert "there is no process" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
