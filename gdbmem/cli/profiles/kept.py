"""`gdbmem show` and `gdbmem diff` of the ledgers and container scans saved in a run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Optional

from gdbmem.api.runs import LEDGER, Run, growth, load_kept, load_kept_pair
from gdbmem.exit_status import ExitStatus
from gdbmem.report.console import Console
from gdbmem.report.containers import containers
from gdbmem.report.document import to_json
from gdbmem.report.ledger import ledger_json, ledger_text
from gdbmem.units import format_delta, format_size

_MOST_ROWS = 20


def show_kept(
    run: Run, kind: str, name: Optional[str], arguments: argparse.Namespace, console: Console
) -> None:
    """Print the ledger or container scan *name* of *run* (None: the last)."""
    value = load_kept(run, kind, name)
    if arguments.json:
        as_json = ledger_json.ledger_json if kind == LEDGER else containers.containers_json
        console.file.write(as_json(value))
    elif kind == LEDGER:
        ledger_text.print_ledger(value, console)
    else:
        containers.print_containers(value, console, arguments.top or _MOST_ROWS)


def diff_kept(kind: str, operands: Sequence[str], arguments: argparse.Namespace, console: Console) -> int:
    """Print the changes between two ledgers or container scans; return the change of the total in bytes."""
    (before, after), names = load_kept_pair(kind, operands)
    if arguments.json:
        module: Any = ledger_json if kind == LEDGER else containers
        console.file.write(to_json(module.growth_document(before, after)))
    elif kind == LEDGER:
        ledger_text.print_growth(before, after, console, names)
    else:
        rows = growth(before, after)
        containers.print_container_growth(rows, console, arguments.top or _MOST_ROWS, names[0])
    size = "rss_bytes" if kind == LEDGER else "held_bytes"
    return int(getattr(after, size) - getattr(before, size))


def judge_kept(kind: str, grown: int, limit_bytes: int) -> int:
    """Return the exit status of --fail-on, and print a message if the limit is exceeded."""
    if grown <= limit_bytes:
        return 0
    what = "the resident set" if kind == LEDGER else "what the containers hold"
    print(
        f"gdbmem: not met: {what} grew by {format_delta(grown).lstrip('+')};"
        f" --fail-on allows {format_size(limit_bytes)}",
        file=sys.stderr,
    )
    return ExitStatus.NOT_MET
