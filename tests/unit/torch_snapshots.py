"""Snapshots shaped as torch.cuda.memory._snapshot() makes them, of many kinds."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

KEYS = ("address", "size", "requested_size", "state")
_STATES = ("active_allocated",) * 3 + ("inactive", "inactive", "active_pending_free")


@dataclass(frozen=True)
class Shape:
    """Properties of a snapshot."""

    seed: int = 1
    segments: int = 3
    entries: int = 60  # of the history
    devices: int = 1
    history: bool = True
    pooled: int = 40  # different stacks; 0: each stack is a new one
    expandable: bool = False
    addresses: bool = True  # of blocks: PyTorch 2.1 and later
    largest_unit: int = 1 << 20
    unshared: bool = False  # each text and each frame is a separate object, as in what was read from JSON


SHAPES = {
    "ordinary": Shape(),
    "two devices": Shape(2, devices=2),
    "without stacks": Shape(3, history=False),
    "each stack new": Shape(4, pooled=0),
    "expandable segments": Shape(5, expandable=True),
    "small blocks only": Shape(6, largest_unit=512),
    "a long history": Shape(7, entries=800),
    "one segment": Shape(8, segments=1, entries=0),
    "nothing held": Shape(9, segments=0),
    "frames of their own": Shape(11, unshared=True, pooled=0, entries=150),
    "PyTorch 2.0, without addresses": Shape(10, addresses=False),
}


def make_snapshot(shape: Shape) -> dict[str, Any]:
    """Return a snapshot of *shape*; the same each time."""
    chance = random.Random(shape.seed)
    stacks = _Stacks(chance, shape)
    segments, address = [], 0x7F0000000000
    for number in range(shape.segments):
        segment = _segment(chance, shape, stacks, address)
        segment["device"] = number % shape.devices
        segments.append(segment)
        address += segment["total_size"] + (chance.randrange(3) << 21)
    traces: list[list[dict[str, Any]]] = [[] for _ in range(shape.devices)]
    for number in range(shape.entries):
        traces[number % shape.devices].append(_entry(chance, stacks, number))
    if shape.entries:
        traces[0].append(
            {"action": "oom", "device_free": 123_456_789, "size": 1 << 30, "stream": 0, "time_us": 1,
             "frames": stacks.new()}
        )  # fmt: skip
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128", "max_split_size": 1 << 27,
                "garbage_collection_threshold": 0.0, "expandable_segments": shape.expandable,
                "roundup_power2_divisions": {"1": 0, "2": 0}}  # fmt: skip
    made = {"segments": segments, "device_traces": traces, "allocator_settings": settings}
    return json.loads(json.dumps(made)) if shape.unshared else made


class _Stacks:
    def __init__(self, chance: random.Random, shape: Shape) -> None:
        self._chance, self._shape = chance, shape
        self._frames = [
            {"name": f"step{n}", "filename": f"/app/model{n % 7}.py", "line": 10 + n} for n in range(50)
        ] + [{"name": "torch::unwind", "filename": "??", "line": 0}]
        self._pool = [self._make() for _ in range(shape.pooled)]
        self._none: list[Any] = []

    def _make(self) -> list[Any]:
        return [self._chance.choice(self._frames) for _ in range(self._chance.randint(1, 12))]

    def new(self) -> list[Any]:
        # A list for each, as torch has one for each allocation, of frames that all share.
        if not self._shape.history:
            return self._none
        return list(self._chance.choice(self._pool)) if self._pool else self._make()


def _segment(chance: random.Random, shape: Shape, stacks: _Stacks, address: int) -> dict[str, Any]:
    is_large = chance.random() < 0.6 and shape.largest_unit > 512
    total = chance.randint(10, 40) << 21 if is_large else 2 << 20
    blocks: list[dict[str, Any]] = []
    left, at = total, address
    while left:
        size = min(left, (shape.largest_unit if is_large else 512) * chance.randint(1, 40))
        state = chance.choice(_STATES)
        requested = 0 if state == "inactive" else size - chance.randrange(500)
        block = {
            "address": at,
            "size": size,
            "requested_size": requested,
            "state": state,
            "frames": stacks.new(),
        }
        if not shape.addresses:
            del block["address"]
        blocks.append(block)
        at, left = at + size, left - size
    return {
        "device": 0, "address": address, "total_size": total,
        "allocated_size": held(blocks, "active_allocated"),
        "active_size": held(blocks, "active_allocated", "active_pending_free"),
        "stream": chance.choice((0, 0, 0x55AA00)), "segment_type": "large" if is_large else "small",
        "segment_pool_id": (0, 0) if chance.random() < 0.9 else (0, 3), "is_expandable": shape.expandable,
        "frames": stacks.new(), "blocks": blocks,
    }  # fmt: skip


def held(blocks: Sequence[dict[str, Any]], *states: str) -> int:
    """Return the bytes of the blocks in *states*."""
    return sum(block["size"] for block in blocks if block["state"] in states)


def _entry(chance: random.Random, stacks: _Stacks, number: int) -> dict[str, Any]:
    action = chance.choice(("alloc", "free_requested", "free_completed", "segment_alloc"))
    return {
        "action": action, "addr": 0x7F0000000000 + chance.randrange(1 << 33), "size": chance.randrange(1 << 26),
        "stream": 0, "time_us": 1_700_000_000_000_000 + number, "compile_context": b"N/A".decode(),
        "frames": stacks.new(),
    }  # fmt: skip
