"""Settings of allocators in the place of malloc that may make them return more memory, by the names in their files.

A setting is a variable of the environment, NAME=VALUE. What it returns is unknown until it was measured.
Sources: jemalloc(3), TUNING; gperftools, docs/tcmalloc.html; mimalloc, README; Apache Arrow, environment variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Callable, NamedTuple

from gdbmem.errors import GdbmemError
from gdbmem.model import ledger as names
from gdbmem.model.ledger import Ledger, OtherMalloc, Remedy

_PIECE, _KEPT, _MOST_BYTES = 1 << 22, 256, 1 << 30
_CONFIGURATION = re.compile(rb"\0((?:[A-Z0-9_]+_)?MALLOC_CONF)\0")


class _Setting(NamedTuple):
    needs: bytes  # that the allocator's file has
    variable: str  # "": jemalloc's, whose prefix the file has
    value: str
    cost: str
    unless: bytes = b""  # that the file has: then another setting has taken its place


_SETTINGS: dict[str, Sequence[_Setting]] = {
    "jemalloc": (
        _Setting(
            b"dirty_decay_ms\0",
            "",
            "dirty_decay_ms:0,muzzy_decay_ms:0",
            "a system call whenever pages become free",
        ),
        _Setting(
            b"background_thread\0",
            "",
            "background_thread:true",
            "a thread that returns pages as they age, after 10 s",
        ),
        _Setting(b"narenas\0", "", "narenas:2", "threads wait for each other in malloc"),
        _Setting(b"opt.thp\0", "", "thp:never", "more misses of the TLB"),
        _Setting(b"opt.tcache\0", "", "tcache:false", "each malloc and free takes a lock"),
    ),
    "tcmalloc": (
        _Setting(
            b"TCMALLOC_RELEASE_RATE\0",
            "TCMALLOC_RELEASE_RATE",
            "10",
            "more system calls as pages become free",
        ),
        _Setting(
            b"TCMALLOC_AGGRESSIVE_DECOMMIT\0",
            "TCMALLOC_AGGRESSIVE_DECOMMIT",
            "1",
            "a system call whenever pages become free",
        ),
        _Setting(
            b"TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES\0",
            "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES",
            str(1 << 20),
            "threads take locks more often",
        ),
    ),
    "mimalloc": (
        _Setting(b"purge_delay\0", "MIMALLOC_PURGE_DELAY", "0", "a system call whenever pages become free"),
        _Setting(
            b"decommit_delay\0",
            "MIMALLOC_DECOMMIT_DELAY",
            "0",
            "a system call whenever pages become free",
            unless=b"purge_delay\0",
        ),
    ),
}
_ARROW = b"ARROW_DEFAULT_MEMORY_POOL\0"
_POOLS = ("system", "jemalloc", "mimalloc")
_POOL_COST = "another allocator for Arrow's buffers"


def settings_of(ledger: Ledger, open_file: Callable[[str], BinaryIO]) -> list[Remedy]:
    """Return the settings that the allocators of *ledger* have by their files, which *open_file* opens."""
    found: dict[str, Remedy] = {}
    for malloc in ledger.mallocs:
        most = _most_bytes(ledger, malloc)
        for setting, cost in _settings_in(malloc, open_file):
            known = found.get(setting)
            high = most + (known.high_bytes if known is not None else 0)
            found[setting] = Remedy(setting, None, 0, high, cost)
    return list(found.values())


def _most_bytes(ledger: Ledger, malloc: OtherMalloc) -> int:
    """Return all resident memory of *malloc* that is not live: more no setting returns."""
    live = ledger.total_of(malloc.category, names.LIVE + malloc.suffix)
    entries = (one for one in ledger.entries if one.category == malloc.category)
    return sum(one.resident_bytes for one in entries if one.label.endswith(malloc.suffix)) - live


def _settings_in(malloc: OtherMalloc, open_file: Callable[[str], BinaryIO]) -> Iterator[tuple[str, str]]:
    settings = _SETTINGS.get(malloc.allocator, ())
    try:
        with open_file(malloc.file) as stream:
            sought = [_ARROW, *(word for one in settings for word in (one.needs, one.unless) if word)]
            words, configurations = _words_in(stream, sought)
    except (OSError, ValueError, GdbmemError):
        return
    for one in settings:
        if one.needs in words and one.unless not in words:
            for variable in [one.variable] if one.variable else sorted(configurations):
                yield f"{variable}={one.value}", one.cost
    if _ARROW in words:
        for pool in _POOLS:
            if pool != malloc.allocator:
                yield f"ARROW_DEFAULT_MEMORY_POOL={pool}", _POOL_COST


def _words_in(stream: BinaryIO, words: Sequence[bytes]) -> tuple[set[bytes], set[str]]:
    """Return those of *words* that the file has, and the variables that a jemalloc in it reads."""
    found: set[bytes] = set()
    variables: set[str] = set()
    data = b""
    for _ in range(_MOST_BYTES // _PIECE):
        piece = stream.read(_PIECE)
        if not piece:
            break
        data = data[-_KEPT:] + piece
        found.update(word for word in words if word in data)
        variables.update(match[1].decode() for match in _CONFIGURATION.finditer(data))
    return found, variables
