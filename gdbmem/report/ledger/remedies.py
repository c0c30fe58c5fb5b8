"""Malloc's settings and the predicted effect of each: as text and as JSON (kind=remedies)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gdbmem.analysis.ledger.answer import answer_ledger, retained_bytes
from gdbmem.errors import Notice
from gdbmem.model.ledger.ledger import Ledger
from gdbmem.model.ledger.remedies import MeasuredRemedies, MeasuredRemedy, Remedy
from gdbmem.records import asdict
from gdbmem.report import drawing
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.document import head, to_json
from gdbmem.report.notices import print_notices
from gdbmem.text import plural, printable
from gdbmem.units import format_size

_COST = 16  # columns, with the spaces in between


def remedies_json(ledger: Ledger) -> str:
    """Return the remedies of *ledger* as ``kind=remedies``."""
    return to_json(
        {
            **head("remedies", ledger.notices),
            "answer": answer_ledger(ledger),
            "program": ledger.program,
            "pid": ledger.pid,
            "rss_bytes": ledger.rss_bytes,
            "retained_bytes": retained_bytes(ledger),
            "remedies": [asdict(remedy) for remedy in ledger.remedies],
        }
    )


def print_remedies(ledger: Ledger, console: Console) -> None:
    """Print the answer, then each remedy with its predicted effect and its cost."""
    print_sentence(console, answer_ledger(ledger), "bold")
    if not ledger.remedies:
        print_sentence(console, "\nNothing can be simulated where glibc's malloc was not read.")
        print_notices(ledger.notices, console)
        return
    table = drawing.Table(header_style="dim")
    rows = [(gain_text(remedy), remedy.setting, remedy.cost) for remedy in ledger.remedies]
    gain, setting = (max(len(row[column]) for row in rows) for column in (0, 1))
    # A size in two lines is hard to read: the cost is wrapped first.
    table.add_column("would return", no_wrap=gain + setting + _COST <= console.width)
    table.add_column("remedy", no_wrap=True)
    table.add_column("what it costs")
    for row in rows:
        table.add_row(*row)
    console.print()
    console.print(table)
    print_sentence(
        console,
        "\nThose that begin with glibc. are set by GLIBC_TUNABLES=REMEDY when the program starts;"
        " 'gdbmem compare --remedies -- PROGRAM' measures them.",
    )
    print_notices(ledger.notices, console)


def gain_text(remedy: Remedy) -> str:
    """Return the prediction with its interval, or that there is none."""
    low, high = remedy.low_bytes, remedy.high_bytes
    if remedy.predicted_bytes is None:
        return f"unknown until measured, at most {format_size(high)}"
    if not high:
        return "nothing"
    size = format_size(remedy.predicted_bytes)
    return size if low == high else f"about {size} ({format_size(low)} to {format_size(high)})"


def measured_json(ledger: Ledger, measured: MeasuredRemedies) -> str:
    """Return the measurements as ``kind=remedies``."""
    return to_json(
        {
            **head("remedies", _notices(ledger, measured)),
            "answer": conclusion(ledger, measured),
            "program": ledger.program,
            "command": list(measured.command),
            "moment": measured.moment,
            "rss_bytes": measured.rss_bytes,
            "retained_bytes": retained_bytes(ledger),
            "runs": measured.runs,
            "children": measured.children,
            "remedies": [_measured_document(row) for row in measured.remedies],
        }
    )


def _measured_document(row: MeasuredRemedy) -> dict[str, object]:
    return {
        **asdict(row.remedy),
        "measured_bytes": row.gained_bytes,
        "measured_low_bytes": row.low_bytes,
        "measured_high_bytes": row.high_bytes,
        "is_as_predicted": row.is_as_predicted,
        "why_not_measured": row.why_not or None,
    }


def print_measured(ledger: Ledger, measured: MeasuredRemedies, console: Console) -> None:
    """Print the measured effect of each remedy beside its prediction, and the best remedy."""
    print_sentence(console, conclusion(ledger, measured), "bold")
    if measured.remedies:
        table = drawing.Table(header_style="dim")
        for name in ("returned", "95 % interval", "predicted", "remedy", "what it costs"):
            table.add_column(name, no_wrap=name == "remedy")
        for row in measured.remedies:
            gained = format_size(row.gained_bytes) if row.gained_bytes is not None else "not measured"
            setting, cost = row.remedy.setting, row.remedy.cost
            table.add_row(
                gained, _interval(row), gain_text(row.remedy), setting, printable(row.why_not) or cost
            )
        console.print()
        console.print(table)
    print_notices(_notices(ledger, measured), console)


def _notices(ledger: Ledger, measured: MeasuredRemedies) -> Sequence[Notice]:
    if not measured.children:
        return ledger.notices
    started = plural(measured.children, "other process", "other processes")
    text = f"the program had started {started}: their memory is not measured, although the settings apply to them too"
    return [*ledger.notices, Notice("children-unmeasured", text)]


def _interval(row: MeasuredRemedy) -> str:
    if row.low_bytes is None or row.high_bytes is None:
        return ""
    return f"{format_size(row.low_bytes)} to {format_size(row.high_bytes)}"


def conclusion(ledger: Ledger, measured: MeasuredRemedies) -> str:
    """Return the remedy that returned most, and whether that is as predicted."""
    held = f"{printable(ledger.program)} {measured.moment}: {format_size(measured.rss_bytes)} resident"
    if not measured.remedies:
        most = max((remedy.high_bytes for remedy in ledger.remedies), default=None)
        why = (
            f"no remedy can return more than {format_size(most)}"
            if most is not None
            else answer_ledger(ledger)
        )
        return f"{held}; {why}"
    best = measured.remedies[0]
    shown = best.low_bytes is None or best.low_bytes > 0
    if not best.gained_bytes or best.gained_bytes < 0 or not shown:
        return f"{held}; no remedy has an effect that {plural(measured.runs, 'run')} of each can show"
    setting = best.remedy.setting
    words = " ".join(shlex.quote(word) for word in measured.command)
    how = setting if best.remedy.is_call else f"GLIBC_TUNABLES={setting} {printable(words)}"
    text = f"{held}; {how} returns most: {format_size(best.gained_bytes)}"
    if best.is_as_predicted is not None:
        text += f", {'as' if best.is_as_predicted else 'other than'} predicted ({gain_text(best.remedy)})"
    others = [row.remedy.setting for row in measured.equals_of_best]
    return (
        f"{text}; {', '.join(others)} {'gives' if len(others) == 1 else 'give'} as much" if others else text
    )
