"""The section of a page that compares page faults with the resident set of each process."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.model.faults import FaultAccount, FaultTotals
from gdbmem.report.faults.account_text import HUGETLB, cause_of, only_read, sentences
from gdbmem.report.page.page import Cell, Number, Section, known_size, printable_rows
from gdbmem.text import plural, printable
from gdbmem.units import format_delta, format_size

_MOST_PROCESSES = 50


def account_section(totals: FaultTotals) -> Section:
    """Return the account of a recording: the growth of each process, and its explanation."""
    accounts = sorted(totals.accounts, key=lambda one: -(one.delta_bytes or 0))
    rows: list[Sequence[Cell]] = []
    for one in accounts[:_MOST_PROCESSES]:
        rows += _rows(one)
    rest = accounts[_MOST_PROCESSES:]
    if rest:
        rows.append(
            (
                plural(len(rest), "further process", "further processes"),
                _change(sum(one.delta_bytes or 0 for one in rest)),
                "",
            )
        )
    return Section(
        "Beside the resident set",
        rules=[printable(one) for one in sentences(totals)],
        header=("", "resident", ""),
        table=printable_rows(rows),
    )


def _rows(one: FaultAccount) -> list[Sequence[Cell]]:
    name = f"process {one.pid} ({one.name})"
    seen = format_size(round(one.seen_bytes))
    if one.after_bytes is None:
        return [(name, "unknown", f"made {seen} resident, and ended")]
    sizes = f"from {format_size(one.before_bytes)} to {format_size(one.after_bytes)}"
    left = round(one.seen_bytes - one.grown_bytes)
    note = (
        f"made {seen} resident, {format_size(left)} of it no longer resident or resident before"
        if left > 0
        else ""
    )
    return [
        (name, known_size(None) if one.delta_bytes is None else _change(one.delta_bytes), sizes),
        *([(HUGETLB, _change(one.hugetlb_bytes), "")] if one.hugetlb_bytes else ()),
        ("by the page faults above", _change(round(one.grown_bytes)), note),
        *([(only_read(one), _change(0), "")] if one.zero_bytes else ()),
        *((cause_of(part), _change(part.bytes), "") for part in one.unseen if part.bytes),
    ]


def _change(size_bytes: int) -> Number:
    return Number(format_delta(size_bytes), size_bytes)
