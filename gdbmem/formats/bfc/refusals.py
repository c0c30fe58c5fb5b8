"""Refusals without a dump: a device that has no memory for CUDA's context or a region, PyTorch's one sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from gdbmem.formats.bfc import log_lines
from gdbmem.formats.bfc.log_dump import LoggedBytes
from gdbmem.model.bfc.pool_log import Refusal
from gdbmem.records import replace

_MOST = 1000
_LONGEST = 600


class Refusals:
    """All of one log; those of the same words in a row are one."""

    def __init__(self) -> None:
        self._found: list[Refusal] = []

    def feed(self, number: int, body: bytes) -> bool:
        """Take the line *body* if it reports a refusal."""
        found: Optional[re.Match[bytes]] = None
        size: Optional[int] = None
        if b"CUDA_ERROR_OUT_OF_MEMORY" in body or b"cu" in body or b"CUDA" in body:
            found = log_lines.DEVICE.match(body)
            if found is not None and found["bytes"]:
                size = log_lines.parse_counter(found["bytes"])
            elif found is not None and found["size"]:
                size = LoggedBytes.read(found["size"]).size_bytes
            found = found or log_lines.TORCH.match(body)
            if found is not None and size is None and "asked" in found.groupdict():
                size = LoggedBytes.read(found["asked"]).size_bytes
            found = found or log_lines.CONTEXT.match(body)
        if found is None:
            return False
        text = body[:_LONGEST].decode("utf-8", "surrogateescape").strip()
        last = self._found[-1] if self._found else None
        # An allocator that backs off asks for a tenth less each time.
        if (
            last is not None
            and _kind(last.text) == _kind(text)
            and last.size_bytes
            and size
            and size < last.size_bytes
        ):
            self._found[-1] = replace(last, times=last.times + 1)
        elif len(self._found) < _MOST:
            self._found.append(Refusal(number, text, size))
        return True

    def found(self) -> Sequence[Refusal]:
        """Return them in the order of the log."""
        return self._found


def _kind(text: str) -> str:
    return re.sub(r"[0-9.]+ ?[KMGT]?i?B?", "", text)
