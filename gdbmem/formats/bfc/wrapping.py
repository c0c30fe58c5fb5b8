"""The lines of a log as its program wrote them: out of what encloses them, narrow terminals, newest first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Optional

from gdbmem.files import Data
from gdbmem.formats.wrapping import LARGEST_BYTES, PlainLog
from gdbmem.formats.wrapping import unwrap as unwrap_text

# TensorFlow's and onnxruntime's own prefix, and absl's, with the number of the thread.
STAMP = re.compile(
    rb"(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3,9}):? (?:[IWEF] |\[[VIWEF]:)"
    rb"|\b[IWEF][0-9]{4} (?P<clock>[0-9]{2}:[0-9]{2}:[0-9.]{2,20}) +[0-9]+ "
)
_ALLOCATOR = re.compile(rb"bfc_a(?:llocator|rena)\.cc")
_SAMPLE_BYTES = 1 << 16  # at the beginning of a log
_FEWEST = 5  # stamps, or full lines, that show how a log was written
_WIDTHS = (60, 400)  # columns of terminals


def unwrap(data: Data) -> PlainLog:
    """Return the lines of a log, oldest first; what is not wrapped is returned as it is, for it may be large."""
    log = unwrap_text(data)
    return log if len(log.data) > LARGEST_BYTES else _oldest_first(_joined(log))


# --- lines that a terminal broke, and logs that begin with their end


def _joined(log: PlainLog) -> PlainLog:
    """Return *log* with the lines joined that a narrow terminal broke: none is wider, and no prefix follows them."""
    sample = bytes(log.data[:_SAMPLE_BYTES]).split(b"\n")
    width = max(map(len, sample))
    if not _WIDTHS[0] <= width <= _WIDTHS[1] or sum(len(line) == width for line in sample) < _FEWEST:
        return log
    lines = bytes(log.data).split(b"\n")
    if max(map(len, lines)) > width:
        return log
    joined: list[bytes] = []
    numbers: list[int] = []
    is_open = False
    for number, line in enumerate(lines, start=1):
        if is_open and STAMP.match(line) is None:
            joined[-1] += line
        else:
            joined.append(line)
            numbers.append(log.number(number))
        is_open = len(line) == width
    return PlainLog(b"\n".join(joined), numbers)


def _oldest_first(log: PlainLog) -> PlainLog:
    """Return *log* from its end to its beginning if its times run backwards."""
    times = list(_times(log.data))
    back = sum(after < before for before, after in zip(times, times[1:]))
    forth = sum(after > before for before, after in zip(times, times[1:]))
    if back < _FEWEST or forth * 3 > back:
        return log
    lines = bytes(log.data).rstrip(b"\n").split(b"\n")
    numbers = [log.number(number) for number in range(len(lines), 0, -1)]
    return PlainLog(b"\n".join(reversed(lines)) + b"\n", numbers)


def _times(data: Data) -> Iterator[bytes]:
    """Yield the times of the first allocators' lines, as texts that sort."""
    for count, found in enumerate(_ALLOCATOR.finditer(data)):
        start = data.rfind(b"\n", max(found.start() - 400, 0), found.start()) + 1
        stamp = STAMP.search(data, start, found.start())
        if stamp is not None:
            yield stamp["time"] or stamp["clock"]
        if count > 200:
            return


# The writers of a log that several programs wrote, told apart by what stands in front of their lines.


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
