"""The environment that a process was started with."""

from __future__ import annotations

from pathlib import Path

from gdbmem.linux.process.living import memory_folder


def initial_environment(pid: int) -> dict[str, str]:
    """Return the variables that *pid* got at its start; none if they can't be read.

    The program may have changed them since.
    """
    try:
        data = Path(f"{memory_folder(pid)}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (one.decode(errors="replace").partition("=") for one in data.split(b"\0") if b"=" in one)
    return {name: value for name, _, value in pairs}
