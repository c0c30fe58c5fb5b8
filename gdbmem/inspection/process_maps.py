"""The mappings of a live process, from /proc."""

from __future__ import annotations

from gdbmem.errors import TargetError
from gdbmem.linux.memory.maps import Mapping, maps_text, parse_smaps
from gdbmem.linux.process.process import ended


def read_maps(pid: int) -> list[Mapping]:
    return parse_maps(read_maps_text(pid))


def read_maps_text(pid: int) -> bytes:
    return _read(pid, "maps")


def parse_maps(text: bytes) -> list[Mapping]:
    return _of_user(parse_smaps(text))


def _of_user(mappings: list[Mapping]) -> list[Mapping]:
    # The vsyscall page belongs to the kernel, is in every process, and PAGEMAP_SCAN can't reach it.
    return [mapping for mapping in mappings if mapping.name != "[vsyscall]"]


def read_smaps(pid: int) -> list[Mapping]:
    mappings = parse_smaps(_read(pid, "smaps"))
    if not mappings:
        raise ended(pid)
    return _of_user(mappings)


def _read(pid: int, name: str) -> bytes:
    try:
        return maps_text(pid, name)
    except (ProcessLookupError, FileNotFoundError):
        return b""
    except OSError as error:
        raise TargetError(
            f"/proc/{pid}/{name} can't be read: {error.strerror}",
            slug="process-forbidden",
            hint="run as the process's user, or as root",
        ) from error
