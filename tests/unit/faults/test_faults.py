"""Page faults: records that are damaged, stacks that lead nowhere, and what has come to stay."""

from __future__ import annotations

import contextlib
import json
import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Optional

import pytest

from gdbmem.api.growth import _span, rows_of
from gdbmem.api.profiles import load_from_profile
from gdbmem.errors import InputError, Notice, TargetError
from gdbmem.faults.account import Evidence, account, grow_json, sentences
from gdbmem.faults.growth import (
    Span,
    WeighedFault,
    grown_bytes,
    shared_out,
    stacks_of,
    unsampled,
    with_huge_pages,
    within_counts,
    within_peaks,
    without_zero_pages,
)
from gdbmem.formats.json_profiles import encode_faults, faults_profile
from gdbmem.formats.opening import OpenOptions, open_profile
from gdbmem.formats.stacks import StackProfile
from gdbmem.linux.faults.event import (
    Mapped,
    SampleLayout,
    SmallSamples,
    Turn,
    small_of_whole,
    small_records,
    small_samples,
    stack_samples,
    trimmed,
)
from gdbmem.linux.faults.readings import Reading
from gdbmem.linux.memory.maps import PAGE, Ranges
from gdbmem.model.calltree import Frame
from gdbmem.model.faults import FaultAccount, FaultTotals, NamedFaults, NamedStack
from gdbmem.model.faults import Unseen as Hidden
from gdbmem.profiles.paths import Query
from gdbmem.recording.faults import Watched
from gdbmem.symbols.call_paths import CallPaths, Samples, _named
from gdbmem.symbols.unwinder import MACHINES, AddressSpace, Unwinder, code_in, code_region

CAPTURE = Path(__file__).parents[2] / "captures/faults/touch.faults"
LAYOUT = SampleLayout(17, True)
BASE = 0x7F0000000000
HUGE = 2 << 20


def sample_record(
    stack: bytes,
    filled: int,
    *,
    chain: tuple[int, ...] = (1, 2),
    time: int = 99,
    counter: int = 8,
    pointer: int = 7,
    address: int = BASE,
) -> bytes:
    body = struct.pack("<QQIIQQQ", 7, 0x1234, 10, 11, time, address, len(chain))
    body += struct.pack(f"<{len(chain)}Q", *chain)
    body += struct.pack("<Q17Q", 2, *range(7), pointer, counter, *range(9, 17))
    body += struct.pack("<Q", len(stack)) + (stack + struct.pack("<Q", filled) if stack else b"")
    return struct.pack("<IHH", 9, 0, 8 + len(body)) + body


def small_sample(address: int, time: int, *, counter: int = 8, pointer: int = 7, page: int = PAGE) -> bytes:
    body = struct.pack("<QIIQQQQQQ", 7, 10, 11, time, address, 2, pointer, counter, page)
    return struct.pack("<IHH", 9, 2, 8 + len(body)) + body


def test_a_sample_is_the_same_once_the_empty_part_of_its_stack_is_gone() -> None:
    data = sample_record(bytes(range(64)) + bytes(960), 64)
    kept = trimmed(data, LAYOUT)
    assert (kept.samples, kept.lost) == (1, 0) and len(kept.data) == len(data) - 960
    before, after = (next(stack_samples(one, LAYOUT)) for one in (data, kept.data))
    assert before == after and before.stack == bytes(range(64)) and before.chain == (1, 2)


@pytest.mark.parametrize("asked", [False, True])
def test_code_keeps_its_file_where_only_another_event_asked_for_build_ids(asked: bool) -> None:
    # A device and an inode, or a build-id of 12 bytes.
    file = bytes((12, 0, 0, 0, *range(1, 13))) + bytes(8)
    body = struct.pack("<IIQQQ", 10, 11, BASE, PAGE, 0) + file + struct.pack("<II", 5, 2)
    body += b"/lib/x\0\0" + struct.pack("<IIQQ", 10, 11, 99, 7)
    record = struct.pack("<IHH", 10, 1 << 14, 8 + len(body)) + body
    (found,) = small_records(record, LAYOUT._replace(has_build_ids=asked))
    assert isinstance(found, Mapped) and found.name == "/lib/x"
    assert (found.inode == 0, found.build_id) == (asked, bytes(range(1, 13)).hex() if asked else "")


def test_a_thread_without_a_user_stack_has_no_registers() -> None:
    body = struct.pack("<QQIIQQQ", 7, 1, 2, 3, 4, 5, 0) + struct.pack("<QQ", 0, 0)
    data = struct.pack("<IHH", 9, 0, 8 + len(body)) + body
    (one,) = stack_samples(trimmed(data, LAYOUT).data, LAYOUT)
    assert one.registers == () and one.stack == b""
    small = struct.pack("<IHHQIIQQQQ", 9, 1, 56, 7, 10, 11, 5, BASE, 0, PAGE)
    data = small_sample(BASE, 1) + small + small_sample(BASE, 9)
    assert small_samples(data, LAYOUT).samples == 3
    blocks = [one for one in small_records(data, LAYOUT) if isinstance(one, SmallSamples)]
    assert [list(one.time) for one in blocks] == [[1], [5], [9]]
    assert [list(one.counter) for one in blocks] == [[8], [0], [8]]


def test_a_sample_with_a_stack_that_is_counted_too_is_the_small_one_of_the_same_fault() -> None:
    def whole(stack: int, time: int) -> bytes:
        record = sample_record(bytes(stack), min(stack, 16), time=time) + struct.pack("<Q", HUGE)
        return struct.pack("<IHH", 9, 2, len(record)) + record[8:]

    idle = struct.pack("<QQIIQQQ", 7, 1, 10, 11, 5, BASE, 0) + struct.pack("<QQQ", 0, 0, PAGE)
    trailer = struct.pack("<IIQ", 10, 11, 6)
    lost, of_others = (struct.pack("<IHHQQ", 2, 0, 48, 7, 3) + trailer + struct.pack("<Q", n) for n in (7, 8))
    data = whole(1024, 1) + struct.pack("<IHH", 9, 2, 8 + len(idle)) + idle + lost + of_others + whole(0, 9)
    small = small_sample(BASE, 1, page=HUGE) + struct.pack(
        "<IHHQIIQQQQ", 9, 2, 56, 7, 10, 11, 5, BASE, 0, PAGE
    )
    small += lost + small_sample(BASE, 9, page=HUGE)
    assert small_of_whole(data, LAYOUT, {7}.__contains__, (7, 8)) == small
    assert small_samples(small, LAYOUT).lost == 3
    assert small_of_whole(data, LAYOUT, {1}.__contains__, (7, 8)) == b""
    kept = trimmed(data, LAYOUT)
    assert (kept.samples, [one.time for one in stack_samples(kept.data, LAYOUT)]) == (3, [1, 5, 9])
    assert list(stack_samples(kept.data, LAYOUT)) == list(stack_samples(data, LAYOUT))
    for cut in range(1, len(data)):
        with contextlib.suppress(TargetError):
            small_of_whole(data[:cut], LAYOUT, {7}.__contains__, (7, 8))


def test_samples_count_whatever_other_tools_sample_at_the_same_fault() -> None:
    """Linux sizes all records of one fault by the registers and parts that the first event asked for."""
    whole = sample_record(bytes(1024), 16, time=1) + struct.pack("<Q", HUGE)
    whole = struct.pack("<IHH", 9, 2, len(whole)) + whole[8:]
    short = struct.pack("<IHH", 9, 2, len(whole) - 120) + whole[8:-120]  # the first had 2 registers, not 17
    long = struct.pack("<IHH", 9, 2, len(whole) + 64) + whole[8:] + bytes(range(64))
    data = short + long + whole
    small = small_sample(BASE, 1, page=0) + 2 * small_sample(BASE, 1, page=HUGE)
    assert small_of_whole(data, LAYOUT, {7}.__contains__, (7, 8)) == small
    kept = list(stack_samples(trimmed(data, LAYOUT).data, LAYOUT))
    assert trimmed(data, LAYOUT).samples == 3 and kept == list(stack_samples(data, LAYOUT))
    assert [len(one.stack) for one in kept] == [16, 16]  # how much of the short one was filled is unknown
    assert {one.registers for one in kept} == {(*range(7), 7, 8, *range(9, 17))}

    first = small_sample(BASE, 1)
    longer = struct.pack("<IHH", 9, 2, len(first) + 120) + first[8:] + b"\xff" * 120
    shorter = struct.pack("<IHH", 9, 2, len(first) - 8) + first[8:-8]
    read = list(small_records(first + longer + shorter + first, LAYOUT))
    assert all(isinstance(one, SmallSamples) for one in read)
    assert [(*one.counter, *one.page_bytes) for one in read if isinstance(one, SmallSamples)] == [
        (8, PAGE), (8, PAGE), (8, 0), (8, PAGE)
    ]  # fmt: skip


def test_a_kept_recording_is_read_in_full() -> None:
    profile = open_profile(CAPTURE)
    tree = profile.tree(0)
    assert tree is not None and profile.unit == "bytes grown"
    tree.check()
    assert tree.bytes[0] == pytest.approx(16 << 20, rel=0.05)
    made = open_profile(CAPTURE, OpenOptions(metric="made-resident"))
    assert made.unit == "bytes made resident" and made.snapshots[0].total_bytes >= tree.bytes[0]


def test_a_recording_that_was_cut_or_changed_is_refused_in_a_sentence(tmp_path: Path) -> None:
    data = CAPTURE.read_bytes()
    spoilt = tmp_path / "spoilt"
    turns = random.Random(1)
    for _ in range(300):
        start = turns.randrange(20, len(data))
        spoilt.write_bytes(
            data[:start] + bytes([turns.randrange(32, 127)]) * turns.randrange(3) + data[start + 1 :]
        )
        try:
            tree = open_profile(spoilt).tree(0)
        except InputError as error:
            assert error.slug in ("faults-damaged", "faults-version", "negative-count", "count-too-big")
        else:
            assert tree is not None
    for end in range(20, len(data) - 2, 97):
        spoilt.write_bytes(data[:end])
        with pytest.raises(InputError) as caught:
            open_profile(spoilt)
        assert caught.value.slug == "faults-damaged"


def fault(number: int, time: int, *, weight: float = 1.0, path: int = 0, size: int = PAGE) -> WeighedFault:
    return WeighedFault(time, 1, 1, BASE + number * PAGE, size, weight, path)


def reading(pages: Iterable[int], *, time: int = 1000, huge: int = 0) -> Reading:
    spans = Ranges((BASE + page * PAGE, BASE + (page + 1) * PAGE) for page in pages)
    large = Ranges([(BASE, BASE + huge * HUGE)])
    return Reading(time, spans.size_bytes, spans.size_bytes, anonymous=spans, huge=large)


def test_only_pages_that_are_still_there_and_were_not_before_have_grown() -> None:
    faults = [fault(n, n) for n in range(100)]
    grown = grown_bytes(faults, {1: Span(reading(range(10)), reading(range(60)))}, {})
    assert [bool(size) for size in grown] == [10 <= n < 60 for n in range(100)]


def test_a_page_that_came_often_is_charged_to_the_line_that_touched_it_last() -> None:
    faults = [fault(n, time, path=time) for time in range(5) for n in range(100)]
    grown = grown_bytes(faults, {1: Span(reading(range(0)), reading(range(100)))}, {})
    assert sum(grown) == pytest.approx(100 * PAGE)
    assert sum(size for one, size in zip(faults, grown) if one.path == 4) == pytest.approx(100 * PAGE)


def test_sampled_growth_is_not_cut_by_chance() -> None:
    chance = random.Random(3)
    faults = [fault(n, n, weight=50.0) for n in sorted(chance.sample(range(20_000), 400))]
    grown = grown_bytes(faults, {1: Span(reading(range(0)), reading(range(20_000), time=10**6))}, {})
    assert sum(grown) == 400 * 50 * PAGE


def test_growth_is_scaled_to_the_resident_pages_where_only_chance_is_between_them() -> None:
    chance = random.Random(4)
    faults = [fault(n, n, weight=50.0) for n in sorted(chance.sample(range(20_000), 400))]
    few = {1: Span(reading(range(0)), reading(range(4_700), time=10**6))}
    assert sum(grown_bytes(faults, few, {})) == pytest.approx(4_700 * PAGE)
    assert sum(1 for one in faults if one.address < BASE + 4_700 * PAGE) * 50 != 4_700
    other = Span(reading(range(0)), reading(range(40_000), time=10**6))  # half of it came in another way
    assert sum(grown_bytes(faults, {1: other}, {})) == 400 * 50 * PAGE


def test_few_samples_never_stand_for_more_than_has_become_resident() -> None:
    faults = [fault(n, n, weight=383.0) for n in (20, 100, 300)]
    program = reading(range(440), time=10**6)
    program = program._replace(anonymous=Ranges(), anonymous_bytes=0, files=program.anonymous)
    grown = grown_bytes(faults, {1: Span(Reading(0), program)}, {})
    assert sum(grown) == pytest.approx(440 * PAGE)


def test_a_page_that_came_while_what_is_resident_was_read_has_come_to_stay() -> None:
    faults = [fault(n, n) for n in range(400)]  # the last 100 after their part had been read
    program = reading(range(300))._replace(time=200, until=600)
    assert sum(grown_bytes(faults, {1: Span(Reading(0), program)}, {})) == 400 * PAGE


def test_a_page_that_came_again_without_a_reading_in_between_grew_once() -> None:
    # As a short program that maps a buffer, fills it and unmaps it, again and again: it ends before it can be read.
    faults = [fault(n, 1 + 1000 * time + n, path=time) for time in range(64) for n in range(256)]
    grown = grown_bytes(faults, {1: Span(Reading(0), None)}, {})
    assert sum(grown) == 256 * PAGE
    assert sum(size for one, size in zip(faults, grown) if one.path == 63) == 256 * PAGE
    every_ninth = [one._replace(weight=9.0) for one in faults[::9]]
    assert sum(grown_bytes(every_ninth, {1: Span(Reading(0), None)}, {})) <= (256 + 9) * PAGE


def test_no_more_has_grown_than_the_process_ever_had() -> None:
    faults = [fault(n, n, weight=200.0) for n in (100, 300, 500)]
    span = Span(Reading(0), reading(range(250), time=400), peak_bytes=500 * PAGE)
    grown = grown_bytes(faults, {1: span}, {})
    within_peaks(faults, grown, {1: span})
    assert sum(grown) <= 500 * PAGE


def test_a_page_touched_anew_behind_the_last_reading_counts_within_the_sizes_seen_later() -> None:
    # A buffer after the other at the same address: what the reading found has grown, whoever touched it last.
    span = Span(Reading(0), reading(range(200), time=1000), largest_bytes=260 * PAGE, sized=5000)
    faults = [fault(n, 500 + n) for n in range(200)]
    faults += [fault(n, 2000 + n) for n in range(200)] + [fault(300 + n, 3000 + n) for n in range(200)]
    grown = grown_bytes(faults, {1: span}, {})
    assert sum(grown) == pytest.approx(260 * PAGE) and not any(grown[:200])


def test_lines_are_uncertain_by_the_pages_that_the_kernel_has_not_added_to_a_peak_yet() -> None:
    faults = [fault(n, n) for n in range(1000)]
    grown = [float(PAGE)] * 1000
    span = Span(Reading(0), None, peak_bytes=980 * PAGE)
    (row,) = stacks_of(within_peaks(faults, grown, {1: span}), grown)
    assert row.grown_bytes == pytest.approx(980 * PAGE)
    assert row.grown_variance**0.5 == pytest.approx(20 * PAGE, rel=0.03)


def samples_of(*taken: tuple[int, int], lost_before: int = 0, lost: int = 0) -> bytes:
    data = b""
    for number, (address, time) in enumerate(taken):
        if lost and number == lost_before:
            data += struct.pack("<IHHQQIIQQ", 2, 0, 48, 7, lost, 10, 11, time - 1, 7)
        data += small_sample(address, time)
    return data


def turn(data: bytes, faults: dict[int, int], *stacks: bytes) -> Turn:
    return Turn([(0, data)], stacks, faults)


def test_what_was_lost_is_made_up_for_by_what_was_touched_around_it() -> None:
    early = samples_of(*((BASE, n) for n in range(1, 101)))
    late = samples_of(*((BASE + PAGE, n) for n in range(201, 301)), lost=800)
    paths = CallPaths(LAYOUT, {7: [(0, 1), (150, 1)]}, lambda binary: None)
    paths.add(turn(early, {0: 900}))
    paths.add(turn(late, {0: 1000}))
    weights = paths.finish().weight
    assert sum(weights) == pytest.approx(1000)
    assert sum(weights[:100]) == pytest.approx(500)
    assert weights[0] == pytest.approx(1) and weights[99] > 10 and weights[100] > 10


def rows_with(paths: CallPaths) -> list[WeighedFault]:
    return rows_of(paths.finish())


def test_lost_samples_may_all_be_of_one_of_the_lines_around_them() -> None:
    data = b"".join(small_sample(BASE + n * PAGE, n + 1, counter=0x10) for n in range(64))
    data += struct.pack("<IHHQQIIQQ", 2, 0, 48, 7, 1000, 10, 11, 99, 7)
    data += b"".join(small_sample(BASE + (2000 + n) * PAGE, n + 100, counter=0x20) for n in range(64))
    paths = CallPaths(LAYOUT, {7: [(0, 1)]}, lambda binary: None)
    paths.start_with(10, b"0-5000 r-xp 00000000 00:00 0 \n")
    paths.add(turn(data, {0: 1128}))
    stacks = stacks_of(rows := rows_with(paths), [row.bytes for row in rows])
    assert [one.seen_bytes / PAGE for one in stacks] == pytest.approx([564, 564])
    assert all(one.seen_variance**0.5 / PAGE >= 0.99 * 500 for one in stacks)


def test_a_run_of_pages_is_one_sample_that_represents_each_of_them() -> None:
    data = b"".join(small_sample(BASE + n * PAGE, n + 1) for n in range(100))
    paths = CallPaths(LAYOUT, {7: [(0, 1)]}, lambda binary: None)
    paths.add(turn(data, {0: 100}))
    rows = rows_with(paths)
    assert [row.pages for row in rows] == [64, 36] and {row.weight for row in rows} == {1.0}
    there = reading(range(50, 200), time=1000)
    assert sum(grown_bytes(rows, {10: Span(Reading(0), there)}, {})) == 50 * PAGE


def test_samples_have_the_call_path_seen_nearest_at_the_same_instruction_and_depth() -> None:
    maps = b"1000-5000 r-xp 00000000 00:00 0 \n"
    paths = CallPaths(LAYOUT, {7: [(0, 1)]}, lambda binary: None)
    paths.start_with(10, maps)
    seen = [(10, 0x1100, 0x10), (20, 0x1200, 0x10), (15, 0x1300, 0x20)]
    stacks = b"".join(
        sample_record(b"", 0, chain=(0x2000, caller), time=time, counter=0x2000, pointer=pointer)
        for time, caller, pointer in seen
    )
    where = [(11, 0x10), (18, 0x10), (12, 0x20), (21, 0x30)]
    data = b"".join(
        small_sample(BASE + time * 2 * PAGE, time, counter=0x2000, pointer=at) for time, at in where
    )
    data += small_sample(BASE, 30, counter=0x3000)
    paths.add(turn(data, {0: 5}, stacks))
    samples = paths.finish()
    found = [[samples.places[n].offset for n in samples.paths[number]] for number in samples.path]
    assert found[0][1:] == [0x10FF] and found[1][1:] == [0x11FF]  # by time, at the same depth
    assert found[2][1:] == [0x12FF] and found[3][1:] == [0x11FF]  # the only one there; none there: by time
    assert found[4] == [0x3000]  # nothing but the instruction is known


def pages_by_caller(callers: Sequence[int], stack_times: Iterable[int]) -> dict[int, tuple[float, float]]:
    """Return the pages of each caller of one instruction, and their standard error.

    Neighbouring pages are touched, one a tick; the stacks of those at *stack_times* are copied.
    """
    paths = CallPaths(LAYOUT, {7: [(0, 1)]}, lambda binary: None)
    paths.start_with(10, b"1000-5000 r-xp 00000000 00:00 0 \n")
    stacks = b"".join(
        sample_record(
            b"", 0, chain=(0x2000, callers[n]), time=10 * n + 9, counter=0x2000, address=BASE + n * PAGE
        )
        for n in stack_times
    )
    data = b"".join(small_sample(BASE + n * PAGE, 10 * n + 10, counter=0x2000) for n in range(len(callers)))
    paths.add(turn(data, {0: len(callers)}, stacks))
    samples = paths.finish()
    rows = rows_of(samples)
    found = {}
    for one in stacks_of(rows, [row.bytes for row in rows]):
        assert one.seen_variance == one.grown_variance == 0  # each fault was sampled
        assert one.seen_path_variance == one.grown_path_variance
        caller = samples.places[samples.paths[one.path][1]].offset + 1
        found[caller] = (one.seen_bytes / PAGE, one.seen_path_variance**0.5 / PAGE)
    assert sum(pages for pages, _ in found.values()) == len(callers)
    return found


FIRST, SECOND, THIRD = CALLERS = (0x1100, 0x1200, 0x1300)
EVERY_OTHER = sorted(random.Random(7).sample(range(60), 30))
IN_TURN = [FIRST] * 20 + [SECOND] * 20 + [THIRD] * 20


def test_a_run_of_pages_ends_where_its_caller_changes() -> None:
    assert pages_by_caller(IN_TURN, range(60)) == dict.fromkeys(CALLERS, (20, 0))


@pytest.mark.parametrize(
    ("callers", "seen", "most"),
    [
        pytest.param(IN_TURN, range(1), 30, id="one-stack-for-all"),
        pytest.param(IN_TURN, range(5), 30, id="all-at-the-beginning"),
        pytest.param(IN_TURN, (0, 20, 40), 35, id="each-caller-once"),
        pytest.param(IN_TURN, (0, 20, 21, 22, 40), 25, id="some-more"),
        pytest.param(IN_TURN, EVERY_OTHER, 8, id="every-other"),
        pytest.param(
            [FIRST] * 400 + [SECOND] * 20 + [THIRD] * 20, range(400, 420), 150, id="only-the-second"
        ),
        pytest.param([*CALLERS] * 20, EVERY_OTHER, 8, id="in-a-loop"),
        pytest.param(IN_TURN * 100, range(0, 6000, 59), 3000, id="in-step-with-a-loop"),
        pytest.param(IN_TURN * 100, range(0, 6000, 61), 3000, id="nearly-in-step"),
        pytest.param(
            [FIRST] * 1000 + [SECOND] * 50, range(0, 1000, 10), 60, id="a-late-one-that-is-not-seen"
        ),
        pytest.param(
            [FIRST] * 50 + [SECOND] * 400 + [FIRST] * 50,
            [*range(0, 50, 9), *range(450, 500, 9)],
            170,
            id="between-two",
        ),
    ],
)
def test_pages_that_another_caller_may_have_touched_are_in_the_error_of_each_caller(
    callers: Sequence[int], seen: Sequence[int], most: float
) -> None:
    found = pages_by_caller(callers, seen)
    for caller, (pages, error) in found.items():
        assert abs(pages - callers.count(caller)) <= 3 * error
        assert error <= most


def test_one_caller_seen_a_hundred_times_is_nearly_certain() -> None:
    ((pages, error),) = pages_by_caller([FIRST] * 10_000, range(0, 10_000, 100)).values()
    assert pages == 10_000 and error < 0.02 * pages


def test_samples_weigh_what_their_period_was_when_they_were_taken() -> None:
    data = samples_of((BASE, 10), (BASE, 20), (BASE, 30))
    paths = CallPaths(LAYOUT, {7: [(0, 1), (15, 9)]}, lambda binary: None)
    paths.add(turn(data, {0: 38}))
    assert list(paths.finish().weight) == pytest.approx([2, 18, 18])


def test_faults_counted_before_their_samples_were_taken_make_no_sample_of_another_turn_heavier() -> None:
    samples = [samples_of(*((BASE, time) for time in range(first, first + 90, 9))) for first in (0, 90, 180)]
    paths = CallPaths(LAYOUT, {7: [(0, 9)]}, lambda binary: None)
    # The kernel went on counting while the samples of the first two turns were taken.
    for data, counted in zip(samples, (130, 260, 270)):
        paths.add(turn(data, {0: counted}))
    assert list(paths.finish().weight) == [9.0] * 30
    assert paths.missed_faults == 0
    # 90 of the next turn have no samples.
    paths.add(turn(samples_of(*((BASE, time) for time in range(300, 390, 9))), {0: 450}))
    paths.add(turn(samples_of(*((BASE, time) for time in range(400, 490, 9))), {0: 540}))
    assert list(paths.finish().weight) == [9.0] * 30 + [18.0] * 10 + [9.0] * 10
    assert paths.missed_faults == 90


def test_faults_whose_samples_were_lost_without_a_word_are_noticed_by_their_count() -> None:
    # The kernel reports lost samples when it writes the next one: after the last one there is no report.
    paths = CallPaths(LAYOUT, {7: [(0, 1)]}, lambda binary: None)
    paths.add(turn(samples_of((BASE, 10), (BASE, 20), (BASE, 30)), {0: 3, 1: 0}))
    paths.finish()
    assert paths.missed_faults == pytest.approx(0)
    paths.add(turn(samples_of((BASE, 40)), {0: 104, 1: 50}))
    paths.finish()
    assert paths.missed_faults == pytest.approx(100 + 50)


def test_memory_from_before_an_exec_has_not_grown() -> None:
    faults = [fault(n, n) for n in range(100)]
    grown = grown_bytes(faults, {1: Span(Reading(0), reading(range(100)))}, {1: 50})
    assert [bool(size) for size in grown] == [n >= 50 for n in range(100)]


def test_huge_pages_are_as_many_as_the_kernel_has() -> None:
    faults = [fault(0, 1, size=HUGE), fault(512, 2, size=HUGE, path=1)]
    span = Span(reading(range(0)), reading(range(20 * 512), huge=20))
    grown = grown_bytes(faults, {1: span}, {})
    counted = with_huge_pages(faults, grown, {1: span})
    assert sum(grown) == pytest.approx(20 * HUGE)
    assert sum(one.weight for one in counted) == pytest.approx(20)


def test_pages_of_hugetlbfs_are_weighted_to_their_own_number_and_change_that_of_no_others() -> None:
    # PostgreSQL's buffers in hugetlbfs, beside a heap in transparent huge pages: one in 4 was sampled.
    buffers = Ranges([(BASE + 100 * HUGE, BASE + 112 * HUGE)])
    after = reading(range(20 * 512), huge=20)._replace(hugetlb=buffers, hugetlb_bytes=12 * HUGE)
    faults = [fault(n * 512, n, weight=4.0, size=HUGE) for n in (*range(0, 20, 5), 100)]
    span = Span(Reading(0), after)
    grown = grown_bytes(faults, {1: span}, {})
    with_huge_pages(faults, grown, {1: span})
    assert grown == pytest.approx([*[5 * HUGE] * 4, 12 * HUGE])


def test_processes_share_the_faults_as_the_kernel_counts_them() -> None:
    faults = [fault(n, n)._replace(pid=1 + n % 4 // 3) for n in range(400)]
    shared = shared_out(faults, {1: 1000, 2: 3000}, {})
    assert sum(one.weight for one in shared if one.pid == 2) == pytest.approx(300)
    assert sum(one.weight for one in shared) == pytest.approx(400)


def test_the_faults_of_a_process_whose_samples_were_all_lost_are_not_charged_to_another() -> None:
    faults = [fault(n, n, weight=2.0) for n in range(400)]
    counted = {1: 400, 2: 400, 3: 4}  # the third may have had no sample by chance
    lost = unsampled(faults, counted, period=1)
    assert lost == {2: 400}
    shared = shared_out(faults, counted, lost)
    assert sum(one.weight for one in shared) == pytest.approx(400)
    span = Span(Reading(0), reading(range(500)))
    one = account("x", 2, [], span, Evidence(lost_faults=lost[2]))
    assert {part.kind: part.bytes for part in one.unseen} == {"lost": 400 * PAGE, "rest": 100 * PAGE}


@pytest.mark.parametrize(
    ("counted", "in_kernel", "expected"),
    [
        ({1: 4300, 2: 4300, 3: 4300}, 600, [4100, 3867, 4300]),  # 800 of the third's 5,100 are of the others
        ({1: 4300, 2: 4300, 3: 4300}, None, [4212, 3755, 4300]),
        ({1: 4100, 2: 4100, 3: 4100}, 33, [4089, 4089, 4089]),  # nearly none in kernel mode: all is known
        ({1: 6000, 2: 6000, 3: 6000}, None, [4100, 3067, 5100]),  # no process has too many
        (
            {1: 4000, 2: 4000, 3: 4000},
            0,
            [4100, 3067, 5100],
        ),  # counted before: contradicts the whole, and is left
    ],
)
def test_lost_samples_of_one_process_are_not_charged_to_another_beyond_its_own_count(
    counted: dict[int, int], in_kernel: Optional[int], expected: list[float]
) -> None:
    sampled = {1: 4100, 2: 3067, 3: 5100}
    faults = [
        WeighedFault(0, pid, pid, 0, 4096, whole / 100, 0)
        for pid, whole in sampled.items()
        for _ in range(100)
    ]
    weights = dict.fromkeys(sampled, 0.0)
    for one in within_counts(faults, counted, in_kernel):
        weights[one.pid] += one.weight
    assert list(weights.values()) == pytest.approx(expected, abs=60)
    assert sum(weights.values()) == pytest.approx(sum(sampled.values()))


def test_the_account_adds_up_whatever_is_not_seen() -> None:
    span = Span(reading(range(10)), reading(range(200)))
    faults = [fault(n, n) for n in range(10, 100)]
    grown = grown_bytes(faults, {1: span}, {})
    one = account("x", 1, list(zip(faults, grown)), span, Evidence(60, sees_kernel_mode=False))
    assert one.delta_bytes == round(one.grown_bytes) + sum(part.bytes for part in one.unseen)
    assert {part.kind: part.bytes for part in one.unseen} == {"kernel-mode": 60 * PAGE, "rest": 40 * PAGE}


@pytest.mark.parametrize(
    ("touched", "there", "moved"),
    [
        (range(1000, 1100), range(2000, 2100), 100),  # all of them moved
        (range(1000, 1100), [*range(1000, 1100), *range(2000, 2100)], 0),  # none of them has left
        (range(1000, 1100), [*range(1050, 1100), *range(2000, 2100)], 0),  # half as many as came
        (range(1000, 1100), range(1000, 1104), 0),  # too few to be sure of
    ],
)
def test_pages_in_places_without_a_fault_were_moved_there_if_as_many_have_left_elsewhere(
    touched: Iterable[int], there: Iterable[int], moved: int
) -> None:
    span = Span(reading(range(10)), reading([*range(10), *there]))
    faults = [fault(n, n - 999) for n in touched]
    one = account("x", 1, list(zip(faults, grown_bytes(faults, {1: span}, {}))), span, Evidence())
    assert {part.kind: part.bytes for part in one.unseen if part.kind == "moved"} == (
        {"moved": moved * PAGE} if moved else {}
    )
    assert one.delta_bytes == round(one.grown_bytes) + sum(part.bytes for part in one.unseen)


@pytest.mark.parametrize(("in_kernel", "moved"), [(0, 1100), (1, 588), (3, 0), (None, 0)])
def test_an_ordinary_user_is_told_of_moved_pages_that_no_fault_in_kernel_mode_can_have_brought(
    in_kernel: Optional[int], moved: int
) -> None:
    span = Span(reading(range(10)), reading([*range(10), *range(5000, 6100)]))
    faults = [fault(n, n - 999) for n in range(1000, 2100)]
    rows = list(zip(faults, grown_bytes(faults, {1: span}, {})))
    one = account("x", 1, rows, span, Evidence(in_kernel, sees_kernel_mode=False))
    assert unseen(one).get("moved", 0) == moved


def unseen(one: FaultAccount) -> dict[str, int]:
    assert one.delta_bytes is not None
    assert one.delta_bytes + one.hugetlb_bytes == round(one.grown_bytes) + sum(
        part.bytes for part in one.unseen
    )
    return {part.kind: part.bytes // PAGE for part in one.unseen if part.bytes}


def test_pages_that_the_kernel_filled_in_are_known_by_its_count_of_the_faults() -> None:
    # MAP_POPULATE and mlock() count as faults of the process, but raise no event; UFFDIO_COPY does neither.
    span = Span(reading(range(10)), reading(range(200)))
    rows = [(fault(n, n), float(PAGE)) for n in range(10, 50)]
    assert unseen(account("x", 1, rows, span, Evidence(populated_faults=150))) == {"populated": 150}
    one = account("x", 1, rows, span, Evidence(populated_faults=0))
    assert unseen(one) == {"rest": 150} and one.hidden_bytes == 150 * PAGE


@pytest.mark.parametrize("sees_kernel_mode", [True, False])
def test_faults_of_the_moment_in_which_the_events_are_opened_are_not_called_populated_memory(
    sees_kernel_mode: bool,
) -> None:
    span = Span(reading(range(10)), reading(range(200)))
    rows = [(fault(n, n), float(PAGE)) for n in range(10, 50)]
    kernel = None if sees_kernel_mode else 0
    known = Evidence(kernel, 30, sees_kernel_mode=sees_kernel_mode, unwatched_faults=100)
    found = unseen(account("x", 1, rows, span, known))
    assert found == ({"populated": 30} if sees_kernel_mode else {}) | {
        "unwatched": 100,
        "rest": 20 if sees_kernel_mode else 50,
    }
    huge = Span(Reading(0), reading(range(512), huge=1))
    assert unseen(account("x", 1, [], huge, Evidence(unwatched_faults=1))) == {"unwatched": 512}


def watched(pid: int, *, is_root: bool, after: Reading) -> Watched:
    one = Watched(pid, "x", is_root, Reading(0))
    one.after, one.largest_bytes, one.size_bytes = after, 9000 * PAGE, 200 * PAGE
    return one


def test_a_size_that_a_child_had_before_its_exec_is_its_parents_and_none_of_its_own() -> None:
    # vfork() shows the child with all of its parent's memory until it executes a program.
    samples = Samples()
    samples.began, samples.executed = {2: 500}, {2}
    parents_memory, own = reading(range(9000), time=400), reading(range(200), time=600)
    assert _span(watched(2, is_root=False, after=parents_memory), samples).after is None
    span = _span(watched(2, is_root=False, after=own), samples)
    assert span.after == own and span.is_root and span.largest_bytes == 200 * PAGE
    assert not _span(watched(3, is_root=False, after=own), samples).is_root  # forked only
    program = _span(watched(2, is_root=True, after=parents_memory), samples)
    assert program.after == Reading(500) and program.is_root


def test_a_pool_that_several_processes_have_touched_is_told_to_count_in_each() -> None:
    # Four workers that fill 64 MiB of shared memory together are no 256 MiB.
    pool = reading(range(512))
    pool = pool._replace(anonymous=Ranges(), anonymous_bytes=0, files=pool.anonymous)
    rows = [(fault(n, n), float(PAGE)) for n in range(512)]
    accounts = [account("x", pid, rows, Span(Reading(0), pool), Evidence()) for pid in (1, 2)]
    assert [one.shared_bytes for one in accounts] == [512 * PAGE] * 2
    totals = FaultTotals(1.0, 1024, 1024, 0, 1, 1, sees_kernel_mode=True, broken_paths=0, accounts=accounts)
    told = "4.0 MiB of the growth are pages of files and shared memory in 2 processes"
    assert any(told in one for one in sentences(totals))
    assert not any("shared memory" in one for one in sentences(totals._replace(accounts=accounts[:1])))


def test_what_came_after_the_last_size_of_a_child_is_not_called_growth() -> None:
    faults = [fault(n, 100 + n) for n in range(200)] + [fault(n, 2000 + n) for n in range(1000, 5000)]
    span = Span(Reading(0), reading(range(200)), largest_bytes=200 * PAGE, sized=1500)
    assert sum(grown_bytes(faults, {1: span}, {})) == 4200 * PAGE
    assert sum(grown_bytes(faults, {1: span._replace(counts_later=False)}, {})) == 200 * PAGE


def test_pages_that_the_kernel_joined_to_huge_ones_are_known_by_the_small_one_that_was_touched() -> None:
    span = Span(Reading(0), reading(range(512), huge=1))
    touched = [(fault(0, 1), float(PAGE))]
    assert unseen(account("x", 1, touched, span, Evidence())) == {"joined": 511}
    elsewhere = [(fault(5000, 1), 0.0)]
    assert unseen(account("x", 1, elsewhere, span, Evidence())) == {"rest": 512}
    assert unseen(account("x", 1, elsewhere, span, Evidence(populated_faults=1))) == {"populated": 512}


def test_pages_of_files_came_with_others_only_where_a_fault_was() -> None:
    program = reading(range(1000), time=10**6)
    program = program._replace(anonymous=Ranges(), anonymous_bytes=0, files=program.anonymous)
    one = account("x", 1, [(fault(0, 1), float(PAGE))], Span(Reading(0), program), Evidence())
    assert unseen(one) == {"files": 512, "rest": 487}
    assert one.hidden_bytes == 487 * PAGE


def test_pages_of_hugetlbfs_are_growth_beside_the_resident_set() -> None:
    huge = Ranges([(BASE, BASE + HUGE)])
    span = Span(Reading(0), Reading(100, hugetlb_bytes=HUGE, hugetlb=huge))
    faults = [fault(0, 1, size=HUGE)]
    grown = grown_bytes(faults, {1: span}, {})
    assert sum(grown) == HUGE
    one = account("x", 1, list(zip(faults, grown)), span, Evidence())
    assert unseen(one) == {} and one.delta_bytes == 0 and one.hugetlb_bytes == HUGE


def test_the_peak_of_a_process_that_has_ended_may_have_been_larger_than_its_last_reading() -> None:
    # An interpreter frees its memory before it ends; the kernel tells how large it was.
    span = Span(Reading(0), reading(range(60), time=500), peak_bytes=100 * PAGE)
    rows = [(fault(n, 1 + n), float(PAGE) if n < 60 else 0.0) for n in range(100)]
    assert unseen(account("x", 1, rows, span, Evidence())) == {"peak": 40}


def test_fresh_memory_that_is_only_read_was_not_made_resident() -> None:
    after = reading(range(10))._replace(zero=Ranges([(BASE + 10 * PAGE, BASE + 100 * PAGE)]))
    rows, zero = without_zero_pages([fault(n, n) for n in range(100)], {1: Span(Reading(0), after)})
    assert len(rows) == 10 and zero == {1: 90 * PAGE}


@pytest.mark.parametrize(("largest", "grown"), [(1000, 300), (1400, 700), (5000, 900)])
def test_faults_behind_the_last_reading_are_no_growth_beyond_the_sizes_seen_later(
    largest: int, grown: int
) -> None:
    # A shell that forks again and again copies the same pages each time: it doesn't grow.
    span = Span(
        reading(range(1000), time=10), reading(range(1000), time=20), largest_bytes=largest * PAGE, sized=5000
    )
    early = [fault(2000 + n, 2000 + n) for n in range(600)]
    faults = early + [fault(3000 + n, 6000 + n) for n in range(300)]
    assert sum(grown_bytes(faults, {1: span}, {})) == pytest.approx(grown * PAGE)
    known = span._replace(peak_bytes=(1000 + grown) * PAGE)  # the peak has the same value
    limited = grown_bytes(faults, {1: known}, {})
    within_peaks(faults, limited, {1: known})
    assert sum(limited) == pytest.approx(grown * PAGE)


def test_lines_are_uncertain_by_the_pages_that_the_kernel_has_not_added_to_a_later_size_yet() -> None:
    span = Span(Reading(0), reading(range(100), time=1000), largest_bytes=1060 * PAGE, sized=5000)
    faults = [fault(200 + n, 2000 + n) for n in range(1000)]
    doubts: dict[int, float] = {}
    grown = grown_bytes(faults, {1: span}, {}, doubts)
    (row,) = stacks_of(within_peaks(faults, grown, {1: span}, doubts), grown)
    assert row.grown_bytes == pytest.approx(960 * PAGE)  # never more than the kernel says
    assert row.grown_variance**0.5 == pytest.approx(40 * PAGE, rel=0.03)


@pytest.mark.parametrize("behind", [60, 20])
def test_what_came_behind_the_last_reading_is_not_told_beside_its_opposite(behind: int) -> None:
    # Lost samples are spread over others: how many faults came before the reading and how many behind it is not known.
    span = Span(Reading(0), reading(range(100), time=1000))
    faults = [fault(0, 10, weight=100.0), fault(200, 2000, weight=float(behind))]
    rows = list(zip(faults, [(140 - behind) * PAGE, behind * PAGE]))
    one = account("x", 1, rows, span, Evidence())
    assert {part.kind: part.bytes for part in one.unseen if part.bytes} == {"later": -40 * PAGE}
    assert one.delta_bytes == round(one.grown_bytes) + sum(part.bytes for part in one.unseen)


def test_code_that_is_mapped_over_other_code_takes_its_place() -> None:
    space = code_in(b"1000-5000 r-xp 00000000 00:01 7 /a\n6000-7000 rw-p 00000000 00:01 7 /a\n")
    space.add(code_region(0x2000, 0x3000, 0, "/b", 8))
    paths = [space.find(at) for at in (0x1000, 0x2000, 0x3000, 0x5000, 0x6000)]
    assert [one.binary.path if one and one.binary else None for one in paths] == [
        "/a",
        "/b",
        "/a",
        None,
        None,
    ]
    assert paths[2] is not None and paths[2].offset_of(0x3000) == 0x2000


def test_a_hostile_stack_ends_the_walk_and_nothing_else() -> None:
    space = AddressSpace([code_region(0, 1 << 47, 0, "", 0)])
    unwinder = Unwinder(lambda binary: None, "x86_64")
    chance = random.Random(5)
    for _ in range(200):
        registers = [
            chance.choice((0, 1, BASE, BASE + 8, (1 << 64) - 1, chance.getrandbits(64))) for _ in range(17)
        ]
        stack = b"".join(
            struct.pack("<Q", chance.choice((BASE, BASE + 16, chance.getrandbits(64), 0))) for _ in range(200)
        )
        found = unwinder.path(space, registers, stack, (0x10, 0x20))
        assert len(found.spots) <= 1024
    assert len(MACHINES["x86_64"].sampled) == 17


def test_names_of_a_jit_compiler_are_those_written_last() -> None:
    data = b"1000 100 old\n1000 80 py::f:/x.py\nzz 10 bad\n2000 10 \x1b[31mred\n"
    assert _named(data, [0x1010, 0x1090, 0x2001]) == {0x1010: "py::f:/x.py", 0x2001: "\x1b[31mred"}


def damaged_records() -> Iterator[bytes]:
    whole = sample_record(bytes(64), 16)
    yield whole[:-6]
    yield struct.pack("<IHH", 9, 0, 0) + whole[8:]  # of no length: it would be read for ever
    for at in (8 + 40, 8 + 48 + 16 + 8 * 18):  # the lengths of the call chain and of the stack
        for length in (1 << 20, 1 << 60, (1 << 64) - 1):
            yield whole[:at] + struct.pack("<Q", length) + whole[at + 8 :]


@pytest.mark.parametrize("data", list(damaged_records()), ids=lambda data: f"{len(data)} bytes")
def test_what_is_no_record_is_refused_and_nothing_else_is_taken_for_one(data: bytes) -> None:
    for read in (lambda: trimmed(data, LAYOUT), lambda: list(stack_samples(data, LAYOUT))):
        with pytest.raises(TargetError) as caught:
            read()
        assert caught.value.slug == "faults-records"


def recorded() -> NamedFaults:
    grown = FaultAccount(7, "pool", 4096, 12288, 8192.0, 4096.0, [Hidden("rest", 4096)])
    totals = FaultTotals(1.5, 2, 2, 0, 1, 1, sees_kernel_mode=True, broken_paths=0, accounts=[grown])
    frames = [Frame("fill", "pool.c", 9, "/bin/pool"), Frame("main", "pool.c", 20, "/bin/pool")]
    stacks = [
        NamedStack([1], 7, 8, 4096.4, 0.0, 1, 0.0, 0.0),
        NamedStack([0, 1], 7, 7, 4096.0, 4096.0, 1, 2.0, 1e25),  # of hundreds of GiB
    ]
    return NamedFaults("./pool", totals, {"7": "pool"}, frames, stacks)


def test_a_recording_comes_back_from_its_file(tmp_path: Path) -> None:
    made = recorded()
    path = tmp_path / "pool.faults"
    path.write_bytes(encode_faults(made))
    read, direct = open_profile(path), faults_profile(made, str(path))
    assert isinstance(read, StackProfile)
    assert (read.command, read.faults, read.snapshots) == (direct.command, direct.faults, direct.snapshots)
    whole, tree = read.tree(0), direct.tree(0)
    assert whole is not None and tree is not None
    assert (list(whole.frames), list(whole.bytes)) == (list(tree.frames), list(tree.bytes))
    noted = made._replace(notices=[Notice("faults-no-libdw", "no libdw")], recording="7.1")
    path.write_bytes(encode_faults(noted))
    assert [notice.slug for notice in open_profile(path).notices] == ["faults-no-libdw"]


def test_the_json_of_a_recording_has_its_paths_the_ones_that_grew_most_first() -> None:
    made = recorded()
    profile = faults_profile(made, "pool")
    document = json.loads(grow_json(profile, load_from_profile(profile, None).snapshot, made, Query(), None))
    assert [(path["grown_bytes"], path["made_resident_bytes"]) for path in document["paths"]] == [
        (4096, 4096), (0, 4096)
    ]  # fmt: skip
    assert [path["thread"] for path in document["paths"]] == ["pool", None]
    assert [frame["function"] for frame in document["paths"][0]["frames"]] == ["fill", "main"]
    assert document["totals"]["accounts"][0]["unseen"] == [{"kind": "rest", "bytes": 4096}]
    assert (document["delta_rss_bytes"], document["unseen_bytes"]) == (8192, 4096)
