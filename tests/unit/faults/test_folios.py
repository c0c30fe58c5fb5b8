"""Faults that make a large folio resident (mTHP): what a line gets where the kernel tells of one page only."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Optional

import pytest

from gdbmem.faults.folios import FolioEvidence, with_large_folios
from gdbmem.faults.growth import Span, WeighedFault, grown_bytes
from gdbmem.linux.faults.readings import Reading
from gdbmem.linux.memory.maps import PAGE, Ranges

BASE = 1 << 40
FOLIO = 16 * PAGE
MIB = 1 << 20


def fault(address: int, time: int, weight: float = 1.0) -> WeighedFault:
    return WeighedFault(time, 1, 1, address, PAGE, weight, 0)


def grown(
    faults: Sequence[WeighedFault], resident: Ranges, eligible: Ranges, populated: Optional[int] = 0
) -> float:
    after = Reading(10**9, resident.size_bytes, resident.size_bytes, anonymous=resident, folios=eligible)
    spans = {1: Span(Reading(0), after)}
    rows = with_large_folios(faults, spans, FolioEvidence([FOLIO], {1: populated}))
    return sum(grown_bytes(rows, spans, {}))


@pytest.mark.parametrize("period", [1, 3, 20])
def test_a_line_gets_all_pages_of_the_folios_that_its_faults_brought(period: int) -> None:
    area = Ranges([(BASE, BASE + 64 * MIB)])
    faults = [fault(at, at - BASE, period) for at in range(BASE, BASE + 64 * MIB, period * FOLIO)]
    assert grown(faults, area, area) == pytest.approx(64 * MIB, rel=0.02)


def test_pieces_that_a_program_advised_are_judged_together() -> None:
    area = Ranges((BASE + n * 2 * MIB, BASE + n * 2 * MIB + MIB) for n in range(32))
    faults = [fault(at, at - BASE) for start, end in area.items for at in range(start, end, FOLIO)]
    assert grown(faults, area, area) == pytest.approx(32 * MIB)


def test_single_pages_are_not_taken_for_folios_however_few_are_sampled() -> None:
    area = Ranges([(BASE, BASE + 64 * MIB)])
    chance = random.Random(1)
    places = sorted(chance.sample(range(64 * MIB // PAGE), 64 * MIB // PAGE // 40))
    faults = [fault(BASE + n * PAGE, n, 40.0) for n in places]
    assert grown(faults, area, area) == pytest.approx(64 * MIB, rel=0.15)


def test_folios_of_which_some_were_smaller_share_what_came() -> None:
    area = Ranges([(BASE, BASE + 64 * MIB)])
    steps = [FOLIO, PAGE, PAGE, 2 * PAGE, FOLIO]
    places, at = [], BASE
    while at < BASE + 64 * MIB:
        places.append(at)
        at += steps[len(places) % len(steps)]
    chance = random.Random(2)
    faults = [fault(at, at - BASE, 5.0) for at in sorted(chance.sample(places, len(places) // 5))]
    assert grown(faults, area, area) == pytest.approx(64 * MIB, rel=0.15)


@pytest.mark.parametrize(
    ("eligible", "populated"), [(False, 0), (True, 64 * MIB // PAGE), (True, None)], ids=str
)
def test_pages_that_came_otherwise_are_not_charged_to_the_faults_beside_them(
    eligible: bool, populated: Optional[int]
) -> None:
    area = Ranges([(BASE, BASE + 64 * MIB)])
    faults = [fault(at, at - BASE) for at in range(BASE, BASE + 64 * MIB, MIB)]
    whole = grown(faults, area, area if eligible else Ranges(), populated)
    assert whole <= len(faults) * FOLIO
