"""Fewer rows with age: the smallest and the largest value of each stretch of time stay."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

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
