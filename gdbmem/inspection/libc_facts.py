"""Information on libc's malloc from libc's file, read once by a batch gdb and cached by the file's contents.

No process is attached to: gdb reads the file and its debug information, if installed. A file that users
other than root and the current one can write is read by a gdb with the process's rights, and the result is not cached.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, BinaryIO, Optional

from gdbmem.allocators.glibc.places.layout import LibcFacts, MallocLayout, Struct, parse_ptype
from gdbmem.errors import GdbmemError
from gdbmem.files import NEUTRAL_FOLDER, cache_folder, read_cached, write_cached
from gdbmem.linux.files.target_files import TargetFiles
from gdbmem.linux.files.target_side import LARGEST_BYTES
from gdbmem.linux.files.target_side_helper import Rights
from gdbmem.patterns import lazy_pattern
from gdbmem.setup.gdb_python import find_gdb, quiet_gdb
from gdbmem.symbols.elf_files import Elf, debug_link, elf_in

_NOTHING = LibcFacts({}, None)
_FORMAT = 1
_SECONDS = 60.0
_SYMBOLS = ("main_arena", "mp_")
_STRUCTS = ("malloc_state", "malloc_par")
_ADDRESS = lazy_pattern(r'Symbol "(\w+)" is (?:static storage )?at (?:address )?0x([0-9a-f]+)')


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
    values = read_cached(path)
    try:
        if values["format"] != _FORMAT:
            return None
        structs = {name: Struct(values[name]["offsets"], values[name]["size"]) for name in _STRUCTS}
    except (KeyError, TypeError):
        return None
    return LibcFacts(values["symbols"], MallocLayout(structs["malloc_state"], structs["malloc_par"]))


def _store(path: Path, facts: LibcFacts) -> None:
    if facts.layout is None:
        return
    values: dict[str, object] = {"format": _FORMAT, "symbols": dict(facts.symbols)}
    for name, struct in (("malloc_state", facts.layout.state), ("malloc_par", facts.layout.parameters)):
        values[name] = {"offsets": dict(struct.offsets), "size": struct.size}
    write_cached(path, values)
