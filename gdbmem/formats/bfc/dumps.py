"""Pools that one file holds: a memory dump of TensorFlow, or a document that gdbmem wrote."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data, JsonObject
from gdbmem.formats.documents import notices_in, read_document
from gdbmem.formats.protobuf_schema import message_class
from gdbmem.json_values import from_fields, from_json
from gdbmem.model import bfc
from gdbmem.text import printable

# The files of TF_BFC_MEMORY_DUMP: a protobuf for each allocation that failed.
#
# Source: bfc_memory_map.proto of tensorflow/core/protobuf, later xla/tsl/protobuf; its fields are those of 2019.


_MESSAGES = {
    "MemoryDump": (
        ("allocator_name", 1, "bytes"), ("bin_summary", 2, "*BinSummary"), ("chunk", 3, "*MemChunk"),
        ("snap_shot", 4, "*SnapShot"), ("stats", 5, "MemAllocatorStats"),
    ),
    "BinSummary": (
        ("bin", 1, "int32"), ("total_bytes_in_use", 2, "int64"), ("total_bytes_in_bin", 3, "int64"),
        ("total_chunks_in_use", 4, "int64"), ("total_chunks_in_bin", 5, "int64"),
    ),
    "MemChunk": (
        ("address", 1, "uint64"), ("size", 2, "int64"), ("requested_size", 3, "int64"), ("bin", 4, "int32"),
        ("op_name", 5, "bytes"), ("freed_at_count", 6, "uint64"), ("action_count", 7, "uint64"),
        ("in_use", 8, "bool"), ("step_id", 9, "uint64"),
    ),
    "SnapShot": (("action_count", 1, "uint64"), ("size", 2, "int64")),
    "MemAllocatorStats": (
        ("num_allocs", 1, "int64"), ("bytes_in_use", 2, "int64"), ("peak_bytes_in_use", 3, "int64"),
        ("largest_alloc_size", 4, "int64"), ("fragmentation_metric", 5, "float"),
    ),
}  # fmt: skip
_LONGEST_NAME = 200


@lru_cache(maxsize=1)
def _message() -> Any:
    return message_class(_MESSAGES, "MemoryDump")


def is_memory_dump(data: Data) -> bool:
    """Return whether *data* begins with an allocator's name, then bins or chunks."""
    if len(data) < 4 or data[0] != 0x0A or not 0 < data[1] < 0x80:
        return False
    name, after = bytes(data[2 : 2 + data[1]]), bytes(data[2 + data[1] : 3 + data[1]])
    return (
        len(name) == data[1]
        and name.isascii()
        and name.decode().isprintable()
        and after in (b"\x12", b"\x1a")
    )


def read_memory_dump(data: Data, source: str) -> bfc.Allocator:
    """Return the allocator of *data*. Raises InputError if it is not a memory dump, or cut."""
    dump = _message()()
    try:
        dump.ParseFromString(bytes(data))
    except Exception as error:  # noqa: BLE001  (its class differs between the library's two implementations)
        raise _damaged(source, str(error)) from None
    rows = sorted(dump.chunk, key=lambda chunk: chunk.address)
    if not rows:
        raise _damaged(source, "it has no chunks")
    chunks = _chunks(rows, source)
    in_use = sum(size for size, state in zip(chunks.size, chunks.state) if state == bfc.IN_USE)
    told = dump.stats.bytes_in_use if dump.HasField("stats") else None
    notices = []
    if told is not None and told != in_use:
        text = f"{printable(source)} counts {told} bytes in use, and its chunks hold {in_use}"
        notices.append(Notice("memory-dump-sums", text))
    return bfc.Allocator(
        name=dump.allocator_name.decode("utf-8", "surrogateescape")[:_LONGEST_NAME],
        class_name="BFCAllocator",
        kind=bfc.TENSORFLOW,
        source=source,
        regions=_regions(chunks, source),
        chunks=chunks,
        counters=bfc.Counters(
            in_use_bytes=told,
            peak_in_use_bytes=dump.stats.peak_bytes_in_use or None,
            allocations=dump.stats.num_allocs or None,
            largest_allocation_bytes=dump.stats.largest_alloc_size or None,
        ),
        layout="memory dump",
        regions_known=False,
        notices=notices,
    )


def _chunks(rows: Any, source: str) -> bfc.Chunks:
    owners = {"": 0}
    if any(row.size <= 0 or row.requested_size < 0 or row.address + row.size >= 1 << 64 for row in rows):
        raise _damaged(source, "a chunk has no size that memory can have")
    names = [row.op_name.decode("utf-8", "surrogateescape") if row.in_use else "" for row in rows]
    owner = array("I", [owners.setdefault(name, len(owners)) for name in names])
    freed = array("Q", [row.freed_at_count for row in rows])
    return bfc.Chunks(
        array("Q", [row.address for row in rows]),
        array("Q", [row.size for row in rows]),
        bytes(bfc.IN_USE if row.in_use else bfc.FREE for row in rows),
        requested=array("q", [row.requested_size if row.in_use else bfc.UNKNOWN for row in rows]),
        bin=array("i", [row.bin for row in rows]),
        freed_at=freed if any(freed) else None,
        owner=owner if len(owners) > 1 else None,
        owners=list(owners),
    )


def _regions(chunks: bfc.Chunks, source: str) -> list[bfc.Region]:
    """Return stretches of chunks without gaps: the file has no regions."""
    starts = [
        index
        for index in range(len(chunks))
        if not index or chunks.address[index] != chunks.address[index - 1] + chunks.size[index - 1]
    ]
    if any(chunks.address[n] < chunks.address[n - 1] + chunks.size[n - 1] for n in starts[1:]):
        raise _damaged(source, "chunks overlap")
    return [
        bfc.Region(chunks.address[first], sum(chunks.size[first:end]), first, end - first)
        for first, end in zip(starts, [*starts[1:], len(chunks)])
    ]


def _damaged(source: str, why: str) -> InputError:
    return InputError(
        f"{printable(source)} is not a complete memory dump of TensorFlow: {printable(why[:200])}",
        slug="memory-dump-damaged",
        hint="TF_BFC_MEMORY_DUMP=PREFIX writes one for each allocation that fails",
    )


# Pools in the JSON documents that `gdbmem bfc` wrote, ``kind=bfc``.


_MOST = (1 << 64) - 1


def is_saved_pools(data: bytes) -> bool:
    """Return whether *data* is the beginning of a JSON file of `gdbmem bfc`."""
    return data[:1] == b"{" and b'"kind": "bfc"' in data


def read_saved_pools(text: str, name: str) -> list[bfc.Allocator]:
    """Return the pools in the document *text*, a ``kind=bfc``; raises InputError."""
    refusal = InputError(
        f"{printable(name)} holds no pools that this gdbmem can read",
        slug="bad-pools",
        hint="write them with 'gdbmem bfc PID --json -o FILE'",
    )
    return read_document(text, "bfc", _allocators, refusal)


def _allocators(document: JsonObject) -> list[bfc.Allocator]:
    notices = tuple(notices_in(document))
    found = [replace(_saved_allocator(one), notices=notices) for one in document["allocators"]]
    for one in found:
        one.check()
    return found


def _saved_allocator(values: Mapping[str, Any]) -> bfc.Allocator:
    regions: list[bfc.Region] = []
    rows: list[Mapping[str, Any]] = []
    for region in values["regions"]:
        address, size = _number(region["address"]), _number(region["size_bytes"], 1)
        chunks = region["chunks"]
        regions.append(
            bfc.Region(address, size, len(rows), len(chunks), from_json(str, region.get("label", "")))
        )
        rows += chunks
    found = from_fields(bfc.Allocator, values, regions=regions, chunks=_saved_pools_chunks(rows))
    numbers = (*vars(found).values(), *found.options, *found.counters)
    if any(isinstance(value, int) and value < 0 for value in numbers):
        raise ValueError
    return found


def _saved_pools_chunks(rows: Sequence[Mapping[str, Any]]) -> bfc.Chunks:
    owners = list(dict.fromkeys(["", *(from_json(str, row.get("owner", "")) for row in rows)]))
    number = {owner: index for index, owner in enumerate(owners)}

    def known(name: str) -> bool:
        return any(name in row for row in rows)

    asked = [row["requested_bytes"] for row in rows]
    return bfc.Chunks(
        address=array("Q", [row["address"] for row in rows]),
        size=array("Q", [_number(row["size_bytes"], 1) for row in rows]),
        state=bytes(_state(row) for row in rows),
        requested=array("q", [bfc.UNKNOWN if size is None else _number(size) for size in asked])
        if any(size is not None for size in asked) or not rows
        else None,
        allocation_id=array("q", [row.get("id", bfc.UNKNOWN) for row in rows]) if known("id") else None,
        bin=array("i", [row.get("bin", -1) for row in rows]) if known("bin") else None,
        freed_at=array("Q", [row.get("freed_at", 0) for row in rows]) if known("freed_at") else None,
        tag=bytes(bfc.TAGS.index(row["tag"]) for row in rows) if known("tag") else None,
        stream=array("Q", [row.get("stream", 0) for row in rows]) if known("stream") else None,
        owner=array("I", [number[row.get("owner", "")] for row in rows]) if known("owner") else None,
        owners=owners,
    )


def _state(row: Mapping[str, Any]) -> int:
    if row.get("state") == "pending":
        return bfc.PENDING
    return bfc.IN_USE if row["in_use"] else bfc.FREE


def _number(value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or not least <= value <= _MOST:
        raise ValueError
    return value
