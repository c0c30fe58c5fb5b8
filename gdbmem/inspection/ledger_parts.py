"""Parts of a ledger that are searched for: pools of BFC allocators, unused vectors, linked allocators."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Optional

from gdbmem.allocators.glibc.heap import HeapReading
from gdbmem.allocators.glibc.layout import LibcFacts, MallocLayout, parse_ptype
from gdbmem.allocators.others import linked_in
from gdbmem.arrays import has_numpy
from gdbmem.errors import GdbmemError, Notice, TargetError
from gdbmem.files import NEUTRAL_FOLDER, cache_folder, read_cached, write_cached
from gdbmem.json_values import as_json, from_json
from gdbmem.ledger.ledger import ProcessImage
from gdbmem.linux.elf.objects import Elf, VtableSymbols, debug_link, elf_in
from gdbmem.linux.files.target_files import LARGEST_BYTES, TargetFiles
from gdbmem.linux.files.target_side_helper import Rights
from gdbmem.linux.memory.maps import Mapping, Ranges, mapping_at, resident_ranges
from gdbmem.model.heap_blocks import DATA, STACK
from gdbmem.model.ledger import UNUSED_IN_VECTORS
from gdbmem.model.memory import Memory, MemoryUnreadable

if TYPE_CHECKING:
    from gdbmem.allocators.glibc.vectors import Area
    from gdbmem.model.bfc import Allocator

_LIBRARIES = re.compile(r"/[^/]*(tensorflow|onnxruntime|xla_extension|xla_cuda|libtsl)[^/]*$|/jaxlib/[^/]*$")


def find_pools(reading: ProcessImage, memory: Memory) -> list[Allocator]:
    """Return the BFC allocators of the process of *reading*; none if no such library is loaded."""
    files = {mapping.name.removesuffix(" (deleted)") for mapping in reading.mappings if mapping.is_file}
    if not any(_LIBRARIES.search(name) for name in files):
        return []
    from gdbmem.inspection.pools import read_stopped_pools  # few processes have any

    names = VtableSymbols(reading.images, reading.open)
    try:
        pools = read_stopped_pools(memory, _areas(reading), reading.mappings, reading.program, names.name)
    except TargetError as error:  # none, or of an unknown layout
        if error.slug == "bfc-layout-unknown":
            reading.notices.append(Notice(error.slug, error.message))
        return []
    reading.notices.extend(pools.notices)
    return list(pools.allocators)


def _areas(reading: ProcessImage) -> Iterator[tuple[int, int]]:
    """Yield the resident memory that can contain an allocator's object.

    It is a block of some 1,500 bytes: if malloc's arenas are known, blocks that malloc maps individually are excluded.
    """
    heap = reading.heap
    if heap is not None and heap.is_used:
        for arena in heap.arenas:
            for tally in arena.tallies:
                yield from reading.resident.overlaps(tally.start, tally.end)
        for image in reading.images:
            for start, end in image.writable:
                yield from reading.resident.overlaps(start, end)
        return
    for mapping in reading.mappings:
        if mapping.is_anonymous and mapping.permissions[:2] == "rw":
            yield from reading.resident.overlaps(mapping.start, mapping.end)


# The part of the resident set that is unused capacity of vectors, searched for if that is cheap.
#
# It takes 0.1 s of CPU time for 50 MiB of large blocks, three times as much for small ones, so it is omitted if a
# user waits and the heap is large. `memcontainers --everywhere` and `--types` always search.


# How many bytes of a heap are searched:
WHILE_HELD = 32 << 20  # while the process waits that was running until now,
AT_PROMPT = 128 << 20  # while only the user of gdb does,
WHEN_STILL = 512 << 20  # in a copy or a core,
_PLAIN = 8 << 20  # and without numpy.


def add_unused_in_vectors(reading: ProcessImage, memory: Memory, *, most_bytes: int) -> None:
    """Add the resident unused capacity of vectors to the figures beside the ledger.

    Nothing is added if more than *most_bytes* would have to be searched.
    """
    heap = reading.heap
    if heap is None or not heap.is_used or UNUSED_IN_VECTORS in reading.beside:
        return
    pure = not has_numpy()
    areas = variable_areas(reading)
    size = heap_bytes(heap) + sum(end - start for _, start, end in areas)
    if size > (_PLAIN if pure else most_bytes):
        return
    from gdbmem.allocators.glibc.blocks import chunk_tables  # where glibc's malloc is in use, as the next
    from gdbmem.allocators.glibc.vectors import find_columns, find_vectors

    try:
        tables = chunk_tables(memory, heap, pure=pure)
        if pure:
            found = find_vectors(memory, tables, heap.mmapped, areas, pure=True)
            unused = resident_bytes(reading.resident, ((one.end, one.limit) for one in found))
        else:
            columns = find_columns(memory, tables, heap.mmapped, areas)
            unused = int(reading.resident.within_each(columns.end, columns.limit).sum())
    except MemoryUnreadable:
        return  # the ledger itself reports unreadable memory
    note_unused(reading, unused)


def note_unused(reading: ProcessImage, unused_bytes: int) -> None:
    """Put *unused_bytes* of vectors beside the ledger made of *reading*."""
    reading.beside = {**reading.beside, UNUSED_IN_VECTORS: unused_bytes}


def heap_bytes(heap: HeapReading) -> int:
    """Return the bytes of all regions of *heap*, and of the chunks that malloc mapped individually."""
    return sum(tally.stopped_at - tally.start for tally in heap.tallies) + heap.mmapped_bytes


def resident_bytes(resident: Ranges, pieces: Iterable[tuple[int, int]]) -> int:
    """Return the number of resident bytes in *pieces*."""
    return sum(resident.within(start, end) for start, end in pieces)


def variable_areas(reading: ProcessImage) -> Sequence[Area]:
    """Return the memory of the program's variables: data of object files, then the used stacks.

    Pages of files that are neither resident nor swapped out are omitted: nothing has written to them, and reading would
    bring them in.
    """
    data = [
        (max(start, m.start), min(end, m.end), m.is_file)
        for image in reading.images
        for start, end in image.writable
        for m in reading.mappings
        if m.start < end and start < m.end and "w" in m.permissions and m.name != "[heap]"
    ]
    in_files = [(start, end) for start, end, is_file in data if is_file]
    if reading.pid is not None and in_files:
        present = resident_ranges(reading.pid, in_files)[0]
        written = Ranges([*present.items, *reading.swapped.items]) if reading.swapped.items else present
        in_files = [piece for start, end in in_files for piece in written.overlaps(start, end)]
    areas = [(DATA, start, end) for start, end, is_file in data if not is_file]
    areas += [(DATA, start, end) for start, end in in_files]
    for thread in reading.threads:
        mapping = mapping_at(reading.mappings, thread.stack_pointer)
        if mapping is not None:
            end = next((s.end for s in reading.stacks if s.tid == thread.tid), mapping.end)
            areas.append((STACK, thread.stack_pointer & -16, min(end, mapping.end)))
    return areas


# Recognising an allocator that is linked into the program and not in a library.


_WORTH_BYTES = 1 << 20
_PYTHONS = "mimalloc"  # linked into CPython since 3.13, and unused if Python uses its own arenas
_IN_PYTHON = b"PYTHONTRACEMALLOC"  # in the constants of every CPython since 3.4
_PIECE = 1 << 18
_LEAST_PYTHON, _MOST_CONSTANTS = 1 << 20, 1 << 28  # bytes that are mapped of a file
# In the messages of Rust's library, also in stripped programs: paths of its sources, a variable, Vec's complaint.
_IN_RUST = (b"/rustc/", b"RUST_BACKTRACE", b"capacity overflow")
_MOST_OF_ALL = 1 << 29  # bytes of constants of all files, which take half a second to read


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
            return any(_is_in(stream, part, [_IN_PYTHON]) for part in parts)
    except (OSError, ValueError):
        return False  # its file was deleted


def may_have_rust(reading: ProcessImage) -> bool:
    """Return whether a loaded file may have Rust's library: its messages are there, or the file can't be read."""
    constants: dict[str, list[Mapping]] = {image.name: [] for image in reading.images}
    for one in reading.mappings:
        if one.is_file and one.name in constants and "w" not in one.permissions:
            constants[one.name].append(one)
    for parts in constants.values():
        if parts and "x" not in parts[0].permissions:  # else constants are among the instructions
            parts[:] = [one for one in parts if "x" not in one.permissions]
    if not constants or sum(one.size_bytes for parts in constants.values() for one in parts) > _MOST_OF_ALL:
        return True
    try:
        for name, parts in constants.items():
            with reading.open(name) as stream:
                if any(_is_in(stream, part, _IN_RUST) for part in parts):
                    return True
    except (OSError, ValueError):
        return True
    return False


def _is_in(stream: BinaryIO, part: Mapping, texts: Sequence[bytes]) -> bool:
    """Return whether what is mapped as *part* has one of *texts*; read piece by piece into the same memory."""
    stream.seek(part.offset)
    kept, left = max(map(len, texts)), part.size_bytes
    piece = bytearray(kept + _PIECE)
    view = memoryview(piece)
    while left > 0:
        size = stream.readinto(view[kept : kept + min(_PIECE, left)])  # type: ignore[attr-defined]
        if not size:
            return False
        if any(piece.find(text, 0, kept + size) >= 0 for text in texts):
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


# Information on libc's malloc from libc's file, read once by a batch gdb and cached by the file's build-id or contents.
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
    except (OSError, GdbmemError):
        return _NOTHING  # no gdb here: the table of layouts remains


def _known_or_asked(files: TargetFiles, name: str, build_id: str, stream: BinaryIO) -> LibcFacts:
    elf = elf_in(stream, Path(name))
    if elf is None or (build_id and elf.build_id != build_id):
        return _NOTHING
    stream.seek(0)
    if not files.is_trusted(name):
        return _parse(_ask_of_copy(files, elf, stream))
    cache = cache_folder() / "libc" / f"{elf.build_id or _digest(stream)}.json"
    facts = _load(cache)
    if facts is None:
        facts = _parse(_ask(f"/proc/self/fd/{stream.fileno()}", stream.fileno()))
        _store(cache, facts)
    return facts


def _ask_of_copy(files: TargetFiles, elf: Elf, stream: BinaryIO) -> str:
    """Return gdb's information on an untrusted file, which it reads with the rights of the process."""
    import tempfile  # slow to import, as those below: most answers are in the cache

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
    import subprocess

    from gdbmem.setup.gdb_python import find_gdb, quiet_gdb  # with it

    command = [*quiet_gdb(find_gdb()), "-iex", "set debug-file-directory /usr/lib/debug"]
    command += ["-ex", f"file {path}"]
    others: Any = {}
    if rights is not None and os.geteuid() == 0:
        others = {"user": rights.uid, "group": rights.gid, "extra_groups": rights.groups, "env": {}}
    for symbol in _SYMBOLS:
        command += ["-ex", f"info address {symbol}"]
    for struct in _STRUCTS:
        command += ["-ex", f"echo \\n==={struct}\\n", "-ex", f"ptype /o struct {struct}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, stdin=subprocess.DEVNULL,
            cwd=NEUTRAL_FOLDER, pass_fds=[descriptor], **others,
        )  # fmt: skip
    except subprocess.SubprocessError:
        return ""
    return str(done.stdout)


def _digest(stream: BinaryIO) -> str:
    import hashlib

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
