"""What libc's own file says of its malloc, asked of a batch gdb once and kept by build-id.

No process is attached to: gdb reads the file and, where installed or served, its debug information.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Optional

from gdbmem.allocators.glibc.layout import Layout, LibcFacts, Struct, parse_ptype
from gdbmem.errors import GdbmemError
from gdbmem.launch.gdbpython import find_gdb

_NOTHING = LibcFacts({}, None)
_FORMAT = 1
_SECONDS = 60.0
_SYMBOLS = ("main_arena", "mp_")
_STRUCTS = ("malloc_state", "malloc_par")
_ADDRESS = re.compile(r'Symbol "(\w+)" is (?:static storage )?at (?:address )?0x([0-9a-f]+)')
_BUILD_ID = re.compile(r"[0-9a-f]{8,}")


def libc_facts(path: Path, build_id: str, *, root: Optional[Path] = None) -> LibcFacts:
    """Return what gdb knows of the malloc in the object file at *path*; nothing is no error.

    *root* is the process's root folder, when it is another: its debug files are searched too.
    """
    if os.environ.get("GDBMEM_NO_DEBUG_INFO"):
        return _NOTHING
    cache = _cache_file(build_id)
    cached = _load(cache) if cache else None
    if cached is not None:
        return cached
    try:
        facts = _parse(_ask(path, root))
    except (OSError, subprocess.SubprocessError, GdbmemError):
        return _NOTHING  # no gdb here: the table of layouts remains
    if cache and facts.layout is not None:
        _store(cache, facts)
    return facts


def _ask(path: Path, root: Optional[Path]) -> str:
    folders = ["/usr/lib/debug"] + ([str(root / "usr/lib/debug")] if root else [])
    command = [find_gdb(), "-nx", "-nh", "-batch", "-iex", "set auto-load off"]
    command += ["-iex", f"set debug-file-directory {':'.join(folders)}"]
    if not os.environ.get("DEBUGINFOD_URLS"):
        command += ["-iex", "set debuginfod enabled off"]
    command += ["-ex", f"file {_quoted(path)}"]
    for symbol in _SYMBOLS:
        command += ["-ex", f"info address {symbol}"]
    for struct in _STRUCTS:
        command += ["-ex", f"echo \\n==={struct}\\n", "-ex", f"ptype /o struct {struct}"]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, stdin=subprocess.DEVNULL
    )
    return done.stdout


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _parse(text: str) -> LibcFacts:
    symbols = {name: int(value, 16) for name, value in _ADDRESS.findall(text)}
    parts = re.split(r"^===(\w+)\n", text, flags=re.M)
    structs = {name: parse_ptype(body) for name, body in zip(parts[1::2], parts[2::2])}
    state, parameters = structs.get("malloc_state"), structs.get("malloc_par")
    if state is None or parameters is None:
        return LibcFacts(symbols, None)
    return LibcFacts(symbols, Layout(state, parameters))


def _cache_file(build_id: str) -> Optional[Path]:
    if not _BUILD_ID.fullmatch(build_id):
        return None
    configured = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(configured) if configured.startswith("/") else Path("~/.cache").expanduser()
    return folder / "gdbmem" / "libc" / f"{build_id}.json"


def _load(path: Path) -> Optional[LibcFacts]:
    try:
        values: dict[str, Any] = json.loads(path.read_bytes())
        if values["format"] != _FORMAT:
            return None
        structs = {name: Struct(values[name]["offsets"], values[name]["size"]) for name in _STRUCTS}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return LibcFacts(values["symbols"], Layout(structs["malloc_state"], structs["malloc_par"]))


def _store(path: Path, facts: LibcFacts) -> None:
    if facts.layout is None:
        return
    values: dict[str, Any] = {"format": _FORMAT, "symbols": dict(facts.symbols)}
    for name, struct in (("malloc_state", facts.layout.state), ("malloc_par", facts.layout.parameters)):
        values[name] = {"offsets": dict(struct.offsets), "size": struct.size}
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)
        with open(descriptor, "w", encoding="utf-8") as stream:  # noqa: PTH123  (a descriptor)
            json.dump(values, stream)
        Path(temporary).replace(path)
    except OSError:
        return  # a cache that can't be written costs a second next time
