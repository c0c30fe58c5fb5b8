"""memwatch's chart in the terminal: its axis has a number at every other row."""

from __future__ import annotations

import io

from gdbmem.model.steps import Step
from gdbmem.steps.charts import print_chart
from gdbmem.terminal.console import Console

KIB = 1024


def test_each_number_at_the_axis_is_what_its_row_reaches() -> None:
    steps = [
        Step("next", "main", "a.c", line, 1, 8 * KIB, total, "statm", True, None)
        for line, total in enumerate((0, 8 * KIB, 16 * KIB), 1)
    ]
    stream = io.StringIO()
    print_chart(steps, Console(file=stream, width=60))
    labels = [line[:9].strip() for line in stream.getvalue().splitlines()[:-1]]
    assert labels == ["+24.0 KiB", "", "+18.0 KiB", "", "+12.0 KiB", "", "+6.0 KiB", "", "0 B"]
