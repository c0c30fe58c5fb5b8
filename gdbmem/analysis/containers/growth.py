"""Changes of containers between two scans."""

from __future__ import annotations

from gdbmem.model.containers import Survey
from gdbmem.records import dataclass


@dataclass(frozen=True)
class ContainerGrowth:
    """The change of one path between two scans."""

    path: str
    type_name: str
    before_size: int
    after_size: int
    delta_bytes: int


def growth(before: Survey, after: Survey) -> list[ContainerGrowth]:
    """Return the paths whose size or bytes changed, the largest change first."""
    old = {(c.path, c.type_name): c for c in before.containers}
    new = {(c.path, c.type_name): c for c in after.containers}
    rows = []
    for key in {**old, **new}:
        was, now = old.get(key), new.get(key)
        delta = (now.held_bytes if now else 0) - (was.held_bytes if was else 0)
        sizes = was.size if was else 0, now.size if now else 0
        if delta or sizes[0] != sizes[1]:
            rows.append(ContainerGrowth(*key, *sizes, delta))
    return sorted(rows, key=lambda row: -abs(row.delta_bytes))
