"""The files that a process has loaded, in a folder for gdb, for processes for which paths name other files.

With "set sysroot target:" gdb enters the process's mount namespace and opens, with the rights of gdb's user, the files
that the process's memory names: one may be a FIFO, a device, or a file that the process's user may not read. Here
files are opened with the rights of the process: only regular ones, and only those that the kernel lists as mapped.
gdb gets links to the open descriptors in a private folder; names in the process's memory that lead out of it are
refused.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Optional

from gdbmem.errors import TargetError
from gdbmem.linux.elf.objects import Image, elf_in, images, loaded_by, read_elf
from gdbmem.linux.files.target_files import TargetSide, may_be_opened
from gdbmem.linux.memory.maps import Mapping, mappings_of
from gdbmem.linux.memory.process_memory import ProcMemory
from gdbmem.model.calltree import Frame
from gdbmem.profiles.own_code import is_library
from gdbmem.text import printable

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,60}")
_DELETED = " (deleted)"  # of a program that is: gdb opens it by /proc/PID/exe
_KEPT_BYTES = 256 << 20  # of programs and libraries, in a run


class Sysroot(NamedTuple):
    """Folders that last as long as the launch."""

    folder: Path  # for "set sysroot"
    program: Path  # a copy of it
    loaded: dict[str, int]  # what the process calls its files, and their descriptors

    def keep(self, folder: Path) -> None:
        """Copy the program and its libraries to *folder*, by their paths: for names of addresses later.

        Libraries of the system are copied where this machine has others at their paths.
        """
        wanted = {self.program: folder / self.program.name}
        for name in self.loaded:
            source = self.folder / name.lstrip("/")
            if not is_library(Frame(object=name)) or _is_another(source, name):
                wanted[source] = folder / name.lstrip("/")
        left = _KEPT_BYTES
        for source, there in wanted.items():
            size = source.stat().st_size
            if size <= left and not there.exists():
                there.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                there.write_bytes(source.read_bytes())
                left -= size


def _is_another(theirs: Path, name: str) -> bool:
    """Return whether the file *theirs* is not the one that *name* is on this machine, by their build-ids."""
    with open(theirs, "rb") as stream:  # noqa: PTH123  (a link to what is open)
        elf = elf_in(stream, theirs)
    ours = read_elf(name)
    return elf is not None and (ours is None or not elf.build_id or ours.build_id != elf.build_id)


@contextlib.contextmanager
def open_sysroot(runtime: Path, pid: int, side: TargetSide) -> Iterator[Sysroot]:
    """Yield the Sysroot of process *pid*, in the private folder *runtime*. Raises TargetError if that is impossible."""
    with contextlib.ExitStack() as opened, ProcMemory(pid) as memory:
        try:
            mappings = mappings_of(pid)
            program = os.readlink(f"/proc/{pid}/exe").replace("\n", "\\012")  # noqa: PTH115
        except OSError as error:
            raise _no_program(pid, error.strerror) from error
        found: dict[str, int] = {}  # by what /proc/PID/maps calls them
        for image in images(memory, mappings):
            descriptor = _opened(side, image)
            if descriptor is not None:
                opened.callback(os.close, descriptor)
                found[image.name] = descriptor
        if program not in found:
            raise _no_program(pid, "it is not the loaded file, or the process's user may not read it")
        folder = runtime / "root"
        folder.mkdir()
        names = {side.name_there(name): descriptor for name, descriptor in found.items()}
        aliases = _aliases(pid, loaded_by(pid, memory), mappings, found)
        for name, descriptor in {**aliases, **names}.items():
            _link(folder, name, descriptor)
        yield Sysroot(folder, _copy(runtime, program, side), names)


def opened_later(pid: int, name: str) -> Optional[int]:
    """Return a descriptor of the library that process *pid* has loaded meanwhile and calls *name*; None without one."""
    try:
        with ProcMemory(pid) as memory:
            called = [address for address, text in loaded_by(pid, memory) if os.fsdecode(text) == name]
            if not called:
                return None
            mappings = mappings_of(pid)
            places = {m.name for m in mappings if any(m.start <= address < m.end for address in called)}
            wanted = [image for image in images(memory, mappings) if image.name in places]
        with TargetSide(pid) as side:
            return next((one for one in (_opened(side, image) for image in wanted) if one is not None), None)
    except (OSError, TargetError):
        return None


def names_files_of_others(pid: int) -> bool:
    """Return whether gdb would open, by a name that process *pid* gives, a file that others than root can change."""
    try:
        mappings = mappings_of(pid)
        with ProcMemory(pid) as memory:
            loaded = loaded_by(pid, memory)
    except OSError:
        return True  # who knows
    kernels = [(m.start, m.end) for m in mappings if m.name == "[vdso]"]
    names = {m.name for m in mappings if m.is_file and "x" in m.permissions and not m.name.endswith(_DELETED)}
    for address, name in loaded:
        if name and not any(start <= address < end for start, end in kernels):
            names.add(os.fsdecode(name))
    return not all(map(may_be_opened, names))


def _opened(side: TargetSide, image: Image) -> Optional[int]:
    """Return a descriptor of the file of *image*; None if that is another file by now, or can't be read."""
    try:
        descriptor = side.open(side.name_there(image.name))
    except TargetError:
        return None
    with open(descriptor, "rb", closefd=False) as stream:
        elf = elf_in(stream, Path(image.name))
    if elf is None or (image.build_id and elf.build_id != image.build_id):
        os.close(descriptor)
        return None
    return descriptor


def _aliases(
    pid: int, loaded: Iterable[tuple[int, bytes]], mappings: Sequence[Mapping], found: dict[str, int]
) -> dict[str, int]:
    """Return the descriptors by the names that the dynamic linker's list has, which gdb goes by."""
    places = {(m.start, m.end): found[m.name] for m in mappings if m.name in found}
    kernels = {(m.start, m.end) for m in mappings if m.name == "[vdso]"}
    aliases = {}
    for address, text in loaded:
        name = os.fsdecode(text)
        if not name or any(start <= address < end for start, end in kernels):
            continue  # the program itself; what gdb reads from memory
        if not _stays_beneath(name):
            raise TargetError(
                f"process {pid} reports that it has loaded '{printable(name)}': gdb would open that outside the"
                " process's root folder",
                slug="process-elsewhere",
                hint="type this inside the container, as the process's user",
            )
        for (start, end), descriptor in places.items():
            if start <= address < end:
                aliases[name] = descriptor
    return aliases


def _stays_beneath(name: str) -> bool:
    """Return whether *name* is absolute and its ".." lead nowhere above the root."""
    depth = 0
    for word in PurePosixPath(name).parts[1:]:
        depth += -1 if word == ".." else 1
        if depth < 0:
            return False
    return name.startswith("/")


def _link(folder: Path, name: str, descriptor: int) -> None:
    """Make *name* beneath *folder* a link to what is open, and each folder that ``..`` in it passes through."""
    at = folder
    *words, last = name.strip("/").split("/")
    with contextlib.suppress(OSError):  # too long, or the name of another one is a folder in this one
        for word in words:
            at = at.parent if word == ".." else at / word
            at.mkdir(exist_ok=True)
        (at / last).symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")


def _copy(runtime: Path, program: str, side: TargetSide) -> Path:
    """Return a copy of the program: gdb opens it again by name, which must not resolve to a file of the process."""
    name = PurePosixPath(program).name
    folder = runtime / "program"
    folder.mkdir()
    copy = folder / (name if _PLAIN.fullmatch(name) else "program")
    with open(copy, "xb") as stream:  # noqa: PTH123  (exclusive)
        side.copy(side.name_there(program), stream)
    return copy


def _no_program(pid: int, reason: Optional[str]) -> TargetError:
    return TargetError(
        f"the program of process {pid}, which has another root folder or mounts, can't be read: {reason}",
        slug="process-elsewhere",
        hint="type this inside the container",
    )
