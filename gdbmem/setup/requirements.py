"""The Python packages that gdbmem needs, and what can't be done without each."""

from __future__ import annotations

import importlib
import sys
from typing import Optional

from gdbmem.records import dataclass


@dataclass(frozen=True)
class Requirement:
    """A package: what it is imported as, its name for pip, and what is lost without it."""

    module: str
    package: str
    without: str


REQUIREMENTS = (
    Requirement("inotify_simple", "inotify-simple", "no launch --massif"),
    Requirement("jinja2", "jinja2", "no report"),
    Requirement("numpy", "numpy", "heaps are read slowly"),
    Requirement("plotext", "plotext", "no charts of monitor"),
    Requirement("google.protobuf", "protobuf", "pprof's files are neither read nor written"),
    Requirement("pygments", "pygments", "source lines have no colours"),
    Requirement("yaml", "pyyaml", "no recipes"),
    Requirement("zstandard", "zstandard", "heaptrack's files are not read"),
)


def problems() -> list[tuple[Requirement, str]]:
    """Return what of REQUIREMENTS can't be imported, each with the reason."""
    found = []
    for requirement in REQUIREMENTS:
        try:
            importlib.import_module(requirement.module)
        except ImportError as error:
            found.append((requirement, str(error)))
    return found


def required(module: Optional[str]) -> Optional[Requirement]:
    """Return the requirement that *module*, or what it is part of, belongs to; None if there is none."""
    top = (module or "").partition(".")[0]
    return next((one for one in REQUIREMENTS if one.module.partition(".")[0] == top), None)


def pip_install(*packages: str) -> str:
    """Return what to type so that this very Python gets *packages*."""
    return f"type: {sys.executable} -m pip install {' '.join(packages)}"
