"""Cells that are known to be wrong, each with a sentence. One that turns right fails until it is taken out here."""

from __future__ import annotations

KNOWN_WRONG: dict[tuple[str, str], str] = {}
