"""The records of sampled page faults, turn by turn, in a temporary file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from gdbmem.errors import Notice
from gdbmem.linux.faults.records import Turn
from gdbmem.linux.faults.watch import FaultWatch
from gdbmem.records import dataclass

_LARGEST_BYTES = 2 << 30
_EVENTS_A_TURN = 400


@dataclass(frozen=True)
class _StoredTurn:
    pieces: Sequence[tuple[int, int, int]]  # ring, place in the file, size
    stacks: Sequence[tuple[int, int]]  # place in the file, size
    faults: Mapping[int, int]


class TurnSpool:
    """Stores turns, and returns them in their order. Close it."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="gdbmem-")  # noqa: SIM115  (closed in close())
        self._turns: list[_StoredTurn] = []
        self._taken = 0
        self._dropped = 0  # batches for which the file was too large

    def take(self, watch: FaultWatch, *, is_last: bool) -> Iterator[bytes]:
        """Store what *watch* has for one turn, and yield it batch by batch; all have to be taken."""
        # Many events take long to count: then only some turns count them.
        self._taken += 1
        is_counted = is_last or self._taken % (1 + watch.events // _EVENTS_A_TURN) == 0
        pieces, stacks = [], []
        for ring, data in watch.take():
            at = self._keep(data)
            if at is not None:
                pieces.append((ring, at, len(data)))
                yield data
        for data in watch.take_stacks():
            at = self._keep(data)
            if at is not None:
                stacks.append((at, len(data)))
        self._turns.append(_StoredTurn(pieces, stacks, dict(watch.count()) if is_counted else {}))

    def _keep(self, data: bytes) -> Optional[int]:
        """Store *data*; return where, or None if the file is too large."""
        at = self._file.seek(0, os.SEEK_END)
        if at + len(data) > _LARGEST_BYTES:
            self._dropped += 1
            return None
        self._file.write(data)
        return at

    def turns(self) -> Iterator[Turn]:
        """Yield the turns, one after the other."""
        for turn in self._turns:
            records = [(ring, self._read(at, size)) for ring, at, size in turn.pieces]
            yield Turn(records, [self._read(at, size) for at, size in turn.stacks], turn.faults)

    def _read(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        return self._file.read(size)

    def clear(self) -> None:
        """Forget all turns."""
        self._turns = []
        self._file.truncate(0)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def notices(self) -> list[Notice]:
        """Return a notice if batches were dropped."""
        if not self._dropped:
            return []
        text = f"{self._dropped:,} batches of samples were dropped: the recording had reached 2 GiB"
        return [Notice("faults-disk", text)]
