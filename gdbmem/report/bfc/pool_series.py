"""Pools over time, as text and as JSON (``kind=bfc-series``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from gdbmem.analysis.bfc.explanation import pool_name
from gdbmem.analysis.bfc.pool_course import answer_series
from gdbmem.model.bfc.pool_series import PoolSample, PoolSeries
from gdbmem.records import asdict
from gdbmem.report.bfc.pool_diff import diff_document, print_changes
from gdbmem.report.console import print_sentence
from gdbmem.report.document import head, to_json
from gdbmem.report.notices import print_notices
from gdbmem.text import printable
from gdbmem.units import format_duration, format_size

if TYPE_CHECKING:
    from gdbmem.report.console import Console

_COLUMNS = (
    ("after", 8), ("pool", 10), ("in use", 10), ("requested", 10), ("free", 10), ("pieces", 7), ("largest", 10),
    ("fragm.", 6),
)  # fmt: skip


def print_series_head(console: Console) -> None:
    """Print the headings of the rows, which are printed as they arrive."""
    console.print("  ".join(f"{name:>{width}}" for name, width in _COLUMNS), "dim", soft_wrap=True)


def print_sample(sample: PoolSample, console: Console, *, named: bool) -> None:
    """Print the row of one pool at one moment; *named* if there are several pools."""
    asked = "" if sample.requested_bytes is None else format_size(sample.requested_bytes)
    cells = (
        format_duration(sample.at_seconds),
        format_size(sample.pool_bytes),
        format_size(sample.in_use_bytes),
        asked,
        format_size(sample.free_bytes),
        f"{sample.free_chunks:,}",
        format_size(sample.largest_free_bytes),
        "" if sample.fragmentation is None else f"{sample.fragmentation:.0%}",
    )
    row = "  ".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, _COLUMNS))
    outcome = f"the request {sample.outcome}" if sample.outcome else ""
    why = f" ({sample.cause})" if sample.cause else ""
    name = printable(sample.name) if named else ""
    console.print("  ".join(part for part in (row, f"{outcome}{why}", name) if part), soft_wrap=True)


def print_series_end(series: PoolSeries, console: Console, *, top: int) -> None:
    """Print the change of each pool from the first sample to the last."""
    for diff in series.diffs:
        console.print()
        print_sentence(console, f"{pool_name(diff.after)}: {answer_series(series, diff)}", "bold")
        print_changes(diff, console, top)
    console.print(
        f"\nThe process was stopped for at most {format_duration(series.longest_pause_seconds)} each time."
    )
    print_notices(series.notices, console)


def series_json(series: PoolSeries, request_bytes: Optional[int]) -> str:
    """Return *series* as the text of a ``kind=bfc-series``."""
    document = {
        **head("bfc-series", series.notices),
        "answer": answer_series(series, series.diffs[0]) if series.diffs else None,
        "source": series.source,
        "walks": series.walks,
        "longest_pause_seconds": series.longest_pause_seconds,
        "request_bytes": request_bytes,
        "samples": [_sample(one) for one in series.samples],
        "pools": [diff_document(one) for one in series.diffs],
    }
    return to_json(document)


def _sample(sample: PoolSample) -> dict[str, object]:
    return {**asdict(sample), "outcome": sample.outcome or None, "cause": sample.cause or None}
