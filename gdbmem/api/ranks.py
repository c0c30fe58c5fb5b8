"""The runs of a parallel job's ranks, read and compared."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple, Optional

from gdbmem.api.profiles import ReadOptions, diff, rank, read_record
from gdbmem.api.series import Recording, judge_recordings, judged_points, run_of_one, summary_of
from gdbmem.errors import InputError, Notice
from gdbmem.json_values import from_fields
from gdbmem.model.calltree import Frame
from gdbmem.model.judgement import NOT_JUDGED, Judgement, Unseen
from gdbmem.model.ranks import HEAP, RESIDENT, OddRank, RankRow, Ranks, RankState
from gdbmem.model.series import TREE
from gdbmem.profiles.paths import Query
from gdbmem.profiles.ranking import Row
from gdbmem.runs.ranks import Rank
from gdbmem.runs.run import Run, asked_for, has_series, is_run, open_run, recipe_diffs
from gdbmem.series.filling import judged_metric, total_points
from gdbmem.series.gate import FailOn
from gdbmem.text import plural, printable

# A rank is odd if it differs from the median of the others by more than all of these. Among eight ranks whose growth
# varies by 3 % (normally distributed) one is found odd in 3 of 1,000 jobs, by 1 % in none of 2,000.
_DEVIATIONS = 8  # of the others: their median absolute deviation, scaled to a standard deviation
_SHARE = 0.1  # of their median
LEAST_BYTES = {HEAP: 64 << 10, RESIDENT: 1 << 20}
_FEWEST = 5
_MOST_RANKS = 1 << 24  # of a job: more are an error in the file
_TO_STANDARD = 1.4826
_HELD = 3  # samples of a level
_MOMENTS = 40  # at which two series are compared


class _RankRun(NamedTuple):
    """A run and the rank that made it."""

    rank: Rank
    run: Run
    process: Optional[tuple[int, int]] = None  # pid and start, if the run is of all ranks of a host
    status: Optional[int] = None  # of its program, if it has one process


class _Growth(NamedTuple):
    """The growth of one rank, in all and over time."""

    state: RankState
    course: Sequence[tuple[str, float]]  # (name or time, bytes), oldest first
    rows: Sequence[Row] = ()
    # By which a sample earlier or later at either end, and what was not seen, would change it.
    step_bytes: float = 0.0
    # At the end, of a program that the monitor started: what it had at the first sample, a matter of chance on a busy
    # machine, is growth, too.
    level_bytes: Optional[float] = None


def read_ranks(
    operands: Sequence[str | os.PathLike[str]],
    *,
    between: Optional[tuple[str, str]] = None,
    query: Optional[Query] = None,
    fail_on: Optional[FailOn] = None,
) -> Ranks:
    """Compare the ranks whose runs are *operands*, or are in these folders.

    *between* names two snapshots that each rank has taken; None: those of the recipe's first diff, else the first and
    the last. *fail_on* judges series, as in `gdbmem monitor`; recipes have been judged by each rank.
    Raises InputError if there is no run of a rank, or if they are of several jobs.
    """
    notices: list[Notice] = []
    found = _newest(list(_runs(operands)), notices)
    # Not all launchers name a job, and torchrun names all alike.
    jobs = sorted({(one.rank.launcher, one.rank.job, one.rank.size or 0) for one in found})
    if not jobs:
        raise InputError(
            "no run of a rank is here",
            slug="no-rank",
            hint="name the folder of the runs that were recorded under mpirun, srun or torchrun",
        )
    if len(jobs) > 1:
        names = ", ".join(printable(f"{job or 'no name'} ({launcher})") for launcher, job, _ in jobs[:5])
        raise InputError(
            f"these are runs of {plural(len(jobs), 'job')}: {names}",
            slug="several-jobs",
            hint="name the runs of one of them",
        )
    (launcher, job, size) = jobs[0][0], jobs[0][1], jobs[0][2] or None
    known = {one.rank.rank for one in found}
    missing = [number for number in range(size or 0) if number not in known]
    query = query or Query(by="line")
    growths, pair = _growths(found, between, query, fail_on)
    metric = RESIDENT if pair == ("", "") else HEAP
    if fail_on is not None and metric == HEAP:
        raise InputError(
            "--fail-on judges series, and not every rank has one",
            slug="no-series",
            hint="record the ranks by gdbmem monitor; the expectations of a recipe are judged without it",
        )
    rows = _together(growths, query.by, len(found))
    shown = [row for row in rows if abs(row.max_bytes) >= query.min_bytes][: query.top]
    states = [one.state for one in growths]
    return Ranks(
        launcher,
        job,
        size,
        metric,
        pair,
        states,
        missing,
        _total(states),
        shown,
        sum(row.sum_bytes for row in rows) - sum(row.sum_bytes for row in shown),
        _odd(growths, metric),
        len(_changed(states)) >= _FEWEST,
        [*(j for state in states for j in state.judgements), *_unseen_ranks(states, missing, size)],
        notices,
    )


def _runs(operands: Sequence[str | os.PathLike[str]]) -> Iterator[_RankRun]:
    for operand in operands:
        folder = Path(operand)
        if not folder.is_dir():
            raise InputError(
                f"{printable(str(folder))} is not a folder",
                slug="no-rank",
                hint="name the folder of the runs",
            )
        for place in [folder] if is_run(folder) else sorted(folder.iterdir()):
            if not is_run(place):
                continue
            run = open_run(place)
            try:
                yield from _ranks_in(run)
            except ValueError as error:
                raise InputError(
                    f"the rank in {printable(str(place))}/run.json is damaged: {printable(str(error))}",
                    slug="run-damaged",
                    hint="leave that run out",
                ) from error


def _ranks_in(run: Run) -> Iterator[_RankRun]:
    """Yield the ranks that *run* is of: one, or those of a host. Raises ValueError."""
    found: list[tuple[Any, Optional[tuple[int, int]], Optional[int]]] = (
        [(run.facts["rank"], None, _status(run.facts.get("status")))] if "rank" in run.facts else []
    )
    for facts in run.facts.get("node_ranks") or ():
        pid, ticks = facts.get("pid"), facts.get("start_ticks")
        if not isinstance(pid, int) or not isinstance(ticks, int):
            raise ValueError("its process is not a number")
        fields = {name: facts[name] for name in Rank._fields if name in facts}
        found.append((fields, (pid, ticks), _status(facts.get("status"))))
    for facts, process, status in found:
        rank = from_fields(Rank, facts)
        if not (0 <= rank.rank < _MOST_RANKS and 0 <= (rank.size or 0) <= _MOST_RANKS):
            raise ValueError("its number, or that of all ranks, is impossible")
        yield _RankRun(rank, run, process, status)


def _newest(found: Sequence[_RankRun], notices: list[Notice]) -> list[_RankRun]:
    """Return the newest run of each rank, by rank."""
    by_rank: dict[tuple[str, str, int], list[_RankRun]] = defaultdict(list)
    for one in found:
        by_rank[one.rank.launcher, one.rank.job, one.rank.rank].append(one)
    older = 0
    newest = []
    for _, runs in sorted(by_rank.items()):
        runs.sort(key=lambda one: (one.rank.restart or 0, str(one.run.facts.get("began", ""))))
        newest.append(runs[-1])
        older += len(runs) - 1
    if older:
        text = f"{plural(older, 'older run')} of the same ranks {'is' if older == 1 else 'are'} left out"
        notices.append(Notice("older-runs", text))
    return newest


# What each rank grew by.


def _growths(
    found: Sequence[_RankRun], between: Optional[tuple[str, str]], query: Query, fail_on: Optional[FailOn]
) -> tuple[list[_Growth], tuple[str, str]]:
    if between is None and all(has_series(one.run.folder) for one in found):
        return [_of_series(one, fail_on) for one in found], ("", "")
    pair = between or _pair_of_all(found)
    options = ReadOptions()
    everything = query._replace(top=None, min_bytes=0)
    return [_of_snapshots(one, pair, everything, options) for one in found], pair


def _pair_of_all(found: Sequence[_RankRun]) -> tuple[str, str]:
    for one in found:
        pairs = recipe_diffs(one.run)
        if pairs:
            return pairs[0]
        names = [record.name for record in asked_for(one.run.snapshots)]
        if len(names) >= 2:
            return names[0], names[-1]
    raise InputError(
        "no rank has taken two snapshots",
        slug="no-snapshot",
        hint="record the ranks by a recipe with two points, or by gdbmem monitor",
    )


def _of_series(one: _RankRun, fail_on: Optional[FailOn]) -> _Growth:
    if one.process is None:
        return _of_recording(one, Recording(one.run.folder), fail_on)
    with contextlib.ExitStack() as stack, contextlib.closing(Recording(one.run.folder)) as whole:
        points, gone = _points_of(whole, *one.process)
        if not points:
            return _Growth(
                RankState(one.rank.rank, one.rank.host, str(one.run.folder), one.status, None, None), []
            )
        name = f"rank {one.rank.rank}"
        folder = run_of_one(
            one.run.folder.name, name, whole.facts._replace(target=name), points, stack, gone=gone
        )
        recording = stack.enter_context(contextlib.closing(Recording(folder)))
        return _of_recording(one, recording, fail_on)


def _points_of(
    recording: Recording, pid: int, ticks: int
) -> tuple[list[tuple[float, float]], Optional[float]]:
    """Return the RSS of a process and its descendants, summed, at each time, and when the last of them had ended."""
    family = {line.number: line for line in recording.lines if (line.pid, line.start_ticks) == (pid, ticks)}
    for line in recording.lines:  # a parent comes first
        if line.parent in family:
            family[line.number] = line
    sums: dict[float, float] = defaultdict(float)
    for number in family:
        for t, size in recording.points(number, "rss_bytes"):
            sums[t] += size
    ends = [line.gone for line in family.values()]
    return sorted(sums.items()), None if None in ends else max((end for end in ends if end), default=None)


def _of_recording(one: _RankRun, recording: Recording, fail_on: Optional[FailOn]) -> _Growth:
    summary = summary_of(recording)
    (judged,) = judge_recordings([recording], [summary], fail_on)
    points = judged_points(recording).points
    state = RankState(
        one.rank.rank,
        one.rank.host,
        str(one.run.folder),
        one.status,
        summary.first_bytes if len(points) > 1 else None,
        summary.last_bytes,
        summary.verdict.kind,
        tuple(_named(one.rank.rank, judgement) for judgement in judged),
    )
    steps = [abs(b - a) for (_, a), (_, b) in (*zip(points, points[1:2]), *zip(points[-2:], points[-1:]))]
    course = [(f"{at:.1f} s", grown) for at, grown in _moments(points)]
    monitor = one.run.facts.get("monitor")
    is_started = isinstance(monitor, dict) and bool(monitor.get("program"))
    return _Growth(
        state,
        course,
        step_bytes=max(steps, default=0.0) + _unseen_bytes(recording, points),
        level_bytes=summary.last_bytes if is_started else None,
    )


def _unseen_bytes(recording: Recording, points: Sequence[tuple[float, float]]) -> float:
    """Return by how much the growth may be off.

    The total was first known late, the program went on after the last sample, the total fell at the end, or is of
    shared pages. A part of PSS is of pages that other processes have too, such as other ranks: it grows as they end.
    """
    looks = recording.looks()
    late = points[0][1] if points and points[0][0] > looks[0] else 0.0
    if len(points) > 1:
        (began, first), (ended, last) = points[0], points[-1]
        gone = max((line.gone for line in recording.lines if line.gone is not None), default=ended)
        late += abs(last - first) / (ended - began) * max(gone - ended, 0.0)
    if judged_metric(recording) != "pss_bytes":
        return late
    # What was left out as the program's end, although it held a level.
    end = [size for t, size in total_points(recording).points if points and t > points[-1][0]][:_HELD]
    fall = points[-1][1] - end[0] if len(end) == _HELD else 0.0
    if fall > 0 and max(end) - min(end) <= _SHARE * fall:
        late += fall
    private = dict(recording.points(TREE, "uss_bytes"))
    read = recording.points(TREE, "pss_bytes")
    return late + max((size - private[t] for t, size in read if t in private), default=0.0)


def _moments(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the growth up to each of _MOMENTS equal steps of the time of *points*."""
    if not points:
        return []
    (began, first), (ended, _) = points[0], points[-1]
    found, at = [], 0
    for number in range(1, _MOMENTS + 1):
        moment = began + (ended - began) * number / _MOMENTS
        while at + 1 < len(points) and points[at + 1][0] <= moment:
            at += 1
        found.append((moment, points[at][1] - first))
    return found


def _of_snapshots(one: _RankRun, pair: tuple[str, str], query: Query, options: ReadOptions) -> _Growth:
    run, facts = one.run, one.run.facts
    rows: Sequence[Row] = ()
    before: Optional[float] = None
    after: Optional[float] = None
    try:
        sides = [read_record(run, run.record(name), options) for name in pair]
    except InputError as error:
        if error.slug != "no-such-snapshot":
            raise
    else:
        ranking = rank(diff(*sides), query)
        rows = ranking.rows
        before, after = ranking.total.before_bytes, ranking.total.after_bytes
    records = [record for record in asked_for(run.snapshots) if record.heap_bytes is not None]
    first = records[0].heap_bytes or 0 if records else 0
    end = facts.get("end")
    status = end.get("status") if isinstance(end, dict) else None
    state = RankState(
        one.rank.rank,
        one.rank.host,
        str(run.folder),
        _status(status),
        before,
        after,
        judgements=tuple(_expectations(one)),
    )
    return _Growth(
        state, [(record.name, float((record.heap_bytes or 0) - first)) for record in records], rows
    )


def _expectations(one: _RankRun) -> Iterator[Judgement]:
    for saved in one.run.facts.get("expectations") or ():
        try:
            yield _named(one.rank.rank, from_fields(Judgement, saved))
        except ValueError as error:
            raise InputError(
                f"an expectation in {printable(str(one.run.folder))}/run.json is damaged: {printable(str(error))}",
                slug="run-damaged",
                hint="leave that run out",
            ) from error


def _named(rank_number: int, judgement: Judgement) -> Judgement:
    return judgement._replace(
        name=f"rank {rank_number}: {judgement.name}", text=f"rank {rank_number}: {printable(judgement.text)}"
    )


def _status(status: Any) -> Optional[int]:
    return status if isinstance(status, int) else None


# All ranks together.


def _together(growths: Sequence[_Growth], by: str, count: int) -> list[RankRow]:
    """Return a row for each place at which a rank changed, the largest change of one rank first."""
    by_place: dict[tuple[object, ...], dict[int, Row]] = defaultdict(dict)
    for one in growths:
        for row in one.rows:
            by_place[_place(row, by)][one.state.rank] = row
    rows = []
    for by_rank in by_place.values():
        changes = {number: row.amount.delta_bytes for number, row in by_rank.items()}
        largest = max(changes, key=lambda number: abs(changes[number]))
        rows.append(_row(by_rank[largest].frames, changes, count))
    return sorted(rows, key=lambda row: (-max(abs(row.max_bytes), abs(row.min_bytes)), -abs(row.sum_bytes)))


def _row(frames: Sequence[Frame], changes: Mapping[int, float], count: int) -> RankRow:
    values = [*changes.values(), *[0] * (count - len(changes))]
    most = max(changes, key=changes.__getitem__)
    return RankRow(frames, min(values), mean(values), max(values), most, len(changes), sum(values))


def _place(row: Row, by: str) -> tuple[object, ...]:
    # Not by the library's path or address, which may differ from host to host.
    frames = row.frames if by == "path" or row.site is None else [row.site]
    if by == "function":
        return tuple(frame.function or frame.file for frame in frames)
    if by == "file":
        return tuple(frame.file for frame in frames)
    return tuple((frame.function, frame.file, frame.line) for frame in frames)


def _total(states: Sequence[RankState]) -> Optional[RankRow]:
    changes = {one.rank: one.change_bytes for one in _changed(states) if one.change_bytes is not None}
    return _row((), changes, len(changes)) if changes else None


def _changed(states: Sequence[RankState]) -> list[RankState]:
    return [one for one in states if one.change_bytes is not None]


def _odd(growths: Sequence[_Growth], metric: str) -> list[OddRank]:
    """Return the ranks that differ from the others, most first."""
    known = [one for one in growths if one.state.change_bytes is not None]
    if len(known) < _FEWEST:
        return []
    changes = [one.state.change_bytes or 0.0 for one in known]
    levels = [one.level_bytes for one in known if one.level_bytes is not None]
    compared = [changes, levels] if len(levels) == len(known) else [changes]
    found = []
    for number, one in enumerate(known):
        rest = known[:number] + known[number + 1 :]
        least = _least(one, rest, metric)
        if all(differs(sizes[number], _without(sizes, number), least) for sizes in compared):
            since = _since(one, rest, metric)
            found.append(OddRank(one.state.rank, changes[number], median(_without(changes, number)), since))
    return sorted(found, key=lambda odd: -abs(odd.change_bytes - odd.others_bytes))


def _without(sizes: Sequence[float], number: int) -> list[float]:
    return [*sizes[:number], *sizes[number + 1 :]]


def _least(one: _Growth, others: Sequence[_Growth], metric: str) -> float:
    """Return the difference that may be due to when the samples were taken."""
    return LEAST_BYTES[metric] + one.step_bytes + median(other.step_bytes for other in others)


def differs(value: float, others: Sequence[float], least_bytes: float) -> bool:
    """Return whether *value* differs from *others* by more than they do from each other, and by *least_bytes*."""
    middle = median(others)
    spread = _TO_STANDARD * median(abs(other - middle) for other in others)
    return abs(value - middle) > max(_DEVIATIONS * spread, _SHARE * abs(middle), least_bytes)


def _since(one: _Growth, others: Sequence[_Growth], metric: str) -> Optional[str]:
    """Return the first moment from which *one* differs from *others* up to the end; None if there is none."""
    length = min([len(one.course), *(len(other.course) for other in others)])
    first, least = None, _least(one, others, metric)
    for at in range(length):
        if not differs(one.course[at][1], [other.course[at][1] for other in others], least):
            first = None
        elif first is None:
            first = one.course[at][0]
    return first


def _unseen_ranks(
    states: Sequence[RankState], missing: Sequence[int], size: Optional[int]
) -> Iterator[Judgement]:
    """Yield why the ranks that were judged are not all; nothing if none was judged."""
    if not any(state.judgements for state in states):
        return
    reasons = []
    if size is None:
        reasons.append(Unseen("no-rank", "the launcher does not tell how many ranks the job has"))
    if missing:
        names = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
        text = f"{plural(len(missing), 'rank')} of {size} left no run ({names}): record all of them"
        reasons.append(Unseen("no-rank", text))
    failed = [state for state in states if not state.judgements]
    if failed:
        names = ", ".join(str(state.rank) for state in failed[:8]) + (", …" if len(failed) > 8 else "")
        reasons.append(
            Unseen("no-rank", f"no expectation was judged on {plural(len(failed), 'rank')} ({names})")
        )
    if reasons:
        yield Judgement("all ranks", "not all ranks were judged", outcome=NOT_JUDGED, unseen=tuple(reasons))
