"""Faults that made more than one page resident: large folios (mTHP), whose size no event of the kernel tells."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

from gdbmem.faults.growth import DOUBT, Span, WeighedFault, by_process, standard_error
from gdbmem.linux.faults.readings import Reading
from gdbmem.linux.memory.maps import PAGE

_TOLERANCE = 0.1  # of what became resident, beyond the sampling error
_LARGE_BYTES = 8 << 20  # an area that is judged alone: a program may advise many small ones


class FolioEvidence(NamedTuple):
    """What is known of the faults of a machine and a process."""

    sizes: Sequence[int]  # of folios that the kernel may use, smallest first
    populated: Mapping[int, Optional[int]]  # by process: faults without an event; None: unknown


def with_large_folios(
    faults: Sequence[WeighedFault], spans: Mapping[int, Span], evidence: FolioEvidence
) -> list[WeighedFault]:
    """Return *faults*, with those that made a folio resident as faults of a page of that size.

    The evidence is the process's own: where the kernel may use folios, more became resident than a page a fault, and
    no more than the folios around the faults. If those are more (some were smaller), all count in proportion.
    """
    changed = list(faults)
    for pid, numbers in by_process(faults).items() if evidence.sizes else ():
        span = spans.get(pid)
        if span is None or span.after is None:
            continue
        for area in _areas(span.after):
            members = [
                n
                for n in numbers
                if faults[n].page_bytes <= PAGE
                and _is_in(faults[n], area)
                and faults[n].address not in span.after.huge
            ]
            found = _folios(faults, members, evidence.sizes, span.before, span.after)
            came = _came(area, span.before, span.after)
            for number, one in _explained(faults, found, came, evidence.populated.get(pid)).items():
                changed[number] = one
    return changed


def _areas(after: Reading) -> Iterator[Sequence[tuple[int, int]]]:
    small = []
    for start, end in after.folios.items:
        if end - start >= _LARGE_BYTES:
            yield [(start, end)]
        else:
            small.append((start, end))
    if small:
        yield small


def _is_in(one: WeighedFault, area: Sequence[tuple[int, int]]) -> bool:
    return any(start <= one.address < end for start, end in area)


def _came(area: Sequence[tuple[int, int]], before: Reading, after: Reading) -> float:
    """Return the anonymous bytes that became resident in *area*, without those in huge pages."""
    came = 0
    for start, end in area:
        for low, high in after.anonymous.overlaps(start, end):
            huge = max(after.huge.within(low, high) - before.huge.within(low, high), 0)
            came += max(high - low - before.anonymous.within(low, high) - huge, 0)
    return float(came)


def _folios(
    faults: Sequence[WeighedFault],
    members: Sequence[int],
    sizes: Sequence[int],
    before: Reading,
    after: Reading,
) -> Mapping[int, WeighedFault]:
    """Return *members*, each as the fault of the largest folio that may have come with it."""
    places = {size: Counter(faults[n].address // size for n in members) for size in sizes}
    return {n: _as_folio(faults[n], places, before, after) for n in members}


def _as_folio(
    one: WeighedFault, places: Mapping[int, Mapping[int, int]], before: Reading, after: Reading
) -> WeighedFault:
    for size in sorted(places, reverse=True) if one.pages == 1 else ():
        start = one.address // size * size
        is_new = after.anonymous.within(start, start + size) == size and not before.within(
            start, start + size
        )
        # Two faults in one place were of smaller folios.
        if is_new and places[size][start // size] == 1 and after.folios.within(start, start + size) == size:
            return one._replace(page_bytes=size)
    return one


def _explained(
    faults: Sequence[WeighedFault], found: Mapping[int, WeighedFault], came: float, populated: Optional[int]
) -> Mapping[int, WeighedFault]:
    """Return those of *found*, limited to what *came*, if folios explain that and pages alone don't; else none."""
    rows = list(found.values())
    whole, pages = sum(one.bytes for one in rows), sum(faults[n].bytes for n in found)
    doubt = DOUBT * standard_error(rows, range(len(rows)), [one.bytes for one in rows]) + _TOLERANCE * came
    if came <= pages + doubt * pages / max(whole, 1.0) or came > whole + doubt:
        return {}
    if abs(whole - came) <= doubt:
        return found
    if populated is None or populated * PAGE > _TOLERANCE * came:
        return {}
    return {n: _smaller(one, came / whole) for n, one in found.items()}


def _smaller(one: WeighedFault, share: float) -> WeighedFault:
    """Return *one* with *share* of its bytes; how much of them it really has is uncertain."""
    less = one._replace(weight=one.weight * share)
    return less._replace(
        doubt=one.relative_variance - less.relative_variance + less.doubt + 1.0 / share - 1.0
    )
