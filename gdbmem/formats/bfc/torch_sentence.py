"""PyTorch's sentence about a refused request: it holds the account of the device, in the words of each release."""

from __future__ import annotations

import re
from typing import Optional

from gdbmem.formats.bfc.log_dump import LoggedBytes
from gdbmem.model.bfc.pool_log import TorchAccount

_SIZE = rb"(-?[0-9.]{1,30} ?(?:bytes|[KMGTPE]?i?B))"
_AMOUNTS = {
    "asked": rb"Tried to allocate " + _SIZE,
    "capacity": rb"total capaci?ty of " + _SIZE + rb"|; " + _SIZE + rb" total capacity",
    "free": rb"of which " + _SIZE + rb" is free|; " + _SIZE + rb" free",
    "allowed": rb"(?<=[ .])" + _SIZE + rb" allowed;|max allowed: " + _SIZE,
    "own": rb"this process has " + _SIZE + rb" memory in use",
    "other": rb"other allocations: " + _SIZE,
    "allocated": rb"allocated memory "
    + _SIZE
    + rb" is allocated by PyTorch|; "
    + _SIZE
    + rb" already allocated"
    rb"|MPS allocated: " + _SIZE,
    "private": rb"with " + _SIZE + rb" allocated in private pools",
    "unused": rb"and " + _SIZE + rb" is reserved by PyTorch but unallocated|; " + _SIZE + rb" cached\)",
    "reserved": rb"; " + _SIZE + rb" reserved in total by PyTorch",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _AMOUNTS.items()}
_PROCESS = re.compile(rb"Process ([0-9]{1,10}) has " + _SIZE + rb" memory in use")


def read_account(sentence: bytes) -> Optional[TorchAccount]:
    """Return the amounts in *sentence*; None if it is not PyTorch's, or has none but the request."""
    found = {name: _bytes_of(pattern.search(sentence)) for name, pattern in _PATTERNS.items()}
    asked, allocated = found["asked"], found["allocated"]
    if asked is None or allocated is None:
        return None
    unused, reserved = found["unused"], found["reserved"]
    if unused is None and reserved is not None:
        unused = max(reserved - allocated, 0)
    own = found["own"]
    if own is None and found["other"] is not None:
        own = allocated + found["other"]
    others = [(int(match[1]), LoggedBytes.read(match[2]).size_bytes) for match in _PROCESS.finditer(sentence)]
    return TorchAccount(
        asked,
        allocated,
        unused,
        found["capacity"],
        found["free"],
        found["allowed"],
        own,
        found["private"],
        others,
    )


def _bytes_of(match: Optional[re.Match[bytes]]) -> Optional[int]:
    if match is None:
        return None
    text = next(group for group in match.groups() if group is not None)
    return LoggedBytes.read(text.replace(b" bytes", b"")).size_bytes
