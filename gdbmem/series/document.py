"""A recording as JSON (kind=series) and CSV, row by row: samples are not held in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional, TextIO

from gdbmem.json_values import as_json
from gdbmem.model.judgement import Judgement
from gdbmem.model.series import (
    COUNTERS,
    READING_FIELDS,
    TREE,
    TREE_FIELDS,
    Mark,
    Sample,
    SeriesFacts,
    SeriesLine,
    SeriesSummary,
    Slope,
    Verdict,
)
from gdbmem.series.fitted import seconds_to_resolve
from gdbmem.terminal.document import (
    Document,
    head,
    judgement_object,
    trace_counter,
    trace_instant,
    trace_pid,
    trace_process,
    write_trace,
)
from gdbmem.text import csv_cell, printable

_OUTSIDE = ("cgroup_bytes", "kernel_bytes", "shmem_bytes", "gpu_bytes", "for_files_bytes")


def write_series_json(
    stream: TextIO,
    summary: SeriesSummary,
    samples: Iterable[Sample],
    marks: Sequence[Mark],
    lines: Sequence[SeriesLine],
    *,
    next_commands: Sequence[str] = (),
    triggers: Sequence[Mapping[str, Any]] = (),
    black_box: Optional[Mapping[str, Any]] = None,
    judgements: Sequence[Judgement] = (),
) -> None:
    """Write the document; the tree's own samples have the pid null."""
    document = {
        **_document(summary, marks, lines, next_commands),
        "triggers": list(triggers),
        "black_box": black_box,
        "judgements": [judgement_object(one) for one in judgements],
    }
    text = json.dumps(document, indent=1)
    stream.write(text[: text.rindex("\n}")] + ',\n "samples": [')
    pids = {line.number: line.pid for line in lines}
    separator = "\n  "
    for sample in samples:
        row = {
            "t": round(sample.t, 6),
            "pid": pids.get(sample.line),
            "line": sample.line,
            **sample.reading._asdict(),
        }
        stream.write(separator + json.dumps(row))
        separator = ",\n  "
    stream.write("\n ]\n}\n")


def _document(
    summary: SeriesSummary, marks: Sequence[Mark], lines: Sequence[SeriesLine], next_commands: Sequence[str]
) -> Document:
    facts = summary.facts
    return {
        **head("series", summary.notices),
        **as_json(facts, "target", "began", "interval_seconds"),
        **as_json(summary, "seconds", "metric", "peak_bytes"),
        "spikes": [{"pid": s.line.pid if s.line else None, "rss_bytes": s.rss_bytes} for s in summary.spikes],
        **as_json(summary, "looks_by_rss", "looks_by_cgroup"),
        **as_json(facts, "limit_bytes"),
        **as_json(summary, "seconds_to_limit", "cgroup", "gpu_peak_bytes", "cpu_seconds", "threads_started"),
        **as_json(summary, "left_by_thread_bytes"),
        **as_json(facts, "exact_threads"),
        **as_json(summary, "copied_bytes", "copiers", "torn_rounds"),
        "verdict": verdict_json(summary.verdict),
        "resolve": _resolve(summary),
        "next": list(next_commands),
        **as_json(summary, "beside"),
        "outside": as_json(summary.outside, *_OUTSIDE),
        "components": {part.name: part.change_bytes for part in summary.components},
        "processes": [_line(line) for line in lines],
        "marks": [as_json(mark) for mark in marks],
    }


def _resolve(summary: SeriesSummary) -> Optional[dict[str, object]]:
    slope = summary.resolve_bytes_per_second
    if slope is None:
        return None
    return {"slope_bytes_per_second": slope, "seconds": seconds_to_resolve(summary.verdict, slope)}


def verdict_json(verdict: Verdict) -> Document:
    """Return *verdict* for JSON."""
    return {
        **as_json(verdict, "kind", "metric", "grows"),
        **_slope(verdict.slope),
        **as_json(verdict, "resolution", "evidence", "samples", "warmup_seconds", "floor", "period_seconds"),
        **as_json(verdict, "amplitude_bytes", "step_bytes", "step_at", "per_mark"),
        "regimes": [
            {**as_json(regime, "begin", "end", "kind", "change_bytes"), **_slope(regime.slope)}
            for regime in verdict.regimes
        ],
        **as_json(verdict, "needs_seconds"),
    }


def _slope(slope: Optional[Slope]) -> Document:
    return {
        "slope_bytes_per_second": slope.value if slope else None,
        "slope_low": slope.low if slope else None,
        "slope_high": slope.high if slope else None,
    }


def _line(line: SeriesLine) -> Document:
    return {
        **as_json(line, "number", "pid", "name"),
        "earlier_names": line.earlier.split(", then ") if line.earlier else [],
        **as_json(line, "command", "parent", "born", "gone", "respawns"),
    }


def write_series_csv(stream: TextIO, samples: Iterable[Sample], lines: Sequence[SeriesLine]) -> None:
    """Write one row per sample; the tree's own have no pid and are called "(tree)"."""
    import csv  # not always needed

    known = {line.number: line for line in lines}
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["seconds", "line", "pid", "name", *READING_FIELDS])
    for sample in samples:
        line = known.get(sample.line)
        name = "(tree)" if sample.line == TREE else csv_cell(line.name if line else "")
        values = [getattr(sample.reading, field) for field in READING_FIELDS]
        writer.writerow([f"{sample.t:.3f}", sample.line, line.pid if line else "", name, *values])


_TREE_PID, _CGROUP_PID, _FIRST_PID = map(trace_pid, (1, 2, 3))
_OF_CGROUP = frozenset(name for name in TREE_FIELDS if name.startswith(("cgroup_", "family_")))


def write_series_trace(
    stream: TextIO,
    facts: SeriesFacts,
    samples: Iterable[Sample],
    marks: Sequence[Mark],
    lines: Sequence[SeriesLine],
) -> None:
    """Write trace events: a counter for each number of each process, of the tree and of the cgroup; marks as instants.

    Times are since the series began. A number that was not read has no event; what a process that has gone holds is 0.
    """
    write_trace(
        stream,
        {**as_json(facts, "target", "began"), "exporter": "gdbmem"},
        _trace_of(facts, samples, marks, lines),
    )


def _trace_of(
    facts: SeriesFacts, samples: Iterable[Sample], marks: Sequence[Mark], lines: Sequence[SeriesLine]
) -> Iterator[Document]:
    pids = _trace_pids(lines)
    yield from trace_process(_TREE_PID, f"all processes of {printable(facts.target)}", 0)
    yield from trace_process(_CGROUP_PID, "cgroup", 1)
    for position, line in enumerate(lines, 2):
        yield from trace_process(pids[line.number], printable(line.names), position)
    last: dict[int, tuple[float, set[str]]] = {}  # of each line: when it was read, and what it held
    for sample in samples:
        held = last.get(sample.line, (0.0, set()))[1]
        for name, value in zip(READING_FIELDS, sample.reading):
            if value is None:
                continue
            of_cgroup = sample.line == TREE and name in _OF_CGROUP
            pid = _CGROUP_PID if of_cgroup else pids.get(sample.line)
            if pid is not None:
                yield trace_counter(pid, name, sample.t, value)
                held.add(name)
        last[sample.line] = sample.t, held
    for line in lines:
        if line.gone is not None and line.number in last:
            read, held = last[line.number]
            for name in sorted(held - COUNTERS - {"peak_rss_bytes"}):
                yield trace_counter(pids[line.number], name, max(line.gone, read), 0)
    for mark in marks:
        yield trace_instant(_TREE_PID, printable(mark.text), mark.t)


def _trace_pids(lines: Sequence[SeriesLine]) -> dict[int, int]:
    """Return a pid for each line: its own, unless it has none or another line has the same."""
    found, taken = {TREE: _TREE_PID}, set()
    for line in lines:
        is_own = 0 < line.pid < _TREE_PID and line.pid not in taken
        found[line.number] = line.pid if is_own else _FIRST_PID + line.number
        taken.add(line.pid)
    return found
