"""Checks, before anything runs, that the engine and the points of a recipe can do what it asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gdbmem.errors import InputError
from gdbmem.model.diff import BLOCKS, GRAPH_METRICS, LEDGER_METRICS, UNTRACED, Position, metric_name
from gdbmem.recipes.recipe import Pair, Point, Recipe
from gdbmem.recipes.yaml_text import Reader, located
from gdbmem.runs.distrust import split_name
from gdbmem.text import printable

UNDER_VALGRIND = ("massif", "memcheck", "dhat")
_NO_SNAPSHOTS = ("none",)
_NO_BLOCKS = (
    "massif",
    "dhat",
    "gperftools",
    "jemalloc",
)  # which replace malloc, and list no block at a point
_BYTES_ONLY = ("massif", "faults")
_UNTRACED_BY = ("tracemalloc", "auto")


def refusals(recipe: Recipe, engine: str) -> Iterator[tuple[Position, str, str]]:
    """Yield (place, problem, hint) of all that can't be had of *recipe* with *engine*."""
    for point in recipe.points:
        for problem, hint in _at_point(point, engine):
            yield point.position, problem, hint
    for expectation in recipe.expectations:
        for problem, hint in _of_metric(expectation.metric, engine):
            yield expectation.position, problem, hint


def _at_point(point: Point, engine: str) -> Iterator[tuple[str, str]]:
    if point.does("ledger") and engine in UNDER_VALGRIND:
        yield (
            f"under {engine} the ledger at '{printable(point.name)}' would be of valgrind's own memory",
            "take ledgers with 'engine: none' (or gperftools, jemalloc); snap and containers work here",
        )
    if point.does("heap") and engine in _NO_BLOCKS:
        yield (
            f"under {engine} the heap at '{printable(point.name)}' is not glibc's malloc, and its blocks are unknown",
            "take heaps with 'engine: none', memcheck, tracemalloc or faults",
        )
    if point.does("snap") and engine in _NO_SNAPSHOTS:
        yield (
            f"engine {engine} takes no snapshot at '{printable(point.name)}'",
            "write do: [ledger], [containers] or [heap], or choose massif, gperftools or jemalloc",
        )


def _of_metric(metric: str, engine: str) -> Iterator[tuple[str, str]]:
    if metric == BLOCKS and engine in _BYTES_ONLY:
        yield (
            f"metric '{BLOCKS}' can't be judged: {engine} counts bytes only",
            "choose gperftools, jemalloc or memcheck",
        )
    if metric == UNTRACED and engine not in _UNTRACED_BY:
        yield (
            f"metric '{UNTRACED}' is the memory that tracemalloc doesn't trace, and {engine} does not use tracemalloc",
            "use 'engine: tracemalloc', or metric rss",
        )
    if metric == "retained" and engine == "jemalloc":
        yield (
            "metric 'retained' can't be judged under jemalloc's profiler: a block that it samples has pages of its own",
            "use 'engine: none', or metric rss",
        )


def check_engine(recipe: Recipe, engine: str) -> None:
    """Raise InputError, with line and column, where *recipe* asks what *engine* can't give."""
    for position, message, hint in refusals(recipe, engine):
        raise InputError(located(recipe.source, position, message), slug="recipe", hint=hint)


def check_pair(reader: Reader, pair: Pair, points: Sequence[Point], *, metric: str = "") -> None:
    """Note a problem if the points of *pair* don't both record what *metric* compares (or anything)."""
    known = {point.name: point for point in points}
    sides = [known.get(split_name(name)[0]) for name in (pair.before, pair.after)]
    both = [side.records for side in sides if side is not None and side.records]
    if len(both) != 2:
        return  # has been named
    if metric in LEDGER_METRICS:
        wanted, hint = "ledger", "add ledger to their 'do:'"
    elif metric in GRAPH_METRICS:
        wanted, hint = "heap", "add heap to their 'do:'"
    elif metric:
        wanted, hint = "snap", "add snap to their 'do:', or measure rss or retained"
    elif both[0] & both[1]:
        return
    else:
        reader.problem(
            pair.position,
            f"'{printable(pair.before)}' and '{printable(pair.after)}' record nothing of the same kind",
            "put snap, ledger, containers or heap into both 'do:'",
        )
        return
    for name, records in zip((pair.before, pair.after), both):
        if wanted not in records:
            what = "no snapshot" if wanted == "snap" else f"no {wanted}"
            needs = f"which '{metric_name(metric)}' needs"
            reader.problem(pair.position, f"point '{printable(name)}' takes {what}, {needs}", hint)
