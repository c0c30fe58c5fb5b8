"""Programs whose memory takes a known course: `python series_programs.py COURSE SECONDS`.

scripts/record-series records them; tests judge what was recorded.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator

KIB, MIB = 1 << 10, 1 << 20
# course → the verdicts that are right for it
COURSES = {
    "idle": ["plateau"],
    "allocator_warm_up": ["plateau"],
    "bounded_cache": ["plateau", "inconclusive"],
    "sawtooth_flat": ["sawtooth/flat"],
    "sawtooth_rising": ["sawtooth/rising"],
    "leak": ["growing"],
    "leak_in_small_blocks": ["growing"],
    "slow_leak": ["growing"],
    "one_step": ["step"],
    "fragmentation": ["growing"],
    "shrinking": ["shrinking"],
    "collected_cycles": ["sawtooth/flat", "plateau"],
}
# Those that only an hour can show; `scripts/record-series --long` records them.
LONG_COURSES = {
    "half_a_megabyte_an_hour": ["growing"],
    "requests_without_a_leak": ["plateau"],  # the same program without the leak
}


def main() -> None:
    course, seconds = sys.argv[1], float(sys.argv[2])
    end = time.monotonic() + seconds
    for _ in globals()[course](seconds):
        time.sleep(0.1)
        if time.monotonic() >= end:
            return


def idle(seconds: float) -> Iterator[None]:
    while True:
        yield


def allocator_warm_up(seconds: float) -> Iterator[None]:
    while True:  # the first rounds fill the arenas, later ones find them full
        blocks = [bytes(random.randrange(100, 4000)) for _ in range(20_000)]
        yield
        del blocks


def bounded_cache(seconds: float) -> Iterator[None]:
    cache: OrderedDict[int, bytes] = OrderedDict()
    number = 0
    while True:
        for _ in range(100):
            cache[number] = b"x" * 4000
            number += 1
            if len(cache) > 6000:
                cache.popitem(last=False)
        yield


def sawtooth_flat(seconds: float) -> Iterator[None]:
    batches: list[bytearray] = []
    while True:
        batches.append(bytearray(b"x" * MIB))
        if len(batches) > 30:
            batches.clear()
        yield


def sawtooth_rising(seconds: float) -> Iterator[None]:
    batches: list[bytearray] = []
    kept: list[bytearray] = []
    while True:
        batches.append(bytearray(b"x" * MIB))
        kept.append(bytearray(b"x" * 60 * KIB))
        if len(batches) > 30:
            batches.clear()
        yield


def leak(seconds: float) -> Iterator[None]:
    kept: list[bytearray] = []
    while True:
        kept.append(bytearray(b"x" * 200 * KIB))
        yield


def leak_in_small_blocks(seconds: float) -> Iterator[None]:
    kept: list[dict[str, int]] = []
    while True:
        kept.extend({"number": number} for number in range(100))
        yield


def slow_leak(seconds: float) -> Iterator[None]:
    kept: list[bytes] = []
    while True:
        kept.append(random.randbytes(3000))  # 30 KB each second
        yield


def half_a_megabyte_an_hour(seconds: float) -> Iterator[None]:
    kept: list[bytes] = []
    for number in _requests():
        if number % 10 == 0:
            kept.append(bytes(112))  # 145 bytes with its header, each second: 522 kB each hour
        yield


def requests_without_a_leak(seconds: float) -> Iterator[None]:
    for _ in _requests():
        yield


def _requests() -> Iterator[int]:
    ballast = bytearray(b"x" * 17 * MIB)  # 27 MB with the interpreter
    number = 0
    while ballast:
        if number % 10 == 0:
            answer = [bytes(random.randrange(100, 4000)) for _ in range(random.randrange(5, 30))]
            del answer
        yield number
        number += 1


def one_step(seconds: float) -> Iterator[None]:
    begin = time.monotonic()
    kept = b""
    while True:
        if time.monotonic() - begin > seconds / 2 and not kept:
            kept = b"x" * 40 * MIB
        yield


def fragmentation(seconds: float) -> Iterator[None]:
    pinned: list[bytes] = []
    while True:  # of each hundred blocks one stays, and with it the pages around it
        blocks = [bytes(random.randrange(600, 3000)) for _ in range(400)]
        pinned += blocks[::100]
        pinned.append(bytes(40_000))
        yield
        del blocks


def shrinking(seconds: float) -> Iterator[None]:
    held = [bytearray(b"x" * 300 * KIB) for _ in range(int(seconds * 10) + 20)]
    while True:
        if held:
            held.pop()
        yield


def collected_cycles(seconds: float) -> Iterator[None]:
    gc.disable()
    count = 0
    while True:
        for _ in range(20):
            cycle: list[object] = [bytearray(b"x" * 40 * KIB)]
            cycle.append(cycle)
        count += 1
        if count % 40 == 0:
            gc.collect()
        yield


if __name__ == "__main__":
    main()
