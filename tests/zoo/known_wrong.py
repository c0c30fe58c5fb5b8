"""Cells that are known to be wrong, each with a sentence. One that turns right fails until it is taken out here."""

from __future__ import annotations

_NO_ROOM = "its limit of address space leaves no room for what the engine itself needs: malloc fails in it"


KNOWN_WRONG: dict[tuple[str, str], str] = {
    **{
        ("little-memory", f"launch --engine {engine}"): _NO_ROOM
        for engine in ("massif", "memcheck", "jemalloc", "dhat", "heaptrack")
    },
    ("little-memory", "recipe, massif"): _NO_ROOM,
}
