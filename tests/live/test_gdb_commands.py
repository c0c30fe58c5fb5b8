"""gdbmem's commands inside gdb, typed at its prompt: under massif, and where there is no massif."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from tests.cover import cover
from tests.live.user import (
    GDBMEM,
    User,
    at_terminal,
    environment,
    histories,
    launched,
    only_run,
    shell,
)

pytestmark = [
    pytest.mark.needs("gdb", "valgrind", "vgdb", "gcc", "g++"),
    pytest.mark.usefixtures("no_process_left"),
]

LOADER = Path(__file__).parents[2] / "gdbinit" / "gdbmem"
COMMANDS = {
    "massif-snap": "memsnap",
    "massif-diff": "memdiff",
    "massif-list": "memlist",
    "massif-break": "membreak",
    "massif-all": None,
}
Program = Callable[..., Path]


@contextlib.contextmanager
def plain_gdb(*words: str | Path, folder: Path) -> Iterator[User]:
    """Yield a user who has typed ``gdb -x gdbinit/gdbmem WORDS``."""
    with at_terminal(["gdb", "-q", "-nx", "-x", LOADER, *words], folder) as user:
        user.prompt()
        yield user


def named(user: User) -> list[str]:
    """Return the names of the snapshots taken so far."""
    return [entry["name"] for entry in json.loads(user.type("massif-list --json"))["snapshots"]]


# -- snapshots, lists and diffs ----------------------------------------------------------------------------


def test_a_name_used_again_is_numbered_and_any_text_is_a_name(program: Program, scratch: Path) -> None:
    with launched(program("leaky_map"), folder=scratch) as user:
        assert "before the program's first instruction" in user.type("massif-snap early")
        user.type("break reset")
        user.type("continue")
        # libstdc++'s own pool for exceptions is 71 KiB in some releases and 72 in others.
        found = re.match(r"snapshot a: heap (8[56]\.1 KiB)", user.type("massif-snap a"))
        assert found
        heap = found[1]
        assert user.type("memsnap a").startswith(f"snapshot a#2: heap {heap}, 0 B since a")
        assert user.type("massif-snap").startswith("snapshot 3: heap")
        assert user.type("massif-snap 'two words'").startswith("snapshot two words: ")
        assert user.type('massif-snap "100% #x ünï"').startswith("snapshot 100% #x ünï: ")
        assert user.type(b"massif-snap '\xc2\x9b31m'").startswith(r"snapshot \x9b31m: ")
        assert "can't name a snapshot" in user.type("massif-snap 'a#2'")
        assert "can't name a snapshot" in user.type("massif-snap ' '")
        assert "got an extra argument 'words'; quote a name that contains blanks" in user.type(
            "massif-snap two words"
        )
        listed = user.type("memlist")
        assert re.search(rf"^a#1 +{heap} .* reset at leaky_map.cpp:\d+$", listed, re.M)
        assert len(named(user)) == 6
        assert "heap did not change from a#1 to a#2" in user.type("massif-diff a#1 a")
        assert "has no snapshot 'b'" in user.type("massif-diff b")
        user.quit()
    assert b"\xc2\x9b" not in user.shown.replace(b"'\xc2\x9b31m'", b"")


def test_the_options_of_a_diff(program: Program, scratch: Path) -> None:
    with launched(program("leaky_map"), folder=scratch) as user:
        assert "not yet two snapshots to compare" in user.type("massif-diff")
        user.type("break reset")
        for name in ("a", "b", "c"):
            user.type("continue")
            user.type(f"massif-snap {name}")
        assert "from b to c" in user.type("massif-diff")
        assert "heap grew by 26.6 KiB from a to c" in user.type("massif-diff a")
        assert "heap shrank by 26.6 KiB from c to a" in user.type("massif-diff c a")
        by_function = user.type("massif-diff --by function a b")
        assert re.search(r"\+13.3 KiB .*remember", by_function)
        assert re.search(r"\+13.3 KiB .*leaky_map.cpp$", user.type("massif-diff --by file"), re.M)
        assert "new_allocator.h" in user.type("massif-diff --all-frames --top 1")
        assert "entries[key]" not in user.type("massif-diff --ignore remember")
        assert "main" in user.type("massif-diff --inverted")
        document = json.loads(user.type("massif-diff --json a c"))
        assert (document["kind"], document["delta_bytes"]) == ("diff", 200 * 136)
        assert sum(path["delta_bytes"] for path in document["paths"]) == 200 * 136
        assert user.type("massif-diff --json -o 'my diff.json'") == ""
        assert json.loads((scratch / "my diff.json").read_text())["kind"] == "diff"
        assert "add --force" in user.type("massif-diff --json -o 'my diff.json'")
        assert user.type("massif-diff -o 'my diff.json' --force") == ""
        assert (scratch / "my diff.json").read_text().startswith("heap grew by 13.3 KiB from b to c")
        assert "(3 snapshots); steadily at" in user.type("massif-diff a b c")
        assert "the page is page.html" in user.type("massif-diff a c --html page.html")
        assert f'data-value="{200 * 136}"' in (scratch / "page.html").read_text()
        assert "the page is mine.html" in user.type("massif-diff a c --mine remember --html mine.html")
        assert "--focus: 'remember(' is not a regular expression" in user.type(
            "massif-diff --focus remember("
        )
        assert "is not a name of a page" in user.type("massif-diff a c --html page.json")
        assert "has no unit" in user.type("massif-diff --min 10")
        assert "--by can't be 'nonsense'; it is one of: path" in user.type("massif-diff --by nonsense")
        assert "memdiff --help" in user.type("memdiff --nonsense")
        assert "No such file" in user.type("massif-diff -o /no/such/folder/x")
        assert "Traceback" not in user.text and "please report" not in user.text
        user.quit()


def test_leaving_the_pager_early_is_no_error(program: Program, scratch: Path) -> None:
    with launched(program("leaky_map"), folder=scratch, rows=12) as user:
        user.type("break reset")
        user.type("continue")
        heap = user.type("massif-snap a").partition("heap ")[2].partition(";")[0]
        user.type("massif-snap b")
        for command in ("massif-diff --json", "massif-list --json"):
            user.send(command)
            user.see("q to quit, c to continue without paging--")
            answer = user.type("q")
            assert "Traceback" not in answer and "Error" not in answer
        assert f"heap {heap}, 0 B since b" in user.type("massif-snap c")
        user.quit()


def test_massif_all_shows_massifs_own_history(program: Program, scratch: Path) -> None:
    with launched(program("leaky_map"), folder=scratch) as user:
        user.type("break reset")
        user.type("continue")
        shown = user.type("massif-all")
        assert "history-1.massif" in shown
        assert json.loads(user.type("massif-all --json"))["kind"] == "profile"
        user.quit()
    assert len(histories(only_run(scratch))) == 3


def test_colours_are_for_terminals_that_have_them(program: Program, scratch: Path) -> None:
    for term, is_able in (("xterm-256color", True), ("dumb", False)):
        with launched(program("leaky_map"), folder=scratch, env=environment(TERM=term)) as user:
            for command in ("break reset", "continue", "massif-snap a", "massif-snap b"):
                user.type(command)
            for setting in ("on", "off"):
                user.type(f"set style enabled {setting}")
                answer = re.sub(r"\x1b\[\?2004.", "", user.type("massif-list"))
                assert ("\x1b[" in answer) == (is_able and setting == "on")
            user.quit()


# -- breakpoints that take snapshots -----------------------------------------------------------------------


def test_breakpoints_take_every_nth_and_only_the_first_snapshots(program: Program, scratch: Path) -> None:
    with launched(program("leaky_map"), "1", "20", folder=scratch) as user:
        assert "Breakpoint 1 at" in user.type("massif-break --name few --every 5 --first 2 remember")
        user.type("membreak --name 'odd ones' remember if key == 3 || key == 15")
        assert "20 entries" in user.type("continue")
        assert sorted(named(user)) == ["few#1", "few#2", "odd ones#1", "odd ones#2"]
        records = json.loads(user.type("massif-list --json"))["snapshots"]
        assert {r["name"]: r["hit"] for r in records} == {
            "few#1": 5, "few#2": 10, "odd ones#1": 1, "odd ones#2": 2,
        }  # fmt: skip
        user.quit()


def test_a_snapshot_breakpoint_is_an_ordinary_one_to_gdb(program: Program, scratch: Path) -> None:
    with launched(program("leaky_map"), folder=scratch) as user:
        user.type("massif-break --name at-reset reset")
        assert re.search(r"^1 +breakpoint +keep y .*reset", user.type("info breakpoints"), re.M)
        user.type("disable 1")
        user.type("break fill if round == 1")
        user.type("continue")
        assert named(user) == []
        user.type("enable 1")
        user.type("delete 2")
        user.type("tbreak reset")
        user.type("continue")
        user.type("delete 1")
        user.type("continue")
        assert named(user) == ["at-reset"]
        user.quit()


def test_after_takes_the_snapshot_when_the_function_has_returned(program: Program, scratch: Path) -> None:
    with launched(program("leaky_map"), "2", "100", folder=scratch) as user:
        user.type("massif-break --name before fill")
        user.type("massif-break --name after --after fill")
        assert "200 entries" in user.type("continue")
        records = {r["name"]: r for r in json.loads(user.type("massif-list --json"))["snapshots"]}
        assert sorted(records) == ["after#1", "after#2", "before#1", "before#2"]
        grown = records["after#1"]["heap_bytes"] - records["before#1"]["heap_bytes"]
        assert grown == 100 * 136 + 800  # the map's nodes, and the scratch vector
        assert "main" in records["after#1"]["place"]
        user.quit()


def test_after_follows_recursion_exceptions_tail_calls_and_threads(program: Program, scratch: Path) -> None:
    with launched(program("returns"), folder=scratch) as user:
        for name in ("recurse", "throws", "tail", "in_thread"):
            user.type(f"massif-break --after --name {name} {name}")
        assert "done" in user.type("continue")
        records = json.loads(user.type("massif-list --json"))["snapshots"]
        user.quit()
    by_name: dict[str, list[dict[str, object]]] = {}
    for record in records:
        by_name.setdefault(str(record["name"]).partition("#")[0], []).append(record)
    # Each call of recurse(3) allocates before and after the inner one: innermost returns first.
    assert [r["hit"] for r in by_name["recurse"]] == [4, 3, 2, 1]
    # The call that throws never returns; the one that doesn't, does.
    assert [r["hit"] for r in by_name["throws"]] == [2]
    assert [r["hit"] for r in by_name["tail"]] == [1]
    assert len(by_name["in_thread"]) == 2
    assert len({r["thread"] for r in by_name["in_thread"]}) == 2


def test_wrong_breakpoints_are_refused_in_one_sentence(program: Program, scratch: Path) -> None:
    with launched(program("leaky_map"), folder=scratch) as user:
        assert "no location is given" in user.type("massif-break if x > 1")
        assert "massif-break --help" in user.type("massif-break")
        assert "a number from 1" in user.type("massif-break --every 0 reset")
        assert "--every takes a whole number, not 'many'" in user.type("massif-break --every many reset")
        assert "can't name a snapshot" in user.type("massif-break --name a#1 reset")
        assert "--name comes after the location" in user.type("massif-break reset --name x")
        user.type("set breakpoint pending off")
        assert 'No symbol "no_such"' in user.type("massif-break reset if no_such > 1")
        assert "No breakpoints" in user.type("info breakpoints")
        assert 'Function "nowhere" not defined' in user.type("massif-break nowhere")
        assert "Traceback" not in user.text
        user.quit()


def test_very_many_hits_are_counted_and_their_price_is_reported(program: Program, scratch: Path) -> None:
    with launched(program("ticks"), "1200", folder=scratch) as user:
        user.type("massif-break --every 1200 --name last tick")
        answer = user.type("continue")
        assert re.search(r"tick was hit 1,000 times, [\d,]+ a second; 100,000 hits would take", answer)
        assert "snapshot last: heap" in answer
        user.quit()


def test_ctrl_c_during_snapshots_stops_the_program_and_loses_none(program: Program, scratch: Path) -> None:
    with launched(program("many_paths"), "3000", "1000", folder=scratch) as user:
        user.type("massif-break --name round built")
        user.send("continue")
        user.see("snapshot round:", "snapshot round#2:")
        user.press("c")
        user.prompt()
        names = named(user)
        assert len(names) >= 2
        assert "snapshot here: heap" in user.type("massif-snap here")
        assert "Traceback" not in user.text and "Python Exception" not in user.text
        user.quit()
    assert len(list((only_run(scratch) / "snapshots").iterdir())) >= 3


@pytest.mark.parametrize(
    "stage", cover(["snapshots/0001.massif", "snapshots.jsonl"], lambda stage: stage.endswith(".massif"))
)
def test_ctrl_c_during_the_very_first_snapshot_stops_the_program(
    stage: str, program: Program, scratch: Path
) -> None:
    with launched(program("many_paths"), "20000", "1000", folder=scratch) as user:
        user.type("massif-break --name round built")
        user.send("continue")
        while not (only_run(scratch) / stage).exists():  # it has just been begun, or is being summed up
            pass
        user.press("c")
        user.prompt()
        assert "Traceback" not in user.text and "Python Exception" not in user.text
        user.quit()


def test_ctrl_c_stops_among_hits_that_nobody_wants(program: Program, scratch: Path) -> None:
    with launched(program("ticks"), folder=scratch) as user:
        user.type("massif-break --every 1000000000 tick")
        user.send("continue")
        user.see("was hit 1,000 times")
        user.press("c")
        user.prompt()
        assert "tick" in user.type("backtrace")
        assert "Python Exception" not in user.text
        user.quit()


# -- help --------------------------------------------------------------------------------------------------


def test_help_names_every_option_and_shows_an_example(scratch: Path) -> None:
    with plain_gdb(folder=scratch) as user:
        overview = user.type("help gdbmem")
        for name, other in COMMANDS.items():
            assert name in overview
            for spelled in filter(None, (name, other)):
                text = user.type(f"help {spelled}")
                assert f"Usage: {spelled}" in text
                assert f"(gdb) {spelled}" in text
                assert "COMMAND" not in text
                options = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", user.type(f"{spelled} --help")))
                absent = {option for option in options if not re.search(rf"{option}\b", text)}
                assert absent <= {"-h", "--help", "--output"}, spelled
        assert "massif-snap" in user.type("gdbmem")
        user.quit()


# -- gdb without massif ------------------------------------------------------------------------------------


def test_without_massif_each_command_says_in_one_sentence_what_to_do(program: Program, scratch: Path) -> None:
    with plain_gdb(program("leaky_map"), folder=scratch) as user:
        refused = (
            "massif-snap",
            "memsnap x",
            "massif-all",
            "massif-list",
            "massif-diff",
            "massif-break reset",
        )
        for command in refused:
            answer = user.type(command)
            assert answer.count("\n") == 1
            assert "gdbmem launch --massif PROGRAM" in answer
        assert list(scratch.iterdir()) == []
        user.type("break reset")
        user.type("run")
        for command in ("massif-snap", "massif-all", "massif-list", "massif-break --name x fill"):
            answer = user.type(command)
            assert answer.count("\n") == 1, answer
            assert "does not run under massif" in answer
        user.quit()
    assert "Traceback" not in user.text
    assert list(scratch.iterdir()) == []


def test_loading_twice_is_harmless(program: Program, scratch: Path) -> None:
    with plain_gdb("-x", LOADER, folder=scratch) as user:
        assert user.type(f"source {LOADER}") == ""
        assert "gdbmem launch" in user.type("massif-list")
        user.quit()
    assert "Traceback" not in user.text
    with launched(program("leaky_map"), folder=scratch, options=["-x", LOADER]) as user:
        user.type(f"source {LOADER}")
        user.type("break reset")
        user.type("continue")
        assert user.type("massif-snap a").count("snapshot a:") == 1
        user.quit()


def test_a_gdb_connected_by_hand_keeps_a_run_in_its_folder(program: Program, scratch: Path) -> None:
    folder = scratch / "a folder's name"
    folder.mkdir()
    log = folder / "log"
    with log.open("wb") as stream:
        valgrind = subprocess.Popen(
            ["valgrind", "--tool=massif", "--threshold=0", "--vgdb-stop-at=startup",
             f"--vgdb-prefix={scratch}/v", f"--massif-out-file={folder}/massif.%p", program("leaky_map")],
            stdout=stream, stderr=stream,
        )  # fmt: skip
    try:
        while b"--pid is optional" not in log.read_bytes():
            assert valgrind.poll() is None
        while not list(scratch.glob(f"v-from-vgdb-to-{valgrind.pid}-*")):
            assert valgrind.poll() is None
        with plain_gdb(program("leaky_map"), folder=folder) as user:
            user.type("set sysroot")
            user.type(f"target remote | vgdb --vgdb-prefix={scratch}/v --pid={valgrind.pid}")
            user.type("break reset")
            user.type("continue")
            answer = user.type("massif-snap a")
            assert re.search(r"^The run is kept in .*/a folder's name/gdbmem.leaky_map.\d+/", answer)
            user.type("continue")
            assert "since a; grew most at leaky_map.cpp:16" in user.type("massif-snap b")
            assert "heap grew by 13.3 KiB from a to b" in user.type("massif-diff")
            user.type("massif-break --name c fill")
            user.type("continue")
            assert named(user) == ["a", "b", "c"]
            user.type("kill inferiors 1")
            user.quit()
    finally:
        valgrind.kill()
        valgrind.wait()
    run = only_run(folder)
    ended = shell(GDBMEM, "diff", f"{run}:a", f"{run}:b", folder=scratch)
    assert "heap grew by 13.3 KiB" in ended.stdout, ended.stderr
    assert not [place for place in Path("/tmp").glob("gdbmem-*/run") if os.path.realpath(place) == str(run)]


def test_another_tool_of_valgrind_is_distinguished_from_massif(program: Program, scratch: Path) -> None:
    log = scratch / "log"
    with log.open("wb") as stream:
        valgrind = subprocess.Popen(
            ["valgrind", "--tool=none", "--vgdb-stop-at=startup", "--vgdb=yes",
             f"--vgdb-prefix={scratch}/v", program("leaky_map")],
            stdout=stream, stderr=stream,
        )  # fmt: skip
    try:
        while not list(scratch.glob(f"v-from-vgdb-to-{valgrind.pid}-*")):
            assert valgrind.poll() is None
        with plain_gdb(program("leaky_map"), folder=scratch) as user:
            user.type("set sysroot")
            user.type(f"target remote | vgdb --vgdb-prefix={scratch}/v --pid={valgrind.pid}")
            user.type("break reset")
            user.type("continue")
            assert "does not run under massif" in user.type("massif-snap a")
            assert "does not run under massif" in user.type("massif-all")
            user.quit()
    finally:
        valgrind.kill()
        valgrind.wait()
