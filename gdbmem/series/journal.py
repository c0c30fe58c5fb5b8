"""The quick samples since the last complete one, in a mapped file that survives the end of a killed monitor.

Writing each into the database would cost several times as much as reading it. The database takes over all of them with
the next complete sample, and the file is emptied. The last one is followed by zeros.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from gdbmem.linux.monitoring.sampling import FRAME, Glance, unpack_glances

_NAME = "series.glances"
_ROOM = 1 << 16  # bytes; doubled when they are used up


class Journal:
    """Writes glances."""

    def __init__(self, folder: Path) -> None:
        """Open the journal in *folder*; its content is kept until clear()."""
        self._descriptor = os.open(
            folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        self._map: Optional[mmap.mmap] = None
        self._size = 0
        self._used = len(_read(folder))

    def append(self, glance: Glance) -> None:
        """Write *glance*, or nothing if the disk is full: the database then reports that."""
        data = FRAME % glance
        begin, self._used = self._used, self._used + len(data)
        if self._used > self._size and not self._grow():
            self._used = begin
            return
        self._map[begin : self._used] = data  # type: ignore[index]  # _grow() has made it

    def _grow(self) -> bool:
        size = max(2 * self._size, -(-self._used // _ROOM) * _ROOM)
        try:
            os.posix_fallocate(self._descriptor, 0, size)  # or a full disk would end this process later
            self._map = mmap.mmap(self._descriptor, size)
        except OSError:
            return False
        self._size = size
        return True

    def clear(self) -> None:
        """Forget what was written."""
        if self._used and (self._size or self._grow()):
            self._map[: self._used] = bytes(self._used)  # type: ignore[index]
            self._used = 0

    def close(self) -> None:
        """Close the file."""
        if self._map is not None:
            self._map.close()
        with contextlib.suppress(OSError):  # zeros at the end do no harm
            os.ftruncate(self._descriptor, self._used)
        os.close(self._descriptor)


def read_journal(folder: Path) -> list[Glance]:
    """Return what the journal in *folder* holds; nothing if there is none."""
    try:
        return unpack_glances(_read(folder))
    except OSError:
        return []


def _read(folder: Path) -> bytes:
    return (folder / _NAME).read_bytes().partition(b"\0")[0]


def forget_journal(folder: Path) -> None:
    """Remove the journal in *folder*: its glances belong to a database that no longer exists."""
    (folder / _NAME).unlink(missing_ok=True)


# Fewer rows with age: the smallest and the largest value of each stretch of time stay.


# (age from which, length of a stretch), seconds
_THINNING = ((3600.0, 10.0), (86400.0, 60.0))
_CHUNK_SECONDS = 600.0
_KEPT_BY = ("rss_bytes", "pss_bytes", "family_bytes")


def thin(connection: sqlite3.Connection, now: float) -> int:
    """Drop old rows without new information, those of _CHUNK_SECONDS at most; return how many.

    Its progress is in the table of facts. Raises sqlite3.Error.
    """
    dropped = 0
    for age, stretch in _THINNING:
        name = f"thinned_{age:.0f}"
        row = connection.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        done = row[0] if row else 0.0
        until = min(now - age, done + _CHUNK_SECONDS) // stretch * stretch
        if until > done:
            dropped += _thin_between(connection, done, until, stretch)
            connection.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, until))
    return dropped


def _thin_between(connection: sqlite3.Connection, begin: float, end: float, stretch: float) -> int:
    numbers = [row[0] for row in connection.execute("SELECT number FROM line")]
    dropped = 0
    for line in (0, *numbers):
        rows = connection.execute(
            f"SELECT t, {', '.join(_KEPT_BY)} FROM sample WHERE line = ? AND t >= ? AND t < ? ORDER BY t",
            (line, begin, end),
        ).fetchall()
        kept = _telling(rows, stretch)
        surplus = [(line, row[0]) for row in rows if row[0] not in kept]
        connection.executemany("DELETE FROM sample WHERE line = ? AND t = ?", surplus)
        dropped += len(surplus)
    return dropped


def _telling(rows: Sequence[tuple[Any, ...]], stretch: float) -> set[float]:
    """Return the times of *rows* to keep: of each stretch the first, and the extremes of each metric."""
    kept = set()
    stretches: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        stretches.setdefault(int(row[0] // stretch), []).append(row)
    for members in stretches.values():
        kept.add(members[0][0])
        for column in range(1, len(_KEPT_BY) + 1):
            known = [row for row in members if row[column] is not None]
            if known:
                kept.add(min(known, key=lambda row: row[column])[0])
                kept.add(max(known, key=lambda row: row[column])[0])
    return kept
