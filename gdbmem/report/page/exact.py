"""Exact values of the numbers in a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional, Union

Value = Union[int, float]
Piece = tuple[str, Optional[Value]]  # None: plain text


def exact_pieces(sentence: str, numbers: Sequence[tuple[str, Value]]) -> list[Piece]:
    """Return *sentence* in pieces: the texts of *numbers* that are in it, with their values, and what is between.

    A text with several values gets them in order if the sentence has as many of it, else none of them.
    """
    values: dict[str, list[Value]] = {}
    for text, value in numbers:
        values.setdefault(text, []).append(value)
    if not values:
        return [(sentence, None)]
    texts = "|".join(re.escape(text) for text in sorted(values, key=len, reverse=True))
    # Not inside a longer number or word: "1.0 KiB" is not in "11.0 KiB", nor "+3 B/s" in "+3 B/s²".
    parts = re.split(rf"(?<![\w.,+-])({texts})(?![\w/]|[.,]\d)", sentence)
    met = {text: _values_of(found, parts[1::2].count(text)) for text, found in values.items()}
    pieces: list[Piece] = []
    for number, part in enumerate(parts):
        waiting = met[part] if number % 2 else []
        pieces.append((part, waiting.pop(0) if waiting else None))
    return [piece for piece in pieces if piece[0]]


def _values_of(values: Sequence[Value], times: int) -> list[Value]:
    """Return the value of each of the *times* that a text with *values* is met; none if that is unclear."""
    if len(set(values)) == 1:
        return [values[0]] * times
    return list(values) if len(values) == times else []
