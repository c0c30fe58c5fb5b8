"""Names for raw addresses, through gdb itself: one batch gdb a binary, the answers kept on disk by build-id."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

from gdbmem.errors import GdbmemError, Notice
from gdbmem.formats.addresses import Binary
from gdbmem.launch.elf import Elf, read_elf
from gdbmem.launch.gdbpython import find_gdb, loader_file
from gdbmem.model.calltree import Frame
from gdbmem.text import plural, printable
from gdbmem.units import format_size

GDB_SECONDS = 600.0  # a browser's debug information takes minutes
_BIG_BYTES = 200 << 20
_ANSWER = "python import gdbmem.debugger.naming as _g; _g.answer(); del _g"

Place = tuple[Binary, int]


def cache_folder() -> Path:
    """Return the folder of names found before: ``$XDG_CACHE_HOME/gdbmem/symbols``."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    parent = Path(configured) if configured.startswith("/") else Path.home() / ".cache"
    return parent / "gdbmem" / "symbols"


class GdbSymbols:
    """Names places in binaries (formats.addresses.Symbols)."""

    def __init__(
        self,
        gdb: Optional[str] = None,
        *,
        folders: Sequence[str] = (),
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        """*folders* are searched for binaries that are not where the profile says."""
        self._gdb = gdb
        self._folders = folders
        self._progress = progress

    def frames(
        self, wanted: Mapping[Binary, Iterable[int]], *, recorded: float = 0.0
    ) -> tuple[Mapping[Place, Sequence[Frame]], Sequence[Notice]]:
        """Return the frames, innermost first, of file offsets in binaries; what is unknown is left out.

        A binary that was changed after *recorded* (seconds since 1970; 0: unknown) is warned of.
        """
        notices: list[Notice] = []
        tasks = []
        for binary, offsets in wanted.items():
            if not binary.path.startswith("/"):
                continue  # [vdso] and the like
            elf = self._find(binary, notices, len(list(offsets)))
            if elf is not None:
                _warn_of_newer(elf, binary, recorded, notices)
                tasks.append(_Task(binary, elf, offsets))
        self._ask([task for task in tasks if task.missing], notices)
        found: dict[Place, Sequence[Frame]] = {}
        for task in tasks:
            found.update(task.frames())
        return found, notices

    def _find(self, binary: Binary, notices: list[Notice], count: int) -> Optional[Elf]:
        names = [binary.path, *(str(Path(folder) / Path(binary.path).name) for folder in self._folders)]
        elves = [elf for elf in map(read_elf, names) if elf is not None]
        for elf in elves:
            if not binary.build_id or elf.build_id.startswith(binary.build_id):
                return elf
        path, addresses = printable(binary.path), plural(count, "address", "addresses")
        if elves:
            text = f"{path} is not the file that was profiled (its build-id is {elves[0].build_id or 'absent'}, not"
            notices.append(
                Notice(
                    "build-id-differs",
                    f"{text} {printable(binary.build_id)}): {addresses} stay without names;"
                    " name the folder of the right one with --binaries",
                )
            )
        else:
            notices.append(
                Notice(
                    "binary-missing",
                    f"{path} is not here (or no 64-bit ELF file): {addresses} stay without names;"
                    " name the folder that holds it with --binaries",
                )
            )
        return None

    def _ask(self, tasks: Sequence[_Task], notices: list[Notice]) -> None:
        if not tasks:
            return
        try:
            gdb = find_gdb(self._gdb)
        except GdbmemError as error:
            notices.append(Notice(error.slug, f"addresses stay without names: {error}"))
            return
        abreast = max(1, os.cpu_count() or 1)
        with tempfile.TemporaryDirectory(prefix="gdbmem-") as folder:
            for at in range(0, len(tasks), abreast):
                group = tasks[at : at + abreast]
                for task in group:
                    self._announce(task)
                running = [_Running(gdb, task, Path(folder) / str(at + n)) for n, task in enumerate(group)]
                for one in running:
                    one.finish(notices)

    def _announce(self, task: _Task) -> None:
        with contextlib.suppress(OSError):
            size = task.elf.path.stat().st_size
            if size >= _BIG_BYTES:
                self._progress(f"reading the symbols of {task.elf.path} ({format_size(size)}) …")


def _warn_of_newer(elf: Elf, binary: Binary, recorded: float, notices: list[Notice]) -> None:
    with contextlib.suppress(OSError):
        if recorded and not binary.build_id and elf.path.stat().st_mtime > recorded + 1:
            notices.append(
                Notice(
                    "binary-newer",
                    f"{printable(str(elf.path))} was changed after the profile was written: names and lines may"
                    " be wrong; name the folder of the old one with --binaries",
                )
            )


class _Task:
    # The addresses of one binary: some are known from before.
    def __init__(self, binary: Binary, elf: Elf, offsets: Iterable[int]) -> None:
        self.binary = binary
        self.elf = elf
        self.addresses = {
            offset: address for offset in offsets if (address := elf.address(offset)) is not None
        }
        self._cache = cache_folder() / f"{_identity(elf)}.json"
        self.known = _read_cache(self._cache)
        self.missing = sorted({a for a in self.addresses.values() if str(a) not in self.known})

    def learn(self, names: Mapping[str, Any]) -> None:
        for address, named in names.items():
            bare = len(named) == 1 and named[0][1] is None
            # gdb names the nearest symbol before an address, however far that is.
            self.known[address] = [] if bare and not self.elf.covers(int(address)) else named
        _write_cache(self._cache, self.known)

    def frames(self) -> dict[Place, Sequence[Frame]]:
        found: dict[Place, Sequence[Frame]] = {}
        for offset, address in self.addresses.items():
            chain = [self._frame(*named) for named in self.known.get(str(address), ())]
            if chain:
                found[self.binary, offset] = chain
        return found

    def _frame(self, function: Any, file: Any, line: Any, inlined: Any) -> Frame:
        return Frame(function, file, line, self.binary.path, bool(inlined))


class _Running:
    def __init__(self, gdb: str, task: _Task, stem: Path) -> None:
        """Start a gdb on the binary of *task*; it reads and writes files that begin with *stem*."""
        question, self._answer = stem.with_suffix(".ask"), stem.with_suffix(".names")
        self._task = task
        question.write_text(json.dumps(task.missing), encoding="ascii")
        online = "on" if os.environ.get("DEBUGINFOD_URLS") else "off"
        words = [gdb, "-nx", "-q", "-batch", "-iex", f"set debuginfod enabled {online}"]
        environment = {k: v for k, v in os.environ.items() if k != "GDBMEM_SESSION"}
        environment.update(GDBMEM_ADDRESSES=str(question), GDBMEM_NAMES=str(self._answer))
        self._process = subprocess.Popen(
            [*words, "-x", str(loader_file()), "-ex", _ANSWER, "--", str(task.elf.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )

    def finish(self, notices: list[Notice]) -> None:
        """Wait for the answer and give it to the task."""
        try:
            self._process.wait(GDB_SECONDS)
            self._task.learn(json.loads(self._answer.read_bytes()))
        except (OSError, ValueError, subprocess.TimeoutExpired):
            name = printable(str(self._task.elf.path))
            notices.append(
                Notice("no-symbols", f"gdb could not read {name}: its addresses stay without names")
            )
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()


def _identity(elf: Elf) -> str:
    """Return what the names of *elf* depend on: the file, and its separate debug information."""
    debug = Path(f"/usr/lib/debug/.build-id/{elf.build_id[:2]}/{elf.build_id[2:]}.debug")
    parts = [elf.build_id or str(elf.path)]
    for file in (elf.path,) if not elf.build_id else (debug,):
        with contextlib.suppress(OSError):
            found = file.stat()
            parts += [str(found.st_size), str(found.st_mtime_ns)]
    if os.environ.get("DEBUGINFOD_URLS"):
        parts.append("debuginfod")
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return f"{elf.build_id[:16]}-{digest}" if elf.build_id else digest


def _read_cache(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_cache(path: Path, names: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):  # it only saves time
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        with open(descriptor, "w", encoding="ascii") as stream:  # noqa: PTH123  (a descriptor)
            json.dump(names, stream)
        Path(temporary).replace(path)
