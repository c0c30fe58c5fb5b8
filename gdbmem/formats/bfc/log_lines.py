"""Lines of TensorFlow's, XLA's and onnxruntime's logs about their allocators, with any prefix.

Source: DumpMemoryLog() of tensorflow/core/common_runtime/bfc_allocator.cc, later xla/tsl/framework, from 1.8 to 2026;
onnxruntime/core/framework/bfc_arena.cc.
"""

from __future__ import annotations

import re
from typing import Optional

_SIZE = rb"-?[0-9.]+ ?[KMGTPE]?i?B?"
_FACTORS = {
    "": 1,
    "B": 1,
    **{f"{unit}{end}": 1024 ** (n + 1) for n, unit in enumerate("KMGTPE") for end in ("iB", "B", "i", "")},
}
_QUANTITY = re.compile(r"(-?[0-9]{1,20}(?:\.[0-9]{1,9})?) ?([KMGTPE]?i?B?)")


def parse_quantity(text: bytes) -> tuple[int, int]:
    """Return the bytes of ``40.00MiB`` or ``41943040``, and the possible rounding error."""
    match = _QUANTITY.fullmatch(text.decode("ascii", "replace").strip())
    if match is None:
        return 0, 1 << 62
    number, unit = match.groups()
    factor = _FACTORS.get(unit, 1)
    if "." not in number:
        return int(number) * factor, 0 if factor == 1 else factor // 2
    places = len(number.partition(".")[2])
    return round(float(number) * factor), int(factor / 10**places / 2) + 1


def parse_counter(text: Optional[bytes]) -> Optional[int]:
    """Return the decimal number *text*; None if it is not a number, or exceeds 64 bits."""
    return int(text) if text is not None and len(text) <= 20 else None


def _line(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.DOTALL)


# absl's prefix names the thread: "I0000 00:00:1795368014.062794    2281 bfc_allocator.cc:1049] ".
_THREAD = re.compile(rb"\b[IWEF][0-9]{4} [0-9:.]+ +([0-9]+) ")

CHUNK = _line(
    rb"\s*(?P<state>InUse|Free|Chunk)\s+at (?:0x)?(?P<address>[0-9A-Fa-f]{1,16})(?: next (?P<old_next>[0-9]+))?"
    rb" of size (?P<size>[0-9]{1,19})(?P<rest>[^\r\n]*)"
)
CHUNK_NEXT = re.compile(rb".* next ([0-9]{1,20})", re.DOTALL)
CHUNK_OP = re.compile(rb"by op (.{1,300}?) action_count ", re.DOTALL)
CHUNK_TAG = re.compile(rb" tag (lower|upper|central gap|gap)\b")
CHUNK_ANNOTATION = re.compile(rb" allocation_annotation (.{1,1000}?)(?= next [0-9]+|$)", re.DOTALL)
CHUNK_FREED = re.compile(rb"freed_at_count ([0-9]{1,19})\]")
REGION = _line(rb"\s*Next region of size (?P<size>[0-9]{1,19})")
DUMP = _line(rb"\s*(?:BFCAllocator dump for |Allocator:)(?P<name>[^\r\n]{1,200})")
OUT = _line(
    rb"\s*Allocator \((?P<name>[^)]{0,200})\) ran out of memory trying to allocate (?P<size>" + _SIZE + rb")"
    rb"(?P<rest>[^\r\n]*)"
)
ROUNDED = _line(rb"\(rounded to (?P<size>[0-9]{1,19})\)")
BY_OP = _line(rb"requested by op (?P<op>[^\r\n]{1,300})")
NO_FAILURE = b"caller indicates that this is not a failure"
BIN = _line(rb"\s*Bin \((?P<floor>[0-9]+)\):|\s*(?P<ort>[0-9]+): Chunks [0-9]+/[0-9]+\. Bytes ")
SUM = _line(rb"\s*Sum Total of in-use chunks: (?P<size>" + _SIZE + rb")")
POOL = _line(
    rb"\s*(?:total_region_allocated_bytes_|Total bytes in pool|Total size in pool): (?P<pool>" + _SIZE + rb")"
    rb" memory_limit_: (?P<limit>" + _SIZE + rb") available (?:bytes|size): (?P<available>" + _SIZE + rb")"
    rb" curr_region_allocation_bytes_: (?P<next>" + _SIZE + rb")"
)
SUMMARY = _line(
    rb"\s*Allocator memory summary: rounded request (?P<request>"
    + _SIZE
    + rb"), total free in pool (?P<free>"
    + _SIZE
    + rb").*?unallocated bytes (?P<available>"
    + _SIZE
    + rb")(?:, pool size (?P<pool>"
    + _SIZE
    + rb"))?(?:, pool limit (?P<limit>"
    + _SIZE
    + rb"))?"
)
GROWTH = _line(
    rb"\s*Allocator region growth hint: next region allocation target (?P<next>"
    + _SIZE
    + rb") \(growth (?P<on>enabled|disabled)"
)
STATS = _line(rb"\s*Stats: ?\s*\Z")
STAT = _line(
    rb"\s*(?P<name>Limit|InUse|MaxInUse|NumAllocs|MaxAllocSize|Reserved|PeakReserved|LargestFreeBlock):\s+(?P<value>"
    + _SIZE
    + rb")\s*\Z"
)
STAT_NAMES = (
    "Limit", "InUse", "MaxInUse", "NumAllocs", "MaxAllocSize", "Reserved", "PeakReserved", "LargestFreeBlock",
)  # fmt: skip
# Counters are on separate lines, which lack the source location at the beginning of other lines.
PLACE = re.compile(rb"[\w-]\.(?:cc|cpp|cu|c|h|py|go|rs):[0-9]+\]")
BAR = _line(rb"\s*(?P<bar>[*x_]{100})\s*\Z")

# onnxruntime's own lines, at the severities verbose and info.
ORT_CREATE = _line(
    rb"\s*Creating (?:BFCArena|\w*Arena) for (?P<name>.{1,60}?) with following configs:"
    rb" initial_chunk_size_bytes: (?P<first>[0-9]+) max_dead_bytes_per_chunk: (?P<dead>[0-9]+)"
    rb"(?: initial_growth_chunk_size_bytes: (?P<growth>[0-9]+))?(?: max_power_of_two_extend_bytes: (?P<most>-?[0-9]+))?"
    rb" memory limit: (?P<limit>[0-9]+) arena_extend_strategy: (?P<strategy>-?[0-9]+)"
)
ORT_EXTEND = _line(
    rb"\s*Extending (?:BFCArena|\w*Arena|arena) for (?P<name>.{1,60}?)\. bin_num:[0-9]+ (?:\(requested\) )?num_bytes: ?"
    rb"(?P<asked>[0-9]+)"
)
ORT_EXTENDED = _line(rb"\s*Extended allocation by (?P<size>[0-9]+) bytes")
ORT_TOTAL = _line(rb"\s*Total allocated bytes: (?P<size>[0-9]+)")
ORT_AT = _line(rb"\s*Allocated memory at (?:0x)?(?P<start>[0-9A-Fa-f]+) to (?:0x)?(?P<end>[0-9A-Fa-f]+)")
ORT_RESERVED = _line(
    rb"\s*Reserving memory in (?:BFCArena|\w*Arena) for (?P<name>.{1,60}?) size: (?P<size>[0-9]+)"
)
ORT_SHRUNK = _line(
    rb"\s*(?P<name>.{1,60}?) (?:BFC ?Arena|\w*Arena) shrunk by [0-9]+ bytes\.\s+"
    rb"The total allocated bytes is now (?P<total>[0-9]+)"
)
ORT_FAILED = _line(
    rb"(?s).*?(?:Available memory of (?P<available>[0-9]+) is smaller than requested bytes of (?P<asked>[0-9]+)"
    rb"|Failed to allocate memory for requested buffer of size (?P<buffer>[0-9]+))"
)

# Refusals without a dump.
DEVICE = _line(
    rb"(?s).*?failed to (?:allocate|alloc) (?P<size>[0-9.]+ ?[KMGT]?i?B?)?[^\r\n]*?(?:\((?P<bytes>[0-9]+) bytes\))?"
    rb"[^\r\n]*?CUDA_ERROR_OUT_OF_MEMORY"
)
CONTEXT = _line(
    rb"(?s).*?(?:failed call to cu(?:Init|Ctx\w*|Device\w*)|could not (?:create|retain) (?:a )?CUDA (?:context|primary)"
    rb"|cuDevicePrimaryCtxRetain|failed to create (?:StreamExecutor|CUDA context))[^\r\n]*"
)
TORCH = _line(
    rb"(?s).*?\b(?P<backend>[A-Z]{2,8})(?: backend)? out of memory\b[^\r\n]*?\bTried to allocate (?P<size>"
    + _SIZE
    + rb")"
    rb"(?P<rest>[^\r\n]*)"
)
TORCH_ALLOWED = _line(
    rb".*?(?:max allowed: (?P<watermark>" + _SIZE + rb")|(?<=[ .])(?P<allowed>" + _SIZE + rb") allowed;)"
)
BARE = _line(
    # PyTorch explains the name of the error in a line of its own.
    rb"(?s)(?!.*Search for `)"
    rb".*?(?:CUDA error: out of memory|cuda runtime error \(2\) ?: ?out of memory|cudaErrorMemoryAllocation"
    rb"|hipErrorOutOfMemory|HIP error: out of memory|(?:allocating (?P<size>"
    + _SIZE
    + rb") on device [0-9]+: )?"
    rb"(?:cuda|hip|musa)Malloc\w* failed: out of memory)"
)
HOST = _line(rb"(?s).*?DefaultCPUAllocator: [^\r\n]*?you tried to allocate (?P<size>[0-9]{1,20}) bytes")
XLA = _line(
    rb"(?s).*?RESOURCE_EXHAUSTED: Out of memory (?:while trying to allocate|allocating) (?P<size>"
    + _SIZE
    + rb")"
)
TENSOR = _line(
    rb"(?s).*?OOM when allocating tensor with shape ?\[(?P<shape>[0-9, ]*)\] and type (?P<type>\w+) on (?P<device>\S+)"
    rb" by allocator (?P<name>\S+)"
)


def body_of(line: bytes) -> tuple[bytes, Optional[bytes], bool]:
    """Return the words of *line*, the thread that wrote them (None: unknown), and whether an allocator wrote them."""
    at = line.find(b"bfc_a")
    end = line.find(b"]", at) if at >= 0 else -1
    if end < 0 or end - at > 80:
        return line, None, False
    thread = _THREAD.search(line, 0, at)
    return line[end + 1 :], thread[1] if thread else None, True
