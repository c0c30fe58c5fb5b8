"""Judging a diff against the expectations of a recipe; the outcome of a recipe as text and JSON (kind=recipe)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.heap.growth import compared, judge_growth
from gdbmem.json_values import as_json
from gdbmem.ledger.answer import DAMAGES, retained_bytes
from gdbmem.model.calltree import FAULTED_BYTES, GROWN_BYTES, HEAP_BYTES, PRUNED, Frame, memory_noun
from gdbmem.model.calltree import UNTRACED as UNTRACED_BYTES
from gdbmem.model.diff import (
    BLOCKS,
    HELD,
    LEAKED,
    UNTRACED,
    Diff,
    Expectation,
    ExpectationVerdict,
    metric_name,
)
from gdbmem.model.heap_graph import HeapLimit, SavedHeap
from gdbmem.model.judgement import AT_LEAST, AT_MOST, BYTES, NOT_JUDGED, NOT_MET, Judgement, Unseen
from gdbmem.model.ledger import Ledger
from gdbmem.profiles.paths import matches
from gdbmem.profiles.unseen import (
    nameless_growth,
    of_one_process,
    samples_off,
    sampling_error,
    unseen_in_diff,
)
from gdbmem.terminal.document import head, judgement_object
from gdbmem.text import format_delta, format_size, plural, printable

# The outcome of a recipe, as JSON (kind=recipe) and as text.


class PointOutcome(NamedTuple):
    """The outcome of one point of a recipe."""

    name: str
    hits: int
    snapshots: Sequence[str]  # their names, oldest first
    ledgers: Sequence[str] = ()
    containers: Sequence[str] = ()
    heaps: Sequence[str] = ()


def recipe_object(
    points: Sequence[PointOutcome],
    diffs: Sequence[Mapping[str, Any]],
    verdicts: Sequence[ExpectationVerdict],
    notices: Sequence[Notice] = (),
    *,
    ledger_diffs: Sequence[Mapping[str, Any]] = (),
    container_diffs: Sequence[Mapping[str, Any]] = (),
    heap_diffs: Sequence[Mapping[str, Any]] = (),
    status: Optional[int] = None,
    run: str = "",
) -> dict[str, object]:
    """Return the JSON object of a recipe that was run, into the folder *run*.

    *diffs* are objects of kind=diff, *ledger_diffs* of kind=ledger-growth, *container_diffs* of
    kind=containers-growth, *heap_diffs* of kind=heap-growth. *status* is the program's, as in a shell; None: unknown.
    """
    return {
        **head("recipe", notices),
        "run": run,
        "status": status,
        "points": [as_json(point) for point in points],
        "diffs": [dict(diff) for diff in diffs],
        "ledger_diffs": [dict(diff) for diff in ledger_diffs],
        "container_diffs": [dict(diff) for diff in container_diffs],
        "heap_diffs": [dict(diff) for diff in heap_diffs],
        "expectations": [verdict_object(verdict) for verdict in verdicts],
    }


def verdict_object(verdict: ExpectationVerdict) -> dict[str, object]:
    """Return the JSON object of one verdict."""
    expectation = verdict.expectation
    return {
        "between": [expectation.before, expectation.after],
        "metric": metric_name(expectation.metric),
        "path": expectation.path or None,
        "holder": expectation.holder or None,
        "met": verdict.met,
        **judgement_object(verdict.judgement),
        "relation": "at_most" if expectation.at_most is not None else "at_least",
        "text": verdict.text,
    }


def case_name(expectation: Expectation) -> str:
    """Return the name of the test case of *expectation* in JUnit XML."""
    what = f"path {expectation.path}" if expectation.path else metric_name(expectation.metric)
    what += f" {expectation.holder}" if expectation.holder else ""
    limit = "at_most" if expectation.at_most is not None else "at_least"
    unit = BLOCKS if expectation.metric == BLOCKS else "B"
    # Servers distinguish test cases by their names: the place makes each one unique.
    return (
        f"{what} from {expectation.before} to {expectation.after} {limit} {expectation.limit} {unit}"
        f" (line {expectation.position.line}:{expectation.position.column})"
    )


# Judging a diff against an expectation of a recipe: met, not met, or undecidable, in one sentence.


_NOUNS = {
    "rss": "resident set",
    LEAKED: "lost blocks",
    "retained": "freed memory that malloc keeps",
    UNTRACED: UNTRACED_BYTES,
}
# Notices that make a ledger's count of free memory too doubtful to be judged, or that malloc wasn't read.
_DOUBTS = (*DAMAGES, "tcache-unread")
_UNREAD = ("malloc-unknown", "malloc-replaced", "other-libc")


class _Measured(NamedTuple):
    delta: int  # bytes, or blocks; so are the others
    hidden_before: int  # of the matching paths, at most this much may be hidden in either snapshot
    hidden_after: int
    matches: bool = True
    accepted: int = 0  # of known paths, which delta excludes
    sampling: int = 0  # sampling error


def judge(
    expectation: Expectation, diff: Diff, known: Sequence[re.Pattern[str]] = (), unseen: Sequence[Unseen] = ()
) -> ExpectationVerdict:
    """Compare *diff* of one program's snapshots, less the *known* and accepted paths, with *expectation*.

    *unseen* are the reasons why memory may be missing from *diff*. If no path matches the expectation, it can't be
    judged: a misspelt name must not pass unnoticed.
    """
    if expectation.metric == UNTRACED:
        return _judge_untraced(expectation, diff, unseen)
    unseen = (*unseen, *unseen_in_diff(diff))
    if expectation.metric == BLOCKS:
        uncounted = _why_uncounted(diff)
        if uncounted:
            return _unmeasured(expectation, uncounted, unseen)
        diff = _of_blocks(diff)
    diff = of_one_process(diff)
    measured = _measure(diff, expectation.path)
    if not measured.matches:
        return _unmeasured(expectation, _no_match(expectation, measured), unseen)
    if known:
        accepted = _accepted(diff, expectation.path, known)
        measured = measured._replace(delta=measured.delta - accepted, accepted=accepted)
    if expectation.path and expectation.metric != BLOCKS:
        unseen = (*unseen, *nameless_growth(diff, _matching_frames(diff.frames, expectation.path)))
    return _verdict(expectation, measured, unseen, unit=diff.unit)


def _verdict(
    expectation: Expectation, measured: _Measured, unseen: Sequence[Unseen], *, unit: str = HEAP_BYTES
) -> ExpectationVerdict:
    """Return the verdict on what was *measured*."""
    judgement = Judgement(
        _subject(expectation, unit),
        "",
        limit=expectation.limit,
        measured=measured.delta,
        low=measured.delta - measured.hidden_before - measured.sampling,
        high=measured.delta + measured.hidden_after + measured.sampling,
        unseen=tuple(unseen),
        relation=AT_MOST if expectation.at_most is not None else AT_LEAST,
        unit=BLOCKS if expectation.metric == BLOCKS else BYTES,
    )
    text = _sentence(expectation, measured, judgement, unit=unit)
    return ExpectationVerdict(expectation, judgement._replace(text=text))


def judge_ledgers(
    expectation: Expectation, before: Ledger, after: Ledger, unseen: Sequence[Unseen] = ()
) -> ExpectationVerdict:
    """Compare the resident set, or the freed memory that malloc retains, of two ledgers with *expectation*.

    *unseen* are the reasons why memory may be missing from the ledgers.
    """
    retained = expectation.metric == "retained"
    sizes = []
    for name, ledger in ((expectation.before, before), (expectation.after, after)):
        size = retained_bytes(ledger) if retained else ledger.rss_bytes
        doubts = [n.message for n in ledger.notices if retained and n.slug in _DOUBTS]
        if size is None or doubts:
            reason = (
                doubts or [n.message for n in ledger.notices if n.slug in _UNREAD] or ["malloc was not read"]
            )
            return _unmeasured(expectation, f"at {printable(name)} {printable(reason[0])}", unseen)
        sizes.append(size)
    return _verdict(expectation, _Measured(sizes[1] - sizes[0], 0, 0), unseen)


def judge_heaps(
    expectation: Expectation, before: SavedHeap, after: SavedHeap, unseen: Sequence[Unseen] = ()
) -> ExpectationVerdict:
    """Compare what is lost since, or what a holder retains, with *expectation*; *unseen* as above.

    Raises InputError if one of the heaps is damaged.
    """
    growth = compared(before, after, (expectation.before, expectation.after))
    limit = HeapLimit(expectation.holder or LEAKED, expectation.limit)
    (found,) = judge_growth(growth, before, after, [limit])
    most = expectation.at_most is not None
    subject = _subject(expectation)
    allowed = f"{'at most' if most else 'at least'} {format_delta(expectation.limit)}"
    judgement = found._replace(
        name=subject,
        text=subject if found.low is None else f"{subject}: {_interval(found)} ({allowed})",
        unseen=(*unseen, *found.unseen),
        relation=AT_MOST if most else AT_LEAST,
    )
    return ExpectationVerdict(expectation, judgement)


def _interval(judgement: Judgement) -> str:
    low, high = int(judgement.low or 0), int(judgement.high or 0)
    return format_delta(low) if low == high else f"{format_delta(low)} to {format_delta(high)}"


def _judge_untraced(expectation: Expectation, diff: Diff, unseen: Sequence[Unseen]) -> ExpectationVerdict:
    found = next((one for one in diff.outside if one.name == UNTRACED_BYTES), None)
    if found is None:
        return _unmeasured(expectation, "one of the snapshots lacks the resident untraced memory", unseen)
    return _verdict(expectation, _Measured(found.delta_bytes, 0, 0), unseen)


def unjudged(expectation: Expectation, *unseen: Unseen) -> ExpectationVerdict:
    """Return the verdict on an expectation of which nothing could be measured, for the reasons *unseen*."""
    subject = _subject(expectation)
    return ExpectationVerdict(
        expectation, Judgement(subject, subject, limit=expectation.limit, unseen=unseen)
    )


def _unmeasured(expectation: Expectation, reason: str, unseen: Sequence[Unseen]) -> ExpectationVerdict:
    return unjudged(expectation, Unseen("expectation-unjudged", reason), *unseen)


def _why_uncounted(diff: Diff) -> str:
    """Return why the blocks of *diff* can't be counted, "" if they can."""
    if diff.before_blocks is None or diff.after_blocks is None:
        return "the snapshots don't count blocks; those of gperftools, jemalloc and memcheck do"
    if diff.variance is not None:
        return "the snapshots are sampled: how many blocks there are is an estimate"
    if any(diff.uncertain):
        return "the snapshots leave out paths, so their blocks can't be counted"
    return ""


def _of_blocks(diff: Diff) -> Diff:
    """Return *diff* with blocks in place of bytes."""
    assert diff.before_blocks is not None and diff.after_blocks is not None
    return diff.with_columns(before=diff.before_blocks, after=diff.after_blocks)


_BY_SITE, _BY_CALLER = 1, 2  # what the pattern of a path matches


def _measure(diff: Diff, pattern: str) -> _Measured:
    if not pattern:
        doubt = sampling_error(sum(diff.variance or ()))
        return _Measured(diff.delta_bytes, diff.uncertain[0], diff.uncertain[0], sampling=doubt)
    matching = _matching_frames(diff.frames, pattern)
    covered = bytearray(len(diff))
    delta = uncertain = hidden_before = hidden_after = 0
    for node in range(1, len(diff)):
        frame = diff.frame[node]
        if covered[diff.parent[node]]:
            covered[node] = covered[diff.parent[node]]
        elif frame >= 0 and matching[frame]:
            covered[node] = _BY_SITE if not diff.parent[node] else _BY_CALLER
            delta += diff.after[node] - diff.before[node]
            uncertain += diff.uncertain[node]
        elif frame == PRUNED:
            # Paths that were too small to list: any of them may match.
            hidden_before += diff.before[node]
            hidden_after += diff.after[node]
    if not hidden_before and not hidden_after:
        # The uncertainty of a path is never in these pruned nodes.
        hidden_before = hidden_after = uncertain
    variance = sum(one for one, inside in zip(diff.variance or (), covered) if inside)
    if diff.path_doubts is not None:
        for how in (_BY_SITE, _BY_CALLER):
            paths = [node for node, found in enumerate(covered) if found == how]
            variance += diff.path_doubts.of(paths, by_top=how == _BY_SITE)
    doubt = sampling_error(variance)
    return _Measured(delta, hidden_before, hidden_after, any(covered), sampling=doubt)


def _no_match(expectation: Expectation, measured: _Measured) -> str:
    text = f"no path in either snapshot matches '{printable(expectation.path)}'"
    hidden = max(measured.hidden_before, measured.hidden_after)
    if hidden:
        return f"{text}, but up to {_hidden_sentence(hidden)}"
    return f"{text}; see the names with  gdbmem show RUN --by path"


def _hidden_sentence(size_bytes: int) -> str:
    return f"{format_size(size_bytes)} may hide under the threshold of the snapshots; take them with threshold: 0"


def _accepted(diff: Diff, pattern: str, known: Sequence[re.Pattern[str]]) -> int:
    """Return the change of the known paths among those that match *pattern*."""
    wanted_frames = _matching_frames(diff.frames, pattern)
    known_frames = [any(matches(one, frame) for one in known) for frame in diff.frames]
    wanted, accepted = bytearray(len(diff)), bytearray(len(diff))
    wanted[0] = not pattern
    own_before, own_after = diff.own(diff.before), diff.own(diff.after)
    total = 0
    for node in range(1, len(diff)):
        frame, parent = diff.frame[node], diff.parent[node]
        wanted[node] = wanted[parent] or (frame >= 0 and wanted_frames[frame])
        accepted[node] = accepted[parent] or (frame >= 0 and known_frames[frame])
        if wanted[node] and accepted[node]:
            total += own_after[node] - own_before[node]
    return total


def _matching_frames(frames: Sequence[Frame], pattern: str) -> list[bool]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expression = re.compile(pattern)
    return [matches(expression, frame) for frame in frames]


def _subject(expectation: Expectation, unit: str = HEAP_BYTES) -> str:
    between = f"from {printable(expectation.before)} to {printable(expectation.after)}"
    if expectation.metric == HELD:
        return f"what {printable(expectation.holder)} retains {between}"
    if expectation.metric in _NOUNS:
        return f"{_NOUNS[expectation.metric]} {between}"
    if expectation.metric == BLOCKS:
        through = f" of paths through '{printable(expectation.path)}'" if expectation.path else ""
        return f"blocks{through} {between}"
    if expectation.path:
        return f"paths through '{printable(expectation.path)}' {between}"
    return f"{memory_noun(unit)} {between}"


def _sentence(expectation: Expectation, measured: _Measured, judgement: Judgement, *, unit: str) -> str:
    change, size = (_block_delta, _blocks) if expectation.metric == BLOCKS else (format_delta, format_size)
    most = expectation.at_most is not None
    subject = f"{judgement.name}: {change(measured.delta)}"
    if measured.accepted:
        subject += f" beside {change(measured.accepted)} in known paths"
    limit = f"{'at most' if most else 'at least'} {change(expectation.limit)}"
    excess = measured.delta - expectation.limit if most else expectation.limit - measured.delta
    if judgement.judged == NOT_MET:
        return f"{subject}, {size(excess)} {'more' if most else 'less'} than expected ({limit})"
    seen = judgement._replace(unseen=()).judged
    if seen == NOT_JUDGED:
        hidden = measured.hidden_after if most else measured.hidden_before
        if hidden and abs(excess) > measured.sampling:
            return f"{subject} ({limit}), but up to {_hidden_sentence(hidden)}"
        doubt = f"{samples_off(measured.sampling)}, too much to decide ({limit})"
        option = "period" if unit in (GROWN_BYTES, FAULTED_BYTES) else "sample-rate"
        return f"{subject}, but {doubt}; take more of them with a smaller {option}"
    if judgement.judged == NOT_JUDGED:
        return f"{subject} ({limit})"
    return f"{subject}, as expected ({limit})"


def _blocks(count: float) -> str:
    return plural(round(count), "block")


def _block_delta(count: float) -> str:
    return f"{'+' if count > 0 else ''}{_blocks(count)}"
