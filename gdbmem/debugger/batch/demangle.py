"""Demangled names of classes, by gdb's own demangler."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

import gdb

from gdbmem.patterns import lazy_pattern

# The characters of a mangled name: none can be mistaken for an option or a second word.
_MANGLED = lazy_pattern(r"[A-Za-z0-9_.$]+")
_PREFIX = "typeinfo name for "


def class_names(mangled: Iterable[str]) -> dict[str, str]:
    """Return the demangled name of each of *mangled* (as std::type_info has them) that can be demangled."""
    found = {}
    for name in mangled:
        if not _MANGLED.fullmatch(name):
            continue
        try:
            said = str(gdb.execute(f"demangle -l c++ -- _ZTS{name}", to_string=True)).strip()
        except gdb.error:
            continue
        if said.startswith(_PREFIX):
            found[name] = said[len(_PREFIX) :]
    return found


def answer() -> None:
    """Read mangled names from one file and write the demangled ones to another, in a batch gdb."""
    with open(os.environ["GDBMEM_MANGLED"], encoding="ascii") as stream:  # noqa: PTH123
        names = json.load(stream)
    with open(os.environ["GDBMEM_NAMES"], "w", encoding="utf-8") as stream:  # noqa: PTH123
        json.dump(class_names(names), stream)
