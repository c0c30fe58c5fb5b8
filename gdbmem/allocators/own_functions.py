"""The functions by which allocators return free memory: which of them a process has, and where.

They are looked up in the object files, not in the process, because that would make pages of the files resident.
Sources: jemalloc(3); gperftools, malloc_extension_c.h; mimalloc.h; oneTBB, scalable_allocator.h; LLVM,
scudo/interface.h; malloc_trim(3).
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Optional, Union

from gdbmem.errors import GdbmemError
from gdbmem.linux.elf.objects import Elf, Image, elf_in, exported, symbol_tables
from gdbmem.linux.memory.maps import Mapping
from gdbmem.model.memory import Buffer, Memory, MemoryUnreadable

GLIBC = "glibc"
_ALL_ARENAS = 4096  # MALLCTL_ARENAS_ALL
_M_PURGE = -101
_NEAR = (
    512 << 10
)  # bytes: so far from its function an allocator's code may be in an object that has other code, too
_BEFORE, _AFTER = 0x5000, 0x1000  # those of glibc's malloc
_MOST_TEXT = 4 << 20  # bytes of code of an object that is an allocator alone
_MOST_SYMBOLS, _MOST_NAMED = 128 << 20, 300_000  # bytes of tables, and symbols that are looked at one by one
_GAP = 128 << 10  # bytes between functions of one allocator: its static ones have no prefix
_FUNCTION = 2  # type of a symbol
_LEAST_VARIABLES = 1 << 18  # bytes: a linked-in jemalloc or tcmalloc has its root there

Argument = Union[int, bytes]


class Step(NamedTuple):
    """One call that may return memory."""

    words: str  # as a program writes it
    arguments: Sequence[Argument]
    returns_all: bool = True  # False: only what the allocator would return soon by itself
    fails_by: str = ""  # "status": a result other than 0 is an error


class Family(NamedTuple):
    """Allocators of one kind."""

    allocator: str
    functions: Sequence[str]  # names of one function: builds have prefixes
    steps: Sequence[Step]
    first: Sequence[Argument] = ()  # arguments of a call that makes the allocator set up what any call needs
    beside: str = ""  # a function that must be in the same object
    prefixes: Sequence[bytes] = ()  # of the names of its other functions


_NARENAS = (b"arenas.narenas\0", bytes(4), (4).to_bytes(8, "little"), 0, 0)
_FAMILIES = (
    Family(
        "jemalloc",
        ("mallctl", "je_mallctl", "_rjem_mallctl"),
        [
            Step(
                f'mallctl("arena.{_ALL_ARENAS}.decay", …)',
                (b"arena.4096.decay\0", 0, 0, 0, 0),
                False,
                "status",
            ),
            Step(
                f'mallctl("arena.{_ALL_ARENAS}.purge", …)',
                (b"arena.4096.purge\0", 0, 0, 0, 0),
                True,
                "status",
            ),
        ],
        first=_NARENAS,
        prefixes=(b"je_", b"_rjem_"),
    ),
    Family(
        "tcmalloc",
        ("MallocExtension_ReleaseFreeMemory",),
        [Step("MallocExtension_ReleaseFreeMemory()", ())],
        prefixes=(b"_ZN8tcmalloc", b"tc_"),
    ),
    Family("mimalloc", ("mi_collect",), [Step("mi_collect(true)", (1,))], prefixes=(b"mi_", b"_mi_")),
    Family(
        "tbbmalloc",
        ("scalable_allocation_command",),
        [Step("scalable_allocation_command(TBBMALLOC_CLEAN_ALL_BUFFERS, NULL)", (0, 0))],
    ),
    Family("scudo", ("mallopt",), [Step("mallopt(M_PURGE, 0)", (_M_PURGE, 0))], beside="__scudo_print_stats"),
)
_TRIM = Family(GLIBC, ("malloc_trim",), [Step("malloc_trim(0)", (0,))])
_OF_GLIBC = ("malloc", "free", "calloc", "realloc", "memalign", "malloc_trim", "malloc_info", "mallopt")


class OwnFunction(NamedTuple):
    """The function of one allocator in a process."""

    allocator: str
    file: str
    address: int
    steps: Sequence[Step]
    first: Sequence[Argument]
    code: Sequence[tuple[int, int]]  # where a thread runs that is inside the allocator
    is_program: bool = False  # the file is the program itself


def why_uncallable(allocator: str) -> str:
    """Return why no function of *allocator* was found that returns memory."""
    if allocator == "musl":
        return "it has no function that returns memory"
    return "no symbol names its function that returns memory, so it can't be called from outside"


def find_functions(
    loaded: Sequence[Image],
    mappings: Sequence[Mapping],
    open_file: Callable[[str], BinaryIO],
    libc: Optional[Image],
) -> list[OwnFunction]:
    """Return the functions in the objects *loaded*, whose files *open_file* opens; *libc* has glibc's malloc."""
    found = []
    wanted = [name for family in _FAMILIES for name in (*family.functions, family.beside) if name]
    for image in loaded:
        with contextlib.suppress(OSError, ValueError, GdbmemError):
            known = _addresses(image, wanted, open_file, is_program=image is loaded[0])
            for family in _FAMILIES:
                name = next((one for one in family.functions if one in known), None)
                if name is not None and (not family.beside or family.beside in known):
                    is_program = image is loaded[0]
                    code = _code_of(image, mappings, family, known[name], open_file, is_program=is_program)
                    found.append(_function(family, image, known[name], code, is_program=is_program))
    if libc is not None:
        with contextlib.suppress(OSError, ValueError, GdbmemError):
            known = _addresses(libc, _OF_GLIBC, open_file, is_program=libc in loaded[:1])
            if "malloc_trim" in known:
                code = [(min(known.values()) - _BEFORE, max(known.values()) + _AFTER)]
                is_program = libc in loaded[:1]
                found.append(_function(_TRIM, libc, known["malloc_trim"], code, is_program=is_program))
    return found


def _function(
    family: Family, image: Image, address: int, code: Sequence[tuple[int, int]], *, is_program: bool
) -> OwnFunction:
    return OwnFunction(family.allocator, image.name, address, family.steps, family.first, code, is_program)


def _addresses(
    image: Image, names: Sequence[str], open_file: Callable[[str], BinaryIO], *, is_program: bool
) -> dict[str, int]:
    """Return the addresses of those *names* that the object exports, or, in a program with its own malloc, has."""
    with open_file(image.name) as stream:
        elf = elf_in(stream, Path(image.name))
        if elf is None or not elf.segments:
            return {}
        file = _FileMemory(stream, elf)
        found = exported(file, min(address for _, _, address in elf.segments) & -0x1000, 0, names)
    large = sum(end - start for start, end in image.writable) >= _LEAST_VARIABLES
    if not found and (is_program or large):
        found = dict(_in_symbol_tables(lambda: open_file(image.name), names))
    return {name: image.bias + value for name, value in found.items()}


def _in_symbol_tables(opened: Callable[[], BinaryIO], names: Sequence[str]) -> Iterable[tuple[str, int]]:
    for symbols, texts in symbol_tables(opened, _MOST_SYMBOLS):
        places = {texts.find(b"\0%s\0" % name.encode()) + 1: name for name in names}
        places.pop(0, None)
        if places:
            for at, _, _, section, value, _ in struct.iter_unpack("<IBBHQQ", symbols):
                if at in places and section and value:
                    yield places[at], value


def _code_of(
    image: Image,
    mappings: Sequence[Mapping],
    family: Family,
    address: int,
    open_file: Callable[[str], BinaryIO],
    *,
    is_program: bool,
) -> Sequence[tuple[int, int]]:
    """Return the code of the allocator whose function is at *address*: all of an object that is hardly more than it."""
    code = [(m.start, m.end) for m in mappings if m.name == image.name and "x" in m.permissions]
    if sum(end - start for start, end in code) <= _MOST_TEXT and not is_program:
        return code
    low, high = address - _NEAR, address + _NEAR
    near = [(max(start, low), min(end, high)) for start, end in code if start < high and low < end]
    return _code_by_symbols(image, family, lambda: open_file(image.name)) or near


def _code_by_symbols(image: Image, family: Family, opened: Callable[[], BinaryIO]) -> list[tuple[int, int]]:
    """Return the code of the functions of *family* in *image*, with what is between them; [] without symbols."""
    names = (*family.prefixes, *(b"%s\0" % name.encode() for name in _OF_GLIBC))
    found: list[tuple[int, int]] = []
    for symbols, texts in symbol_tables(opened, _MOST_SYMBOLS):
        if len(symbols) > _MOST_NAMED * 24:
            return []
        for at, info, _, section, value, size in struct.iter_unpack("<IBBHQQ", symbols):
            if info & 15 != _FUNCTION or not section or not texts.startswith(names, at):
                continue
            if b"." not in texts[at : texts.index(b"\0", at)]:  # parts of functions (.cold) are elsewhere
                found.append((value, value + size))
    joined: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if joined and start - joined[-1][1] <= _GAP:  # functions without the prefix may be between
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return [(image.bias + start, image.bias + end) for start, end in joined]


class _FileMemory:
    """A `Memory` of an object as its file has it, at the addresses that the file gives."""

    def __init__(self, stream: BinaryIO, elf: Elf) -> None:
        self._stream, self._elf = stream, elf

    def read(self, address: int, size: int) -> bytes:
        offset = self._elf.offset(address)
        if offset is None or offset >= 1 << 63:
            raise MemoryUnreadable(address)
        self._stream.seek(offset)
        data = self._stream.read(size)
        if len(data) != size:
            raise MemoryUnreadable(address)
        return data

    def read_into(self, address: int, buffer: Buffer) -> None:
        memoryview(buffer).cast("B")[:] = self.read(address, memoryview(buffer).nbytes)


def handlers_after_fork(
    memory: Memory, mappings: Sequence[Mapping], function: OwnFunction, libc: str
) -> list[int]:
    """Return the functions of *function*'s allocator that pthread_atfork() has registered for the child of a fork.

    glibc keeps prepare, parent, child and the DSO handle of each in a row, in its variables. The handle of
    the program itself may be 0. A library may be registered under the handle of libc.
    """

    def is_code(word: int) -> bool:
        return any(start <= word < end for start, end in function.code)

    files = (function.file, libc)
    data = [(m.start, m.end) for m in mappings if m.name in files and "x" not in m.permissions]

    def is_handle(word: int) -> bool:
        return (function.is_program and not word) or any(start <= word < end for start, end in data)

    found: list[int] = []
    for start, end in _variables(mappings, libc):
        with contextlib.suppress(MemoryUnreadable):
            words = memoryview(memory.read(start, end - start)).cast("Q").tolist()
            for prepare, parent, child, handle in zip(words, words[1:], words[2:], words[3:]):
                if not (is_code(child) and is_code(parent) and is_handle(handle)):
                    continue
                if not prepare or is_code(prepare):
                    found.append(child)
    # A static program has tables of its own functions, too, that end with 0.
    return found if function.file != libc or len(found) == 1 else []


def _variables(mappings: Sequence[Mapping], file: str) -> Iterable[tuple[int, int]]:
    """Yield the writable mappings of *file*, and the anonymous one behind them."""
    for number, one in enumerate(mappings):
        if one.name == file and one.permissions.startswith("rw"):
            yield one.start, one.end
            behind = mappings[number + 1 : number + 2]
            for after in behind:
                if after.start == one.end and not after.name and after.permissions.startswith("rw"):
                    yield after.start, after.end
