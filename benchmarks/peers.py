"""Tools to race against that gdbmem itself does not need, in separate virtual environments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Optional

_FOLDER = Path(__file__).parents[1] / ".cache" / "bench-peers"
_PACKAGES = {"mprof": "memory_profiler==0.61.0", "psrecord": "psrecord==1.4"}
_OF_PYTHON = ("memray==1.20.0", "guppy3==3.1.7", "memory_profiler==0.61.0", "scalene==2.4.0")


def peer(name: str) -> Optional[Path]:
    """Return the command *name*, installed if missing; None, with a message, if that fails."""
    command = _FOLDER / "bin" / name
    if command.exists():
        return command
    if not _FOLDER.exists():
        subprocess.run([sys.executable, "-m", "venv", _FOLDER], check=True)
    pip = [str(_FOLDER / "bin" / "python"), "-m", "pip", "install", "-q", _PACKAGES[name]]
    if subprocess.run(pip, check=False).returncode or not command.exists():
        print(f"bench: {name} is missing: {_PACKAGES[name]} can't be installed", file=sys.stderr)
        return None
    return command


def peer_python() -> Optional[Path]:
    """Return a Python with profilers for it, in a separate folder; None, with a message, if that fails."""
    python = _FOLDER.with_name("bench-python-peers") / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
    if subprocess.run([python, "-m", "pip", "install", "-q", *_OF_PYTHON], check=False).returncode:
        print(f"bench: {', '.join(_OF_PYTHON)} can't be installed", file=sys.stderr)
        return None
    return python
