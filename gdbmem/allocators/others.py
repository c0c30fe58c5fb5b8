"""Allocators other than glibc's: recognised by their library, the name of a mapping, or their own headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import BinaryIO, Optional

from gdbmem.allocators.cpython.arenas import PythonArenas, find_arenas
from gdbmem.linux.memory.maps import Mapping, Ranges
from gdbmem.model.memory import Memory

# Replacements of malloc: all unclaimed anonymous memory is theirs.
_REPLACEMENTS = (
    (r"/libtcmalloc[^/]*\.so", "tcmalloc"),
    (r"/libjemalloc[^/]*\.so", "jemalloc"),
    (r"/libmimalloc[^/]*\.so", "mimalloc"),
    (r"/libtbbmalloc_proxy[^/]*\.so", "tbbmalloc"),
    (r"/libclang_rt\.scudo[^/]*\.so|/libscudo[^/]*\.so", "scudo"),
    (r"/libc_malloc_debug\.so", "glibc's libc_malloc_debug"),
)
GOOGLE_TCMALLOC = "google-tcmalloc"
# The beginnings of their messages, in a file that one of them is linked into.
_MARKS = (
    (b"<jemalloc>: ", "jemalloc"),
    (b"tcmalloc: large alloc", "tcmalloc"),  # gperftools'
    (b"tcmalloc/internal/", GOOGLE_TCMALLOC),
    (b"mimalloc: ", "mimalloc"),
    (b"Scudo ERROR: ", "scudo"),
)
_PIECE, _PIECES = 1 << 22, 256  # bytes of a file that are searched
# Runtimes with a separate heap besides malloc.
_RUNTIMES = (
    (r"/libjvm\.so", "jvm"),
    (r"/(node|nodejs|electron|chrom(e|ium))$|/lib(v8|node)[^/]*\.so", "v8"),
    (r"/(cc1|cc1plus|lto1|f951)$", "gcc-gc"),
    (r"/libmozjs[^/]*\.so|/libxul\.so", "spidermonkey"),
    (r"/libcoreclr\.so", "dotnet"),
    (r"/(beam|beam\.smp)$", "erlang"),
    (r"/libluajit[^/]*\.so", "luajit"),
    (r"/libruby[^/]*\.so", "ruby"),
    (r"/libgc\.so", "bdwgc"),
    (r"valgrind/[a-z]+-(amd64|arm64)-linux$", "valgrind"),
    (r"/postgres$", "postgresql"),
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
_GO_ARENAS = (0xC000000000, 0xE000000000)  # the first one begins where the range does
_IN_MALLOC = ("postgresql",)  # their heaps are in blocks of malloc: what malloc has not mapped is not theirs


class Recognised:
    """The other allocators found."""

    def __init__(self, replacement: Optional[str] = None, runtime: Optional[str] = None) -> None:
        self.replacement = replacement  # replaced malloc
        self.runtime = runtime
        self.is_go = False
        self.linked_into = ""  # the file that the replacement is part of
        self.python = PythonArenas()  # of pymalloc


def recognise(memory: Memory, mappings: Sequence[Mapping], touched: Optional[Ranges] = None) -> Recognised:
    """Return the allocators of the process other than glibc's; *touched* as for `find_arenas`."""
    files = {m.name.removesuffix(" (deleted)") for m in mappings if m.is_file and "x" in m.permissions}
    result = Recognised(replacement_among(files), _first(_RUNTIMES, files))
    result.is_go = any(m.start == _GO_ARENAS[0] for m in mappings)
    if any("python" in name for name in files):
        result.python = find_arenas(memory, mappings, touched)
    return result


def replacement_among(files: Iterable[str]) -> Optional[str]:
    """Return the allocator in *files* that has replaced malloc; None: no known one."""
    return _first(_REPLACEMENTS, files)


def linked_in(program: BinaryIO) -> Optional[str]:
    """Return the allocator that is linked into the first GiB of the file *program*; None: no known one."""
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
    """Return the runtime in *files* with a separate heap besides malloc's; None: no known one."""
    return _first(_RUNTIMES, files)


def _first(table: Sequence[tuple[str, str]], files: Iterable[str]) -> Optional[str]:
    files = list(files)
    return next((name for pattern, name in table if any(re.search(pattern, file) for file in files)), None)


def owner_of(mapping: Mapping, recognised: Recognised) -> Optional[str]:
    """Return the allocator that *mapping* belongs to, by its name or by elimination; None: unknown."""
    if not mapping.is_anonymous or mapping.name.startswith("[stack"):
        return None
    if mapping.name.startswith("[anon:"):
        inner = mapping.name[6:]
        named = next((name for prefix, name in _NAMES if inner.strip().startswith(prefix)), None)
        if named:
            return named
    if recognised.is_go and _GO_ARENAS[0] <= mapping.start < _GO_ARENAS[1]:
        return "go"
    if recognised.replacement and "w" in mapping.permissions:
        return recognised.replacement
    if mapping.name:
        return None
    if recognised.runtime and recognised.runtime not in _IN_MALLOC:
        return recognised.runtime
    return "go" if recognised.is_go else None
