"""YAML → Recipe: every problem named with its line and column, all of them at once."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Optional, Union

import yaml

from gdbmem.engines.massif import TIME_UNITS
from gdbmem.errors import InputError
from gdbmem.model.diff import BLOCKS, HELD, LEAKED, OF_PROCESS, UNTRACED, Expectation, metric_name
from gdbmem.recipes.abilities import check_pair, refusals
from gdbmem.recipes.recipe import SNAPSHOT_ONLY, Action, HitFilter, Pair, Point, Recipe
from gdbmem.recipes.yaml_text import Reader, RecipeError, compose, position_of, read_text, suggest
from gdbmem.runs.distrust import check_name, split_name
from gdbmem.text import parse_duration, parse_regex, parse_size, printable

KEYS = (
    "program", "args", "env", "stdin", "engine", "options", "timeout", "ends", "points", "diff", "expect",
)  # fmt: skip
POINT_KEYS = ("at", "name", "when", "hits", "after", "do")
HIT_KEYS = ("only", "every", "first")
EXPECT_KEYS = ("between", "metric", "at_most", "at_least", "path", "retained")
OPTION_KEYS = (
    "threshold", "pages-as-heap", "time-unit", "stacks", "alloc-fn", "massif-opt", "valgrind-opt",
    "trace-children", "sample-rate", "dump-interval", "frames", "period",
)  # fmt: skip
ENGINES = (
    "massif", "memcheck", "gperftools", "jemalloc", "dhat", "heaptrack", "tracemalloc", "faults", "none", "auto",
)  # fmt: skip
WHOLE_RUN_ENGINES = ("dhat", "heaptrack")  # which take no snapshots
METRICS = ("heap", BLOCKS, UNTRACED, "rss", "retained", LEAKED)  # HELD is a key of its own, retained: NAME
ACTIONS = ("snap", "ledger", "containers", "heap", "backtrace", "print", "gdb")

_WITH_ARGUMENT = {"print": "{print: EXPRESSION}", "gdb": "{gdb: COMMAND}"}
# The engine's own field for each option that is a list.
_LIST_OPTIONS = {"alloc-fn": "alloc_fns", "massif-opt": "massif_opts", "valgrind-opt": "valgrind_opts"}
_SIZE_OPTIONS = ("sample-rate", "dump-interval")
_COUNT_OPTIONS = ("frames", "period")
_OF_NATIVE_ENGINES = (*_SIZE_OPTIONS, *_COUNT_OPTIONS)
_VALGRINDS = ("valgrind-opt", "trace-children")
_OPTIONS_OF: dict[str, tuple[str, ...]] = {
    "massif": tuple(name for name in OPTION_KEYS if name not in _OF_NATIVE_ENGINES),
    "memcheck": _VALGRINDS,
    "dhat": _VALGRINDS,
    "gperftools": ("dump-interval",),
    "jemalloc": _SIZE_OPTIONS,
    "tracemalloc": ("frames",),
    "faults": ("period",),
}
_FLAG_OPTIONS = ("pages-as-heap", "stacks", "trace-children")


def load_recipe(path: Union[str, os.PathLike[str]]) -> Recipe:
    """Read the recipe in the file at *path*; nothing is run.

    Raises RecipeError (an InputError) with every problem found, InputError for an unreadable file.
    """
    source = os.fspath(path)
    return parse_recipe(read_text(Path(path), source), source)


def parse_recipe(text: str, source: str) -> Recipe:
    """Return the recipe that *text* holds; *source* is its file, for messages and relative paths."""
    root = compose(text, source)
    reader = Reader()
    recipe = _recipe(reader, root, source)
    for problem in refusals(recipe, recipe.engine):
        reader.problem(*problem)
    if reader.problems:
        raise RecipeError(source, reader.problems)
    return recipe


def _recipe(reader: Reader, root: yaml.Node, source: str) -> Recipe:
    nodes = reader.mapping(root, "a recipe", KEYS)
    engine = _engine(reader, nodes.get("engine"))
    for key in ("program",) if engine in WHOLE_RUN_ENGINES else ("program", "points"):
        # A root that is not a mapping has been named already.
        if key not in nodes and isinstance(root, yaml.MappingNode):
            reader.problem(root, f"the recipe has no '{key}:'")
    for key in ("diff", "expect"):
        if key in nodes and engine in WHOLE_RUN_ENGINES:
            reader.problem(
                nodes[key], f"{engine} takes no snapshots: there is nothing for '{key}:'", "leave it out"
            )
    folder = Path(source).absolute().parent
    points = _points(reader, nodes.get("points"))
    stdin = reader.text(nodes["stdin"], "'stdin'") if "stdin" in nodes else ""
    return Recipe(
        source=source,
        folder=folder,
        program=reader.line(nodes["program"], "'program'") if "program" in nodes else "",
        points=points,
        args=_texts(reader, nodes.get("args"), "'args'", "[config.yaml, --fast]"),
        env=_environment(reader, nodes.get("env")),
        stdin=str(folder / stdin) if stdin else "/dev/null",
        engine=engine,
        options=_options(reader, nodes.get("options"), engine),
        timeout_seconds=_timeout(reader, nodes.get("timeout")),
        ends=_end(reader, nodes["ends"]) if "ends" in nodes else 0,
        diffs=_diffs(reader, nodes.get("diff"), points),
        expectations=_expectations(reader, nodes.get("expect"), points),
    )


def _engine(reader: Reader, node: Optional[yaml.Node]) -> str:
    return reader.choice(node, "engine", ENGINES) if node else ENGINES[0]


def _timeout(reader: Reader, node: Optional[yaml.Node]) -> Optional[float]:
    seconds = reader.quantity(node, "'timeout'", parse_duration) if node else None
    if node and seconds == 0:
        reader.problem(node, "'timeout' is 0", "leave it out to wait without a limit")
    return seconds


def _end(reader: Reader, node: yaml.Node) -> Optional[int]:
    """Return the status, as in a shell, that the program is meant to end with; None: any."""
    text = reader.text(node, "'ends'")
    if text.lower() == "any" or not text:
        return None
    if re.fullmatch(r"\d{1,3}", text, re.ASCII) and int(text) < 256:
        return int(text)
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    if name in signal.Signals.__members__:
        return 128 + signal.Signals[name]
    reader.problem(
        node,
        f"'ends' is '{printable(text)}'",
        "write the program's exit status (0 to 255), the signal that ends it (SIGTERM), or any",
    )
    return None


def _texts(reader: Reader, node: Optional[yaml.Node], what: str, example: str) -> tuple[str, ...]:
    items = reader.sequence(node, what, example) if node else []
    return tuple(reader.text(item, f"an item of {what}", empty=True) for item in items)


def _environment(reader: Reader, node: Optional[yaml.Node]) -> dict[str, str]:
    table = reader.table(node, "'env'") if node else {}
    for name in table:
        if node and "=" in name:
            reader.problem(node, f"'{printable(name)}' can't name a variable: it holds '='")
    return table


def _options(reader: Reader, node: Optional[yaml.Node], engine: str) -> dict[str, object]:
    options: dict[str, object] = {}
    nodes = reader.mapping(node, "'options'", OPTION_KEYS) if node else {}
    for key, value in nodes.items():
        what = f"'{key}'"
        known = _OPTIONS_OF.get(engine, ())
        if key not in known:
            hint = f"it takes {', '.join(known)}" if known else "it takes none"
            reader.problem(value, f"{what} is not an option of the engine {engine}", hint)
        elif key in _SIZE_OPTIONS:
            options[key.replace("-", "_")] = reader.quantity(value, what, parse_size)
        elif key in _COUNT_OPTIONS:
            options[key] = reader.count(value, what)
        elif key in _LIST_OPTIONS:
            options[_LIST_OPTIONS[key]] = _texts(reader, value, what, f"{key}: [{_option_example(key)}]")
        elif key in _FLAG_OPTIONS:
            options[key.replace("-", "_")] = reader.flag(value, what)
        elif key == "time-unit":
            options["time_unit"] = reader.choice(value, "time unit", TIME_UNITS)
        else:
            options["threshold"] = _percentage(reader, value)
    return options


def _option_example(key: str) -> str:
    return {"alloc-fn": "my_alloc", "massif-opt": "--depth=50"}.get(key, "--num-callers=50")


def _percentage(reader: Reader, node: yaml.Node) -> str:
    text = reader.text(node, "'threshold'")
    if text and not (re.fullmatch(r"\d{1,3}(\.\d{1,6})?", text, re.ASCII) and float(text) <= 100):
        reader.problem(
            node, f"'threshold' is '{printable(text)}'", "it is a percentage from 0 to 100, without a sign"
        )
    return text


def _points(reader: Reader, node: Optional[yaml.Node]) -> tuple[Point, ...]:
    items = reader.sequence(node, "'points'", "points: [{at: main.cpp:12}]") if node else []
    if node and isinstance(node, yaml.SequenceNode) and not items:
        reader.problem(node, "'points' is empty", "name at least one place, as in {at: main.cpp:12}")
    points: list[Point] = []
    for item in items:
        point, name_node = _point(reader, item)
        for earlier in points:
            if point.name and earlier.name == point.name:
                reader.problem(
                    name_node,
                    f"two points are named '{printable(point.name)}', the first in line"
                    f" {earlier.position.line}",
                    "give each its own 'name:'",
                )
                break
        points.append(point)
    return tuple(points)


def _point(reader: Reader, node: yaml.Node) -> tuple[Point, yaml.Node]:
    nodes = reader.mapping(node, "a point", POINT_KEYS)
    at_node = nodes.get("at", node)
    at = reader.line(at_node, "'at'") if "at" in nodes else ""
    if "at" not in nodes and isinstance(node, yaml.MappingNode):
        reader.problem(node, "this point has no 'at:'", "name a place, as in at: main.cpp:12")
    name_node = nodes.get("name", at_node)
    name = reader.line(name_node, "'name'") if "name" in nodes else at
    if name:
        try:
            check_name(name)
        except InputError as error:
            reader.problem(name_node, printable(error.message), printable(error.hint))
    point = Point(
        at=at,
        name=name,
        position=position_of(at_node),
        when=reader.line(nodes["when"], "'when'") if "when" in nodes else "",
        hits=_hits(reader, nodes["hits"]) if "hits" in nodes else HitFilter(),
        after=reader.flag(nodes["after"], "'after'") if "after" in nodes else False,
        actions=_actions(reader, nodes["do"]) if "do" in nodes else SNAPSHOT_ONLY,
    )
    return point, name_node


def _hits(reader: Reader, node: yaml.Node) -> HitFilter:
    nodes = reader.mapping(node, "'hits'", HIT_KEYS)
    if "only" in nodes and len(nodes) > 1:
        reader.problem(node, "'only' excludes other keys in 'hits'", "leave out 'every' and 'first'")
    if not nodes and isinstance(node, yaml.MappingNode) and not node.value:
        reader.problem(node, "'hits' is empty", "leave it out for each hit")
    numbers = reader.sequence(nodes["only"], "'only'", "only: [1, 100]") if "only" in nodes else []
    if "only" in nodes and isinstance(nodes["only"], yaml.SequenceNode) and not numbers:
        reader.problem(nodes["only"], "'only' is empty", "write it as in only: [1, 100]")
    return HitFilter(
        only=frozenset(reader.count(number, "a hit in 'only'") for number in numbers),
        every=reader.count(nodes["every"], "'every'") if "every" in nodes else 1,
        first=reader.count(nodes["first"], "'first'") if "first" in nodes else None,
    )


def _actions(reader: Reader, node: yaml.Node) -> tuple[Action, ...]:
    items = reader.sequence(node, "'do'", "do: [snap, backtrace]")
    if isinstance(node, yaml.SequenceNode) and not items:
        reader.problem(node, "'do' is empty", "leave it out for a snapshot")
    actions = [_action(reader, item) for item in items]
    if None in actions:
        return SNAPSHOT_ONLY  # has been named; nothing is to follow from it
    return tuple(action for action in actions if action)


def _action(reader: Reader, node: yaml.Node) -> Optional[Action]:
    if not isinstance(node, yaml.MappingNode):
        kind = reader.choice(node, "action", ACTIONS)
        if kind in _WITH_ARGUMENT:
            reader.problem(
                node, f"action '{kind}' lacks its argument", f"write it as in {_WITH_ARGUMENT[kind]}"
            )
        return Action(kind) if kind else None
    if len(node.value) != 1:
        reader.problem(node, "an action in braces has one key", "write [{print: x}, {print: y}]")
        return None
    key_node, value = node.value[0]
    kind = reader.choice(key_node, "action", ACTIONS)
    if kind and kind not in _WITH_ARGUMENT:
        reader.problem(key_node, f"action '{kind}' takes no argument", f"write {kind}")
    if kind not in _WITH_ARGUMENT:
        return None
    return Action(kind, reader.line(value, f"'{kind}'"))


def _diffs(reader: Reader, node: Optional[yaml.Node], points: Sequence[Point]) -> tuple[Pair, ...]:
    items = reader.sequence(node, "'diff'", "diff: [[before, after]]") if node else []
    pairs = (_pair(reader, item, "a pair in 'diff'", points) for item in items)
    found = tuple(pair for pair in pairs if pair)
    for pair in found:
        check_pair(reader, pair, points)
    return found


def _pair(reader: Reader, node: yaml.Node, what: str, points: Sequence[Point]) -> Optional[Pair]:
    example = "between: [before, after]" if "between" in what else "diff: [[before, after]]"
    items = reader.sequence(node, what, example)
    if len(items) != 2:
        if isinstance(node, yaml.SequenceNode):
            reader.problem(node, f"{what} holds two names, not {len(items)}", f"write it as in {example}")
        return None
    names = [reader.line(item, f"a name in {what}") for item in items]
    for name, item in zip(names, items):
        if name:
            _check_reference(reader, item, name, points)
    if names[0] and names[0] == names[1]:
        reader.problem(node, f"{what} compares '{printable(names[0])}' with itself")
    else:
        _check_order(reader, node, names, what, points)
    return Pair(names[0], names[1], position_of(node))


def _check_order(
    reader: Reader, node: yaml.Node, names: Sequence[str], what: str, points: Sequence[Point]
) -> None:
    """Note a problem if both *names* are of one point, and the first is recorded later or the only one."""
    (base, first), (other, second) = map(split_name, names)
    point = next((point for point in points if point.name == base), None)
    if base != other or point is None:
        return
    before, after = map(printable, names)
    if point.hits.most == 1:
        text = f"{what} compares '{before}' with '{after}', the only snapshot of that point"
        reader.problem(node, text, "have its 'hits:' allow two")
    elif second is not None and (first is None or first > second):
        reader.problem(node, f"{what} names the later snapshot first", f"write [{after}, {before}]")


def _check_reference(reader: Reader, node: yaml.Node, name: str, points: Sequence[Point]) -> None:
    base, ordinal = split_name(name)
    ordinal = ordinal or 1
    point = next((point for point in points if point.name == base), None)
    if point is None:
        known = list(dict.fromkeys(point.name for point in points if point.name))
        hint = suggest(base, known) if known else ""
        reader.problem(node, f"no point is named '{printable(base)}'", hint)
    elif not point.records:
        reader.problem(
            node,
            f"point '{printable(base)}' records nothing to compare",
            "add snap, ledger, containers or heap to its 'do:'",
        )
    elif point.hits.most is not None and ordinal > point.hits.most:
        reader.problem(
            node,
            f"there will be no '{printable(name)}': the 'hits:' of that point allow {point.hits.most}",
            "the number after # counts snapshots, not hits",
        )


def _expectations(
    reader: Reader, node: Optional[yaml.Node], points: Sequence[Point]
) -> tuple[Expectation, ...]:
    items = (
        reader.sequence(node, "'expect'", "expect: [{between: [before, after], at_most: 1MiB}]")
        if node
        else []
    )
    if isinstance(node, yaml.SequenceNode) and not items:
        reader.problem(node, "'expect' is empty", "leave it out to judge nothing")
    found = (_expectation(reader, item, points) for item in items)
    return tuple(expectation for expectation in found if expectation)


def _expectation(reader: Reader, node: yaml.Node, points: Sequence[Point]) -> Optional[Expectation]:
    nodes = reader.mapping(node, "an expectation", EXPECT_KEYS)
    if not isinstance(node, yaml.MappingNode):
        return None
    if "between" not in nodes:
        reader.problem(node, "this expectation has no 'between:'", "write it as in between: [before, after]")
    if ("at_most" in nodes) == ("at_least" in nodes):
        reader.problem(
            node,
            "an expectation has either 'at_most:' or 'at_least:'",
            "for both write two expectations" if "at_most" in nodes else "write it as in at_most: 1MiB",
        )
    pair = _pair(reader, nodes["between"], "'between'", points) if "between" in nodes else None
    holder = reader.line(nodes["retained"], "'retained'") if "retained" in nodes else ""
    metric = HELD if "retained" in nodes else "heap"
    if "metric" in nodes:
        metric = reader.choice(nodes["metric"], "metric", METRICS)
        if "retained" in nodes:
            reader.problem(
                nodes["metric"],
                "'retained:' names a holder and excludes 'metric:'",
                "write it as in retained: tasks, at_most: 1MiB",
            )
    expectation = Expectation(
        before=pair.before if pair else "",
        after=pair.after if pair else "",
        position=position_of(node),
        metric=metric,
        at_most=_limit(reader, nodes.get("at_most"), "'at_most'", metric),
        at_least=_limit(reader, nodes.get("at_least"), "'at_least'", metric),
        path=_pattern(reader, nodes["path"]) if "path" in nodes else "",
        holder=holder,
    )
    if pair and expectation.metric:
        check_pair(reader, pair, points, metric=expectation.metric)
    if expectation.path and expectation.metric in OF_PROCESS:
        reader.problem(
            nodes["path"],
            f"metric '{metric_name(expectation.metric)}' is of the whole process",
            "leave out 'path:'",
        )
    return expectation


def _limit(reader: Reader, node: Optional[yaml.Node], what: str, metric: str) -> Optional[int]:
    if node is None:
        return None
    return reader.quantity(node, what, _block_count if metric == BLOCKS else parse_size)


def _block_count(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        raise InputError(
            f"'{text}' is not a number of blocks", slug="bad-size", hint="write it without a unit, as in 100"
        )
    return int(text)


def _pattern(reader: Reader, node: yaml.Node) -> str:
    pattern = reader.line(node, "'path'")
    try:
        parse_regex(pattern)
    except InputError as error:
        reader.problem(node, f"'path': {error.message}", error.hint)
    return pattern
