"""Small files that users write by hand, read with a limit: what is larger is something else."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

from gdbmem.errors import InputError
from gdbmem.units import format_size


def read_small(path: Path, *, limit_bytes: int, refuse: Callable[[str], InputError]) -> bytes:
    """Return the content of *path*; raises what *refuse* makes of the reason ("over 1.0 MiB") where it can't."""
    try:
        with path.open("rb") as stream:
            data = stream.read(limit_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise refuse(reason) from error
    if len(data) > limit_bytes:
        raise refuse(f"it is over {format_size(limit_bytes)}")
    return data
