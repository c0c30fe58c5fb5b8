"""The writers of a log that several programs wrote, told apart by what stands in front of their lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Optional

from gdbmem.formats.bfc.wrapping import STAMP
from gdbmem.formats.spooling import Data

# Each dump has at least two such lines.
_HEADS = re.compile(
    rb"ran out of memory trying to|BFCAllocator dump for|Sum Total of in-use chunks|BFCArena for "
)
_TIMES = re.compile(
    rb"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}[.,0-9]*(?:Z| ?[+-][0-9]{2}:?[0-9]{2})?"
    rb"|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} +[0-9]{1,2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"
    rb"|[0-9]{2}:[0-9]{2}:[0-9]{2}[.,0-9]*|[0-9]{10,13}(?:\.[0-9]+)?|\[ *[0-9]{1,9}\.[0-9]{3,9}\]"
)
_LONGEST = 300  # bytes of a prefix
_MOST = 64  # writers


class Writers:
    """The prefixes of a log's writers; their times are not compared."""

    def __init__(self, prefixes: Sequence[bytes]) -> None:
        self.prefixes = sorted(prefixes, key=len, reverse=True)
        time = b"(?:%s)" % _TIMES.pattern
        texts = [time.join(map(re.escape, prefix.split(b"\0"))) for prefix in self.prefixes]
        self._pattern = re.compile(b"|".join(b"(%s)" % text for text in texts))
        self._last = 0

    @property
    def names(self) -> Sequence[str]:
        """The name of each writer: its prefix, without times and what encloses it."""
        texts = (prefix.replace(b"\0", b"").decode("utf-8", "replace") for prefix in self.prefixes)
        return [
            " ".join(text.split()).strip(" |:[]<>-") or f"writer {at}" for at, text in enumerate(texts, 1)
        ]

    def of(self, line: bytes) -> tuple[int, bytes]:
        """Return the number of the writer of *line*, and the line without its prefix; unmarked lines follow others."""
        found = self._pattern.match(line)
        if found is None or found.lastindex is None:
            return self._last, line
        self._last = found.lastindex - 1
        return self._last, line[found.end() :]


def writers_of(data: Data) -> Optional[Writers]:
    """Return the writers of the allocators' lines in *data*; None if it has one, or they can't be told apart."""
    found: Counter[bytes] = Counter()
    for head in _HEADS.finditer(data):
        start = data.rfind(b"\n", max(head.start() - 2 * _LONGEST, 0), head.start()) + 1
        stamp = STAMP.search(data, start, head.start())
        if stamp is not None and stamp.start() - start <= _LONGEST:
            found[_TIMES.sub(b"\0", data[start : stamp.start()])] += 1
    # A number that each line has is no writer's.
    prefixes = [prefix for prefix, count in found.items() if count > 1]
    return Writers(prefixes) if 1 < len(prefixes) <= _MOST else None
