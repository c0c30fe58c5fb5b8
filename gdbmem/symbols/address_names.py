"""Names for raw addresses, through gdb itself: one batch gdb a binary, the answers kept on disk by build-id."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Callable, NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.files import JsonObject, cache_folder, is_there, open_regular, read_cached, write_cached
from gdbmem.formats.addresses import Binary, Unloaded
from gdbmem.linux.elf.objects import Elf, debug_link, read_elf
from gdbmem.model.calltree import Frame
from gdbmem.profiles.own_code import is_library
from gdbmem.text import format_size, plural, printable

# Whether a file is the one that a process had mapped: by its build-id, else by its inode, size and code.
#
# A path alone tells nothing: the process may have had another root folder, and the file may have been built anew.
# Device numbers are not compared: on btrfs and overlayfs those of /proc/PID/maps are not those of stat().


SURE = 0.9  # of the addresses follow a call; in another build one in thirty does
_FEW = 3  # addresses: all of them may follow a call in another build by chance
_PAGE_BYTES = 4096
_X86_64, _AARCH64 = 62, 183


class Sameness(NamedTuple):
    """The answer: whether it is the same file, why not, and which of the addresses no call precedes."""

    is_same: bool
    reason: str = ""
    not_calls: frozenset[int] = frozenset()


def compare_file(
    elf: Elf, binary: Binary, offsets: Iterable[int], *, recorded: float = 0.0, is_chosen: bool = False
) -> Sameness:
    """Return whether *elf* is the file *binary*, of which there are return addresses one byte after *offsets*.

    *recorded* is when the memory map was written, in seconds since 1970; 0: unknown. *is_chosen*: the user named it.
    """
    if binary.build_id:
        if elf.build_id.startswith(binary.build_id):
            return Sameness(True)
        return Sameness(False, f"its build-id is {elf.build_id or 'absent'}, not {binary.build_id}")
    wanted = set(offsets)
    not_calls = _not_calls(elf, wanted, (1,) if binary.inode else (1, 0))  # pprof has the byte before already
    calls = len(wanted) - len(not_calls)
    if wanted and calls < SURE * len(wanted):
        count = f"{len(not_calls)} of {len(wanted)} return addresses do"
        return Sameness(
            False, f"{'its only return address does' if len(wanted) == 1 else count} not follow a call"
        )
    if _is_unchanged(elf, binary, recorded) or is_chosen:
        return Sameness(True, not_calls=not_calls)
    if not _fits(elf, binary.code, is_exact=calls < _FEW):
        return Sameness(False, "its code has another size")
    return Sameness(True, not_calls=not_calls)


def _is_unchanged(elf: Elf, binary: Binary, recorded: float) -> bool:
    if not binary.inode or not recorded or binary.was_deleted:
        return False
    try:
        found = elf.path.stat()
    except OSError:
        return False
    return found.st_ino == binary.inode and found.st_ctime <= recorded + 1


def _fits(elf: Elf, code: tuple[int, int], *, is_exact: bool) -> bool:
    """Return whether *code* (offset, size), as it was mapped, is one of the file's segments, or a part of one."""
    offset, size = code
    if not size:
        return True
    for start, length, _ in elf.segments:
        first, end = start // _PAGE_BYTES * _PAGE_BYTES, -(-(start + length) // _PAGE_BYTES) * _PAGE_BYTES
        if first <= offset and offset + size <= end:
            return not is_exact or (first, end) == (offset, offset + size)
    return False


def _not_calls(elf: Elf, offsets: Iterable[int], beyond: Sequence[int]) -> frozenset[int]:
    """Return those of *offsets* in *elf* that no call ends *beyond*; none on machines whose calls are unknown."""
    try:
        with open_regular(elf.path) as stream:
            file = stream.fileno()
            (machine,) = struct.unpack("<H", os.pread(file, 2, 18))
            return frozenset(
                at for at in offsets if not any(ends_call(file, machine, at + n) for n in beyond)
            )
    except (OSError, struct.error, OverflowError):
        return frozenset()


def ends_call(file: int, machine: int, end: int) -> bool:
    """Return whether an instruction that calls ends at *end* in the open *file*, or the machine's calls are unknown."""
    if machine == _AARCH64:
        code = os.pread(file, 4, end - 4) if end >= 4 else b""
        word = int.from_bytes(code, "little")
        # BLR, BLRAA and BLRAB.
        is_register = word & 0xFFFFFC1F == 0xD63F0000 or word & 0xFFFFF800 == 0xD73F0800
        return word >> 26 == 0b100101 or is_register or word & 0xFEFFF800 == 0xD63F0800
    if machine != _X86_64:
        return True
    code = os.pread(file, 7, end - 7) if end >= 7 else b""
    return len(code) == 7 and _is_x86_call(code)


def _is_x86_call(code: Sequence[int]) -> bool:
    """Return whether *code* ends with CALL rel32, or CALL r/m64 in one of its lengths."""
    return code[-5] == 0xE8 or any(code[-n] == 0xFF and code[1 - n] >> 3 & 7 == 2 for n in (2, 3, 4, 6, 7))


# Paths at which a binary that a profile names may be found: in the folders that the user named, then where it was.


def candidates(path: str, folders: Sequence[str], build_id: str = "") -> Iterator[str]:
    """Yield where to look for the binary *path*: each of *folders* as another root, and as a place of binaries.

    Files that the user named come first: the one at *path* may be newer, or without symbols.
    """
    if "\0" in path:  # of a damaged profile: no file has such a name
        return
    for folder in folders:
        rooted = _beneath(folder, path)
        if rooted is not None:
            yield rooted
        yield str(Path(folder) / Path(path).name)
        if len(build_id) > 2:
            yield from _by_build_id(folder, build_id)
    yield path


def _beneath(folder: str, path: str) -> str | None:
    """Return *path* with *folder* as its root; None where a link or ".." leads out of that."""
    root = os.path.realpath(folder)
    found = os.path.realpath(f"{root}/{path.lstrip('/')}")
    return found if found.startswith(f"{root.rstrip('/')}/") else None


def _by_build_id(folder: str, build_id: str) -> Iterator[str]:
    """Yield where gdb's packages, perf's cache and debuginfod's client keep a file by its build-id."""
    first, rest = build_id[:2], build_id[2:]
    for place in (f".build-id/{first}/{rest}", f".build-id/{first}/{rest}/elf", f"{build_id}/executable"):
        yield str(Path(folder) / place)


# File offsets of the code of a program that ran under valgrind, whose files have no map of the memory.


_LIBRARIES_FROM = 0x4000000  # their addresses depend on free space, and are in no file
_LOADED_AT = (0x108000, _LIBRARIES_FROM)  # a position-independent program: up to valgrind 3.26, and since
_ET_EXEC, _ET_DYN = 2, 3


def offsets_in(elf: Elf, addresses: Iterable[int]) -> Mapping[int, int]:
    """Return the place in the file *elf* of each of *addresses*, which are in calls; {} unless they surely are."""
    every = list(addresses)
    try:
        with open_regular(elf.path) as stream:
            kind, machine = struct.unpack_from("<HH", stream.read(20), 16)
            if machine != _X86_64 or kind not in (_ET_EXEC, _ET_DYN):
                return {}
            if kind == _ET_EXEC:
                return _calls(elf, stream, every, 0)
            # The loader may be there as well: its own frames are not worth the start of a gdb.
            for bias in _LOADED_AT if elf.is_program else _LOADED_AT[:1]:
                found = _calls(elf, stream, every, bias)
                if found:
                    return found
    except (OSError, struct.error):
        pass
    return {}


def _calls(elf: Elf, stream: IO[bytes], addresses: Iterable[int], bias: int) -> Mapping[int, int]:
    """Return the places of the calls where the program was loaded at *bias*; {} if they surely are none."""
    found = {address: elf.offset(address - bias) for address in addresses}
    # Below the libraries there is the program alone; above, what lies in it.
    wanted = [
        at for at, offset in found.items() if at < _LIBRARIES_FROM or (offset is not None and at >= bias)
    ]
    places = {address: offset for address in wanted for offset in [found[address]] if offset is not None}
    calls = {
        address: offset
        for address, offset in places.items()
        if ends_call(stream.fileno(), _X86_64, offset + 1)
    }
    return calls if wanted and len(calls) >= SURE * len(wanted) else {}


_BIG_BYTES = 200 << 20
_MANNER = "2"  # of naming: what an earlier one found is not taken from the cache
_DEBUG = Path("/usr/lib/debug")

Place = tuple[Binary, int]


class _Question(NamedTuple):
    binary: Binary
    offsets: frozenset[int]
    recorded: float
    are_calls: bool

    def compare(self, elf: Elf) -> Sameness:
        """Return whether *elf* is the binary: by its build-id alone if the offsets may be any instructions."""
        if not self.are_calls and not self.binary.build_id:
            return Sameness(True)
        is_chosen = str(elf.path) != self.binary.path
        return compare_file(elf, self.binary, self.offsets, recorded=self.recorded, is_chosen=is_chosen)


class GdbSymbols:
    """Names places in binaries (formats.addresses.Symbols)."""

    def __init__(
        self, *, folders: Sequence[str] = (), progress: Callable[[str], None] = lambda text: None
    ) -> None:
        """*folders* are searched for binaries that are not at the path in the profile."""
        self._folders = list(folders)
        self._progress = progress
        self._unloaded = Unloaded()
        self._known: dict[Path, JsonObject] = {}  # the content of the cache's files, read or computed
        self._unreadable: dict[Path, Notice] = {}  # binaries that gdb could not read

    def prepare(self, wanted: Mapping[Binary, Iterable[int]]) -> None:
        """Find the names that several profiles will want: one gdb a binary then serves all of them."""
        self.frames(wanted)

    def look_in(self, folder: str) -> None:
        """Search *folder* too, after those that the user named."""
        if folder not in self._folders:
            self._folders.append(folder)

    def note_loaded(self, lines: Iterable[bytes]) -> None:
        """Take note of the mappings in *lines*, which may be gone where a profile lists those of its moment."""
        self._unloaded.add(lines)

    def unloaded(self, address: int) -> Optional[Place]:
        """Return the place of code that was mapped at *address* once; None: there was none, or several."""
        return self._unloaded.find(address)

    def frames(
        self, wanted: Mapping[Binary, Iterable[int]], *, recorded: float = 0.0, are_calls: bool = False
    ) -> tuple[Mapping[Place, Sequence[Frame]], Sequence[Notice]]:
        """Return the frames, innermost first, of file offsets in binaries; what is unknown is left out.

        A binary that was changed after *recorded* (seconds since 1970; 0: unknown) is warned of; one that is another
        than the profiled, by its build-id or, if the offsets *are_calls*, by its code, names nothing.
        """
        notices: list[Notice] = []
        tasks = []
        for binary, offsets in wanted.items():
            if not binary.path.startswith("/"):
                continue  # [vdso] and the like
            asked = _Question(binary, frozenset(offsets), recorded, are_calls)
            elf, not_calls = self._find(asked, notices)
            if elf is not None:
                _warn_of_newer(elf, binary, recorded, notices)
                tasks.append(_Task(binary, elf, asked.offsets - not_calls, self._known))
        self._ask([task for task in tasks if task.missing], notices)
        found: dict[Place, Sequence[Frame]] = {}
        for task in tasks:
            found.update(task.frames())
        notices += stripped_notices([task.elf.path for task in tasks if task.is_stripped])
        return found, notices

    def frames_under_valgrind(
        self, wanted: Mapping[str, Iterable[int]], *, recorded: float = 0.0
    ) -> tuple[Mapping[tuple[str, int], Sequence[Frame]], Sequence[Notice]]:
        """Return the frames of addresses of calls in programs that ran under valgrind; what is unknown is left out.

        Programs that are not here, are others, or have no symbols either, are passed over.
        """
        places: dict[Binary, Mapping[int, int]] = {}
        for path, addresses in wanted.items():
            elf = next(self._candidates(path), None)
            offsets = offsets_in(elf, addresses) if elf is not None else {}
            if elf is not None and offsets and _has_names(elf, offsets.values()):
                places[Binary(path)] = offsets
        found, notices = self.frames({one: of.values() for one, of in places.items()}, recorded=recorded)
        named = {
            (binary.path, address): found[binary, offset]
            for binary, offsets in places.items()
            for address, offset in offsets.items()
            if (binary, offset) in found
        }
        return named, notices

    def _candidates(self, path: str, build_id: str = "") -> Iterator[Elf]:
        found = map(read_elf, dict.fromkeys(candidates(path, self._folders, build_id)))
        return (elf for elf in found if elf is not None)

    def _find(self, asked: _Question, notices: list[Notice]) -> tuple[Optional[Elf], frozenset[int]]:
        """Return the file that was profiled, and those of the offsets that are no calls in it; None without it."""
        binary, reason = asked.binary, ""
        for elf in self._candidates(binary.path, binary.build_id):
            found = asked.compare(elf)
            if found.is_same:
                return (None if self._has_odd_debug_file(elf, notices) else elf), found.not_calls
            reason = found.reason
        path, addresses = printable(binary.path), plural(len(asked.offsets), "address", "addresses")
        if reason:
            text = (
                f"{path} is not the file that was profiled ({printable(reason)}): {addresses} without names;"
            )
            notices.append(
                Notice(
                    "build-id-differs" if binary.build_id else "another-binary",
                    f"{text} name the folder of the right one with --binaries",
                )
            )
        else:
            notices.append(
                Notice(
                    "binary-missing",
                    f"{path} is not here (or no 64-bit ELF file): {addresses} without names;"
                    " name the folder that holds it with --binaries",
                )
            )
        return None, frozenset()

    def _has_odd_debug_file(self, elf: Elf, notices: list[Notice]) -> bool:
        """Return whether gdb would open what is not a file, a FIFO for one, on which it waits; add a notice then."""
        odd = next((file for file in debug_files(elf) if is_there(file) and not file.is_file()), None)
        if odd is not None:
            named = f"{printable(str(odd))}, which {printable(str(elf.path))} names as its debug information,"
            text = f"{named} is not a file"
            notices.append(Notice("no-symbols", f"{text}: its addresses stay without names"))
        return odd is not None

    def _ask(self, tasks: Sequence[_Task], notices: list[Notice]) -> None:
        notices += [self._unreadable[task.elf.path] for task in tasks if task.elf.path in self._unreadable]
        tasks = [task for task in tasks if task.elf.path not in self._unreadable]
        if not tasks:
            return
        from gdbmem.symbols.batch_gdb import ask_gdb  # what starts processes takes long to import

        for task in tasks:
            self._announce(task)
        # Two dumps may have mapped one file under two inodes.
        questions: dict[Path, set[int]] = {}
        for task in tasks:
            questions.setdefault(task.elf.path, set()).update(task.missing)
        asked = {task.elf.path: task for task in tasks}
        for path, answer in zip(
            questions, ask_gdb([(path, sorted(where)) for path, where in questions.items()])
        ):
            if isinstance(answer, Notice):
                notices.append(answer)
                self._unreadable[path] = answer
            else:
                asked[path].learn(answer)

    def _announce(self, task: _Task) -> None:
        with contextlib.suppress(OSError):
            size = task.elf.path.stat().st_size
            if size >= _BIG_BYTES:
                self._progress(f"reading the symbols of {task.elf.path} ({format_size(size)}) …")


def _has_names(elf: Elf, offsets: Iterable[int]) -> bool:
    if any(map(is_there, debug_files(elf))):
        return True
    return any(elf.covers(address) for offset in offsets if (address := elf.address(offset)) is not None)


def _warn_of_newer(elf: Elf, binary: Binary, recorded: float, notices: list[Notice]) -> None:
    with contextlib.suppress(OSError):
        if binary.build_id:
            return
        found = elf.path.stat()
        is_at_its_path = str(elf.path) == binary.path
        if is_at_its_path and binary.was_deleted:
            what = "took the place of the file that was profiled while that ran"
        # The modification time of a file from a package or rsync is that of its build: the inode shows when it was
        # installed.
        elif recorded and (
            found.st_mtime > recorded + 1
            or (is_at_its_path and binary.inode not in (0, found.st_ino) and found.st_ctime > recorded + 1)
        ):
            what = "was changed after the profile was written"
        else:
            return
        text = f"{printable(str(elf.path))} {what}: names and lines may be wrong;"
        notices.append(Notice("binary-newer", f"{text} name the folder of the old one with --binaries"))


def stripped_notices(paths: Iterable[Path]) -> list[Notice]:
    """Return one notice about all of *paths*, or none."""
    names = [printable(str(path)) for path in dict.fromkeys(paths)]
    if not names:
        return []
    *others, last = names
    binaries = f"{', '.join(others)} and {last} have" if others else f"{last} has"
    text = f"{binaries} only exported symbols: other functions are shown as addresses;"
    advice = (
        "install debug information (on Debian a -dbgsym package), or name the folder of a build that has it"
    )
    return [Notice("stripped", f"{text} {advice} with --binaries")]


class _Task:
    # The addresses of one binary: some are known from before.
    def __init__(
        self, binary: Binary, elf: Elf, offsets: Iterable[int], known: dict[Path, JsonObject]
    ) -> None:
        self.binary = binary
        self.elf = elf
        self.addresses = {
            offset: address for offset in offsets if (address := elf.address(offset)) is not None
        }
        self._cache = cache_folder() / "symbols" / f"{identity(elf)}.json"
        if self._cache not in known:
            known[self._cache] = read_cached(self._cache)
        self.known = known[self._cache]
        self.missing = sorted({a for a in self.addresses.values() if str(a) not in self.known})

    def learn(self, names: Mapping[str, Any]) -> None:
        for address, named in names.items():
            bare = len(named) == 1 and named[0][1] is None
            # gdb names the nearest symbol before an address, however far that is.
            self.known[address] = [] if bare and not self.elf.covers(int(address)) else named
        write_cached(self._cache, self.known)

    def frames(self) -> dict[Place, Sequence[Frame]]:
        found: dict[Place, Sequence[Frame]] = {}
        for offset, address in self.addresses.items():
            chain = [self._frame(*named) for named in self.known.get(str(address), ())]
            if chain:
                found[self.binary, offset] = chain
        return found

    @property
    def is_stripped(self) -> bool:
        """Return whether most of the addresses were looked for, and have no name.

        Libraries that reports fold are left out: their names are not shown.
        """
        if is_library(Frame(object=self.binary.path)):
            return False
        names = [self.known.get(str(address)) for address in self.addresses.values()]
        return len([name for name in names if name == []]) * 2 > len(names)

    def _frame(self, function: Any, file: Any, line: Any, inlined: Any) -> Frame:
        return Frame(function, file, line, self.binary.path, bool(inlined))


def identity(elf: Elf) -> str:
    """Return what the names of *elf* depend on: the file, and its separate debug information."""
    import hashlib  # not always needed

    # Not by its build-id alone: any file can have that of another one.
    parts = [_MANNER, elf.build_id, str(elf.path)]
    for file in [elf.path, *debug_files(elf)]:
        with contextlib.suppress(OSError):
            found = file.stat()
            parts += [str(found.st_size), str(found.st_mtime_ns)]
    if os.environ.get("DEBUGINFOD_URLS"):
        parts.append("debuginfod")
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return f"{elf.build_id[:16]}-{digest}" if elf.build_id else digest


def debug_files(elf: Elf) -> Iterator[Path]:
    """Yield where gdb looks for the separate debug information of *elf*."""
    if elf.build_id:
        yield _DEBUG / ".build-id" / elf.build_id[:2] / f"{elf.build_id[2:]}.debug"
    link = debug_link(elf.path)
    if link:
        folder = elf.path.resolve().parent
        yield from (folder / link, folder / ".debug" / link, _DEBUG / folder.relative_to("/") / link)
