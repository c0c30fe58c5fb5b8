"""The account of a recording of page faults: the explained and unexplained resident memory, with its accuracy."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.model.faults import (
    FILES,
    INHERITED,
    JOINED,
    KERNEL_MODE,
    LATER,
    LOST,
    MOVED,
    PEAK,
    POPULATED,
    REST,
    FaultAccount,
    FaultTotals,
    Unseen,
)
from gdbmem.report.console import Console, print_sentence
from gdbmem.report.drawing import Table
from gdbmem.text import plural, printable
from gdbmem.units import format_delta, format_duration, format_size

_LISTED = 10  # processes
KINDS = {
    KERNEL_MODE: "faults in kernel mode, which this user may not sample (such as read() into fresh memory, mlock())",
    FILES: "pages of files and shared memory that faults mapped together with those they were for",
    INHERITED: "pages that the process shares with others: its parent's, libraries'",
    LOST: "faults of a process of which all samples were lost, because the kernel's buffers were full",
    LATER: "of the growth happened between that reading and the end of the process",
    MOVED: "pages where no fault was, as many as have left other places: mremap() moves them, as in realloc()",
    POPULATED: "pages that the kernel filled in without a touch (MAP_POPULATE, mlock(), madvise(), direct I/O): it"
    " counted their faults, but tells no lines",
    JOINED: "pages that the kernel added when it joined small pages into huge ones (khugepaged, MADV_COLLAPSE)",
    PEAK: "more at the peak of the process, which has ended, than when its memory was last read",
    REST: "not explained: no event shows the cause",
}
HUGETLB = "in addition, pages of hugetlbfs, which the kernel does not count as resident"


def print_account(totals: FaultTotals, console: Console) -> None:
    """Print the growth of the resident set, the part that the faults explain, and how they were sampled."""
    console.print()
    console.print(_table(totals.accounts))
    for sentence in sentences(totals):
        print_sentence(console, sentence)


def sentences(totals: FaultTotals) -> list[str]:
    """Return sentences on the origin of the numbers and their accuracy."""
    accounts = totals.accounts
    found = [_sampling(totals)]
    if totals.broken_paths * 10 > totals.samples:
        text = f"the call paths of {totals.broken_paths:,} of {plural(totals.samples, 'sample')} end early"
        found.append(f"{text}: their callers are unknown")
    gone = [one for one in accounts if one.ended_seconds_after is not None]
    if len(gone) == 1 and len(accounts) == 1:
        when = format_duration(gone[0].ended_seconds_after or 0.0)
        found.append(f"the process has ended: its resident memory was last read {when} before that")
    elif gone:
        count = plural(len(gone), "process has", "processes have")
        found.append(f"{count} ended: the resident memory of each was last read when it was largest")
    unread = [one for one in accounts if one.after_bytes is None]
    if unread:
        count = plural(len(unread), "process", "processes")
        counts = any(one.grown_bytes for one in unread)
        fate = "all memory made resident counts as growth" if counts else "they count as not grown"
        found.append(f"the resident memory of {count} could not be read before the end: {fate}")
    return found


def _sampling(totals: FaultTotals) -> str:
    mode = "" if totals.sees_kernel_mode else " in user mode"
    text = f"{plural(totals.faults, 'page fault')}{mode} in {format_duration(totals.seconds)}"
    if totals.longest_period == 1:
        return f"{text}, each of them sampled"
    periods = f"one in {totals.longest_period:,}"
    if totals.shortest_period != totals.longest_period:
        periods = f"one in {totals.shortest_period:,} to {totals.longest_period:,}"
    return f"{text}, {periods} sampled: {plural(totals.samples, 'sample')}"


def _table(accounts: Sequence[FaultAccount]) -> Table:
    table = Table(header_style="bold")
    table.add_numbers("resident")
    table.add_column("")
    listed = sorted(accounts, key=lambda one: -(one.delta_bytes or 0))
    for one in listed[:_LISTED]:
        _add(table, one, _title(one))
    if len(listed) > _LISTED:
        rest = listed[_LISTED:]
        delta = sum(one.delta_bytes or 0 for one in rest)
        table.add_row(format_delta(delta), plural(len(rest), "further process", "further processes"))
    return table


def _title(one: FaultAccount) -> str:
    return f"process {one.pid} ({printable(one.name)})"


def _add(table: Table, one: FaultAccount, title: str) -> None:
    seen, left = format_size(round(one.seen_bytes)), round(one.seen_bytes - one.grown_bytes)
    if one.after_bytes is None:
        table.add_row("unknown", f"{title}: made {seen} resident, and ended")
        return
    sizes = f"from {format_size(one.before_bytes)} to {format_size(one.after_bytes)}"
    table.add_row(format_delta(one.delta_bytes or 0), f"{title}, {sizes}")
    if one.hugetlb_bytes:
        table.add_row(format_delta(one.hugetlb_bytes), f"  {HUGETLB}")
    note = (
        f" (made {seen} resident, {format_size(left)} of it no longer resident or resident before)"
        if left > 0
        else ""
    )
    table.add_row(format_delta(round(one.grown_bytes)), f"  by the page faults above{note}")
    if one.zero_bytes:
        table.add_row("0 B", f"  {only_read(one)}")
    for part in one.unseen:
        if part.bytes:
            table.add_row(format_delta(part.bytes), f"  {cause_of(part)}")


def cause_of(part: Unseen) -> str:
    """Return what caused a part of the growth that no fault explains."""
    if part.kind == REST and part.bytes < 0:
        return "less than the faults explain"
    return KINDS.get(part.kind, part.kind)


def only_read(one: FaultAccount) -> str:
    """Return the sentence on fresh memory that was never written."""
    return f"{format_size(one.zero_bytes)} of fresh memory was only read: the kernel shows one page of zeros there"
