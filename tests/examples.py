"""The programs of examples/, built once, even if tests run in parallel."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def build(name: str) -> Path:
    """Build the example and return its folder; a program that another test has just started is not replaced."""
    folder = EXAMPLES / name
    with (folder / "Makefile").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-C", str(folder)], check=True, capture_output=True)
    return folder
