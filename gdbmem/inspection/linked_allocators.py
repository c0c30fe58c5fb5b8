"""Recognising an allocator that is linked into the program and not in a library."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Optional

from gdbmem.allocators.glibc.layout import LibcFacts, MallocLayout, parse_ptype
from gdbmem.allocators.others import linked_in
from gdbmem.errors import GdbmemError
from gdbmem.files import NEUTRAL_FOLDER, cache_folder, read_cached, write_cached
from gdbmem.json_values import as_json, from_json
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.elf.objects import Elf, debug_link, elf_in
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.files.target_side import LARGEST_BYTES
from gdbmem.linux.files.target_side_helper import Rights
from gdbmem.linux.memory.maps import Mapping
from gdbmem.setup.gdb_python import find_gdb, quiet_gdb

_WORTH_BYTES = 1 << 20
_PYTHONS = "mimalloc"  # linked into CPython since 3.13, and unused if Python uses its own arenas
_IN_PYTHON = b"PYTHONTRACEMALLOC"  # in the constants of every CPython since 3.4
_PIECE = 1 << 18
_LEAST_PYTHON, _MOST_CONSTANTS = 1 << 20, 1 << 28  # bytes that are mapped of a file


def find_linked_in(reading: ProcessImage) -> bool:
    """Search for one if glibc's heap doesn't explain the process's memory; return whether one was found.

    The program's file is read, not its memory, because that would make pages of the file resident.
    """
    others = reading.others
    if (
        others.replacement
        or others.runtime
        or others.is_go
        or not reading.images
        or not _is_unexplained(reading)
    ):
        return False
    name = reading.images[0].name
    try:
        with reading.open(name) as stream:
            found = linked_in(stream)
    except (OSError, ValueError):
        return False  # its file was deleted
    if found is None or (found == _PYTHONS and others.python.arenas):
        return False
    others.replacement, others.linked_into = found, name
    return True


def holds_python(mappings: Sequence[Mapping], open_file: Callable[[str], BinaryIO]) -> bool:
    """Return whether a CPython is linked into the program, by what is mapped of its file, which *open_file* opens."""
    name = next((one.name for one in mappings if one.is_file), "")
    parts = [one for one in mappings if one.name == name and "w" not in one.permissions]
    if not _LEAST_PYTHON <= sum(one.size_bytes for one in parts) <= _MOST_CONSTANTS:
        return False
    # Instructions last: only older linkers have constants among them, and cores without permissions.
    parts.sort(key=lambda one: "x" in one.permissions)
    try:
        with open_file(name) as stream:
            return any(_is_in(stream, part) for part in parts)
    except (OSError, ValueError):
        return False  # its file was deleted


def _is_in(stream: BinaryIO, part: Mapping) -> bool:
    """Return whether what is mapped as *part* has the constant of CPython; read piece by piece into the same memory."""
    stream.seek(part.offset)
    kept, left = len(_IN_PYTHON), part.size_bytes
    piece = bytearray(kept + _PIECE)
    view = memoryview(piece)
    while left > 0:
        size = stream.readinto(view[kept : kept + min(_PIECE, left)])  # type: ignore[attr-defined]
        if not size:
            return False
        if piece.find(_IN_PYTHON, 0, kept + size) >= 0:
            return True
        piece[:kept] = piece[size : size + kept]
        left -= size
    return False


def _is_unexplained(reading: ProcessImage) -> bool:
    heap = reading.heap
    used = sum(arena.state.system_bytes for arena in heap.arenas) if heap is not None and heap.is_used else 0
    mapped = heap.mmapped_bytes if heap is not None else 0
    unclaimed = sum(
        m.rss_bytes for m in reading.mappings if m.is_anonymous and not m.name.startswith("[stack")
    )
    arenas = sum(arena.size_bytes for arena in reading.others.python.arenas)
    return unclaimed >= _WORTH_BYTES and unclaimed >= 2 * (used + mapped + arenas)


# Information on libc's malloc from libc's file, read once by a batch gdb and cached by the file's contents.
#
# No process is attached to: gdb reads the file and its debug information, if installed. A file that users other than
# root and the current one can write is read by a gdb with the process's rights, and the result is not cached.


_NOTHING = LibcFacts({}, None)
_SECONDS = 60.0
_SYMBOLS = ("main_arena", "mp_")
_STRUCTS = ("malloc_state", "malloc_par")
_ADDRESS = re.compile(r'Symbol "(\w+)" is (?:static storage )?at (?:address )?0x([0-9a-f]+)')


def libc_facts(files: TargetFiles, name: str, build_id: str) -> LibcFacts:
    """Return gdb's information on the malloc in the file *name* of *files*; none is not an error.

    There is none if the file's build-id differs from *build_id*, that of the loaded library.
    """
    if os.environ.get("GDBMEM_NO_DEBUG_INFO"):
        return _NOTHING
    try:
        with files.open(name) as stream:
            return _known_or_asked(files, name, build_id, stream)
    except (OSError, subprocess.SubprocessError, GdbmemError):
        return _NOTHING  # no gdb here: the table of layouts remains


def _known_or_asked(files: TargetFiles, name: str, build_id: str, stream: BinaryIO) -> LibcFacts:
    elf = elf_in(stream, Path(name))
    if elf is None or (build_id and elf.build_id != build_id):
        return _NOTHING
    stream.seek(0)
    if not files.is_trusted(name):
        return _parse(_ask_of_copy(files, elf, stream))
    cache = cache_folder() / "libc" / f"{_digest(stream)}.json"
    facts = _load(cache)
    if facts is None:
        facts = _parse(_ask(f"/proc/self/fd/{stream.fileno()}", stream.fileno()))
        _store(cache, facts)
    return facts


def _ask_of_copy(files: TargetFiles, elf: Elf, stream: BinaryIO) -> str:
    """Return gdb's information on an untrusted file, which it reads with the rights of the process."""
    debug = f"/usr/lib/debug/.build-id/{elf.build_id[:2]}/{elf.build_id[2:]}.debug"
    with contextlib.ExitStack() as opened:
        wanted = stream
        if files.is_elsewhere and elf.build_id:
            with contextlib.suppress(OSError):
                wanted = opened.enter_context(files.open(debug))
        copy = opened.enter_context(tempfile.TemporaryFile())
        for piece in iter(lambda: wanted.read(1 << 20), b""):
            copy.write(piece)
            if copy.tell() > LARGEST_BYTES:
                return ""
        copy.flush()
        if "/" in debug_link(Path(f"/proc/self/fd/{copy.fileno()}")):
            return ""  # gdb would open a file chosen by its author, for example a FIFO, on which it blocks
        number = os.open(f"/proc/self/fd/{copy.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
        opened.callback(os.close, number)
        os.fchmod(copy.fileno(), 0o444)  # gdb opens it again; no other process has a name for it
        return _ask(f"/proc/self/fd/{number}", number, files.rights)


def _ask(path: str, descriptor: int, rights: Optional[Rights] = None) -> str:
    command = [*quiet_gdb(find_gdb()), "-iex", "set debug-file-directory /usr/lib/debug"]
    command += ["-ex", f"file {path}"]
    others: Any = {}
    if rights is not None and os.geteuid() == 0:
        others = {"user": rights.uid, "group": rights.gid, "extra_groups": rights.groups, "env": {}}
    for symbol in _SYMBOLS:
        command += ["-ex", f"info address {symbol}"]
    for struct in _STRUCTS:
        command += ["-ex", f"echo \\n==={struct}\\n", "-ex", f"ptype /o struct {struct}"]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, stdin=subprocess.DEVNULL,
        cwd=NEUTRAL_FOLDER, pass_fds=[descriptor], **others,
    )  # fmt: skip
    return str(done.stdout)


def _digest(stream: BinaryIO) -> str:
    found = hashlib.sha256()
    for piece in iter(lambda: stream.read(1 << 20), b""):
        found.update(piece)
    return found.hexdigest()


def _parse(text: str) -> LibcFacts:
    symbols = {name: int(value, 16) for name, value in _ADDRESS.findall(text)}
    parts = re.split(r"^===(\w+)\n", text, flags=re.M)
    structs = {name: parse_ptype(body) for name, body in zip(parts[1::2], parts[2::2])}
    state, parameters = structs.get("malloc_state"), structs.get("malloc_par")
    if state is None or parameters is None:
        return LibcFacts(symbols, None)
    return LibcFacts(symbols, MallocLayout(state, parameters))


def _load(path: Path) -> Optional[LibcFacts]:
    try:
        return from_json(LibcFacts, read_cached(path))
    except ValueError:  # there is none, or it has the form of another version
        return None


def _store(path: Path, facts: LibcFacts) -> None:
    if facts.layout is not None:
        write_cached(path, as_json(facts))
