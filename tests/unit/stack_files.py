"""Profiles of other tools than massif for the tests: the captures, and how to read small ones."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Optional

from gdbmem.formats.opening import OpenOptions, open_profile
from gdbmem.formats.stacks import StackProfile
from gdbmem.model.calltree import CallTree

CAPTURES = Path(__file__).parents[1] / "captures" / "stacks"


def capture(name: str) -> bytes:
    """Return the unpacked content of a capture."""
    path = CAPTURES / name
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    if path.suffix == ".zst":
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    return path.read_bytes()


def read(path: Path, metric: Optional[str] = None, format: Optional[str] = None) -> StackProfile:  # noqa: A002
    profile = open_profile(path, OpenOptions(format, metric))
    assert isinstance(profile, StackProfile)
    return profile


def tree(profile: StackProfile) -> CallTree:
    """Return the profile's tree, which has to be sound and to agree with the totals."""
    found = profile.tree(0)
    assert found is not None
    found.check()
    assert found.bytes[0] == profile.snapshots[0].total_bytes
    return found


def flat(found: CallTree) -> dict[str, int]:
    """Return the bytes of each allocating function, as pprof's first column has them."""
    sizes: dict[str, int] = {}
    for node in range(1, len(found)):
        if found.parent[node] == 0 and (frame := found.frame_of(node)) is not None:
            name = frame.function or "?"
            sizes[name] = sizes.get(name, 0) + found.bytes[node]
    return {name: size for name, size in sizes.items() if size}
