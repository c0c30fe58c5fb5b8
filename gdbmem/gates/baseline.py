"""Measures of recipes on a branch, kept in a file: `gdbmem baseline` and `gdbmem bisect` compare with them.

Two groups of runs are compared by ranks (Mann and Whitney's test, Hodges and Lehmann's interval of the shift), which
needs no assumption about the noise. A measure that is the same in all runs has no noise.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median, variance
from typing import NamedTuple, Optional

from gdbmem.errors import InputError
from gdbmem.gates.reports import amount_text
from gdbmem.json_values import FORMAT_VERSION, as_json, from_fields, from_json
from gdbmem.model.judgement import BYTES, MET, NOT_JUDGED, NOT_MET, Judgement, Unseen
from gdbmem.runs.run import Run, asked_for
from gdbmem.runs.unseen import end_of
from gdbmem.text import plural, printable

KIND = "baseline"
# The probability that one check of an equal program fails: in any of its measures.
CHANCE = 0.002
_INTERVAL = 0.025  # on either side of the interval of one measure
_LEFT_OUT = (
    "outside-growth"  # of an expectation's unseen: it has a size, which is compared as a measure of its own
)
OUTSIDE = "outside, "  # before the name of the expectation: what the engine did not see, where it is large
_NAMES = {"libc": "C library", "page_bytes": "page size", "processors": "number of processors"}


class Measure(NamedTuple):
    """One number of several runs, in *unit*."""

    name: str
    unit: str
    values: tuple[float, ...]

    @property
    def value(self) -> float:
        return float(median(self.values))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the median; of fewer than six runs, all that was seen."""
        ordered, count = sorted(self.values), len(self.values)
        below, total = 0, 0
        while below < count // 2 and (total + math.comb(count, below)) / 2**count <= _INTERVAL:
            total += math.comb(count, below)
            below += 1
        at = max(below - 1, 0)
        return ordered[at], ordered[-1 - at]


class Entry(NamedTuple):
    """The measures of one recipe on one branch."""

    commit: Optional[str]  # None: unknown
    saved: str  # UTC, ISO 8601
    # By name: libc, page_bytes, processors, machine, engine. Only runs of equal ones are comparable.
    surroundings: dict[str, str]
    measures: tuple[Measure, ...]

    @property
    def runs(self) -> int:
        return max((len(one.values) for one in self.measures), default=0)


class RunMeasures(NamedTuple):
    """The measures of one run of a recipe."""

    suite: str  # the recipe's name
    surroundings: Mapping[str, str]
    measures: Mapping[str, tuple[float, str]]  # number and unit, by name
    unseen: tuple[Unseen, ...]  # why it is not what the program would measure
    judgements: tuple[Judgement, ...] = ()  # of the recipe's expectations


# Reading a run.


def measures_of(run: Run) -> RunMeasures:
    """Return what the recipe of *run* measured: the heap at the last snapshot of each name, and each expectation.

    Raises InputError for a run without a recipe, or a damaged one.
    """
    facts = run.facts
    recipe = facts.get("recipe")
    source = recipe.get("source") if isinstance(recipe, dict) else None
    if not isinstance(source, str):
        name = printable(run.folder.name)
        raise InputError(
            f"{name} is no run of a recipe", slug="no-measures", hint="gdbmem launch --recipe FILE makes one"
        )
    found: dict[str, tuple[float, str]] = {}
    for record in asked_for(run.snapshots):
        if record.heap_bytes is not None:
            found[f"heap at {printable(record.base_name)}"] = (record.heap_bytes, BYTES)
    unseen = list(end_of(run).unseen())
    judgements = tuple(_expectations(run))
    for judgement in judgements:
        if judgement.measured is not None:
            found[printable(judgement.name)] = (judgement.measured, judgement.unit)
        for one in judgement.unseen:
            if one.slug == _LEFT_OUT and one.could_hide_bytes is not None:
                found[f"{OUTSIDE}{printable(judgement.name)}"] = (one.could_hide_bytes, BYTES)
            else:
                unseen.append(one)
    known = {**(facts.get("surroundings") or {}), "engine": facts.get("engine") or ""}
    texts = {str(name): str(value) for name, value in known.items()}
    stem = os.path.splitext(os.path.basename(source))[0]  # noqa: PTH119, PTH122  (a name of another machine)
    return RunMeasures(stem, texts, found, tuple(dict.fromkeys(unseen)), judgements)


def _expectations(run: Run) -> Iterator[Judgement]:
    for saved in run.facts.get("expectations") or ():
        try:
            yield from_fields(Judgement, saved)
        except ValueError as error:
            raise InputError(
                f"an expectation in run.json of {printable(run.folder.name)} is damaged: {printable(str(error))}",
                slug="run-damaged",
                hint="don't trust this run; record it again",
            ) from None


def together(runs: Sequence[RunMeasures], *, commit: Optional[str], saved: str) -> Entry:
    """Return the measures of several *runs* of one recipe; raises InputError if they are not comparable."""
    first = runs[0].surroundings
    for one in runs:
        different = describe_differences(first, one.surroundings)
        if different:
            raise InputError(
                f"the runs are not comparable: {different}",
                slug="not-comparable",
                hint="leave some of them out",
            )
    units = {name: unit for run in runs for name, (_, unit) in run.measures.items()}
    counts = Counter(name for run in runs for name in run.measures)
    measures = tuple(
        # What the engine does not see is listed only where it is large.
        Measure(name, unit, tuple(run.measures.get(name, (0.0, unit))[0] for run in runs))
        for name, unit in units.items()
        if counts[name] == len(runs) or name.startswith(OUTSIDE)
    )
    return Entry(commit, saved, dict(first), measures)


def describe_differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return how the surroundings of runs differ, a clause; "" if they are the same."""
    names = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
    clauses = (
        f"another {_NAMES.get(name, name)} ({printable(now.get(name) or 'unknown')}, not"
        f" {printable(before.get(name) or 'unknown')})"
        for name in names
    )
    return ", ".join(clauses)


# The file: branch → recipe → entry.


Baselines = dict[str, dict[str, Entry]]


def baselines_json(branches: Baselines) -> str:
    """Return the text of a file of baselines, with the interval of each measure for its readers."""
    listed = {
        branch: {suite: _entry_object(entry) for suite, entry in entries.items()}
        for branch, entries in branches.items()
    }
    return json.dumps({"format_version": FORMAT_VERSION, "kind": KIND, "branches": listed}, indent=1) + "\n"


def _entry_object(entry: Entry) -> dict[str, object]:
    fields = as_json(entry, "commit", "saved", "surroundings")
    rows = []
    for one in entry.measures:
        low, high = one.interval
        values = {
            "value": one.value,
            "low": low,
            "high": high,
            "runs": len(one.values),
            "values": list(one.values),
        }
        rows.append({"name": one.name, "unit": one.unit, **values})
    return {**fields, "entries": rows}


def read_baselines(text: str, file: str) -> Baselines:
    """Return the baselines in *text*, that of *file*; raises InputError."""
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("kind") != KIND:
            raise ValueError("it is not a file of 'gdbmem baseline save'")
        if document.get("format_version") != FORMAT_VERSION:
            raise ValueError(f"its format_version is not {FORMAT_VERSION}")
        branches = from_json(dict[str, dict[str, dict[str, object]]], document.get("branches"))
        return {
            branch: {suite: _entry_from(fields) for suite, fields in entries.items()}
            for branch, entries in branches.items()
        }
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{printable(file)} can't be read as baselines: {printable(str(error))}",
            slug="baseline-unreadable",
            hint="gdbmem baseline save writes it anew",
        ) from None


def _entry_from(fields: Mapping[str, object]) -> Entry:
    measures = tuple(from_fields(Measure, row) for row in from_json(list[object], fields.get("entries")))
    if not all(one.values and all(map(math.isfinite, one.values)) for one in measures):
        raise ValueError("a measure has no values")
    return from_fields(Entry, {"commit": None, **fields}, measures=measures)


# The comparison of two groups of runs.


class Change(NamedTuple):
    """By how much the second of two groups of values is larger, with its interval."""

    value: float
    low: float
    high: float


def change_between(before: Sequence[float], after: Sequence[float], chance: float) -> Optional[Change]:
    """Return the shift from *before* to *after*; None if there are too few values.

    `low` is above 0 for two groups of one distribution, whatever that is, with at most the probability *chance*.
    """
    rank = lowest_rank(len(before), len(after), chance)
    if not rank:
        return None
    differences = sorted(second - first for first in before for second in after)
    return Change(float(median(differences)), differences[rank - 1], differences[-rank])


def lowest_rank(first: int, second: int, chance: float) -> int:
    """Return the largest rank r for which U, of groups of these sizes, is below r with at most *chance*; 0: none."""
    ways = [1] + [0] * (first * second)  # of each U, by the generating function of Mann and Whitney
    for number in range(1, first + 1):
        for at in range(len(ways) - 1, second + number - 1, -1):
            ways[at] -= ways[at - second - number]
        for at in range(number, len(ways)):
            ways[at] += ways[at - number]
    allowed, total, rank = chance * math.comb(first + second, first), 0, 0
    while rank < len(ways) and total + ways[rank] <= allowed:
        total += ways[rank]
        rank += 1
    return rank


def runs_needed(first: int, chance: float) -> Optional[int]:
    """Return how many runs a comparison with *first* others needs at least; None if any number is too few."""
    return next((n for n in range(1, 1000) if math.comb(first + n, n) * chance >= 1), None) if first else None


def judge_baseline(
    baseline: Entry,
    now: Entry,
    *,
    branch: str,
    allowed_bytes: int = 0,
    unseen: Iterable[Unseen] = (),
) -> list[Judgement]:
    """Judge for each measure whether it is more than in *baseline*, that of *branch*, by more than noise.

    *allowed_bytes* more are no failure. *unseen* are the reasons why *now* is not what the program would measure.
    """
    different = describe_differences(baseline.surroundings, now.surroundings)
    if different:
        reason = Unseen("not-comparable", f"it is not comparable with {printable(branch)}: {different}")
        return [Judgement("baseline", "the baseline", unseen=(reason, *unseen))]
    if not baseline.measures:
        reason = Unseen("no-measures", f"the baseline of {printable(branch)} has no measure")
        return [Judgement("baseline", "the baseline", unseen=(reason, *unseen))]
    known, current = _completed(baseline, now), {one.name: one for one in _completed(now, baseline)}
    chance = CHANCE / len(known)
    return [
        _judged(one, current.get(one.name), chance, branch, allowed_bytes, tuple(unseen)) for one in known
    ]


def _completed(entry: Entry, other: Entry) -> tuple[Measure, ...]:
    """Return the measures of *entry*, and 0 for each of what the engine did not see that only *other* has."""
    names = {one.name for one in entry.measures}
    small = (one for one in other.measures if one.name.startswith(OUTSIDE) and one.name not in names)
    return (*entry.measures, *(Measure(one.name, one.unit, (0.0,) * entry.runs) for one in small))


def _judged(
    before: Measure,
    after: Optional[Measure],
    chance: float,
    branch: str,
    allowed_bytes: int,
    unseen: tuple[Unseen, ...],
) -> Judgement:
    name, where = before.name, printable(branch)
    allowed = allowed_bytes if before.unit == BYTES else 0
    if after is None or after.unit != before.unit:
        return Judgement(name, name, unseen=(Unseen("no-measures", "it was not measured"), *unseen))
    change = change_between(before.values, after.values, chance)
    if change is None:
        needed = runs_needed(len(before.values), chance)
        more = (
            f"with {plural(len(before.values), 'run')} of {where} {needed or 'any number of'} runs are needed"
        )
        reason = Unseen(
            "too-few-runs", f"{plural(len(after.values), 'run')} can't tell more from noise: {more}"
        )
        return Judgement(name, name, limit=allowed, unseen=(reason, *unseen))
    grew = change.low > allowed
    text = f"{name}: {_size(after)}, {_shift(before, change)} on {where}"
    text += ", more than by noise" if grew else ""
    return Judgement(
        name,
        text,
        limit=allowed,
        measured=change.value,
        low=change.low,
        high=change.high,
        unseen=unseen,
        unit=before.unit,
        outcome=NOT_MET if grew else NOT_JUDGED if unseen else MET,
    )


def _size(measure: Measure) -> str:
    return amount_text(measure.value, measure.unit).lstrip("+")


def _shift(before: Measure, change: Change) -> str:
    """Return ``+2.0 KiB (+1.9 KiB to +2.1 KiB; +1.8 %) more than``."""
    if not change.low and not change.high:
        return "as much as"
    low, high = amount_text(change.low, before.unit), amount_text(change.high, before.unit)
    text = amount_text(change.value, before.unit)
    inside = [] if change.low == change.high else [f"{low} to {high}"]
    if before.value and change.value:
        percent = 100 * change.value / before.value
        inside.append(f"{percent:+,.0f} %" if abs(percent) >= 10 else f"{percent:+.2g} %")
    return (
        text
        + (f" ({'; '.join(inside)})" if inside else "")
        + (" less than" if change.value < 0 else " more than")
    )


# One commit of a bisection, decided run by run (Wald's sequential test) between a good and a bad baseline.


_ERROR = 1e-4  # the probability that a commit is decided wrongly
_BOUND = math.log((1 - _ERROR) / _ERROR)
_MOST_OF_ONE = 0.6 * _BOUND  # that one run can say: an outlier alone decides nothing


class Sides(NamedTuple):
    """A measure by which good and bad commits differ, with its usual sizes there and its noise."""

    name: str
    unit: str
    good: float
    bad: float
    deviation: float  # standard deviation of one run; 0: each run is the same


def sides_between(good: Entry, bad: Entry, name: str = "") -> Sides:
    """Return the measure of *name* ("": the clearest one) by which *bad* is more than *good*.

    Raises InputError if none is, for certain.
    """
    different = describe_differences(good.surroundings, bad.surroundings)
    if different:
        raise InputError(f"good and bad are not comparable: {different}", slug="not-comparable")
    others = {one.name: one for one in _completed(bad, good) if one.unit}
    found, known = [], _completed(good, bad)
    for one in known:
        other = others.get(one.name)
        if other is None or (name and one.name != name):
            continue
        change = change_between(one.values, other.values, CHANCE / len(known))
        if change is not None and change.low > 0:
            noise = math.sqrt((_variance(one.values) + _variance(other.values)) / 2)
            found.append(
                (change.value / (noise or 1e-9), Sides(one.name, one.unit, one.value, other.value, noise))
            )
    if not found:
        what = f"'{printable(name)}' is not" if name else "no measure is"
        raise InputError(
            f"{what} more at the bad commit than at the good one by more than noise",
            slug="no-difference",
            hint="save both baselines with more runs (--runs), or let the recipe expect what is good",
        )
    return max(found)[1]


def _variance(values: Sequence[float]) -> float:
    return variance(values) if len(values) > 1 else 0.0


def decide(sides: Sides, values: Sequence[float]) -> Optional[bool]:
    """Return whether the commit that measured *values*, in order, is bad; None: more runs are needed."""
    middle = (sides.good + sides.bad) / 2
    if sides.deviation == 0:
        return values[0] > middle if values else None
    weight = (sides.bad - sides.good) / sides.deviation**2
    total = 0.0
    for value in values:
        total += max(-_MOST_OF_ONE, min(weight * (value - middle), _MOST_OF_ONE))
        if abs(total) >= _BOUND:
            return total > 0
    return None
