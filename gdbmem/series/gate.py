"""The gate of `monitor` and `compare`, `--fail-on VERDICT[:SLOPE]`: what a recording shows, and what it can't show."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from gdbmem.json_values import from_fields
from gdbmem.model.judgement import MET, NOT_JUDGED, NOT_MET, Judgement, Unseen, unseen_end
from gdbmem.model.series import TREE, Outside, SeriesSummary, Verdict
from gdbmem.runs.run import open_run
from gdbmem.series.filling import FAMILY
from gdbmem.series.statistics import thinned
from gdbmem.series.store import Recording
from gdbmem.series.verdict import judge
from gdbmem.text import format_delta, format_duration, format_rate, plural, printable

# Growth that no process's RSS or PSS has: files in memory, System V segments, pipes, memory on GPUs.
#
# Only the kernel's cgroups count the first ones, and NVML the last.


START_UP = 1 / 3  # of the time, in which a program builds up what it needs, as page tables
_FEWEST = 6  # with fewer points the start-up counts too
_LEAST_OUTSIDE_BYTES = 256 << 10  # of growth, to be judged
_AT_AN_END = 3  # samples at either end


def outside_of(recording: Recording) -> Outside:
    """Return what *recording* shows of it."""
    rest = _beside_processes(recording)
    growth = _growth(rest)
    limited = recording.facts.limit_of == "the cgroup"
    shmem_growth = _growth(list(recording.points(TREE, "cgroup_shmem_bytes"))) if limited else None
    own_growth = _growth(list(recording.points(TREE, "shmem_bytes"))) or 0.0
    on_gpus = list(recording.points(TREE, "gpu_bytes"))
    return Outside(
        growth,
        judge(*thinned(rest), metric=FAMILY) if (growth or 0.0) > _LEAST_OUTSIDE_BYTES else None,
        _growth(list(recording.points(TREE, "family_kernel_bytes"))),
        None if shmem_growth is None else shmem_growth - own_growth,
        _growth(on_gpus),
        judge(*thinned(on_gpus), metric="gpu_bytes") if on_gpus else None,
        _in_place_of_files(recording),
    )


def _in_place_of_files(recording: Recording) -> Optional[float]:
    """Return by how much anonymous memory grew in the place of pages of files, as under memory pressure."""
    grown = _growth(list(recording.points(TREE, "anonymous_bytes")))
    left = _growth([(t, -value) for t, value in recording.points(TREE, "file_bytes")])
    return None if grown is None or left is None else max(min(grown, left), 0.0)


def _beside_processes(recording: Recording) -> list[tuple[float, float]]:
    """Return what the program's own cgroup held beside the anonymous and shared memory of its processes, over time."""
    held_over_time = list(recording.points(TREE, FAMILY))
    if not held_over_time:
        return []
    anonymous, shared, files, resident = (
        dict(recording.points(TREE, name))
        for name in ("anonymous_bytes", "shmem_bytes", "file_bytes", "rss_bytes")
    )
    found = []
    last_files: Optional[float] = None
    for t, held in held_over_time:
        last_files = files.get(t, last_files)
        if t in anonymous and t in shared:
            found.append((t, held - anonymous[t] - shared[t]))
        elif t in resident and last_files is not None:  # of a single process: the rest of its RSS is of files
            found.append((t, held - max(resident[t] - last_files, 0.0)))
    return found


def _growth(points: Sequence[tuple[float, float]]) -> Optional[float]:
    """Return the most by which the end may exceed the level after the start-up; None with fewer than two points."""
    if len(points) < 2:
        return None
    begin = points[0][0] + START_UP * (points[-1][0] - points[0][0])
    values = [value for t, value in points if t >= begin or len(points) < _FEWEST]
    count = max(min(_AT_AN_END, len(values) // 2), 1)
    return max(values[-count:]) - min(values[:count])


FailOn = tuple[str, float]
"""A kind of verdict, and the least slope that counts, bytes per second."""

_OUR_ENDINGS = ("time", "quit", None)  # after which gdbmem ends the program; older runs do not record it
_OUR_STATUSES = (128 + signal.SIGTERM, 128 + signal.SIGKILL)
_MOST_STOPPED = 0.1  # of the time: what follows was recorded of a program that ran
_BYTES_PER_SECOND = "bytes per second"
# The kernel adds up a cgroup's memory in batches of so many pages on each processor.
_BATCH_PAGES = 64
_LEAST_BYTES = 1 << 20  # of the kernel's memory: page tables, dentries and the like come and go
# Slug, field of Outside, sentence.
_HIDDEN: Sequence[tuple[str, str, str]] = (
    (
        "outside-processes",
        "cgroup_bytes",
        "beside the watched processes its cgroup grew by {}: memfds, System V segments (ipcs -m), files in /dev/shm, or"
        " a process that left the tree; a longer recording shows whether it goes on",
    ),
    (
        "gpu-memory",
        "gpu_bytes",
        "its memory on GPUs grew by {}, which the verdict does not have; a longer recording shows whether it goes on",
    ),
    (
        "kernel-memory",
        "kernel_bytes",
        "the kernel's memory for it grew by {}, which no process shows: pipes, sockets, page tables; ls -l"
        " /proc/PID/fd lists the pipes",
    ),
    (
        "files-in-memory",
        "shmem_bytes",
        "files in memory that are charged to its cgroup grew by {}, which its processes don't show: du -h /dev/shm",
    ),
    (
        "for-files",
        "for_files_bytes",
        "anonymous memory grew by {} while as many pages of files left it, so their sum shows neither; record where"
        " memory is not short",
    ),
)


def judge_recordings(
    recordings: Sequence[Recording],
    summaries: Sequence[SeriesSummary],
    fail_on: Optional[FailOn],
    *,
    status: Optional[int] = None,
) -> list[list[Judgement]]:
    """Return the judgements on each of *recordings*, of none of which *fail_on* must be true; none without it.

    *status* is that of the program if the run itself does not hold it.
    """
    if fail_on is None:
        return [[] for _ in recordings]
    return [
        list(_judgements(recording, summary, {"status": status, **open_run(recording.folder).facts}, fail_on))
        for recording, summary in zip(recordings, summaries)
    ]


def failure_of(facts: Mapping[str, Any]) -> int:
    """Return the status of a run's program, from the run's *facts*, if it failed by itself, else 0."""
    status = facts.get("status")
    if not isinstance(status, int) or (facts.get("ending") in _OUR_ENDINGS and status in _OUR_STATUSES):
        return 0
    return status


def _judgements(
    recording: Recording, summary: SeriesSummary, facts: Mapping[str, Any], fail_on: FailOn
) -> Iterator[Judgement]:
    name, target = printable(recording.folder.name), printable(summary.facts.target)
    outside = summary.outside
    is_growth = fail_on[0] == "growing"
    unseen = list(_unseen(summary, facts))
    if is_growth:
        unseen += _hidden_growth(summary, fail_on[1])
    yield judge_verdict(
        summary.verdict, fail_on, name=name, target=target, seconds=summary.seconds, unseen=unseen
    )
    for verdict, where, what in (
        (
            outside.cgroup_verdict,
            "in no process",
            "memory of its cgroup that is in none of the watched processes",
        ),
        (outside.gpu_verdict, "on GPUs", "memory on GPUs"),
    ):
        if is_growth and verdict is not None and is_met(verdict, *fail_on):
            yield judge_verdict(
                verdict, fail_on, name=f"{name}: {where}", target=f"{target}: {what}", seconds=summary.seconds
            )


def judge_verdict(
    verdict: Verdict,
    fail_on: FailOn,
    *,
    name: str = "",
    target: str = "",
    seconds: float = 0.0,
    unseen: Sequence[Unseen] = (),
) -> Judgement:
    """Return the judgement on *verdict*, of which *fail_on* must not be true."""
    kind, least = fail_on
    slope = verdict.slope
    text = f"{target}: {verdict.kind}: {verdict.evidence}"
    if is_met(verdict, kind, least):
        outcome = NOT_MET
    else:
        is_open = kind != "inconclusive" and _leaves_open(verdict, kind, least)
        outcome = NOT_JUDGED if is_open else MET
        if is_open and verdict.is_conclusive:
            text += f"; {format_rate(least)} is not excluded: --resolve prints how long to watch"
    return Judgement(
        name,
        text,
        limit=least or None,
        measured=None if slope is None else slope.value,
        low=None if slope is None else slope.low,
        high=None if slope is None else slope.high,
        unseen=tuple(unseen),
        unit=_BYTES_PER_SECOND,
        outcome=outcome,
        seconds=seconds,
    )


def is_met(verdict: Verdict, kind: str, least: float) -> bool:
    """Return whether *verdict* is of *kind* and at least *least* bytes per second steep."""
    hit = verdict.grows if kind == "growing" else verdict.kind == kind
    steep = abs(verdict.slope.value) >= least if verdict.slope is not None else least == 0
    return hit and steep


def _leaves_open(verdict: Verdict, kind: str, least: float) -> bool:
    if verdict.kind == "inconclusive" or kind != "growing":
        return verdict.kind == "inconclusive"
    return verdict.floor == "unclear" or _may_hide(verdict, least)


def _may_hide(verdict: Verdict, least: float) -> bool:
    """Return whether the series may grow by *least* bytes per second although *verdict* is not met."""
    if not least or verdict.kind == "shrinking":
        return False
    if verdict.grows:
        return verdict.slope is None or verdict.slope.high >= least
    return verdict.resolution is None or verdict.resolution >= least


class _NotSampled(NamedTuple):
    """The gaps in the samples of a recording, as its run.json has them."""

    stopped_seconds: float = 0.0
    children: int = 0
    hidden_processes: Union[bool, float] = False
    lost_writes: float = 0


def _unseen(summary: SeriesSummary, facts: Mapping[str, Any]) -> Iterator[Unseen]:
    """Yield why the samples may not show what the program does."""
    end = unseen_end(failure_of(facts), remedy="if it is meant to end so, run it by  sh -c 'PROGRAM; true'")
    if end is None and _was_cut(facts):
        end = unseen_end(None, what="the recording was cut off, so how the program ended is unknown")
    if end is not None:
        yield end
    if summary.cgroup is not None and summary.cgroup.kills:
        killed = plural(summary.cgroup.kills, "process was", "processes were")
        yield Unseen("killed-at-limit", f"{killed} killed at the limit of the cgroup")
    for notice in summary.notices:
        if notice.slug == "no-pss" and summary.metric == "rss_bytes":
            yield Unseen("no-pss", notice.message)
    try:
        known = from_fields(_NotSampled, facts.get("unseen", {}))
    except ValueError as error:
        yield Unseen("run-damaged", f"what run.json says of missing samples can't be read ({error})")
        return
    if known.stopped_seconds > _MOST_STOPPED * summary.seconds:
        seconds = f"{format_duration(known.stopped_seconds)} of {format_duration(summary.seconds)}"
        yield Unseen("was-stopped", f"it was stopped for {seconds}: kill -CONT lets it run")
    if known.children:
        left = plural(known.children, "child is", "children are")
        text = f"at least {left} not in the numbers: leave out --no-children"
        yield Unseen("children-left-out", text)
    if known.hidden_processes:
        yield Unseen(
            "hidden-processes", "/proc hides processes of other users (hidepid): root finds all of them"
        )
    if known.lost_writes:
        yield Unseen("samples-lost", "samples could not be written: give the run a disk with room, by --run")


def _was_cut(facts: Mapping[str, Any]) -> bool:
    """Return whether the recording of a program that was started ended before the program did."""
    monitor = facts.get("monitor")
    started = isinstance(monitor, dict) and "program" in monitor
    return started and not isinstance(facts.get("status"), int)


def _hidden_growth(summary: SeriesSummary, least: float) -> Iterator[Unseen]:
    """Yield growth beside the processes that is larger than what the gate must exclude."""
    verdict, outside = summary.verdict, summary.outside
    rate = (
        (least - max(verdict.slope.high if verdict.slope else 0.0, 0.0))
        if least
        else verdict.resolution or 0.0
    )
    room = max(rate, 0.0) * summary.seconds * (1 - START_UP)
    batches = _BATCH_PAGES * os.sysconf("SC_PAGE_SIZE") * (os.cpu_count() or 1)
    for slug, field, text in _HIDDEN:
        growth = getattr(outside, field)
        error = batches if field == "cgroup_bytes" else _LEAST_BYTES
        if growth is not None and growth > max(room, error):
            yield Unseen(slug=slug, message=text.format(format_delta(growth)), could_hide_bytes=round(growth))
