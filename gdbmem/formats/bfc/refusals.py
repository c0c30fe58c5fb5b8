"""Refusals without a dump: a device that has no memory for CUDA's context or a region, one sentence of a framework."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Callable, Optional

from gdbmem.formats.bfc import log_lines
from gdbmem.formats.bfc.log_dump import LoggedBytes
from gdbmem.formats.bfc.torch_sentence import read_account
from gdbmem.model.bfc.pool_log import Refusal
from gdbmem.model.bfc.pools import Allocator
from gdbmem.records import replace
from gdbmem.text import printable

_MOST = 1000
_LONGEST = 600
_ROUNDING = 1.01  # a pool rounds requests up
# TensorFlow's types whose size their names do not have.
_TYPE_BYTES = {"float": 4, "double": 8, "half": 2, "bool": 1, "variant": 0, "resource": 0, "string": 0}
_BITS = re.compile(r"[a-z_]*?(\d+)")


class Refusals:
    """All of one log; those of the same words in a row are one."""

    def __init__(self) -> None:
        self._found: list[Refusal] = []
        self._allocators: dict[int, str] = {}  # of tensors, by the place in _found
        self._last_sentence = b""

    def feed(self, number: int, body: bytes) -> bool:
        """Take the line *body* if it reports a refusal."""
        for words, pattern, read in _KINDS:
            if any(word in body for word in words):
                found = pattern.match(body)
                if found is not None:
                    text = body[:_LONGEST].decode("utf-8", "surrogateescape").strip()
                    self._add(replace(read(found), line=number, text=text), found)
                    self._last_sentence = _sentence(body)
                    return True
        return False

    def _add(self, refusal: Refusal, found: re.Match[bytes]) -> None:
        last = self._found[-1] if self._found else None
        if last is not None and self._is_again(last, refusal, found.string):
            self._found[-1] = replace(last, times=last.times + 1)
        elif len(self._found) < _MOST:
            if "name" in found.groupdict():
                self._allocators[len(self._found)] = (
                    found["name"].decode("utf-8", "surrogateescape").rstrip(".,;")
                )
            self._found.append(refusal)

    def _is_again(self, last: Refusal, refusal: Refusal, body: bytes) -> bool:
        if last.by != refusal.by:
            return False
        if refusal.backs_off:  # asks for a tenth less each time
            is_less = bool(last.size_bytes and refusal.size_bytes and refusal.size_bytes < last.size_bytes)
            return last.backs_off and is_less and _without_sizes(last.text) == _without_sizes(refusal.text)
        # An exception is printed again by those who pass it on, with other words in front.
        return last.size_bytes == refusal.size_bytes and self._last_sentence == _sentence(body)

    def found(self, allocators: Sequence[Allocator]) -> Sequence[Refusal]:
        """Return them in the order of the log, without the consequences of what the dumps of *allocators* explain."""
        return [one for at, one in enumerate(self._found) if not self._is_explained(at, one, allocators)]

    def _is_explained(self, at: int, refusal: Refusal, allocators: Sequence[Allocator]) -> bool:
        name = self._allocators.get(at)
        if name is None and refusal.by != _FRAMEWORK:
            return False
        asked = [one for one in allocators if one.asked_bytes is not None and name in (None, one.name)]
        size = refusal.size_bytes
        return any(size is None or size <= (one.asked_bytes or 0) <= size * _ROUNDING + 256 for one in asked)


def _sentence(body: bytes) -> bytes:
    """Return what *body* says of a refusal, without the words of those who pass it on."""
    at = body.find(b"out of memory")
    return body[max(at, 0) :].strip()


def _without_sizes(text: str) -> str:
    return re.sub(r"[0-9.]+ ?[KMGT]?i?B?", "", text)


_DEVICE, _FRAMEWORK = "the device", "the framework"


def _size_of(found: re.Match[bytes]) -> Optional[int]:
    return LoggedBytes.read(found["size"]).size_bytes if found["size"] else None


def _of_driver(found: re.Match[bytes]) -> Refusal:
    size = log_lines.parse_counter(found["bytes"]) if found["bytes"] else _size_of(found)
    return Refusal(0, "", size, backs_off=True)


def _of_context(_: re.Match[bytes]) -> Refusal:
    return Refusal(0, "")


def _of_torch(found: re.Match[bytes]) -> Refusal:
    """Return PyTorch's refusal: by the device, unless its sentence has a limit of the process's own that is reached."""
    size, account = _size_of(found), read_account(found.string)
    limits = log_lines.TORCH_ALLOWED.match(found.string)
    if limits is None or (account is not None and not account.is_limited):
        return Refusal(0, "", size, account=account)
    name = "PYTORCH_MPS_HIGH_WATERMARK_RATIO" if limits["watermark"] else "set_per_process_memory_fraction()"
    allowed = (limits["watermark"] or limits["allowed"]).decode("ascii", "replace")
    return Refusal(0, "", size, by=f"the process's own limit of {allowed} ({name})", account=account)


def _of_host(found: re.Match[bytes]) -> Refusal:
    return Refusal(0, "", _size_of(found), by="the machine's own memory")


def _of_framework(found: re.Match[bytes]) -> Refusal:
    return Refusal(0, "", _size_of(found), by=_FRAMEWORK)


def _of_tensor(found: re.Match[bytes]) -> Refusal:
    lengths = [int(word) for word in found["shape"].replace(b" ", b"").split(b",") if len(word) < 20 and word]
    name = found["type"].decode("ascii", "replace")
    bits = _BITS.fullmatch(name)
    width = int(bits[1]) // 8 if bits else _TYPE_BYTES.get(name, 0)
    size = math.prod(lengths) * width
    owner = printable(found["name"].decode("utf-8", "surrogateescape")).rstrip(".,;")
    return Refusal(0, "", size if 0 < size < 1 << 62 else None, by=f"the pool of {owner}")


_Reader = Callable[[re.Match[bytes]], Refusal]
_KINDS: Sequence[tuple[Sequence[bytes], re.Pattern[bytes], _Reader]] = (
    ((b"CUDA_ERROR_OUT_OF_MEMORY",), log_lines.DEVICE, _of_driver),
    ((b"Tried to allocate",), log_lines.TORCH, _of_torch),
    (
        (b"out of memory", b"cudaErrorMemory", b"hipErrorOut"),
        log_lines.BARE,
        lambda f: Refusal(0, "", _size_of(f)),
    ),
    ((b"DefaultCPUAllocator",), log_lines.HOST, _of_host),
    ((b"RESOURCE_EXHAUSTED",), log_lines.XLA, _of_framework),
    ((b"OOM when",), log_lines.TENSOR, _of_tensor),
    ((b"cu", b"CUDA", b"StreamExecutor"), log_lines.CONTEXT, _of_context),
)
