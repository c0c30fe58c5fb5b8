"""Paths at which a binary that a profile names may be found: in the folders that the user named, then where it was."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path


def candidates(path: str, folders: Sequence[str], build_id: str = "") -> Iterator[str]:
    """Yield where to look for the binary *path*: each of *folders* as another root, and as a place of binaries.

    Files that the user named come first: the one at *path* may be newer, or without symbols.
    """
    if "\0" in path:  # of a damaged profile: no file has such a name
        return
    for folder in folders:
        rooted = _beneath(folder, path)
        if rooted is not None:
            yield rooted
        yield str(Path(folder) / Path(path).name)
        if len(build_id) > 2:
            yield from _by_build_id(folder, build_id)
    yield path


def _beneath(folder: str, path: str) -> str | None:
    """Return *path* with *folder* as its root; None where a link or ".." leads out of that."""
    root = os.path.realpath(folder)
    found = os.path.realpath(f"{root}/{path.lstrip('/')}")
    return found if found.startswith(f"{root.rstrip('/')}/") else None


def _by_build_id(folder: str, build_id: str) -> Iterator[str]:
    """Yield where gdb's packages, perf's cache and debuginfod's client keep a file by its build-id."""
    first, rest = build_id[:2], build_id[2:]
    for place in (f".build-id/{first}/{rest}", f".build-id/{first}/{rest}/elf", f"{build_id}/executable"):
        yield str(Path(folder) / place)
