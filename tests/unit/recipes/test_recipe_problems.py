"""All problems of a recipe are reported with line and column, and never as a traceback."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gdbmem.errors import InputError
from gdbmem.recipes.reader import load_recipe, parse_recipe
from gdbmem.recipes.yaml_text import RecipeError
from tests.unit.recipes.test_recipe import FULL, MINIMAL

HEAD = "program: a\npoints: [{at: main, name: m}, {at: f, name: end}, {at: g, name: g, hits: {first: 2}}]\n"


def problems(text: str) -> list[str]:
    """Return each problem as ``LINE:COLUMN sentence``; [] where there is none."""
    try:
        parse_recipe(text, "leak.yaml")
    except RecipeError as error:
        return [f"{p.position.line}:{p.position.column} {p}" for p in error.problems]
    return []


def only_problem(text: str) -> str:
    found = problems(text)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("progam: a\npoints: [{at: main}]", "1:1 unknown key 'progam' in a recipe; did you mean 'program'?"),
        ("points: [{at: main}]", "1:1 the recipe has no 'program:'"),
        ("program: a", "1:1 the recipe has no 'points:'"),
        ("program: a\npoints: []", "2:9 'points' is empty; name at least one place"),
        (
            "program: a\nprogram: b\npoints: [{at: m}]",
            "2:1 'program' occurs twice in a recipe, first in line 1",
        ),
        ("program: [a]\npoints: [{at: m}]", "1:10 'program' must be a text, not a list"),
        ("program: \npoints: [{at: m}]", "1:9 'program' has no value"),
        (HEAD + "args: fast", "3:7 'args' must be a list, not 'fast'; write it as in [config.yaml, --fast]"),
        (HEAD + "env: [A]", "3:6 'env' must be made of 'key: value' lines, not a list"),
        (HEAD + "env: {A=B: c}", "3:6 'A=B' can't name a variable"),
        (HEAD + "engine: dhat\nexpect: [{between: [m, end], at_most: 1B}]", "4:9 dhat takes no snapshots"),
        (HEAD + "engine: masif", "3:9 unknown engine 'masif'; did you mean 'massif'?"),
        (HEAD + "timeout: 10", "3:10 'timeout': '10' is not a duration; write it as in 500ms"),
        (HEAD + "timeout: 0", "3:10 'timeout' is 0; leave it out to wait without a limit"),
        (HEAD + "timeout: -3s", "3:10 'timeout': '-3s' is not a duration"),
        (HEAD + "options: {page-as-heap: no}", "3:11 unknown key 'page-as-heap' in 'options'; did you mean"),
        (HEAD + "options: {stacks: maybe}", "3:19 'stacks' must be true or false, not 'maybe'"),
        (HEAD + "options: {threshold: 101}", "3:22 'threshold' is '101'; it is a percentage from 0 to 100"),
        (HEAD + "options: {threshold: nan}", "3:22 'threshold' is 'nan'; it is a percentage from 0 to 100"),
        (HEAD + "options: {time-unit: us}", "3:22 unknown time unit 'us'; it can be i, ms or B"),
        (HEAD + "diff: [[m, ende]]", "3:12 no point is named 'ende'; did you mean 'end'?"),
        (HEAD + "diff: [[m, g#3]]", "3:12 there will be no 'g#3': the 'hits:' of that point allow 2"),
        (HEAD + "diff: [[m]]", "3:8 a pair in 'diff' holds two names, not 1; write it as in diff: [[before"),
        (HEAD + "diff: [m]", "3:8 a pair in 'diff' must be a list, not 'm'; write it as in diff: [[before,"),
        (HEAD + "diff: [[m, m]]", "3:8 a pair in 'diff' compares 'm' with itself"),
    ],
)
def test_a_mistake_in_the_recipe_is_named_with_its_place(text: str, said: str) -> None:
    assert only_problem(text).startswith(said)


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ("{name: x}", "2:10 this point has no 'at:'"),
        ("{at: m, afer: true}", "2:18 unknown key 'afer' in a point; did you mean 'after'?"),
        ("{at: m, hits: {only: [0]}}", "2:32 a hit in 'only' must be a whole number from 1"),
        ("{at: m, hits: {only: []}}", "2:31 'only' is empty"),
        ("{at: m, hits: {}}", "2:24 'hits' is empty; leave it out for each hit"),
        ("{at: m, hits: {every: 1e3}}", "2:32 'every' must be a whole number from 1"),
        ("{at: m, hits: {only: [1], every: 2}}", "2:24 'only' excludes other keys in 'hits'"),
        ("{at: m, do: [snapp]}", "2:23 unknown action 'snapp'; did you mean 'snap'?"),
        ("{at: m, do: [ledgr]}", "2:23 unknown action 'ledgr'; did you mean 'ledger'?"),
        (
            "{at: m, do: [print]}",
            "2:23 action 'print' lacks its argument; write it as in {print: EXPRESSION}",
        ),
        ("{at: m, do: [{snap: now}]}", "2:24 action 'snap' takes no argument; write snap"),
        ("{at: m, do: [{print: a, gdb: b}]}", "2:23 an action in braces has one key"),
        ("{at: m, do: []}", "2:22 'do' is empty; leave it out for a snapshot"),
        ('{at: "a\\nb"}', "2:15 'at' must be one line"),
        ("{at: m, name: a#1}", "2:24 'a#1' can't name a snapshot"),
        ("{at: m, name: n}, {at: o, name: n}", "2:42 two points are named 'n', the first in line 2"),
        ("{at: m}, {at: m}", "2:24 two points are named 'm', the first in line 2; give each its own 'name:'"),
        ("m", "2:10 a point must be made of 'key: value' lines, not 'm'"),
    ],
)
def test_a_mistake_in_a_point_is_named_with_its_place(point: str, said: str) -> None:
    assert only_problem(f"program: a\npoints: [{point}]").startswith(said)


@pytest.mark.parametrize(
    ("expectation", "said"),
    [
        ("at_most: 10", "5:14 'at_most': size '10' has no unit; write 10B, 10KiB or 10MiB"),
        ("at_most: 3 XB", "5:14 'at_most': '3 XB' has an unknown unit 'XB'"),
        (
            "at_most: 1MiB\n    at_least: 0",
            "4:5 an expectation has either 'at_most:' or 'at_least:'; for both",
        ),
        (
            "metric: heap",
            "4:5 an expectation has either 'at_most:' or 'at_least:'; write it as in at_most: 1MiB",
        ),
        (
            "at_most: 10\n    metric: blocks",
            "4:5 metric 'blocks' can't be judged: massif counts bytes only; choose gperftools, jemalloc or memcheck",
        ),
        (
            "at_most: 0\n    metric: block",
            "6:13 unknown metric 'block'; did you mean 'blocks'?",
        ),
        ('at_most: 0\n    path: "("', "6:11 'path': '(' is not a regular expression"),
        (f"at_most: 1{'0' * 400}.5MiB", "5:14 'at_most' is too large"),
    ],
)
def test_a_mistake_in_an_expectation_is_named_with_its_place(expectation: str, said: str) -> None:
    text = f"{HEAD}expect:\n  - between: [m, end]\n    {expectation}\n"
    assert only_problem(text).startswith(said)


def test_an_expectation_without_between_is_named() -> None:
    assert only_problem(HEAD + "expect: [{at_most: 0}]").startswith("3:10 this expectation has no 'between:'")


def test_a_point_that_takes_no_snapshot_cannot_be_compared() -> None:
    text = "program: a\npoints: [{at: m, do: [backtrace]}, {at: n}]\ndiff: [[m, n]]"
    assert only_problem(text).startswith("3:9 point 'm' records nothing to compare; add snap")


HEAPS = "program: a\nengine: none\npoints: [{at: m, do: [heap]}, {at: n, do: [heap]}]\n"
LEDGERS = "program: a\nengine: none\npoints: [{at: m, do: [ledger]}, {at: n, do: [ledger]}]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "program: a\npoints: [{at: m, do: [ledger]}]",
            "2:15 under massif the ledger at 'm' would be of valgrind's own memory; take ledgers with 'engine: none'",
        ),
        (
            "program: a\nengine: none\npoints: [{at: m}]",
            "3:15 engine none takes no snapshot at 'm'; write do: [ledger]",
        ),
        (
            LEDGERS + "expect: [{between: [m, n], at_most: 0}]",
            "4:20 point 'm' takes no snapshot, which 'heap' needs; add snap to their 'do:', or measure rss",
        ),
        (
            HEAD + "expect: [{between: [m, end], metric: rss, at_most: 0}]",
            "3:20 point 'm' takes no ledger, which 'rss' needs; add ledger",
        ),
        (
            HEAD + "expect: [{between: [m, end], metric: leaked, at_most: 0}]",
            "3:20 point 'm' takes no heap, which 'leaked' needs; add heap",
        ),
        (
            HEAPS + "expect: [{between: [m, n], metric: held, at_most: 0}]",
            "4:36 unknown metric 'held'",
        ),
        (
            HEAPS + "expect: [{between: [m, n], metric: leaked, retained: x, at_most: 0}]",
            "4:36 'retained:' names a holder and excludes 'metric:'; write it as in retained: tasks",
        ),
        (
            HEAD + "expect: [{between: [m, end], retained: tasks, at_most: 0}]",
            "3:20 point 'm' takes no heap, which 'retained' needs; add heap",
        ),
        (
            HEAPS + "expect: [{between: [m, n], retained: tasks, path: x, at_most: 0}]",
            "4:51 metric 'retained' is of the whole process; leave out 'path:'",
        ),
        (
            HEAPS.replace("none", "jemalloc"),
            "3:15 under jemalloc the heap at 'm' is not glibc's malloc, and its blocks are unknown",
        ),
        (
            LEDGERS + "expect: [{between: [m, n], metric: rss, path: x, at_most: 0}]",
            "4:47 metric 'rss' is of the whole process; leave out 'path:'",
        ),
        (
            LEDGERS.replace("none", "jemalloc") + "expect: [{between: [m, n], metric: retained, at_most: 0}]",
            "4:10 metric 'retained' can't be judged under jemalloc's profiler",
        ),
        (
            LEDGERS.replace("n, do: [ledger]", "n, do: [containers]") + "diff: [[m, n]]",
            "4:8 'm' and 'n' record nothing of the same kind; put snap, ledger, containers or heap into both 'do:'",
        ),
    ],
)
def test_what_the_engine_or_the_points_cannot_give_is_reported_before_anything_runs(
    text: str, said: str
) -> None:
    assert problems(text)[0].startswith(said)


def test_ledgers_can_be_compared_and_judged_with_an_engine_that_leaves_the_process_alone() -> None:
    text = LEDGERS + "diff: [[m, n]]\nexpect: [{between: [m, n], metric: retained, at_most: 0}]"
    recipe = parse_recipe(text, "leak.yaml")
    assert recipe.expectations[0].metric == "retained"


def test_all_problems_are_reported_in_their_order_and_the_error_counts_them() -> None:
    text = "program: a\ntimeout: 10\npoints: [{at: m, do: [ledgr]}]\nengine: what\nwhat: x\n"
    lines = [int(problem.split(":")[0]) for problem in problems(text)]
    assert lines == [2, 3, 4, 5]
    with pytest.raises(RecipeError) as caught:
        parse_recipe(text, "leak.yaml")
    assert str(caught.value).startswith("leak.yaml:2:10: 'timeout': '10' is not a duration; ")
    assert str(caught.value).endswith("'gdbmem recipe check leak.yaml' lists 3 more problems")


def test_one_misspelt_key_is_one_problem_not_also_what_follows_from_it() -> None:
    text = "program: a\npoints: [{at: m, naem: start}, {at: n}]\ndiff: [[start, n]]"
    assert only_problem(text).startswith("2:18 unknown key 'naem' in a point; did you mean 'name'?")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1:1 the recipe is empty"),
        ("# nothing\n", "1:1 the recipe is empty"),
        ("- a", "1:1 a recipe must be made of 'key: value' lines, not a list"),
        ("program: a: b", "1:11 this is not YAML: mapping values are not allowed here; quote a text"),
        ("program: a\n\tpoints: b", "2:1 this is not YAML: found character '\\t'"),
        ("program: 'a", "1:12 this is not YAML: found unexpected end of stream"),
        ("program: a\n---\nprogram: b", "2:1 this is not YAML: but found another document"),
        ("program: &a a", "1:10 anchors (&) and aliases (*) are not allowed in recipes"),
        ("program: *a", "1:10 anchors (&) and aliases (*) are not allowed in recipes"),
        ("program: !!python/object/apply:os.system [ls]", "1:10 tags (!) are not allowed in recipes"),
        ("[" * 5000, "1:17 this is nested too deeply"),
        ("{a: " * 5000, "1:62 this is nested too deeply"),
        ("a: \0", "1:4 this character is not allowed in YAML"),
        ('a: "\\U00110000"', "1:7 this escape is not a character"),
    ],
)
def test_what_is_no_plain_yaml_is_refused_with_its_place(text: str, said: str) -> None:
    assert problems(text)[0].startswith(said)


def test_a_bomb_of_aliases_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert only_problem("\n".join(lines)).startswith("1:5 anchors (&)")


def test_a_value_that_no_process_can_be_given_is_refused() -> None:
    assert problems('program: "a\\0b"\npoints: [{at: m}]')[0].startswith(
        "1:10 'program' contains a character"
    )
    assert problems(HEAD + 'args: ["\\ud800"]')[0].startswith("3:8 an item of 'args' contains a character")


def test_strangers_text_in_a_problem_cannot_drive_the_terminal() -> None:
    said = "\n".join(problems('"\\e[31m": 1\nprogram: a\npoints: [{at: m, do: ["\\e[2J"]}]'))
    assert "\x1b" not in said
    assert r"\x1b[31m" in said


def test_bytes_that_are_no_utf8_are_named_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(b"program: a\nargs: [\xff]\n")
    with pytest.raises(RecipeError, match=r"r\.yaml:2:8: this byte is not UTF-8; save the recipe as UTF-8"):
        load_recipe(path)


def test_a_file_that_is_no_recipe_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    path = tmp_path / "core"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(InputError, match=r"cannot read the recipe .*: it is over 256.0 KiB"):
        load_recipe(path)


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_an_unreadable_recipe_is_one_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the recipe"):
        load_recipe(tmp_path / name)


@pytest.mark.slow
def test_a_recipe_cut_anywhere_is_read_or_refused_in_a_sentence() -> None:
    for end in range(0, len(FULL), 3):
        assert all(":" in problem for problem in problems(FULL[:end]))


@pytest.mark.slow
def test_a_recipe_with_any_character_replaced_is_read_or_refused_in_a_sentence() -> None:
    chance = random.Random(20240607)
    nasty = "\t\n:#-[]{}&*!|>'\"%@`,? \\\0\x85\u2028\ufeff\ud800\x1b0ü"
    refused = 0
    for _ in range(400):
        text = list(FULL)
        for _ in range(chance.randint(1, 4)):
            text[chance.randrange(len(text))] = chance.choice(nasty)
        refused += bool(problems("".join(text)))
    assert refused > 130


def test_the_smallest_recipe_has_no_problem() -> None:
    assert problems(MINIMAL) == []
    assert problems(FULL) == []


def test_a_limit_of_blocks_is_a_number_without_a_unit() -> None:
    head = HEAD.replace("points", "engine: gperftools\npoints", 1)
    expectation = "expect:\n  - between: [m, end]\n    metric: blocks\n    at_most: {}\n"
    assert only_problem(head + expectation.format("1KiB")) == (
        "7:14 'at_most': '1KiB' is not a number of blocks; write it without a unit, as in 100"
    )
    assert problems(head + expectation.format("-100")) == []


@pytest.mark.parametrize("pair", ["[m, m#1]", "[m#3, m#2]"])
def test_a_pair_with_the_later_snapshot_first_is_named(pair: str) -> None:
    said = only_problem(f"program: a\npoints: [{{at: m}}]\nexpect: [{{between: {pair}, at_most: 0}}]\n")
    assert "'between' names the later snapshot first; write [m#" in said


@pytest.mark.parametrize("hits", ["{only: [5]}", "{first: 1}"])
def test_a_point_that_is_recorded_once_is_not_compared_with_itself(hits: str) -> None:
    said = problems(
        f"program: a\npoints: [{{at: m, hits: {hits}}}]\nexpect: [{{between: [m#1, m], at_most: 0}}]\n"
    )
    assert len(said) == 1 and "'between' compares 'm#1' with 'm', the only snapshot of that point" in said[0]


def test_an_empty_list_of_expectations_judges_nothing_and_is_named() -> None:
    said = only_problem("program: a\npoints: [{at: m}]\nexpect: []\n")
    assert said == "3:9 'expect' is empty; leave it out to judge nothing"


@pytest.mark.parametrize("end", ["SIGFOO", "256", "-9", "0x1", "137.0"])
def test_an_end_that_no_program_has_is_named(end: str) -> None:
    said = only_problem(f"program: a\nends: {end}\npoints: [{{at: m}}]\n")
    assert said.startswith(f"2:7 'ends' is '{end}'; write the program's exit status (0 to 255), the signal")
