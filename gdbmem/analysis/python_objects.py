"""The changes of Python's objects between two moments, by type."""

from __future__ import annotations

from gdbmem.model.python import PythonObjects, TypeUse
from gdbmem.records import dataclass


@dataclass(frozen=True)
class Change:
    """The objects of one type, before and after."""

    before: TypeUse
    after: TypeUse

    @property
    def type(self) -> str:
        return self.after.type

    @property
    def delta_bytes(self) -> int:
        return self.after.bytes - self.before.bytes

    @property
    def delta_count(self) -> int:
        return self.after.count - self.before.count


def changes(before: PythonObjects, after: PythonObjects) -> list[Change]:
    """Return the types whose bytes or objects changed in *after*, the largest change first."""
    old = {one.type: one for one in before.types}
    new = {one.type: one for one in after.types}
    rows = [
        Change(old.get(name, TypeUse(name, 0, 0)), new.get(name, TypeUse(name, 0, 0)))
        for name in {**old, **new}
    ]
    changed = [row for row in rows if row.delta_bytes or row.delta_count]
    return sorted(changed, key=lambda row: (-abs(row.delta_bytes), -abs(row.delta_count), row.type))
