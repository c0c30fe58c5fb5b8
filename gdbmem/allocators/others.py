"""Allocators that are not glibc's: recognised by their library, the name of a mapping, or their own headers."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Optional

from gdbmem.linux.maps import Mapping
from gdbmem.linux.pages import Ranges
from gdbmem.model.memory import Memory, MemoryUnreadable

# What replaces malloc: all anonymous memory that nobody else claims is theirs.
_REPLACEMENTS = (
    (re.compile(r"/libtcmalloc[^/]*\.so"), "tcmalloc"),
    (re.compile(r"/libjemalloc[^/]*\.so"), "jemalloc"),
    (re.compile(r"/libmimalloc[^/]*\.so"), "mimalloc"),
    (re.compile(r"/libc_malloc_debug\.so"), "glibc's libc_malloc_debug"),
)
# What their messages begin with, in a file that one of them is linked into.
_MARKS = (
    (b"<jemalloc>: ", "jemalloc"),
    (b"tcmalloc: large alloc", "tcmalloc"),
    (b"tcmalloc/internal/", "tcmalloc"),
    (b"mimalloc: ", "mimalloc"),
    (b"Scudo ERROR: ", "scudo"),
)
_PIECE, _PIECES = 1 << 22, 256  # of a file that is searched
# Runtimes with a heap of their own beside malloc.
_RUNTIMES = (
    (re.compile(r"/libjvm\.so"), "jvm"),
    (re.compile(r"/(node|nodejs|electron|chrom(e|ium))$|/lib(v8|node)[^/]*\.so"), "v8"),
    (re.compile(r"/(cc1|cc1plus|lto1|f951)$"), "gcc-gc"),
    (re.compile(r"/libmozjs[^/]*\.so|/libxul\.so"), "spidermonkey"),
    (re.compile(r"/libcoreclr\.so"), "dotnet"),
    (re.compile(r"/(beam|beam\.smp)$"), "erlang"),
    (re.compile(r"/libluajit[^/]*\.so"), "luajit"),
    (re.compile(r"/libruby[^/]*\.so"), "ruby"),
    (re.compile(r"/libgc\.so"), "bdwgc"),
    (re.compile(r"valgrind/[a-z]+-(amd64|arm64)-linux$"), "valgrind"),
    (re.compile(r"/postgres$"), "postgresql"),
)
_NAMES = (
    ("Go:", "go"),
    ("go:", "go"),
    ("v8", "v8"),
    ("partition_alloc", "partition-alloc"),
    ("jemalloc", "jemalloc"),
    ("mimalloc", "mimalloc"),
    ("tcmalloc", "tcmalloc"),
    ("scudo", "scudo"),
    ("dalvik", "art"),
    ("JS", "spidermonkey"),
)
_GO_ARENAS = (0xC000000000, 0xE000000000)
_PIECE = 1 << 20  # that is read at once; pools don't reach from one into the next
_POOL_HEADER = struct.Struct("<IxxxxQQQIIII")
_POOLS = (1 << 14, 1 << 12)  # pymalloc's, since Python 3.10 and before


@dataclass
class Recognised:
    """The other allocators that were found."""

    replacement: Optional[str] = None  # took malloc's place
    runtime: Optional[str] = None
    is_go: bool = False
    linked_into: str = ""  # the file that the replacement is part of
    areas: list[tuple[int, int, str]] = field(default_factory=list)  # start, end, allocator


def recognise(memory: Memory, mappings: Sequence[Mapping]) -> Recognised:
    """Return the allocators of the process other than glibc's."""
    files = {m.name.removesuffix(" (deleted)") for m in mappings if m.is_file and "x" in m.permissions}
    result = Recognised(replacement_among(files), _first(_RUNTIMES, files))
    result.is_go = any(_GO_ARENAS[0] <= m.start < _GO_ARENAS[1] for m in mappings)
    if any("python" in name for name in files):
        for mapping in mappings:
            if mapping.is_anonymous and mapping.rss_bytes and not mapping.name.startswith("[stack"):
                result.areas += [(s, e, "pymalloc") for s, e in _pymalloc_pools(memory, mapping)]
    return result


def replacement_among(files: Iterable[str]) -> Optional[str]:
    """Return the allocator that has taken malloc's place where *files* are mapped; None: no known one has."""
    return _first(_REPLACEMENTS, files)


def linked_in(program: BinaryIO) -> Optional[str]:
    """Return the allocator that is linked into the file *program*; None: no known one is, in its first GiB."""
    found: set[str] = set()
    text = b""
    for _ in range(_PIECES):
        piece = program.read(_PIECE)
        if not piece:
            break
        text = text[-64:] + piece
        found.update(name for mark, name in _MARKS if mark in text)
    return next((name for _, name in _MARKS if name in found), None)


def runtime_among(files: Iterable[str]) -> Optional[str]:
    """Return the runtime with a heap of its own beside malloc's, where *files* are mapped; None: no known one."""
    return _first(_RUNTIMES, files)


def _first(table: Sequence[tuple[re.Pattern[str], str]], files: Iterable[str]) -> Optional[str]:
    files = list(files)
    return next((name for pattern, name in table if any(pattern.search(file) for file in files)), None)


def owner_of(mapping: Mapping, recognised: Recognised) -> Optional[str]:
    """Return the allocator that *mapping* belongs to, by its name or by elimination; None: unknown."""
    if not mapping.is_anonymous or mapping.name.startswith("[stack"):
        return None
    if mapping.name.startswith("[anon:"):
        inner = mapping.name[6:]
        named = next((name for prefix, name in _NAMES if inner.strip().startswith(prefix)), None)
        if named:
            return named
    if _GO_ARENAS[0] <= mapping.start < _GO_ARENAS[1]:
        return "go"
    if recognised.replacement and "w" in mapping.permissions:
        return recognised.replacement
    if mapping.name:
        return None
    return recognised.runtime or ("go" if recognised.is_go else None)


def _pymalloc_pools(memory: Memory, mapping: Mapping) -> list[tuple[int, int]]:
    """Return the pools of Python's small-object allocator in *mapping*, each known by its header; neighbours joined."""
    found: dict[int, list[tuple[int, int]]] = {size: [] for size in _POOLS}
    for start in range(mapping.start, mapping.end, _PIECE):
        try:
            data = memory.read(start, min(_PIECE, mapping.end - start))
        except MemoryUnreadable:
            continue
        for size, pools in found.items():
            first = -start % size
            pools += [
                (start + at, start + at + size)
                for at in range(first, len(data) - size + 1, size)
                if _is_pool(data, at, start + at, size)
            ]
    best = max(found, key=lambda size: size * len(found[size]))
    return Ranges(found[best]).items


def _is_pool(data: bytes, at: int, pool: int, pool_size: int) -> bool:
    """Tell whether a pool_header (CPython Objects/obmalloc.c) stands at *at* in *data*."""
    fields: tuple[int, ...] = _POOL_HEADER.unpack_from(data, at)
    count, free, following, before, _, size_class, offset, most = fields
    size = (size_class + 1) * 16
    return (
        size_class < 32
        and most == pool_size - size
        and count <= pool_size // size
        and 48 <= offset <= pool_size + size
        and (free == 0 or pool < free < pool + pool_size)
        and following % 16 == 0
        and before % 16 == 0
    )
