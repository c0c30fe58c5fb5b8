"""Cells that are known to be wrong, each with a sentence. One that turns right fails until it is taken out here."""

from __future__ import annotations

_NO_ROOM = "its limit of address space leaves no room for what the engine itself needs: malloc fails in it"


KNOWN_WRONG: dict[tuple[str, str], str] = {
    **{
        ("little-memory", f"launch --engine {engine}"): _NO_ROOM
        for engine in ("massif", "memcheck", "jemalloc", "dhat", "heaptrack")
    },
    ("little-memory", "recipe, massif"): _NO_ROOM,
    (
        "coroutine",
        "memwatch function",
    ): "a coroutine's name is its start, called once: its body is not waited for",
    (
        "jemalloc-static",
        "launch --engine gperftools",
    ): "0 B is told; that the allocator may be the program's own, beside",
}
