"""Points on functions that the compiler has inlined, split, moved or reached by a jump: hits and snapshots."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cover import cover
from tests.live.memwatching import line_of, run_gdb
from tests.live.test_recipes_live import Program, play
from tests.live.user import launched
from tests.unit.sources import ROOT

pytestmark = [
    pytest.mark.needs("gdb", "valgrind", "vgdb", "gcc", "g++"),
    pytest.mark.usefixtures("no_process_left", "valgrind_of_users"),
]

RESET = """
points:
  - {at: "Engine::reset", name: before}
  - {at: "Engine::reset", name: after, after: true}
"""
LTO = ("-O2", "-flto")
LEVELS = [("-O1",), ("-O2",), ("-O3",), LTO]
BUILDS = [(compiler, level) for compiler in ("g++", "clang++") for level in LEVELS]
USUAL = [("g++", ("-O2",)), ("clang++", ("-O3",))]
FUNCTIONS = (
    "in_nested",
    "in_outer",
    "is_thrown_through",
    "has_table",
    "has_tail",
    "is_jumped_to",
    "is_copied",
    "has_cold_part",
    "is_split",
    "recurses",
)


def built(program: Program, name: str, compiler: str, level: tuple[str, ...]) -> Path:
    """Return *name* as *compiler* makes it; skips where a tool is missing."""
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    flags = list(level)
    if compiler == "clang++" and level == LTO:
        if not shutil.which("ld.lld"):
            pytest.skip("clang++ -flto needs lld")
        flags.append("-fuse-ld=lld")
    is_c = (ROOT / "tests/programs" / f"{name}.c").exists()
    return program(name, *flags, compiler="" if compiler == "g++" else "clang" if is_c else compiler)


def version(compiler: str) -> int:
    done = subprocess.run([compiler, "-dumpversion"], capture_output=True, text=True, check=True)
    return int(done.stdout.partition(".")[0])


def snapshots(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "snapshots.jsonl").read_text().splitlines()]


def at_resets(folder: Path, program: Path) -> list[tuple[str, int]]:
    """Return the point and the heap of each snapshot of RESET."""
    played = play(RESET, folder, program=program)
    assert played.status == 0, played.err
    assert [point["hits"] for point in played.facts["points"]] == [4, 4]
    assert not played.facts.get("warnings")
    return [(record["base_name"], record["heap_bytes"]) for record in snapshots(played.run)]


@pytest.fixture(scope="module")
def plain(program: Program, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int]]:
    """Return the snapshots of the program in which nothing is inlined."""
    found = at_resets(tmp_path_factory.mktemp("plain"), program("inlined_reset", "-O0"))
    assert len(found) == 8
    return found


@pytest.mark.parametrize(
    ("compiler", "level"), cover(BUILDS, lambda compiler, level: (compiler, level) in USUAL)
)
def test_an_inlined_function_is_recorded_at_each_call_and_when_it_is_over(
    program: Program, scratch: Path, plain: list[tuple[str, int]], compiler: str, level: tuple[str, ...]
) -> None:
    assert at_resets(scratch, built(program, "inlined_reset", compiler, level)) == plain


def test_a_native_engine_records_both_ends_of_an_inlined_call(program: Program, scratch: Path) -> None:
    played = play("engine: gperftools\n" + RESET, scratch, program=program("inlined_reset", "-O2"))
    assert played.status == 0, played.err
    heap = [one["heap_bytes"] for one in snapshots(played.run) if one["base_name"] != "own"]
    assert len(heap) == 8
    freed = {before - after for before, after in zip(heap[::2], heap[1::2])}
    assert len(freed) == 1
    assert freed.pop() >= 1000 * (32 + 101)  # strings and their texts


@pytest.mark.parametrize(
    ("compiler", "level"), cover(BUILDS, lambda compiler, level: level == ("-O2",) and compiler == "g++")
)
def test_hits_and_ends_are_those_that_the_program_counts(
    program: Program, scratch: Path, compiler: str, level: tuple[str, ...]
) -> None:
    # clang -O3 leaves nothing of has_tail in what describes the program.
    functions = [name for name in FUNCTIONS if (compiler, level, name) != ("clang++", ("-O3",), "has_tail")]
    points = "".join(
        f"  - {{at: {name}, name: {name}}}\n  - {{at: {name}, name: {name}.end, after: true}}\n"
        for name in functions
    )
    target = built(program, "inlined_calls", compiler, level)
    played = play(f"points:\n{points}", scratch, program=target)
    assert played.status == 0, played.err
    counted = re.findall(r"^(\w+) (\d+) (\d+)$", played.out, re.M)
    own = {name: (int(begun), int(done)) for name, begun, done in counted if name in functions}
    taken = Counter(record["base_name"] for record in snapshots(played.run))
    assert {name: (taken[name], taken[f"{name}.end"]) for name in functions} == own
    (left,) = [one["message"] for one in played.facts["warnings"] if one["slug"] == "call-left"]
    thrown = own["is_thrown_through"]
    assert f"{thrown[0] - thrown[1]} calls of 'is_thrown_through' left by an exception" in left


LEFT = ("jumps", "catches", "is_left", "Guard::~Guard", "merges", "is_inlined_in_part", "is_split_in_itself")


@pytest.mark.parametrize(
    ("compiler", "level"), cover(BUILDS, lambda compiler, level: level == ("-O2",) and compiler == "g++")
)
def test_calls_that_are_left_or_merged_are_counted_or_said_to_be_unclear(
    program: Program, scratch: Path, compiler: str, level: tuple[str, ...]
) -> None:
    points = "".join(
        f'  - {{at: "{name}", name: {number}}}\n  - {{at: "{name}", name: {number}.end, after: true}}\n'
        for number, name in enumerate(LEFT)
    )
    target = built(program, "inlined_left", compiler, level)
    played = play(f"engine: faults\npoints:\n{points}", scratch, program=target)
    assert played.status == 0, played.err
    own = {name: (int(a), int(b)) for name, a, b in re.findall(r"^([\w:~]+) (\d+) (\d+)$", played.out, re.M)}
    taken = Counter(record["base_name"] for record in snapshots(played.run))
    said = [one["message"] for one in played.facts["warnings"] if one["slug"] == "inlined-unclear"]
    unclear = {name for name in LEFT if any(f"'{name}' is inlined" in text for text in said)}
    counted = {name: (taken[f"{n}"], taken[f"{n}.end"]) for n, name in enumerate(LEFT) if name not in unclear}
    assert counted == {name: own[name] for name in counted}
    assert len(unclear) <= 2, said


REPEATED = (
    "is_unrolled",
    "is_nested",
    "compares",
    "is_twice",
    "searches",
    "chooses",
    "is_tagged",
    "halves",
)


@pytest.mark.parametrize(
    ("compiler", "level"),
    cover(BUILDS, lambda compiler, level: (compiler, level) in (("g++", ("-O3",)), ("clang++", LTO))),
)
def test_calls_whose_code_was_repeated_joined_or_merged_are_counted_by_what_each_does_first(
    program: Program, scratch: Path, compiler: str, level: tuple[str, ...]
) -> None:
    points = "".join(
        f"  - {{at: {name}, name: {name}}}\n  - {{at: {name}, name: {name}.end, after: true}}\n"
        for name in REPEATED
    )
    points += (
        "  - {at: falls}\n  - {at: weighs, hits: {only: [1]}}\n"  # which is computed for several at once
    )
    target = built(program, "inlined_repeated", compiler, level)
    target.touch()  # a source that is newer is not trusted
    played = play(f"engine: faults\npoints:\n{points}", scratch, program=target)
    counted = re.findall(r"^(\w+) (\d+) (\d+)$", played.out, re.M)
    taken = Counter(record["base_name"] for record in snapshots(played.run))
    own = {name: (int(begun), int(done)) for name, begun, done in counted}
    said = [one["message"] for one in played.facts["warnings"] if one["slug"] == "inlined-unclear"]
    several = [text for text in said if "'weighs' is inlined" in text]
    assert several or (compiler, level) != ("g++", ("-O3",))
    said = [text for text in said if text not in several]
    assert taken["falls"] == own.pop("falls")[0]
    # gdb 18 loses all but one of the copies of an unrolled loop that GCC 16 describes.
    lost = [text for text in said if "'is_unrolled' is inlined at 1 line " in text]
    if lost:
        del own["is_unrolled"]
    assert {name: (taken[name], taken[f"{name}.end"]) for name in own} == own
    assert said == lost


class Counted(NamedTuple):
    """The functions of a program, each of whose calls is counted, or is said not to be."""

    functions: tuple[str, ...]
    sure: frozenset[str]  # which are counted in each build
    refused: frozenset[str] = frozenset()  # which are in none
    marked: frozenset[str] = (
        frozenset()
    )  # which are counted by what gcc, up to *newest*, says of its statements
    newest: int = 99
    tested: frozenset[str] = frozenset()  # by what the code of clang, up to *newest_clang*, tests first
    newest_clang: int = 99


COUNTED = {
    # The compiler has merged their code with that of other calls, or describes it no longer.
    "inlined_moved": Counted(("Less::operator()", "shorten"), frozenset({"shorten"})),
    # It has joined or folded them, or computes them ahead.
    "inlined_lost": Counted(
        ("keep", "is_odd", "is_even", "first", "second", "weigh", "sum"),
        frozenset({"keep", "is_odd", "is_even"}),
        frozenset({"weigh"}),
    ),
    # It counts several at once.
    "inlined_joined": Counted(
        ("mix", "hash", "gcd", "put", "get", "tock", "first"), frozenset({"mix", "hash", "gcd"})
    ),
    # Their source says more, or less, than it seems to.
    "inlined_effects": Counted(
        (
            "take",
            "drop",
            "credit",
            "wait",
            "step",
            "walk",
            "keep",
            "check",
            "chain",
            "weigh",
            "sure",
            "use",
            "area",
            "copy",
        ),
        frozenset({"take", "drop", "credit", "wait", "keep", "chain", "sure", "use"}),
        frozenset({"walk", "weigh"}),
    ),
    # It drops what they do in some of their calls.
    "inlined_dropped": Counted(("note", "enter", "hit", "make", "grow"), frozenset()),
    # It inlines them into each other, by loops of which it makes several rounds one, or by themselves.
    "inlined_strings": Counted(
        ("sb_pair", "sb_char"),
        frozenset(),
        marked=frozenset({"sb_pair", "sb_char"}),
        tested=frozenset({"sb_pair", "sb_char"}),
    ),
    "inlined_slots": Counted(
        ("slot_reset", "slot_add"),
        frozenset(),
        marked=frozenset({"slot_reset", "slot_add"}),
        tested=frozenset({"slot_reset", "slot_add"}),
        newest_clang=19,
    ),
    # It knows ahead what some of their calls test, and leaves them out.
    "inlined_tested": Counted(
        ("note", "reset", "put", "visit", "add"), frozenset(), tested=frozenset({"add"})
    ),
    # It joins, packs or cancels what they write, or takes it out of loops.
    "inlined_writes": Counted(
        (
            "clear",
            "bump",
            "zero",
            "reset",
            "opens",
            "closes",
            "mark",
            "pick",
            "tell",
            "store",
            "spec",
            "walk",
            "swap",
        ),
        frozenset(),
        marked=frozenset({"opens", "pick", "tell", "store", "spec", "walk"}),
        newest=12,
    ),
    # It knows nothing ahead of what they write.
    "inlined_slab": Counted(
        ("slot_release", "slot_acquire", "slab_sweep"),
        frozenset(),
        tested=frozenset({"slot_release"}),
        newest_clang=14,
    ),
    # It tests their first condition together with the one in front of them.
    "inlined_combined": Counted(
        ("enter", "leave", "pass", "shut", "is_open"),
        frozenset(),
        marked=frozenset({"leave", "pass"}),
        newest=12,
    ),
    "inlined_reader": Counted(
        ("Reader::read_value", "Reader::read_list"),
        frozenset(),
        marked=frozenset({"Reader::read_value", "Reader::read_list"}),
        newest=12,
    ),
    "inlined_folders": Counted(
        ("weigh", "weigh_inside"), frozenset(), marked=frozenset({"weigh_inside"}), newest=12
    ),
    # It puts what is seldom done elsewhere.
    "inlined_cache": Counted(("fetch",), frozenset(), marked=frozenset({"fetch"}), newest=12),
    # It computes them ahead, joins what it has left of them, or does the same as a macro beside them.
    "inlined_ahead": Counted(("fits", "open_table"), frozenset({"open_table"})),
    # It inlines them by way of other files' functions, or of handlers.
    "inlined_elsewhere": Counted(
        ("drop", "release", "tell", "say"), frozenset({"release", "say"}), frozenset({"drop"})
    ),
}


# Clang's code of these is refused, or counted by what others try, too.
_OF_GCC = (
    "inlined_combined",
    "inlined_reader",
    "inlined_folders",
    "inlined_cache",
    "inlined_lost",
    "inlined_moved",
)


@pytest.mark.parametrize(
    ("name", "compiler", "level"),
    cover(
        [(name, *build) for name in COUNTED for build in BUILDS],
        lambda name, compiler, level: (
            (compiler, level) in USUAL and (compiler == "g++" or name not in _OF_GCC)
        ),
    ),
)
def test_no_call_is_miscounted_without_a_word_whatever_the_compiler_has_made_of_it(
    program: Program, scratch: Path, name: str, compiler: str, level: tuple[str, ...]
) -> None:
    functions, sure, refused, marked, newest, tested, newest_clang = COUNTED[name]
    target = built(program, name, compiler, level)
    target.touch()  # a source that is newer is not trusted
    # All hits are counted; a snapshot at each would take most of the time.
    points = "".join(f'  - {{at: "{one}", hits: {{every: 100}}}}\n' for one in functions)
    played = play(f"engine: faults\npoints:\n{points}", scratch, program=target)
    own = {one: int(calls) for one, calls in re.findall(r"^(\S+) (\d+)$", played.out, re.M)}
    hits = {one: point["hits"] for one, point in zip(functions, played.facts["points"])}
    said = [one["message"] for one in played.facts["warnings"]]
    unclear = {one for one in functions if any(f"'{one}' is inlined " in text for text in said)}
    folded = {one for one in functions if any(f"'{one}' has the code of" in text for text in said)}
    unseen = {
        one for one in functions if any(f"no location '{one}'" in text for text in said)
    }  # by newer gdbs
    counted = set(functions) - unclear - folded - unseen
    assert {one: hits[one] for one in counted} == {one: own[one] for one in counted}
    assert counted | unseen >= sure
    assert counted | unseen >= marked or (compiler, level) != ("g++", ("-O2",)) or version("g++") > newest
    of_clang = (compiler, level) == ("clang++", ("-O3",)) and version("clang++") <= newest_clang
    assert counted | unseen >= tested or not of_clang
    assert unclear | unseen >= refused
    assert folded <= ({"first"} if name == "inlined_lost" else set())


def test_an_array_that_the_program_has_nowhere_is_not_put_there_by_a_call_of_its_malloc(
    program: Program, scratch: Path
) -> None:
    code = (
        "from gdbmem.debugger.location import frame_variables, memory_address;"
        "gdb.events.inferior_call.connect(lambda call: print('malloc is called'));"
        "found = [*gdb.lookup_static_symbols('weights'), *gdb.lookup_static_symbols('sums')];"
        "frame = gdb.selected_frame();"
        "values = [one.value() for one in found] + [frame.read_var(*one) for one in frame_variables(frame)];"
        "print('in memory:', [memory_address(one) is not None for one in values])"
    )
    said = run_gdb(program("array_nowhere"), ["break printf", "run", "up", f"python {code}"], folder=scratch)
    assert "in memory: [" in said.output
    assert "malloc is called" not in said.output


@pytest.mark.parametrize("level", cover(["-O2", "-O3"], lambda level: level == "-O3"))
def test_a_point_in_a_coroutine_whose_code_gdb_takes_for_another_function_does_not_end_gdb(
    program: Program, scratch: Path, level: str
) -> None:
    target = program("inlined_coroutine", "-std=c++20", level)
    points = "points:\n  - {at: step, name: begun}\n  - {at: step, name: ended, after: true}\n"
    played = play(f"engine: faults\n{points}", scratch, program=target)
    assert played.status == 0, played.err
    (own,) = re.findall(r"^step (\d+)$", played.out, re.M)
    said = [one["message"] for one in played.facts["warnings"]]
    taken = Counter(record["base_name"] for record in snapshots(played.run))
    assert taken["begun"] == int(own)
    assert taken["ended"] == int(own) or any("gdb would end at a breakpoint" in one for one in said)


CONDITIONS = {
    "work": "n % 3 == 0",
    "Pool::add": "size % 2 == 0 && this->name[0] == 'n'",
    "inner": "depth == 2",
    "outer": "depth == 4",
    "counts": "calls == 3",
}


@pytest.mark.parametrize(
    ("compiler", "level"), cover(BUILDS, lambda compiler, level: level == ("-O2",) and compiler == "g++")
)
def test_a_condition_on_an_inlined_call_asks_for_its_own_variables_not_those_of_the_caller(
    program: Program, scratch: Path, compiler: str, level: tuple[str, ...]
) -> None:
    points = "".join(f"  - {{at: {at}, when: {json.dumps(when)}}}\n" for at, when in CONDITIONS.items())
    points += "  - {at: has_none, when: other == 4}\n"  # the caller's
    played = play(
        f"points:\n{points}", scratch, program=built(program, "inlined_conditions", compiler, level)
    )
    counted = {name: int(times) for name, times in re.findall(r"^([\w:]+) (\d+)$", played.out, re.M)}
    hits = {point["at"]: point["hits"] for point in played.facts["points"]}
    refused = [one["message"] for one in played.facts["warnings"] if one["slug"].startswith("point-")]
    assert any('has_none: No symbol "other"' in one for one in refused)
    assert hits.pop("has_none") == 0
    is_kept = {name for name in hits if not any(f": {name}: " in one for one in refused)}
    assert {name: hits[name] for name in is_kept} == {name: counted[name] for name in is_kept}
    assert len(is_kept) == (5 if (compiler, level) == ("g++", ("-O2",)) else len(is_kept)), refused


def test_the_first_line_that_a_newcomer_types_takes_its_snapshots(program: Program, scratch: Path) -> None:
    with launched(program("inlined_reset", "-O2"), folder=scratch) as user:
        user.type("massif-break --name r --after Engine::reset")
        said = user.type("continue")
        assert [int(n) for n in re.findall(r"snapshot r(?:#(\d))?: heap", said) if n] == [2, 3, 4]
        assert "exception" not in said
        user.type("delete 1")
        assert "r#4" in user.type("massif-list")
        user.quit()


def test_a_point_is_hit_though_gdb_disables_it_when_a_library_is_unloaded(
    program: Program, scratch: Path
) -> None:
    library = json.dumps(str(program("large_thread_local")))
    played = play("points: [{at: sleep}]\n", scratch, program=program("unloads"), arguments=f"[{library}]")
    assert played.status == 0, played.err
    assert len(snapshots(played.run)) == 1


@pytest.mark.parametrize(
    "engine", cover(["gperftools", "jemalloc", "faults"], lambda engine: engine == "faults")
)
def test_a_native_engine_counts_what_is_inlined_in_a_library_that_is_loaded_later(
    program: Program, scratch: Path, engine: str
) -> None:
    library = json.dumps(str(program("inlined_library")))
    point = "points:\n  - {at: work, name: begun}\n  - {at: work, name: done, after: true}\n"
    played = play(
        f"engine: {engine}\n{point}", scratch, program=program("loads_inlined"), arguments=f"[{library}]"
    )
    (counted,) = re.findall(r"^work (\d+) (\d+)$", played.out, re.M)
    said = [one["message"] for one in played.facts["warnings"] if one["slug"] == "inlined-unclear"]
    # gdb 18 loses the ranges of the copies that GCC 16 describes.
    if not any("'work' is inlined at " in one for one in said):
        assert [str(point["hits"]) for point in played.facts["points"]] == list(counted)


def test_native_points_at_one_place_are_all_recorded_also_where_one_of_them_is_at_its_last_hit(
    program: Program, scratch: Path
) -> None:
    points = """
  - {at: "Engine::reset", name: last, hits: {only: [2]}}
  - {at: "Engine::reset", name: each}
  - {at: "Engine::reset", name: first, hits: {first: 1}}
  - {at: "Engine::load", name: load, hits: {only: [3]}}
  - {at: "Engine::load", name: loads}
"""
    played = play(f"engine: gperftools\npoints:{points}", scratch, program=program("inlined_reset", "-O2"))
    assert played.status == 0, played.err
    taken = Counter(record["base_name"] for record in snapshots(played.run) if record["base_name"] != "own")
    assert taken == {"last": 1, "each": 4, "first": 1, "load": 1, "loads": 4}
    assert not played.facts.get("warnings")


@pytest.mark.parametrize("linker", ["gold", "lld"])
def test_a_folded_function_is_said_to_count_for_both_and_an_alias_is_not(
    program: Program, scratch: Path, linker: str
) -> None:
    if not shutil.which(f"ld.{linker}"):
        pytest.skip(f"no ld.{linker}")
    target = program("folded", f"-fuse-ld={linker}", "-Wl,--icf=all", "-ffunction-sections")
    points = "points: [{at: first}, {at: second}, {at: alone}, {at: fourth}, {at: mmap}]\n"
    played = play(points, scratch, program=target)
    said = [one["message"] for one in played.facts["warnings"] if one["slug"] == "inlined-unclear"]
    assert "'first' has the code of second" in said[0]
    assert "'second' has the code of first" in said[1]
    assert [point["hits"] for point in played.facts["points"]][:3] == [5, 5, 2]
    assert "'fourth' has the code of third" in said[2]
    assert len(said) == 3
    watched = run_gdb(target, ["break main", "run", "memwatch function first"], folder=scratch)
    assert "first has the code of second in this program" in watched.complaints


def test_functions_that_gcc_has_folded_are_not_counted_as_one_without_a_word_and_an_alias_is_not_called_so(
    program: Program, scratch: Path
) -> None:
    target = program("folded_by_gcc", "-O2")
    target.touch()  # a source that is newer is not trusted
    points = "points:\n  - {at: outer}\n  - {at: outer, after: true, name: done}\n  - {at: real}\n"
    played = play(f"engine: faults\n{points}", scratch, program=target)
    assert [point["hits"] for point in played.facts["points"]][:2] == [15, 15]  # 5 and 10
    said = [one["message"] for one in played.facts["warnings"] if "has the code of" in one["message"]]
    assert len(said) == 2
    assert all("'outer' has the code of inner in this program (folded by the compiler" in one for one in said)
    for name, other in (("inner", "outer"), ("outer", "inner")):
        watched = run_gdb(target, ["break main", "run", f"memwatch function {name}"], folder=scratch)
        assert f"{name} has the code of {other} in this program (folded by the compiler" in " ".join(
            (watched.output + watched.complaints).split()
        )


@pytest.mark.parametrize("engine", ["massif", "faults"])
def test_an_indirect_function_is_recorded_in_the_code_that_the_program_chooses(
    program: Program, scratch: Path, engine: str
) -> None:
    points = "points: [{at: chosen, name: begun}, {at: chosen, name: done, after: true, when: size == 3}]\n"
    played = play(f"engine: {engine}\n{points}", scratch, program=program("indirect_function"))
    assert played.status == 0, played.err
    assert [point["hits"] for point in played.facts["points"]] == [5, 1]
    assert len(snapshots(played.run)) >= 6
    if engine == "faults":
        commands = ["break main", "run", "memwatch function --calls 5 chosen"]
        watched = run_gdb(program("indirect_function"), commands, folder=scratch)
        assert "chosen is an indirect function (IFUNC): the program has chosen choice" in watched.complaints
        assert "choice  indirect_function.c  5 calls" in watched.output


def test_an_indirect_function_is_refused_at_the_prompt_until_it_is_chosen(
    program: Program, scratch: Path
) -> None:
    with launched(program("indirect_function"), folder=scratch) as user:
        assert "'chosen' is an indirect function (IFUNC)" in user.type("massif-break chosen")
        user.type("break main")
        user.type("continue")
        user.type("massif-break --name c chosen")
        assert "snapshot c#5" in user.type("continue")
        user.quit()


@pytest.mark.parametrize("level", cover(["-O0", "-O1", "-O2", "-O3"], lambda level: level in ("-O0", "-O1")))
def test_finish_of_an_inlined_call_measures_all_of_it(program: Program, scratch: Path, level: str) -> None:
    said = run_gdb(
        program("inlined_reset", level), ["break Engine::reset", "run", "memwatch finish"], folder=scratch
    )
    assert "0 B resident" in said.output
    assert "(malloc -164.3 KiB)" in said.output


def test_a_point_on_a_line_of_inlined_code_says_where_gdb_puts_it_and_names_the_function(
    program: Program, scratch: Path
) -> None:
    moved, kept = (
        line_of("inlined_reset.cpp", "all.reset()"),
        line_of("inlined_conditions.cpp", "works = works"),
    )
    said = []
    for name, line in (("inlined_reset", moved), ("inlined_conditions", kept)):
        folder = scratch / name
        folder.mkdir()
        played = play(f"points: [{{at: '{name}.cpp:{line}'}}]\n", folder, program=program(name, "-O2"))
        slugs = ("inlined-unclear", "point-unresolved")  # GCC 16 leaves no trace of the first
        said += [one["message"] for one in played.facts["warnings"] if one["slug"] in slugs]
    if f"the program has no location 'inlined_reset.cpp:{moved}'" not in said[0]:
        assert f"line {moved} of 'inlined_reset.cpp:{moved}' begins no statement in this program" in said[0]
        assert "gdb puts the point elsewhere in main" in said[0]
    assert f"'inlined_conditions.cpp:{kept}' is code that is inlined into round" in said[1]
    assert "a point on work counts its calls" in said[1]
    assert len(said) == 2


@pytest.mark.parametrize(
    ("compiler", "level"), cover(BUILDS, lambda compiler, level: (compiler, level) == ("clang++", ("-O2",)))
)
def test_copies_of_a_body_of_one_line_are_counted_or_named(
    program: Program, scratch: Path, compiler: str, level: tuple[str, ...]
) -> None:
    points = "points: [{at: makes_one, name: b}, {at: makes_one, name: e, after: true}, {at: makes_two}]\n"
    target = built(program, "one_line_copies", compiler, level)
    target.touch()  # it may be from an earlier test run: a source that is newer is not trusted
    played = play(points, scratch, program=target)
    said = [one["message"] for one in played.facts["warnings"] if one["slug"] == "inlined-unclear"]
    if [point["hits"] for point in played.facts["points"]][:2] != [8, 8]:  # compilers need not call malloc
        assert any("'makes_one' is inlined at 3 lines" in one for one in said)
    if played.facts["points"][2]["hits"] != 6:
        assert any("'makes_two' is inlined at 1 line" in one for one in said)


COUNTING = """
import os, signal, sys
sys.path.insert(0, {root!r})
import gdb
from gdbmem.debugger import inlined_code
from gdbmem.debugger.location import function_blocks
from gdbmem.debugger.snapshots.inlined_breakpoints import InlinedCalls

class Listener:
    note = print
    wants_ends = True
    may_join = False

steps = 0
def trace(frame, event, argument):
    global steps
    steps += event == "line"
    return trace if frame.f_code.co_filename == inlined_code.__file__ else None

gdb.execute("starti", to_string=True)
for name in ("few", "many"):
    block = function_blocks(int(gdb.parse_and_eval(f"(long)&{{name}}")))[-1]
    steps = 0
    sys.settrace(trace)
    code = inlined_code.read_inlined_code(
        gdb.selected_frame().architecture(), block, lambda inlined: str(inlined.function) == "work", "work"
    )
    sys.settrace(None)
    print("FOUND", sum(len(passage.calls) == 1 for passage in code.passages.values()), steps)

def press(inlined):
    os.kill(os.getpid(), signal.SIGINT)
    return True

try:
    inlined_code.read_inlined_code(gdb.selected_frame().architecture(), block, press, "work")
except KeyboardInterrupt:
    print("ENDED")
inlined_code._MOST_INSTRUCTIONS = 500
InlinedCalls("work", Listener(), commands=None)
"""


def test_many_inlined_calls_do_not_keep_the_prompt_away(scratch: Path) -> None:
    calls = {"few": 20, "many": 200}
    source, script = scratch / "large.c", scratch / "count.py"
    source.write_text(
        "#include <stdlib.h>\nvoid *volatile kept;\n"
        "static inline __attribute__((always_inline)) void work(int n) { kept = malloc(n); if (n & 1) free(kept); }\n"
        + "".join(
            f"void {name}(int c) {{\n"
            + "".join(f"if (c != {n}) {{ work(c + {n}); kept = 0; }}\n" for n in range(number))
            + "}\n"
            for name, number in calls.items()
        )
        + "int main(void) { few(1); many(1); return 0; }\n"
    )
    script.write_text(COUNTING.format(root=str(ROOT)))
    subprocess.run(["gcc", "-g", "-O2", "-o", scratch / "large", source], check=True, timeout=120)
    done = subprocess.run(
        ["gdb", "-nx", "-q", "-batch", "-x", script, scratch / "large"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = [
        (int(begun), int(steps)) for begun, steps in re.findall(r"^FOUND (\d+) (\d+)$", done.stdout, re.M)
    ]
    (few, few_steps), (many, many_steps) = found
    assert few >= calls["few"], done.stdout + done.stderr
    assert many >= calls["many"]
    assert many_steps < 15 * few_steps
    assert "ENDED" in done.stdout
    (said,) = [line for line in done.stdout.splitlines() if line.startswith("'work' is inlined into many")]
    assert "too large for its inlined calls to be found" in said
    assert "put a point at a line of many" in said
    assert "has the code of many" not in done.stdout


def test_a_point_where_each_round_of_a_loop_is_a_hit_says_so(program: Program, scratch: Path) -> None:
    points = "points: [{at: touch}, {at: even}]\n"
    played = play(f"engine: faults\n{points}", scratch, program=program("entered_again"))
    said = [one["message"] for one in played.facts["warnings"] if one["slug"] == "inlined-unclear"]
    hits = [point["hits"] for point in played.facts["points"]]
    assert (hits[0] == 6) is not any(
        "each round counts as a call" in one and "'touch'" in one for one in said
    )
    assert not any("'even'" in one for one in said)
