"""A core file as mappings, memory and threads."""

import mmap
import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.errors import InputError
from gdbmem.linux.elf.objects import read_image
from gdbmem.linux.memory.maps import PAGE, Mapping, Ranges
from gdbmem.model.memory import Buffer, BytesMemory, MemoryUnreadable, ThreadPointers
from gdbmem.text import printable

_CORE, _PT_LOAD, _PT_NOTE = 4, 1, 4
_NT_PRSTATUS, _NT_PRPSINFO, _NT_AUXV, _NT_FILE, _NT_ARM_TLS = 1, 3, 6, 0x46494C45, 0x401
_X86_64, _AARCH64 = 62, 183
_REGISTERS = 112  # their offset in struct elf_prstatus
_CODE = 5  # flags: readable, executable
_HEADER = 64  # bytes of an ELF header
_EXTENDED = 0xFFFF  # more segments than fit in the header's field


class _Segment(NamedTuple):
    start: int
    size: int  # in the process
    stored: int  # bytes of the complete core
    present: int  # bytes present if it is truncated
    offset: int
    flags: int


class CoreFile:
    """An open core; a `Memory` of its contents, and of omitted files if they are on this machine."""

    def __init__(self, path: Path, program: Optional[Path] = None) -> None:
        """Open the core at *path*; omitted parts of the program's own file are read from *program*."""
        self.path = path
        self.program = ""
        self.threads: list[ThreadPointers] = []
        self.auxiliary_vector: dict[int, int] = {}  # its values by their kinds
        self._files: list[tuple[int, int, int, str]] = []  # start, end, offset, name
        self._opened: dict[str, Optional[bytes]] = {}
        try:
            with path.open("rb") as stream:
                self._size = os.fstat(stream.fileno()).st_size
                self._data: mmap.mmap = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise self._bad(getattr(error, "strerror", None) or "it is empty") from error
        self._segments = self._read_segments()
        self._starts = [segment.start for segment in self._segments]
        self.written = self._written()
        if program is not None:
            self._take_program(program)

    def _bad(self, why: str) -> InputError:
        return InputError(
            f"{printable(str(self.path))} can't be read as a core: {why}",
            slug="bad-core",
            hint="'gcore PID' writes one",
        )

    def _take_program(self, program: Path) -> None:
        """Read the program from *program*; raises InputError if that is not the program that dumped the core."""
        try:
            contents = program.read_bytes()
        except OSError as error:
            raise InputError(
                f"{printable(str(program))} can't be read: {error.strerror}",
                slug="unreadable",
                hint="name the file of the program that left the core",
            ) from error
        start, _, _, old = min(self._files, default=(0, 0, 0, ""))
        wanted = read_image(self, start, old)
        given = read_image(BytesMemory([(start, contents)]), start, old)
        if given is None or (wanted is not None and wanted.build_id != given.build_id):
            raise InputError(
                f"{printable(str(program))} is not the program that left this core ({printable(old)})",
                slug="other-program",
                hint="name the program that was running, or leave it out",
            )
        new = str(program.absolute())
        self._files = [(s, e, o, new if name == old else name) for s, e, o, name in self._files]

    # -- memory -------------------------------------------------------------------------------------------

    def read(self, address: int, size: int) -> bytes:
        pieces = []
        while size > 0:
            data = self._piece(address, size)
            pieces.append(data)
            address += len(data)
            size -= len(data)
        return b"".join(pieces)

    def read_into(self, address: int, buffer: Buffer) -> None:
        view = memoryview(buffer).cast("B")
        while view:
            data = self._piece(address, len(view))
            view[: len(data)] = data
            address += len(data)
            view = view[len(data) :]

    def _piece(self, address: int, size: int) -> bytes:
        number = bisect_right(self._starts, address) - 1
        if number < 0:
            raise MemoryUnreadable(address, "it is not in a segment of the core")
        segment = self._segments[number]
        within = address - segment.start
        if within < segment.present:
            at = segment.offset + within
            data = self._data[at : at + min(size, segment.present - within)]
            if data:
                return data
        elif within < segment.stored:  # private data of the process, which is in no file
            raise MemoryUnreadable(address, "the core is truncated before it")
        elif within < segment.size:
            return self._from_file(address, min(size, segment.start + segment.size - address))
        raise MemoryUnreadable(address, "the core doesn't contain it")

    def _from_file(self, address: int, size: int) -> bytes:
        for start, end, offset, name in self._files:
            if start <= address < end:
                if name not in self._opened:
                    self._opened[name] = _contents(name)
                contents = self._opened[name]
                at = offset + address - start
                data = contents[at : at + min(size, end - address)] if contents else b""
                if data:
                    return data
        raise MemoryUnreadable(address, "the core leaves it out (coredump_filter)")

    # -- contents of the headers --------------------------------------------------------------------------

    def mappings(self) -> list[Mapping]:
        """Return the process's mappings; rss_bytes are the pages in the core that aren't all zeros."""
        result = []
        for segment in self._segments:
            name = next((n for start, end, _, n in self._files if start <= segment.start < end), "")
            rights = "".join(c if segment.flags & bit else "-" for c, bit in (("r", 4), ("w", 2), ("x", 1)))
            offset = next((o + segment.start - s for s, e, o, _ in self._files if s <= segment.start < e), 0)
            result.append(
                Mapping(
                    segment.start,
                    segment.start + segment.size,
                    f"{rights}p",
                    offset,
                    "00:00",
                    1 if name else 0,
                    name,
                    rss_bytes=(size := self.written.within(segment.start, segment.start + segment.size)),
                    anonymous_bytes=size if name and segment.flags & 2 else 0,
                )
            )
        return self._with_names(result)

    def _with_names(self, mappings: list[Mapping]) -> list[Mapping]:
        """Name the heap and the main stack as /proc/PID/maps would; a core doesn't."""
        named = list(mappings)
        first = next((m for m in mappings if m.name), None)
        program = first.name if first is not None else ""
        image = read_image(self, first.start, program) if first is not None else None
        # Without randomised addresses the heap begins where the program's zeroed data end.
        zeroed = max((end for _, end in image.writable), default=0) if image is not None else 0
        end = max((zeroed, *(m.end for m in mappings if m.name == program)))
        for number, mapping in enumerate(mappings):
            if mapping.name or "w" not in mapping.permissions:
                continue
            if end <= mapping.start < end + (1 << 36) and all(m.name != "[heap]" for m in named):
                named[number] = mapping._replace(name="[heap]")
            if self.threads and mapping.start <= self.threads[0].stack_pointer < mapping.end:
                named[number] = mapping._replace(name="[stack]")
        return named

    @property
    def omitted_bytes(self) -> int:
        """The bytes of the process's memory that the core omits."""
        return sum(segment.size - segment.stored for segment in self._segments)

    @property
    def omitted_data(self) -> Ranges:
        """The writable memory that the core omits: what its files have is read there, and may have been overwritten."""
        return Ranges((s.start + s.stored, s.start + s.size) for s in self._segments if s.flags & 2)

    @property
    def cut_bytes(self) -> int:
        """The bytes that are missing from the core's end."""
        return sum(segment.stored - segment.present for segment in self._segments)

    @property
    def present_bytes(self) -> int:
        """The bytes in the core, pages of zeros included."""
        return sum(segment.present for segment in self._segments)

    def _written(self) -> Ranges:
        """Return the pages that are not all zeros: the others may never have been touched."""
        data, zeros = self._data, bytes(PAGE)
        found: list[tuple[int, int]] = []
        for segment in self._segments:
            shift = segment.start - segment.offset
            for start, end in self._stored(segment.offset, segment.offset + segment.present):
                # Segments begin on pages of the process; the file need not be aligned.
                first = start - (start + shift) % PAGE
                whole = memoryview(data)[first : first + (end - first) // PAGE * PAGE]
                words = whole.cast("Q")[:: PAGE // 8].tolist()
                pages = range(first + shift, end + shift, PAGE)
                empty = [
                    number
                    for number, word in enumerate([*words, 0][: len(pages)])
                    if not word and data[first + PAGE * number : first + PAGE * (number + 1)] == zeros
                ]
                for before, after in zip([-1, *empty], [*empty, len(pages)]):
                    if after - before > 1:
                        found.append((pages[before + 1], pages[after - 1] + PAGE))
        return Ranges(found)

    def _stored(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of the file that are not holes."""
        with self.path.open("rb") as stream:
            while start < end:
                try:
                    data = os.lseek(stream.fileno(), start, os.SEEK_DATA)
                    hole = os.lseek(stream.fileno(), data, os.SEEK_HOLE)
                except OSError:
                    return  # only a hole from here on
                if data >= end:
                    return
                yield max(data, start), min(hole, end)
                start = hole

    def _read_segments(self) -> list[_Segment]:
        data = self._data
        if len(data) < _HEADER:
            raise self._bad("it is shorter than a core's header")
        if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 16)[0] != _CORE:
            raise self._bad("it is not a 64-bit core file")
        try:
            return self._parse()
        except (struct.error, IndexError, OverflowError) as error:
            raise self._bad(f"it is truncated in its headers, after {self._size:,} bytes") from error

    def _parse(self) -> list[_Segment]:
        data = self._data
        machine = struct.unpack_from("<H", data, 18)[0]
        offset, sections = struct.unpack_from("<QQ", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        if count == _EXTENDED:
            count = struct.unpack_from("<I", data, sections + 44)[0]
        segments = []
        for number in range(count):
            kind, flags, at, address, _, present, whole, _ = struct.unpack_from(
                "<IIQQQQQQ", data, offset + number * size
            )
            if kind == _PT_NOTE:
                if at + present > self._size:  # gcore writes them last
                    raise self._bad(
                        f"it is truncated: of the {at + present:,} bytes up to the notes on threads and files,"
                        f" {self._size:,} are there"
                    )
                self._read_notes(at, at + present, machine)
            elif kind == _PT_LOAD and whole:
                there = max(min(present, self._size - at), 0)  # a core may be truncated
                segments.append(_Segment(address, whole, present, there, at, flags))
        return sorted([*segments, *self._left_out(segments)], key=lambda segment: segment.start)

    def _left_out(self, segments: list[_Segment]) -> Iterator[_Segment]:
        """Yield the pieces of files without a segment: gcore omits code that is identical to its file."""
        held = sorted((segment.start, segment.start + segment.size) for segment in segments)
        for start, end, _, _ in self._files:
            number = bisect_left(held, (end, 0))  # those before it begin below the end
            if number == 0 or held[number - 1][1] <= start:
                yield _Segment(start, end - start, 0, 0, 0, _CODE)

    def _read_notes(self, position: int, end: int, machine: int) -> None:
        data = self._data
        while position + 12 <= end:
            name_size, size, kind = struct.unpack_from("<III", data, position)
            at = position + 12 + (name_size + 3 & ~3)
            if kind == _NT_PRSTATUS:
                self._add_thread(at, machine)
            elif kind == _NT_ARM_TLS and self.threads:
                pointer = struct.unpack_from("<Q", data, at)[0]
                self.threads[-1] = self.threads[-1]._replace(thread_pointer=pointer)
            elif kind == _NT_PRPSINFO:
                self.program = data[at + 40 : at + 56].split(b"\0")[0].decode(errors="surrogateescape")
            elif kind == _NT_AUXV:
                pairs = data[at : min(at + size, end)]
                self.auxiliary_vector = dict(struct.iter_unpack("<QQ", pairs[: len(pairs) & ~15]))
            elif kind == _NT_FILE:
                self._add_files(at, at + size)
            position = at + (size + 3 & ~3)

    def _add_thread(self, at: int, machine: int) -> None:
        tid = struct.unpack_from("<I", self._data, at + 32)[0]
        registers = struct.unpack_from("<34Q", self._data, at + _REGISTERS)
        if machine == _X86_64:
            pointer, stack, counter, call = (registers[known] for known in (21, 19, 16, 15))
            self.threads.append(ThreadPointers(tid, pointer, stack, "", counter, call, registers[:27]))
        elif machine == _AARCH64:
            self.threads.append(
                ThreadPointers(tid, 0, registers[31], "", registers[32], registers[8], registers)
            )

    def _add_files(self, at: int, end: int) -> None:
        count, page = struct.unpack_from("<QQ", self._data, at)
        names = self._data[at + 16 + 24 * count : end].split(b"\0")
        for number in range(count):
            start, stop, pages = struct.unpack_from("<QQQ", self._data, at + 16 + 24 * number)
            self._files.append((start, stop, pages * page, names[number].decode(errors="surrogateescape")))


def _contents(name: str) -> Optional[bytes]:
    try:
        return Path(name).read_bytes()
    except OSError:
        return None
