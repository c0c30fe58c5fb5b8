"""Snapshots of torch.cuda.memory._dump_snapshot(), from Python's pickler or torch's own, read without torch."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data
from gdbmem.formats.bfc.plain_pickle import PlainDict, PlainList
from gdbmem.formats.bfc.torch_rows import NO_STACK, BlockSpan, NeedsHistory, SnapshotMachine
from gdbmem.formats.stacks import IN_USE as IN_USE_METRIC
from gdbmem.formats.stacks import Content, Singles, Stack, StackProfile, make_profile
from gdbmem.model import bfc
from gdbmem.model.calltree import BYTES_MISSING, Frame
from gdbmem.text import format_size, plural, printable

CLASS_NAME = "c10::cuda::CUDACachingAllocator"
_NO_STACK = Frame("(no stack was recorded)")
_MOST_REFUSED = 10_000


_START = re.compile(rb"\x80[\x02-\x05].{0,400}?(?:segments|device_traces|total_size)", re.DOTALL)


def is_torch_snapshot(data: Data) -> bool:
    """Return whether *data* begins as a pickle of PyTorch's does."""
    return _START.match(data) is not None


def read_torch_snapshot(data: Data, source: str) -> bfc.TorchSnapshot:
    """Read *data*. Raises InputError if it is none, or names what a pickle of plain data can't have."""
    try:
        return _Reading(SnapshotMachine(data, source, with_history=False), source).snapshot()
    except NeedsHistory:
        return _Reading(SnapshotMachine(data, source, with_history=True), source).snapshot()


def read_torch_profile(data: Data, source: str, metric: Optional[str]) -> StackProfile:
    """Return the blocks in use of the snapshot *data*, by the stacks that allocated them."""
    snapshot = read_torch_snapshot(data, source)
    notices = list(snapshot.notices)
    if not snapshot.has_stacks:
        text = f"{printable(source)} has no stacks: torch.cuda.memory._record_memory_history() was not on"
        notices.append(Notice("torch-no-stacks", f"{text} when its blocks were allocated"))
    content = Content(_stacks(snapshot), Singles([*snapshot.frames, _NO_STACK]))
    return make_profile(content, source, "torch", metric, (IN_USE_METRIC,), notices=notices)


def _stacks(snapshot: bfc.TorchSnapshot) -> list[Stack]:
    sizes: dict[int, list[int]] = {}
    for allocator, stacks in zip(snapshot.allocators, snapshot.block_stacks):
        chunks = allocator.chunks
        for size, state, stack in zip(chunks.size, chunks.state, stacks):
            if state == bfc.IN_USE:
                sums = sizes.setdefault(stack, [0, 0])
                sums[0] += size
                sums[1] += 1
    unknown = (len(snapshot.frames),)
    return [Stack(snapshot.stacks[stack] or unknown, *sums) for stack, sums in sizes.items()]


@dataclass
class _Row:
    # A segment, with its blocks' rows.
    segment: bfc.TorchSegment
    spans: Sequence[BlockSpan]


class _Reading:
    """One reading of a file, from the pickle's value to the model."""

    def __init__(self, machine: SnapshotMachine, source: str) -> None:
        self._machine = machine
        self._source = source
        self._notices: list[Notice] = []
        self._is_own = bytearray()  # of each frame, as far as was asked: whether it is Python's outside torch
        self._unlisted = 0  # segments that lack their parts
        self._end = len(machine.data)

    def snapshot(self) -> bfc.TorchSnapshot:
        root = self._machine.run()
        top = root if isinstance(root, PlainDict) else PlainDict(0)
        # The list alone: memory_snapshot().
        segments = root if isinstance(root, PlainList) else top.get("segments")
        if not isinstance(segments, PlainList):
            raise InputError(
                f"{printable(self._source)} holds no segments, so it is not a snapshot of torch.cuda.memory",
                slug="torch-snapshot-damaged",
                hint="torch.cuda.memory._dump_snapshot(FILE) writes one",
            )
        rows = [row for each in segments for row in self._row(each)]
        self._say_what_is_missing()
        devices = sorted({row.segment.device for row in rows})
        by_device = {device: [row for row in rows if row.segment.device == device] for device in devices}
        refused = list(self._refused(top.get("device_traces")))
        made = [self._allocator(device, by_device[device], refused) for device in devices]
        return bfc.TorchSnapshot(
            source=self._source,
            allocators=[allocator for allocator, _ in made],
            segments=[[row.segment for row in by_device[device]] for device in devices],
            block_stacks=[stacks for _, stacks in made],
            stacks=self._machine.stacks,
            frames=self._machine.frames,
            entries=self._machine.entries,
            notices=self._notices,
        )

    def _say_what_is_missing(self) -> None:
        if self._machine.is_cut:
            text = f"{printable(self._source)} is truncated at byte {self._end}: only the part before that is read"
            self._notices.append(Notice(BYTES_MISSING, text))
        if self._unlisted:
            text = (
                f"{plural(self._unlisted, 'segment')} of {printable(self._source)} lack fields of a segment"
            )
            self._notices.append(Notice("torch-segments-left-out", f"{text}, and are left out"))

    def _row(self, found: object) -> Iterator[_Row]:
        if not isinstance(found, PlainDict):
            raise self._damaged("a segment is not a dictionary")
        blocks, size, address = found.get("blocks"), found.get("total_size"), found.get("address")
        if not isinstance(blocks, PlainList) or size is None or address is None:
            self._unlisted += 1
            return
        if found.number >= 0:
            raise self._damaged("it lists a segment twice")
        found.number = 0
        count = self._machine.count
        spans = [self._span(block) for block in blocks]
        pool = found.get("segment_pool_id")
        is_pair = isinstance(pool, tuple) and len(pool) == 2 and all(isinstance(part, int) for part in pool)
        stream = found.get("stream", 0)
        segment = bfc.TorchSegment(
            device=count(found.get("device", 0), self._end),
            address=count(address, self._end),
            size_bytes=count(size, self._end),
            stream=stream & (1 << 64) - 1 if isinstance(stream, int) else 0,
            is_large=found.get("segment_type") != "small",
            pool=(pool[0], pool[1]) if is_pair and isinstance(pool, tuple) else (0, 0),
            is_expandable=found.get("is_expandable") is True,
            stack=self._machine.stack_of(found.get("frames"), self._end),
        )
        yield _Row(segment, spans)

    def _span(self, found: object) -> BlockSpan:
        if not isinstance(found, BlockSpan):
            raise self._damaged("a block is not a valid dictionary")
        listed = self._machine.blocks.is_listed
        if any(listed[found.first : found.first + found.count]):
            raise self._damaged("it lists a block twice")
        listed[found.first : found.first + found.count] = b"\1" * found.count
        return found

    def _allocator(
        self, device: int, rows: Sequence[_Row], refused: Sequence[bfc.RefusedRequest]
    ) -> tuple[bfc.Allocator, Sequence[int]]:
        stacks, chunks, regions = array("i"), bfc.Chunks(array("Q"), array("Q"), b"", array("q")), []
        state, streams = bytearray(), array("Q")
        for row in rows:
            first = len(chunks.size)
            for span in row.spans:
                self._add(span, chunks, state, stacks)
            self._settle(row.segment, chunks, first)
            streams.extend(array("Q", (row.segment.stream,)) * (len(chunks.size) - first))
            segment = row.segment
            regions.append(
                bfc.Region(
                    segment.address, segment.size_bytes, first, len(chunks.size) - first, _label(segment)
                )
            )
        owner, owners = self._owners(stacks)
        last = next((one for one in reversed(refused) if one.device == device), None)
        allocator = bfc.Allocator(
            name=f"cuda:{device}",
            class_name=CLASS_NAME,
            kind=bfc.PYTORCH,
            source=self._source,
            regions=regions,
            chunks=bfc.Chunks(
                chunks.address,
                chunks.size,
                bytes(state),
                chunks.requested,
                stream=streams,
                owner=owner,
                owners=owners,
            ),
            options=bfc.Options(allow_growth=True),
            counters=bfc.Counters(),
            layout="snapshot",
            is_complete=not self._machine.is_cut and not self._unlisted,
            notices=() if last is None else [self._device_notice(device, last, rows)],
            asked_bytes=None if last is None else last.size_bytes,
            asked_by="" if last is None else self._owner(last.stack),
        )
        return allocator, stacks

    def _device_notice(self, device: int, refused: bfc.RefusedRequest, rows: Sequence[_Row]) -> Notice:
        held = sum(row.segment.size_bytes for row in rows)
        text = f"when {format_size(refused.size_bytes)} were refused, device {device} had "
        if refused.device_free_bytes is None:
            return Notice(
                "torch-device", f"{text}an unknown amount free, and PyTorch held {format_size(held)}"
            )
        text += f"{format_size(refused.device_free_bytes)} free, and PyTorch held {format_size(held)}: what the device"
        return Notice(
            "torch-device",
            f"{text} has beyond these {format_size(held + refused.device_free_bytes)} isn't PyTorch's"
            " (CUDA's context, NCCL, cuBLAS, other processes)",
        )

    def _add(self, span: BlockSpan, chunks: bfc.Chunks, state: bytearray, stacks: array[int]) -> None:
        columns, rows = self._machine.blocks, slice(span.first, span.first + span.count)
        chunks.address.extend(columns.address[rows])
        chunks.size.extend(columns.size[rows])
        assert chunks.requested is not None
        chunks.requested.extend(array("q", columns.requested[rows]))
        state += columns.state[rows]
        stacks.extend(columns.stack[rows])

    def _settle(self, segment: bfc.TorchSegment, chunks: bfc.Chunks, first: int) -> None:
        """Check the blocks of *segment*, the chunks from *first* on, and give addresses to those without."""
        at = segment.address
        for index in range(first, len(chunks.size)):
            chunks.address[index] = chunks.address[index] or at
            if chunks.address[index] != at:
                raise self._damaged(f"the block at 0x{chunks.address[index]:x} doesn't follow the one before")
            at += chunks.size[index]
        if at != segment.address + segment.size_bytes and not self._machine.is_cut:
            held, size = at - segment.address, segment.size_bytes
            raise self._damaged(
                f"the segment at 0x{segment.address:x} has {size} bytes, and blocks of {held}"
            )

    def _owners(self, stacks: Sequence[int]) -> tuple[array[int], Sequence[str]]:
        index = {"": 0}
        of_stack: dict[int, int] = {}
        for stack in set(stacks):
            of_stack[stack] = index.setdefault(self._owner(stack), len(index))
        return array("I", map(of_stack.__getitem__, stacks)), list(index)

    def _owner(self, stack: int) -> str:
        """Return who allocated by *stack*: the innermost line of Python outside torch, else the innermost of all."""
        frames, path = self._machine.frames, self._machine.stacks[stack]
        if not path:
            return ""
        while len(self._is_own) < len(frames):
            self._is_own.append(_is_own(frames[len(self._is_own)]))
        frame = frames[next((number for number in path if self._is_own[number]), path[0])]
        place = f"{frame.file}:{frame.line}" if frame.line is not None else frame.file or ""
        return f"{frame.function or '?'} ({place})" if place else frame.function or ""

    def _refused(self, traces: object) -> Iterator[bfc.RefusedRequest]:
        found = 0
        for device, entries in enumerate(traces if isinstance(traces, PlainList) else ()):
            for entry in entries if isinstance(entries, PlainList) else ():
                if isinstance(entry, PlainDict) and entry.get("action") == "oom" and found < _MOST_REFUSED:
                    found += 1
                    size, free, stack = entry.get("size"), entry.get("device_free"), entry.get("frames")
                    yield bfc.RefusedRequest(
                        device,
                        self._machine.count(size, self._end),
                        free if isinstance(free, int) and free >= 0 else None,
                        stack if isinstance(stack, int) else NO_STACK,
                    )

    def _damaged(self, why: str) -> InputError:
        return InputError(
            f"{printable(self._source)} is not a valid snapshot of torch.cuda.memory: {why}",
            slug="torch-snapshot-damaged",
            hint="was it changed by hand?",
        )


def _is_own(frame: Frame) -> bool:
    file = frame.file or ""
    return file.endswith(".py") and "/torch/" not in file and not file.startswith("<")


def _label(segment: bfc.TorchSegment) -> str:
    parts = [bfc.LARGE if segment.is_large else bfc.SMALL]
    parts += [bfc.EXPANDABLE] if segment.is_expandable else []
    parts += [f"stream 0x{segment.stream:x}"] if segment.stream else []
    parts += [f"{bfc.PRIVATE}{segment.pool[0]},{segment.pool[1]}"] if any(segment.pool) else []
    return ", ".join(parts)
