"""One pool as the logs of all versions write it (shared with the tests of damage)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable

LAST = (1 << 64) - 1


@dataclass(frozen=True)
class Piece:
    """A chunk; its size in bytes."""

    size: int
    in_use: bool
    op: str = ""


@dataclass(frozen=True)
class Pool:
    """A pool in regions at given addresses, and the request that failed."""

    name: str
    regions: Sequence[tuple[int, Sequence[Piece]]]
    limit: int
    asked: int
    op: str

    @property
    def in_use(self) -> int:
        return sum(piece.size for _, pieces in self.regions for piece in pieces if piece.in_use)

    @property
    def size(self) -> int:
        return sum(piece.size for _, pieces in self.regions for piece in pieces)


MIB = 1 << 20
POOL = Pool(
    "GPU_0_bfc",
    (
        (0x7F9400000000, (Piece(1024, True, "Const"), Piece(24576, False), Piece(6 * MIB - 25600, True, "MatMul"))),
        (0x7F9500000000, (Piece(4 * MIB, False), Piece(12 * MIB, True, "Mul"), Piece(4 * MIB + 256, False))),
        (0x7F9600000000, (Piece(40 * MIB, True, "Conv2D"),)),
    ),
    limit=80 * MIB,
    asked=12 * MIB,
    op="Mul",
)  # fmt: skip
SECOND = Pool(
    "GPU_1_bfc",
    ((0x7E0000000000, (Piece(2 * MIB, True), Piece(MIB, False), Piece(MIB, True))),
     (0x7E1000000000, (Piece(8 * MIB, False), Piece(8 * MIB, True)))),
    limit=20 * MIB,
    asked=16 * MIB,
    op="Add",
)  # fmt: skip
BAR = "*" * 60 + "x" * 10 + "_" * 30


def human(size: int) -> str:
    """Return *size* as TensorFlow shows it to people."""
    for unit, digits, name in ((1 << 30, 2, "GiB"), (1 << 20, 2, "MiB"), (1 << 10, 1, "KiB")):
        if size >= unit:
            return f"{size / unit:.{digits}f}{name}"
    return f"{size}B"


Say = Callable[[str, str], str]  # severity, words → a line


def old_prefix(severity: str, words: str) -> str:
    return (
        f"2018-09-27 22:58:41.991772: {severity} tensorflow/core/common_runtime/bfc_allocator.cc:645] {words}"
    )


def tsl_prefix(severity: str, words: str) -> str:
    return f"2023-05-01 10:00:00.1: {severity} external/org_tensorflow/tsl/framework/bfc_allocator.cc:1046] {words}"


def windows_prefix(severity: str, words: str) -> str:
    return f"2019-01-01 10:00:00.1: {severity} T:\\src\\core\\common_runtime\\bfc_allocator.cc:665] {words}"


def absl_prefix(thread: int) -> Say:
    return lambda severity, words: (
        f"{severity}0000 00:00:1795197042.120749 {thread:7} bfc_allocator.cc:1390] {words}"
    )


def no_prefix(severity: str, words: str) -> str:
    return words


def behind_docker(severity: str, words: str) -> str:
    return "worker-3 | [1,0]<stderr>: " + old_prefix(severity, words)


def _bins(pool: Pool, say: Say) -> list[str]:
    return [
        say("I", f"Bin ({256 << n}): \tTotal Chunks: 0, Chunks in use: 0. 0B allocated for chunks.")
        for n in range(21)
    ]


def _summary(pool: Pool, say: Say) -> list[str]:
    sizes = sorted(piece.size for _, pieces in pool.regions for piece in pieces if piece.in_use)
    lines = [say("I", "     Summary of in-use Chunks by size: ")]
    lines += [say("I", f"1 Chunks of size {size} totalling {human(size)}") for size in sizes]
    return [*lines, say("I", f"Sum Total of in-use chunks: {human(pool.in_use)}")]


def _stats(pool: Pool, say: Say, *, exact: bool) -> list[str]:
    show = str if exact else human
    return [
        say("I", "Stats: "),
        f"Limit:        {show(pool.limit)}",
        f"InUse:        {show(pool.in_use)}",
        f"MaxInUse:     {show(pool.in_use + 256)}",
        "NumAllocs:        50",
        f"MaxAllocSize: {show(40 * MIB)}",
        "",
    ]


def of_2018(pool: Pool, say: Say) -> list[str]:
    """TensorFlow 1.8 to 1.12: no regions, no 'next', addresses with 0x."""
    out = f"Allocator ({pool.name}) ran out of memory trying to allocate {human(pool.asked)}."
    lines = [say("W", f"{out}  Current allocation summary follows."), *_bins(pool, say)]
    for address, pieces in pool.regions:
        for piece in pieces:
            word = "Chunk" if piece.in_use else "Free "
            lines.append(say("I", f"{word} at 0x{address:x} of size {piece.size}"))
            address += piece.size
    return [*lines, *_summary(pool, say), *_stats(pool, say, exact=True), say("W", BAR)]


def of_2019(pool: Pool, say: Say) -> list[str]:
    """TensorFlow 1.15."""
    out = f"Allocator ({pool.name}) ran out of memory trying to allocate {human(pool.asked)} (rounded to {pool.asked})."
    lines = [say("W", f"{out}  Current allocation summary follows."), *_bins(pool, say)]
    for address, pieces in pool.regions:
        lines.append(say("I", f"Next region of size {sum(piece.size for piece in pieces)}"))
        for number, piece in enumerate(pieces):
            following = LAST if number == len(pieces) - 1 else number + 12
            word = "InUse" if piece.in_use else "Free "
            lines.append(say("I", f"{word} at 0x{address:x} next {following} of size {piece.size}"))
            address += piece.size
    lines += _summary(pool, say)
    lines.append(_pool_line(pool, say, "total_region_allocated_bytes_", "available bytes", str))
    return [*lines, *_stats(pool, say, exact=True), say("W", BAR)]


def _pool_line(pool: Pool, say: Say, name: str, available: str, show: Callable[[int], str]) -> str:
    left = pool.limit - pool.size
    words = f"{name}: {show(pool.size)} memory_limit_: {show(pool.limit)} {available}: {show(left)}"
    return say("I", f"{words} curr_region_allocation_bytes_: {show(128 * MIB)}")


def _dump(pool: Pool, say: Say, details: Callable[[Piece], str]) -> list[str]:
    lines = [say("I", f"BFCAllocator dump for {pool.name}"), *_bins(pool, say)]
    lines.append(say("I", f"Bin for {human(pool.asked)} was 8.00MiB, Chunk State: "))
    for address, pieces in pool.regions:
        lines.append(say("I", f"Next region of size {sum(piece.size for piece in pieces)}"))
        for number, piece in enumerate(pieces):
            following = LAST if number == len(pieces) - 1 else number + 3
            word = "InUse" if piece.in_use else "Free "
            lines.append(
                say("I", f"{word} at {address:x} of size {piece.size}{details(piece)} next {following}")
            )
            address += piece.size
    return [*lines, *_summary(pool, say)]


def _out(pool: Pool, say: Say, end: str = "") -> list[str]:
    words = f"Allocator ({pool.name}) ran out of memory trying to allocate {human(pool.asked)}"
    return [
        say("W", f"{words} (rounded to {pool.asked}){end}requested by op {pool.op}"),
        "If the cause is memory fragmentation maybe the environment variable will improve the situation. ",
        "Current allocation summary follows.",
    ]


def of_2021(pool: Pool, say: Say) -> list[str]:
    """TensorFlow 2.4 to 2.10."""
    lines = [*_out(pool, say), *_dump(pool, say, lambda piece: "")]
    lines.append(_pool_line(pool, say, "total_region_allocated_bytes_", "available bytes", str))
    return [*lines, *_stats(pool, say, exact=True), say("W", BAR)]


def of_2023(pool: Pool, say: Say) -> list[str]:
    """TensorFlow 2.12, with TENSORFLOW_MEM_DEBUG."""

    def by(piece: Piece) -> str:
        return f" by op {piece.op} action_count 1234 step 5" if piece.op else ""

    lines = [*_out(pool, say), *_dump(pool, say, by)]
    lines.append(_pool_line(pool, say, "Total bytes in pool", "available bytes", str))
    return [*lines, *_stats(pool, say, exact=True), say("W", BAR)]


def of_2025(pool: Pool, say: Say) -> list[str]:
    """TensorFlow 2.21: sizes in units for people only."""
    lines = [*_out(pool, say), *_dump(pool, say, lambda piece: "")]
    lines.append(_pool_line(pool, say, "Total size in pool", "available size", human))
    return [*lines, *_stats(pool, say, exact=False), say("W", BAR)]


def of_2026(pool: Pool, say: Say) -> list[str]:
    """XLA of summer 2026: two ends, annotations, another summary."""

    def annotated(piece: Piece) -> str:
        return f" tag lower allocation_annotation xla.execute{{executable=jit}} / {piece.op}{{index=0}}"

    lines = [*_out(pool, say, " from the lower end "), *_dump(pool, say, annotated)]
    free = pool.size - pool.in_use
    words = f"Allocator memory summary: rounded request {human(pool.asked)}, total free in pool {human(free)}"
    left = human(pool.limit - pool.size)
    words += f", largest free chunk usable by lower end 4.00MiB, unallocated bytes {left}"
    lines.append(say("I", f"{words}, pool size {human(pool.size)}, pool limit {human(pool.limit)}"))
    lines.append(
        say("I", "Allocator region growth hint: next region allocation target 128.00MiB (growth enabled).")
    )
    return [*lines, *_stats(pool, say, exact=False), say("W", BAR)]


VARIANTS: dict[str, tuple[Callable[[Pool, Say], list[str]], Say]] = {
    "1.8 to 1.12": (of_2018, old_prefix),
    "1.8 on Windows": (of_2018, windows_prefix),
    "1.15": (of_2019, old_prefix),
    "2.4 to 2.10": (of_2021, old_prefix),
    "2.12": (of_2023, tsl_prefix),
    "2.21": (of_2025, absl_prefix(11563)),
    "2026": (of_2026, absl_prefix(11563)),
    "a paste without prefixes": (of_2021, no_prefix),
    "behind docker's and MPI's prefixes": (of_2021, behind_docker),
}
