"""A recording as JSON (kind=series) and CSV, row by row: samples are not held in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, TextIO

from gdbmem.model.judgement import Judgement
from gdbmem.model.series import (
    READING_FIELDS,
    TREE,
    Mark,
    Regime,
    Sample,
    SeriesLine,
    SeriesSummary,
    Slope,
    Verdict,
)
from gdbmem.records import asdict
from gdbmem.series.fitted import seconds_to_resolve
from gdbmem.terminal.document import Document, head, judgement_object
from gdbmem.text import csv_cell


def write_series_json(
    stream: TextIO,
    summary: SeriesSummary,
    samples: Iterable[Sample],
    marks: Sequence[Mark],
    lines: Sequence[SeriesLine],
    *,
    next_commands: Sequence[str] = (),
    triggers: Sequence[Mapping[str, Any]] = (),
    judgements: Sequence[Judgement] = (),
) -> None:
    """Write the document; the tree's own samples have the pid null."""
    document = {
        **_document(summary, marks, lines, next_commands),
        "triggers": list(triggers),
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
        "target": facts.target,
        "began": facts.began,
        "interval_seconds": facts.interval_seconds,
        "seconds": summary.seconds,
        "metric": summary.metric,
        "peak_bytes": summary.peak_bytes,
        "spikes": [{"pid": s.line.pid if s.line else None, "rss_bytes": s.rss_bytes} for s in summary.spikes],
        "looks_by_rss": summary.looks_by_rss,
        "looks_by_cgroup": summary.looks_by_cgroup,
        "limit_bytes": facts.limit_bytes,
        "seconds_to_limit": summary.seconds_to_limit,
        "cgroup": None if summary.cgroup is None else asdict(summary.cgroup),
        "gpu_peak_bytes": summary.gpu_peak_bytes,
        "cpu_seconds": summary.cpu_seconds,
        "threads_started": summary.threads_started,
        "left_by_thread_bytes": summary.left_by_thread_bytes,
        "threads_started_is_exact": facts.exact_threads,
        "copied_bytes": summary.copied_bytes,
        "copiers": summary.copiers,
        "torn_rounds": summary.torn_rounds,
        "verdict": verdict_json(summary.verdict),
        "resolve": _resolve(summary),
        "next": list(next_commands),
        "beside": list(summary.beside),
        "outside": {
            "cgroup_bytes": summary.outside.cgroup_bytes,
            "kernel_bytes": summary.outside.kernel_bytes,
            "shmem_bytes": summary.outside.shmem_bytes,
            "gpu_bytes": summary.outside.gpu_bytes,
            "for_files_bytes": summary.outside.for_files_bytes,
        },
        "components": {part.name: part.change_bytes for part in summary.components},
        "processes": [_line(line) for line in lines],
        "marks": [{"t": mark.t, "text": mark.text} for mark in marks],
    }


def _resolve(summary: SeriesSummary) -> Optional[dict[str, object]]:
    slope = summary.resolve_bytes_per_second
    if slope is None:
        return None
    return {"slope_bytes_per_second": slope, "seconds": seconds_to_resolve(summary.verdict, slope)}


def verdict_json(verdict: Verdict) -> Document:
    """Return *verdict* for JSON."""
    return {
        "kind": verdict.kind,
        "metric": verdict.metric,
        "grows": verdict.grows,
        **_slope(verdict.slope),
        "resolution_bytes_per_second": verdict.resolution,
        "evidence": verdict.evidence,
        "samples": verdict.samples,
        "warmup_seconds": verdict.warmup_seconds,
        "floor": verdict.floor or None,
        "period_seconds": verdict.period_seconds,
        "amplitude_bytes": verdict.amplitude_bytes,
        "step_bytes": verdict.step_bytes,
        "step_at_seconds": verdict.step_at,
        "bytes_per_mark": None if verdict.per_mark is None else asdict(verdict.per_mark),
        "regimes": [_regime(regime) for regime in verdict.regimes],
        "needs_seconds": verdict.needs_seconds,
    }


def _regime(regime: Regime) -> dict[str, object]:
    return {
        "from": regime.begin,
        "to": regime.end,
        "kind": regime.kind,
        "change_bytes": regime.change_bytes,
        **_slope(regime.slope),
    }


def _slope(slope: Optional[Slope]) -> Document:
    return {
        "slope_bytes_per_second": slope.value if slope else None,
        "slope_low": slope.low if slope else None,
        "slope_high": slope.high if slope else None,
    }


def _line(line: SeriesLine) -> Document:
    return {
        "line": line.number,
        "pid": line.pid,
        "name": line.name,
        "earlier_names": line.earlier.split(", then ") if line.earlier else [],
        "command": line.command,
        "parent_line": line.parent or None,
        "born": line.born,
        "gone": line.gone,
        "respawns": line.respawns,
    }


def write_series_csv(stream: TextIO, samples: Iterable[Sample], lines: Sequence[SeriesLine]) -> None:
    """Write one row per sample; the tree's own have no pid and are called "(tree)"."""
    import csv  # 1 ms

    known = {line.number: line for line in lines}
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["seconds", "line", "pid", "name", *READING_FIELDS])
    for sample in samples:
        line = known.get(sample.line)
        name = "(tree)" if sample.line == TREE else csv_cell(line.name if line else "")
        values = [getattr(sample.reading, field) for field in READING_FIELDS]
        writer.writerow([f"{sample.t:.3f}", sample.line, line.pid if line else "", name, *values])
