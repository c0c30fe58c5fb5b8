"""The growth of a process's resident set, by what is known to have caused it: faults, and pages without a fault.

A cause is stated only with its own evidence. What is left has none, and is "not explained".
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, Optional

from gdbmem.faults.growth import DOUBT, SURELY_SAMPLED, Span, WeighedFault, standard_error
from gdbmem.json_values import as_json
from gdbmem.linux.faults.readings import Reading
from gdbmem.linux.memory.maps import PAGE, Ranges
from gdbmem.model.calltree import Profile, Snapshot
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
    UNWATCHED,
    FaultAccount,
    FaultTotals,
    HeldNow,
    NamedFaults,
    NamedStack,
    SiteHoldings,
    Unseen,
)
from gdbmem.profiles.documents import profile_document
from gdbmem.profiles.own_code import describe_site
from gdbmem.profiles.paths import Query
from gdbmem.terminal.console import Console, print_sentence
from gdbmem.terminal.document import Document, to_json
from gdbmem.terminal.drawing import Table
from gdbmem.text import format_delta, format_duration, format_size, plural, printable

# An area of a file that one fault may map: 16 pages, or a large folio (Linux 6.18).
_TOGETHER_BYTES = 512 * PAGE
_MOST_A_FAULT = 512 * PAGE  # pages of anonymous memory that one fault brings, of whatever size they are
_LEAST_SHARED, _LEAST_SHARED_BYTES = 0.1, 1 << 20  # of what a process has grown by: less needs no sentence
_COUNTERPART = 0.9  # of the pages without a fault must have left elsewhere to be moved ones

_Row = tuple[WeighedFault, float]  # a sample, and how many of its bytes stayed resident


class Evidence(NamedTuple):
    """Faults of a process that have no sample, as far as they are known; None: unknown."""

    # In kernel mode, if this user may not sample those.
    kernel_faults: Optional[int] = None
    # In the kernel's count of the process, but no events: pages that it filled in without the process touching them.
    populated_faults: Optional[int] = None
    lost_faults: int = 0  # of a process all of whose samples were lost
    missed_faults: float = 0.0  # of any process, whose samples were lost
    sees_kernel_mode: bool = True
    unwatched_faults: int = (
        0  # between a reading of the process and the moment when its events counted, or stopped
    )


class _Places(NamedTuple):
    """Anonymous bytes that became resident beyond what faults explain in the same place."""

    small: float
    huge: float  # in huge pages
    joined: float  # in huge pages that the kernel made of small ones


def account(name: str, pid: int, mine: Sequence[_Row], span: Span, evidence: Evidence) -> FaultAccount:
    """Return the resident set of process *pid* compared with its faults.

    *mine* are its samples and the bytes of each that stayed resident. Where faults in kernel mode have no samples, the
    kernel's count of them tells which pages had no fault at all.
    """
    seen = sum(one.bytes for one, _ in mine)
    stays = sum(stay for _, stay in mine)
    before, after = span.before, span.after
    if after is None:
        return FaultAccount(pid, name, before.rss_bytes, None, seen, stays)
    later = 0.0 if span.peak_bytes else sum(stay for one, stay in mine if one.time > after.time)
    rest = span.room_bytes - stays + later
    unseen = []
    for kind, size in _causes(mine, span, before, after, evidence):
        # None of them can explain more than there is to explain.
        size = max(min(size, round(rest)), 0)
        if size:
            unseen.append(Unseen(kind, size))
            rest -= size
    if later:
        # Which samples came after the reading is known, but not how many faults each represents: all that the faults
        # explain too much came after it, and no others did.
        rest -= later
        unseen.insert(0, Unseen(LATER, min(round(rest), 0)))
        rest = max(rest, 0.0)
    unseen.append(Unseen(REST, round(rest)))
    hugetlb = after.hugetlb_bytes - before.hugetlb_bytes
    shared = sum(stay for one, stay in mine if one.address in after.files or one.address in after.hugetlb)
    return FaultAccount(
        pid, name, before.rss_bytes, span.most_bytes, seen, stays, unseen, hugetlb_bytes=hugetlb,
        shared_bytes=round(shared),
    )  # fmt: skip


def _causes(
    mine: Sequence[_Row], span: Span, before: Reading, after: Reading, evidence: Evidence
) -> list[tuple[str, int]]:
    """Return the bytes that each cause can explain."""
    if not span.is_root:
        found = [(INHERITED, after.shared_bytes)]
        places = _Places(0.0, 0.0, 0.0)
    else:
        found = [(FILES, round(_mapped_together(mine, before, after)))]
        places = _places(mine, before, after)
    came_later = sum(stays for one, stays in mine if one.ended > after.time)
    # While a process runs, its pages are read a moment after its size.
    there = min(after.rss_bytes, after.anonymous.size_bytes + after.files.size_bytes)
    found.append((PEAK, round(span.most_bytes - there - came_later)))
    found += [(KERNEL_MODE, (evidence.kernel_faults or 0) * PAGE), (LOST, evidence.lost_faults * PAGE)]
    unseen = evidence.unwatched_faults
    unwatched = (UNWATCHED, unseen * PAGE + (round(places.huge) if unseen else 0))
    if places.small + places.huge <= evidence.missed_faults * PAGE:
        return [*found, (JOINED, round(places.joined)), unwatched]
    if evidence.sees_kernel_mode:
        populated = evidence.populated_faults or 0
        small = min(populated * PAGE, places.small)
        huge = places.huge if populated else 0.0
        moved = max(places.small - small - unseen * PAGE, 0.0)
    else:
        small = huge = moved = 0.0
        if evidence.kernel_faults is not None:
            moved = max(places.small - (evidence.kernel_faults + unseen) * _MOST_A_FAULT, 0.0)
    if _left(mine, before, after) < _COUNTERPART * moved:
        moved = 0.0
    found += [(JOINED, round(places.joined)), (POPULATED, round(small + huge)), (MOVED, round(moved))]
    return [*found, unwatched]


def _mapped_together(mine: Sequence[_Row], before: Reading, after: Reading) -> float:
    """Return the bytes of files and shared memory that faults mapped beyond those they were for, at most."""
    of_files = [(one, stay) for one, stay in mine if one.address in after.files]
    weights: dict[int, float] = {}
    for one, _ in of_files:
        block = one.address // _TOGETHER_BYTES
        weights[block] = max(one.weight, weights.get(block, 0.0))
    around = sum(weight * _came(block, before, after) for block, weight in weights.items())
    beyond = after.file_bytes - before.file_bytes - sum(stay for _, stay in of_files)
    return min(beyond, around)


def _came(block: int, before: Reading, after: Reading) -> int:
    area = block * _TOGETHER_BYTES, (block + 1) * _TOGETHER_BYTES
    return after.files.within(*area) - before.files.within(*area)


def _places(mine: Sequence[_Row], before: Reading, after: Reading) -> _Places:
    """Return the growth in places where faults explain less; a difference within the sampling error is none."""
    ordered = sorted(mine, key=lambda row: row[0].address)
    addresses = [one.address for one, _ in ordered]
    least = SURELY_SAMPLED * PAGE * max((one.weight for one, _ in mine), default=1.0)
    small = huge = joined = 0.0
    for start, end in after.anonymous.items:
        there = ordered[bisect_left(addresses, start) : bisect_left(addresses, end)]
        new = end - start - before.anonymous.within(start, end)
        excess = new - sum(stays for _, stays in there)
        doubt = standard_error([one for one, _ in there], range(len(there)), [stays for _, stays in there])
        if excess <= max(least, DOUBT * doubt):
            continue
        in_huge = min(excess, after.huge.within(start, end) - before.huge.within(start, end))
        in_huge = max(in_huge, 0.0)
        small += excess - in_huge
        if _were_small(there, start, end, before, after.huge):
            joined += in_huge
        else:
            huge += in_huge
    return _Places(small, huge, joined)


def _were_small(there: Sequence[_Row], start: int, end: int, before: Reading, huge: Ranges) -> bool:
    """Return whether small pages were in the huge pages of an area before."""
    if any(0 < one.page_bytes <= PAGE and one.address in huge for one, _ in there):
        return True
    return any(
        before.anonymous.within(*piece) > before.huge.within(*piece) for piece in huge.overlaps(start, end)
    )


def _left(mine: Sequence[_Row], before: Reading, after: Reading) -> float:
    """Return the anonymous bytes that were resident and are not any more: what mremap() moves leaves its place."""
    gone = sum(end - start for area in before.anonymous.items for start, end in after.anonymous.gaps(*area))
    # A place may have been mapped anew since: what counts is that two faults can't stand for the same page.
    return gone + sum(one.bytes - stays for one, stays in mine if one.ended <= after.time)


# The account of a recording of page faults: the explained and unexplained resident memory, with its accuracy.


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
    UNWATCHED: "faults while the recording was being started or ended, which no event saw",
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
    found = [_sampling_sentence(totals)]
    if totals.broken_paths * 10 > totals.samples:
        text = f"the call paths of {totals.broken_paths:,} of {plural(totals.samples, 'sample')} end early"
        found.append(f"{text}: their callers are unknown")
    sharing = [
        one
        for one in accounts
        if one.shared_bytes >= max(_LEAST_SHARED * one.grown_bytes, _LEAST_SHARED_BYTES)
    ]
    if len(sharing) > 1:
        size = format_size(sum(one.shared_bytes for one in sharing))
        text = f"{size} of the growth are pages of files and shared memory in {len(sharing):,} processes"
        found.append(f"{text}: one that several have touched counts in each, as in their RSS")
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


def _sampling_sentence(totals: FaultTotals) -> str:
    mode = "" if totals.sees_kernel_mode else " in user mode"
    text = f"{plural(totals.faults, 'page fault')}{mode} in {format_duration(totals.seconds)}"
    assumed = (
        f", {totals.assumed_paths:,} with the callers of the nearest one" if totals.assumed_paths else ""
    )
    if totals.longest_period == 1:
        return f"{text}, each of them sampled{assumed}"
    periods = f"one in {totals.longest_period:,}"
    if totals.shortest_period != totals.longest_period:
        periods = f"one in {totals.shortest_period:,} to {totals.longest_period:,}"
    return f"{text}, {periods} sampled: {plural(totals.samples, 'sample')}{assumed}"


def _table(accounts: Sequence[FaultAccount]) -> Table:
    table = Table(header_style="bold")
    table.add_numbers("resident")
    table.add_column("")
    listed = sorted(accounts, key=lambda one: -(one.delta_bytes or 0))
    for one in listed[:_LISTED]:
        _add(table, one, f"process {one.pid} ({printable(one.name)})")
    if len(listed) > _LISTED:
        rest = listed[_LISTED:]
        delta = sum(one.delta_bytes or 0 for one in rest)
        table.add_row(format_delta(delta), plural(len(rest), "further process", "further processes"))
    return table


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


# A recording of page faults as JSON: ``kind=profile``, with the account beside it.


def grow_json(
    profile: Profile, snapshot: Snapshot, recorded: NamedFaults, query: Query, held: Optional[list[Document]]
) -> str:
    """Return the recording as text; *held*: the contents of the memory of the lines that grew most."""
    totals = recorded.totals
    known = [one.delta_bytes for one in totals.accounts if one.delta_bytes is not None]
    document: Document = {
        **profile_document(profile, query, snapshot=snapshot),
        "delta_rss_bytes": sum(known) if len(known) == len(totals.accounts) else None,
        "seen_bytes": round(sum(one.seen_bytes for one in totals.accounts)),
        "grown_bytes": round(sum(one.grown_bytes for one in totals.accounts)),
        "unseen_bytes": sum(part.bytes for one in totals.accounts for part in one.unseen),
        "totals": as_json(totals),
        "paths": [_path(one, recorded) for one in sorted(recorded.stacks, key=lambda one: -one.grown_bytes)],
        **({} if held is None else {"held": held}),
    }
    return to_json(document)


def _path(one: NamedStack, recorded: NamedFaults) -> Document:
    return {
        "grown_bytes": round(one.grown_bytes),
        "made_resident_bytes": round(one.seen_bytes),
        **as_json(one, "samples", "pid", "tid"),
        "thread": recorded.threads.get(str(one.tid)),
        "frames": [as_json(recorded.frames[number]) for number in one.frames],
    }


# The contents, at the end of a recording, of the memory that lines made resident.


_LEAST_SHARE = 0.01
_LEFT = "no longer resident"


def print_held(held: Sequence[SiteHoldings], console: Console) -> None:
    """Print a table: each line, and below it the contents of its memory."""
    if not held:
        return
    table = Table(header_style="bold")
    table.add_numbers("bytes")
    table.add_column("contents of each line's memory now, by the addresses of its samples")
    for one in held:
        samples = plural(one.samples, "sample")
        table.add_row(format_size(round(one.bytes)), f"{describe_site(one.site)}, {samples}")
        for part in one.parts:
            _held_text_add(table, part, one.bytes)
    console.print()
    console.print(table)


def _held_text_add(table: Table, part: HeldNow, whole: float) -> None:
    if part.bytes < _LEAST_SHARE * whole:
        return
    table.add_row(format_size(round(part.bytes)), f"  {printable(_words(part))}")
    for name, size in sorted(part.pools.items(), key=lambda item: -item[1]):
        if size >= _LEAST_SHARE * whole:
            table.add_row(format_size(round(size)), f"    {name}")


def _words(part: HeldNow) -> str:
    if not part.category:
        return _LEFT
    from gdbmem.ledger.text import what_grew  # only for what sites hold

    return what_grew(part.category, part.label)


def held_document(held: Sequence[SiteHoldings]) -> list[Document]:
    """Return it as JSON values."""
    return [
        {
            "site": {"function": one.site.function, "file": one.site.file, "line": one.site.line},
            "bytes": round(one.bytes),
            "samples": one.samples,
            "holds": [
                {
                    "category": part.category or None,
                    "label": part.label,
                    "bytes": round(part.bytes),
                    "pools": {name: round(size) for name, size in part.pools.items()},
                }
                for part in one.parts
            ],
        }
        for one in held
    ]
