"""The sections of a run's page that show its last ledger and its last scan of containers."""

from __future__ import annotations

import io

from gdbmem.api.profiles import Run
from gdbmem.api.runs import LEDGER, kept_records, load_kept
from gdbmem.containers.containers import print_containers
from gdbmem.page.ledger_page import ledger_sections
from gdbmem.page.page import Section
from gdbmem.terminal.console import make_console
from gdbmem.text import printable

_MOST_ROWS = 12


def kept_sections(run: Run) -> list[Section]:
    """Return the last ledger as on its own page, and the last container scan as in a terminal."""
    last = {record.kind: record for record in kept_records(run)}
    sections: list[Section] = []
    for kind, record in last.items():
        kept = load_kept(run, kind, record.name)
        if kind == LEDGER:
            sections += ledger_sections(kept, title=f"Resident memory at {record.name}")
            continue
        stream = io.StringIO()
        print_containers(kept, make_console(stream, width=110, color=False), _MOST_ROWS)
        sections.append(Section(f"Containers at {printable(record.name)}", text=stream.getvalue()))
    return sections
