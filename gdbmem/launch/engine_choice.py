"""`--engine auto`: choosing the engine for a program by a few rules, with the reason in one sentence."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from gdbmem.allocators.others import runtime_among
from gdbmem.engines.engine import table
from gdbmem.errors import MissingToolError
from gdbmem.launch.native import find_library
from gdbmem.launch.program import Program
from gdbmem.linux.elf.objects import needed_libraries, odd_debug_sections
from gdbmem.text import printable

_LARGE_BYTES = 200 << 20  # valgrind reads all debug information before it begins

# Libraries that a program is linked to → the reason against valgrind. In this order.
_NOT_UNDER_VALGRIND = (
    (
        re.compile(r"lib(?:cuda|cudart|cublas|nvidia-ml|amdhip64|OpenCL|ze_loader)\b.*"),
        "uses a GPU, which valgrind does not support",
    ),
    (
        re.compile(r"lib(?:g|i)?omp5?\b.*|libtbb\b.*"),
        "computes on several processors at a time, and valgrind runs one thread at a time",
    ),
)
_OWN_ALLOCATORS = (
    (re.compile(r"libtcmalloc.*"), "gperftools"),
    (re.compile(r"libjemalloc.*"), "jemalloc"),
)


@dataclass(frozen=True)
class Choice:
    """An engine, the options that it needs for this program, and the reason for the choice."""

    engine: str
    reason: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """The sentence for the user."""
        return f"--engine auto chooses {self.engine}: {self.reason} (cost: {table(self.engine).cost})"


def choose_engine(program: Program) -> Choice:
    """Return the engine for *program*: massif, unless there is a reason against it.

    Rules, the first that applies: a static program; an allocator that it is linked to; a GPU, or threads that
    compute together; very much debug information, or of a kind that valgrind may not read; no valgrind.
    """
    name = _name_of(program)
    if program.is_static:
        return _for_static(name)
    linked = needed_libraries(program.symbols)
    for pattern, engine in _OWN_ALLOCATORS:
        library = _first(pattern, linked)
        if library and _is_there(engine):
            sister = (
                "which is replaced by its variant with a profiler"
                if "_minimal" in library
                else "which has this profiler"
            )
            return Choice(engine, f"{name} is linked to {printable(library)}, {sister}")
    against = _against_valgrind(program, linked)
    if not against:
        return _massif(name, runtime_among([str(program.symbols), *(f"/{library}" for library in linked)]))
    for engine in ("gperftools", "jemalloc"):
        if _is_there(engine):
            return Choice(engine, f"{name} {against}")
    if shutil.which("valgrind"):
        return Choice("massif", f"{name} {against}, but no native engine is installed")
    return Choice("none", "neither valgrind nor a profiling allocator is installed (see 'gdbmem doctor')")


def _massif(name: str, runtime: Optional[str]) -> Choice:
    if runtime is None:
        reason = f"it counts every byte that malloc allocates, and {name} can run under valgrind"
    else:
        own = f"{name} has a separate heap in addition to malloc's ({runtime})"
        reason = f"it counts all memory of malloc; {own}, which only --pages-as-heap counts"
    return Choice("massif", reason)


def _name_of(program: Program) -> str:
    name = printable(program.path.name)
    if program.symbols == program.path:
        return name
    return f"{name}, a script for {printable(program.symbols.name)},"


def _for_static(name: str) -> Choice:
    if shutil.which("valgrind"):
        reason = f"{name} is statically linked, so only its pages can be counted (--pages-as-heap)"
        return Choice("massif", reason, {"pages_as_heap": True})
    return Choice(
        "none", f"{name} is statically linked, and valgrind, which could count its pages, is not installed"
    )


def _against_valgrind(program: Program, linked: Sequence[str]) -> str:
    """Return the reason against valgrind, to follow the program's name; "" if there is none."""
    for pattern, reason in _NOT_UNDER_VALGRIND:
        library = _first(pattern, linked)
        if library:
            return f"{reason} ({printable(library)})"
    try:
        size = program.symbols.stat().st_size
    except OSError:
        size = 0
    if size > _LARGE_BYTES:
        return f"has {size >> 20} MiB of code and debug information, which valgrind reads for minutes"
    if shutil.which("valgrind") is not None:
        odd = odd_debug_sections(program.symbols)
        if odd:
            return f"has debug information that older releases of valgrind can't read ({odd})"
    else:
        return "has to run without valgrind, which is not installed"
    return ""


def _first(pattern: re.Pattern[str], names: Sequence[str]) -> Optional[str]:
    return next((name for name in names if pattern.fullmatch(name)), None)


def _is_there(engine: str) -> bool:
    try:
        find_library(table(engine))
    except MissingToolError:
        return False
    return True
