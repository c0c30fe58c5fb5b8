"""A valid recipe is read correctly, also after its way into gdb as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.engines.massif import MassifOptions
from gdbmem.recipes import reader
from gdbmem.recipes.reader import load_recipe, parse_recipe
from gdbmem.recipes.recipe import Action, HitFilter, Recipe, recipe_from_plan

ROOT = Path(__file__).parents[3]

FULL = r"""
program: ./decoder            # relative to the recipe's folder
args: [config.yaml, "", no]
env: {OMP_NUM_THREADS: 4, LANG: no, EMPTY: }
stdin: words.txt
engine: massif
options:
  threshold: 0.5
  pages-as-heap: no
  stacks: yes
  time-unit: B
  alloc-fn: [my_alloc, "operator new(unsigned long)"]
  massif-opt: [--depth=50]
  valgrind-opt: [--num-callers=40]
  trace-children: true
timeout: 10min
points:
  - at: decoder.cpp:120
    name: loaded
    when: n_states > 1000
    hits: {only: [1, 100]}
    do: [snap, backtrace, {print: "a[1], b"}, {gdb: info registers rip}]
  - at: Decoder::reset
    after: true
diff: [[loaded#1, Decoder::reset]]
expect:
  - between: [loaded#1, loaded]
    metric: heap
    at_most: 1MiB
    path: task_states|operator\[\]
  - {between: [loaded#1, loaded#2], at_least: -1.5kB}
"""
MINIMAL = "program: a\npoints: [{at: main}]\n"


def read(text: str, source: str = "/home/u/leak.yaml") -> Recipe:
    return parse_recipe(text, source)


def test_every_key_arrives_as_it_was_written() -> None:
    recipe = read(FULL)
    assert recipe.program == "./decoder"
    assert list(recipe.args) == ["config.yaml", "", "no"]
    assert recipe.env == {"OMP_NUM_THREADS": "4", "LANG": "no", "EMPTY": ""}
    assert recipe.stdin == "/home/u/words.txt"
    assert recipe.timeout_seconds == 600
    loaded, reset = recipe.points
    assert (loaded.at, loaded.name, loaded.when) == ("decoder.cpp:120", "loaded", "n_states > 1000")
    assert loaded.hits == HitFilter(only=frozenset({1, 100}))
    assert list(loaded.actions) == [
        Action("snap"),
        Action("backtrace"),
        Action("print", "a[1], b"),
        Action("gdb", "info registers rip"),
    ]
    assert (reset.name, reset.after, reset.hits) == ("Decoder::reset", True, HitFilter())
    assert [(pair.before, pair.after) for pair in recipe.diffs] == [("loaded#1", "Decoder::reset")]
    most, least = recipe.expectations
    assert (most.at_most, most.at_least, most.path) == (
        1 << 20,
        None,
        r"task_states|operator\[\]",
    )
    assert (least.at_most, least.at_least, least.limit) == (None, -1500, -1500)


def test_options_are_what_the_engine_takes() -> None:
    assert vars(MassifOptions(**read(FULL).options)) == vars(
        MassifOptions(
            threshold="0.5",
            pages_as_heap=False,
            stacks=True,
            time_unit="B",
            alloc_fns=("my_alloc", "operator new(unsigned long)"),
            massif_opts=("--depth=50",),
            valgrind_opts=("--num-callers=40",),
            trace_children=True,
        )
    )


def test_what_is_left_out_has_the_documented_meaning() -> None:
    recipe = read(MINIMAL)
    assert (recipe.stdin, recipe.engine, recipe.timeout_seconds) == ("/dev/null", "massif", None)
    assert vars(MassifOptions(**recipe.options)) == vars(MassifOptions())
    point = recipe.points[0]
    assert (point.name, point.after, point.when, point.records) == ("main", False, "", frozenset(("snap",)))


def test_gdb_gets_the_same_recipe_as_json() -> None:
    recipe = read(FULL)
    assert recipe_from_plan(json.loads(json.dumps(recipe.to_plan()))) == recipe
    assert recipe_from_plan(json.loads(json.dumps(read(MINIMAL).to_plan()))) == read(MINIMAL)


def test_a_plan_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="plan version 99"):
        recipe_from_plan({**read(MINIMAL).to_plan(), "plan_version": 99})


def test_relative_paths_start_at_the_recipe_wherever_gdbmem_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "leak.yaml").write_text(f"{MINIMAL}stdin: in.txt\n")
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("sub/leak.yaml")
    assert recipe.folder == tmp_path / "sub"
    assert recipe.stdin == str(tmp_path / "sub" / "in.txt")


def test_a_point_knows_its_line_and_column_for_what_only_gdb_can_find_out() -> None:
    recipe = read(FULL)
    assert recipe.place(recipe.points[1].position) == "/home/u/leak.yaml:23:9"


def test_a_file_name_with_escapes_is_shown_not_obeyed() -> None:
    recipe = read(MINIMAL, "\x1b[31m.yaml")
    assert recipe.place(recipe.points[0].position) == r"\x1b[31m.yaml:2:15"


@pytest.mark.parametrize("text", [MINIMAL.replace("\n", "\r\n"), "\ufeff" + MINIMAL, MINIMAL + "...\n"])
def test_windows_line_ends_and_byte_order_marks_do_not_matter(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_bytes(text.encode())
    assert load_recipe(tmp_path / "r.yaml").program == "a"


@pytest.mark.parametrize(
    ("wanted", "hits", "last", "count"),
    [
        (HitFilter(), [1, 2, 3, 4, 5, 6, 7, 8, 9], None, None),
        (HitFilter(only=frozenset({2, 9})), [2, 9], 9, 2),
        (HitFilter(every=3), [3, 6, 9], None, None),
        (HitFilter(first=2), [1, 2], 2, 2),
        (HitFilter(every=3, first=2), [3, 6], 6, 2),
    ],
)
def test_hits_are_chosen_as_documented(wanted: HitFilter, hits: list[int], last: int, count: int) -> None:
    assert [hit for hit in range(1, 10) if wanted.wants(hit)] == hits
    assert (wanted.last_wanted, wanted.most) == (last, count)


def test_the_recipes_to_copy_are_sound() -> None:
    shipped = sorted((ROOT / "gdbinit" / "recipes").glob("*.yaml"))
    assert len(shipped) >= 2
    for path in shipped:
        assert load_recipe(path).expectations


@pytest.mark.parametrize(
    "words",
    [
        reader.KEYS,
        reader.POINT_KEYS,
        reader.HIT_KEYS,
        reader.EXPECT_KEYS,
        reader.OPTION_KEYS,
        reader.ACTIONS,
        reader.METRICS,
        reader.ENGINES,
    ],
)
def test_every_word_of_the_schema_is_documented(words: tuple[str, ...]) -> None:
    text = (ROOT / "docs" / "recipes.md").read_text()
    for word in words:
        assert any(form in text for form in (f"`{word}`", f"`{{{word}: ")), word


def test_the_recipe_in_the_documentation_is_sound() -> None:
    text = (ROOT / "docs" / "recipes.md").read_text()
    recipe = read(text.split("```yaml\n")[1].split("```")[0])
    assert [point.name for point in recipe.points] == ["loaded", "reset"]


@pytest.mark.parametrize(
    ("text", "status"),
    [("3", 3), ("SIGKILL", 137), ("sigterm", 143), ("SEGV", 139), ("any", None), ("0", 0)],
)
def test_the_end_of_a_program_is_a_status_a_signal_or_any(text: str, status: Optional[int]) -> None:
    recipe = read(f"program: a\nends: {text}\npoints: [{{at: m}}]\n")
    assert recipe.ends == status
    assert recipe_from_plan(json.loads(json.dumps(recipe.to_plan()))).ends == status
    assert read("program: a\npoints: [{at: m}]\n").ends == 0
