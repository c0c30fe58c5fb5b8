"""Open a heap profile of any format that is read, telling formats apart by what is in the file."""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, NamedTuple, Union

from gdbmem.errors import InputError, Notice
from gdbmem.formats.massif import read_massif
from gdbmem.formats.massif_tree import Data
from gdbmem.model.snapshot import Profile
from gdbmem.text import printable
from gdbmem.units import format_size

if TYPE_CHECKING:
    import bz2
    import gzip

# Smaller files are read whole: their reader then doesn't care when someone writes the file anew.
_MAPPED_FROM_BYTES = 16 << 20
# What a compressed file may unpack to. A bomb of some MiB would fill any disk.
_UNPACKED_LIMIT_BYTES = 1 << 30
_STEP_BYTES = 1 << 20

_GZIP = b"\x1f\x8b"
_BZIP2 = b"BZh"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class _Format(NamedTuple):
    start: re.Pattern[bytes]  # matched at the start of the file
    name: str
    hint: str


_MASSIF = re.compile(rb"desc:|cmd:|#-+\r?\nsnapshot=")
_FIND_MASSIF = "give a file that valgrind --tool=massif wrote"
_OTHERS = tuple(
    _Format(re.compile(start, re.DOTALL), name, hint)
    for start, name, hint in (
        (rb"\x7fELF", "a program, library or core file (ELF)", _FIND_MASSIF),
        (rb"\xfd7zXZ", "compressed with xz", "unpack it with unxz first"),
        (rb"\x28\xb5\x2f\xfd", "compressed with zstd", "unpack it with unzstd first"),
        (
            rb"\x04\x22\x4d\x18",
            "compressed with lz4 (memray writes such files)",
            "unpack it with unlz4 first",
        ),
        (rb"PK\x03\x04", "a zip archive", "unpack it with unzip first"),
        (rb"# callgrind format|(?:version|creator|positions|events): ", "a callgrind profile", _FIND_MASSIF),
        (rb"heap profile: ", "a heap profile of gperftools", _FIND_MASSIF),
        (rb"--- symbol\n", "a symbolised profile of gperftools", _FIND_MASSIF),
        (rb"heap_v2/", "a heap profile of jemalloc", _FIND_MASSIF),
        (rb"\s*\{.{0,200}\"dhatFileVersion\"", "a profile of valgrind's DHAT", _FIND_MASSIF),
        (
            rb"v [0-9a-f]+ [0-9a-f]+\n",
            "heaptrack's own data",
            "convert it: heaptrack_print FILE -M massif.out",
        ),
        (rb"memray", "a profile of memray", _FIND_MASSIF),
        (rb"CMDLINE |MEM [0-9.]+ [0-9.]+", "a record of mprof", _FIND_MASSIF),
        (rb"==[0-9]+== |--[0-9]+-- ", "a log of valgrind's", _FIND_MASSIF),
        (rb"\x0a.[\x08\x0a-\x12]", "a profile of pprof", _FIND_MASSIF),
    )
)


def open_profile(path: Union[str, os.PathLike[str]]) -> Profile:
    """Return the profile in the file *path*, which may be compressed with gzip or bzip2.

    Totals are read now, call trees when they are asked for. Raises InputError when there is no such
    file, when it can't be read, or when it is of another format, which the message names.
    """
    source = os.fspath(path)
    data, notices = _read(source)
    if _MASSIF.match(data) is None:
        raise _of_another_format(data, source)
    return read_massif(data, source, notices)


def _of_another_format(data: Data, path: str) -> InputError:
    known = next((entry for entry in _OTHERS if entry.start.match(data)), None)
    what = f"is {known.name}" if known else "is of no format that gdbmem knows"
    return InputError(
        f"{printable(path)} {what}; this version reads massif's files",
        slug="format-unreadable",
        hint=known.hint if known else _FIND_MASSIF,
    )


# --- what is in the file, in memory or mapped


def _read(path: str) -> tuple[Data, list[Notice]]:
    try:
        with _open_file(path) as file:
            start = file.read(3)
            file.seek(0)
            if start.startswith((_GZIP, _BZIP2)):
                return _unpack(file, path, is_gzip=start.startswith(_GZIP))
            return _load(file), []
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot read {printable(path)}: {reason}", slug="file-unreadable") from None


def _open_file(path: str) -> IO[bytes]:
    # Without O_NONBLOCK a FIFO would keep us waiting for someone who writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _refuse_unless_file(os.fstat(descriptor), printable(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_unless_file(found: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "of a special kind")
        raise InputError(f"{name} is {kind}, not a file", slug="not-a-file", hint=_FIND_MASSIF)
    if found.st_size == 0:
        raise InputError(
            f"{name} is empty",
            slug="empty-file",
            hint="massif writes its file when the program ends, unless that is killed with SIGKILL",
        )


def _load(file: IO[bytes]) -> Data:
    if os.fstat(file.fileno()).st_size < _MAPPED_FROM_BYTES:
        return file.read()
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _unpack(file: IO[bytes], path: str, *, is_gzip: bool) -> tuple[Data, list[Notice]]:
    """Unpack *file* into a temporary one, so that a big profile is mapped rather than held."""
    import tempfile
    import zlib

    notices = []
    with tempfile.TemporaryFile() as unpacked:
        try:
            for block in _unpacked_blocks(file, path, is_gzip=is_gzip):
                unpacked.write(block)
        except EOFError:
            message = f"{printable(path)} ends early: its last part is missing"
            notices.append(Notice("compressed-file-truncated", message))
        except zlib.error as error:
            raise OSError(errno.EIO, f"its compressed data is damaged ({error})") from None
        if not unpacked.tell():
            raise InputError(f"{printable(path)} holds nothing when unpacked", slug="empty-file")
        unpacked.seek(0)  # flushes, too
        return _load(unpacked), notices


def _unpacked_blocks(file: IO[bytes], path: str, *, is_gzip: bool) -> Iterator[bytes]:
    """Yield what *file* unpacks to. Raises EOFError at a cut, after what stands before it."""
    total = 0
    with _decompressor(file, is_gzip=is_gzip) as stream:
        # read1: read would lose what it has unpacked when it comes upon a cut.
        for block in iter(lambda: stream.read1(_STEP_BYTES), b""):
            total += len(block)
            if total > _UNPACKED_LIMIT_BYTES:
                raise InputError(
                    f"{printable(path)} unpacks to more than {format_size(_UNPACKED_LIMIT_BYTES)}",
                    slug="compressed-file-too-big",
                    hint="unpack it yourself and give the file that comes out",
                )
            yield block


def _decompressor(file: IO[bytes], *, is_gzip: bool) -> Union[gzip.GzipFile, bz2.BZ2File]:
    if is_gzip:
        import gzip

        return gzip.GzipFile(fileobj=file)
    try:
        import bz2
    except ImportError:  # a Python that was built without it
        raise OSError(errno.ENOSYS, "this Python can't unpack bzip2, unpack it with bunzip2") from None
    return bz2.BZ2File(file)
