"""Series of other tools, converted to temporary recordings."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from gdbmem.formats.series import RecordedSeries, read_series, series_tool
from gdbmem.formats.spooling import location
from gdbmem.model.series import TREE, SeriesFacts, SeriesLine
from gdbmem.runs.run import Run, is_run
from gdbmem.series.store import SeriesWriter

_NO_PROCESS = 0


@contextlib.contextmanager
def recorded(operands: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield the run folders of *operands*, runs or files of other tools; raises InputError for a damaged one."""
    with contextlib.ExitStack() as stack:
        yield [
            _run_of(path, stack) if not is_run(path) and is_series_file(path) else path for path in operands
        ]


def is_series_file(path: Path) -> bool:
    """Return whether the file at *path* is a series that another tool recorded."""
    return location(path).is_file() and series_tool(path) is not None


def _run_of(path: Path, stack: contextlib.ExitStack) -> Path:
    series = read_series(path)
    above = stack.enter_context(tempfile.TemporaryDirectory(prefix="gdbmem-"))
    run = Run.create(series.target, parent=Path(above), pid=0, folder=Path(above) / path.name)
    run.update()  # now it is a run
    _write(run.folder, series)
    return run.folder


def _write(folder: Path, series: RecordedSeries) -> None:
    times = [t for t, _ in series.points]
    spacing = median(b - a for a, b in zip(times, times[1:])) if len(times) > 1 else 1.0
    facts = SeriesFacts(
        f"{series.target} ({series.tool})", spacing, series.began, "", 0.0, unknown_samples=series.unknown
    )
    writer = SeriesWriter(folder, facts)
    try:
        line = SeriesLine(1, _NO_PROCESS, 0, series.target, "", TREE, 0.0)
        writer.extend([(t, round(size)) for t, size in series.points], line)
    finally:
        writer.close()
