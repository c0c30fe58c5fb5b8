"""The dynamic class of an object, found by its vtable pointer, and the content of a std::any.

gdb's `dynamic_type` takes the first class of that name (every file may have one in an anonymous namespace),
warns if it finds none, and trusts any pointer. Here the vtable needs its symbol, the object
has to be of a class derived from the pointer's, and the class is taken from the `this` of one of its virtual functions
if it has one.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Optional

import gdb

from gdbmem.debugger.terminal import symbol_at
from gdbmem.model.memory import Memory, MemoryUnreadable, word_at

_VTABLE = re.compile(r"vtable for (.+) \+ (\d+)")
_ANY = re.compile(  # libc++ 15 and later put a tag after the name: __handle[abi:ne190107](
    r"std::(?:__\w+::)?(?:any::_Manager|__any_imp::_)(\w+?)(?:Handler)?<(.+)>::\w+(?:\[abi:\w+\])*\("
)
_OUTSIDE = {"_external": True, "_internal": False, "Large": True, "Small": False}
_LIBRARY = ("std::", "__gnu_cxx::", "__cxxabiv1::")  # whose debug information is rarely installed
_FUNCTIONS = 16  # virtual functions of a class that are examined
_FARTHEST = 1 << 24  # bytes from an object's beginning to a part of it


class Classes:
    """Classes by their vtables, each asked of gdb once."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._names: dict[int, str] = {}
        self._types: dict[int, Optional[gdb.Type]] = {}  # by vtable: several classes may share a name
        self.unknown: set[str] = set()  # classes without debug information

    def find(self, base: gdb.Type, vtable: int, address: int) -> Optional[tuple[gdb.Type, int]]:
        """Return the class of the object whose part *base* is at *address*, and where that part lies in it.

        *base* itself, and 0, where its class has no debug information; None if no such object is there, or
        nothing is known of it.
        """
        name = self._name(vtable)
        if not name:
            return None
        try:
            distance = -struct.unpack("<q", self._memory.read(vtable - 16, 8))[0]
            if not 0 <= distance < _FARTHEST:
                return None
            primary = word_at(self._memory, address - distance) if distance else vtable
        except (MemoryUnreadable, OverflowError):
            return None
        if self._name(primary) != name:
            return None
        found = self._type(name, primary)
        if found is None:
            if not name.startswith(_LIBRARY):
                self.unknown.add(name)
            return (base, 0) if int(base.sizeof) else None
        return (found, distance) if _has_part(found, base, distance) else None

    def _name(self, vtable: int) -> str:
        """Return the class whose vtable is at *vtable*; "" if no symbol names it."""
        if vtable not in self._names:
            found = _VTABLE.fullmatch(symbol_at(vtable, demangled=True)) if vtable % 8 == 0 else None
            fits = found is not None and int(found[2]) >= 16 and int(found[2]) % 8 == 0
            self._names[vtable] = found[1] if found is not None and fits else ""
        return self._names[vtable]

    def _type(self, name: str, vtable: int) -> Optional[gdb.Type]:
        if vtable not in self._types:
            self._types[vtable] = self._look_up(name, vtable)
        return self._types[vtable]

    def _look_up(self, name: str, vtable: int) -> Optional[gdb.Type]:
        candidates = list(self._own_types(vtable))
        exact = next((found for found in candidates if str(found) == name), None)
        if exact is None and "(anonymous namespace)" not in name:
            exact = look_up_type(name)
        if exact is not None:
            return exact
        # A class within a function is known by its own name alone.
        return next((found for found in candidates if name.endswith(f"::{found}")), None)

    def _own_types(self, vtable: int) -> Iterator[gdb.Type]:
        """Yield the classes of `this` in the functions of *vtable*."""
        for number in range(_FUNCTIONS):
            try:
                function = word_at(self._memory, vtable + 8 * number)
                block = gdb.block_for_pc(function) if function else None
            except (MemoryUnreadable, RuntimeError, OverflowError, gdb.error):
                return
            while block is not None and block.function is None:
                block = block.superblock
            for symbol in block or ():
                if symbol.name == "this" and symbol.type is not None:
                    yield symbol.type.target().strip_typedefs().unqualified()


def look_up_type(name: str) -> Optional[gdb.Type]:
    """Return the type called *name*; None if gdb knows none, or can't parse the name."""
    try:
        return gdb.lookup_type(name).strip_typedefs().unqualified()
    except (gdb.error, RuntimeError):
        return None


def held_in_any(manager: int) -> Optional[tuple[gdb.Type, bool]]:
    """Return the type that a std::any with this *manager* holds, and whether it lies outside of the any."""
    found = _ANY.match(symbol_at(manager, demangled=True))
    if found is None or found[1] not in _OUTSIDE:
        return None
    held = look_up_type(found[2].strip())
    return None if held is None else (held, _OUTSIDE[found[1]])


def is_polymorphic(type_: gdb.Type) -> bool:
    """Return whether objects of class *type_* begin with a pointer to a vtable."""
    return any(
        (field.name or "").startswith("_vptr")
        or (field.is_base_class and is_polymorphic(field.type.strip_typedefs()))
        for field in fields_of(type_)
    )


def virtual_bases(type_: gdb.Type) -> dict[str, gdb.Type]:
    """Return the virtual bases of *type_* and of its bases, by name."""
    found: dict[str, gdb.Type] = {}
    for field in fields_of(type_):
        if field.is_base_class:
            base = field.type.strip_typedefs()
            if offset_of(field) is None:
                found[str(base)] = base
            found.update(virtual_bases(base))
    return found


def fields_of(type_: gdb.Type) -> list[gdb.Field]:
    """Return the fields of class *type_*; none if it is only declared."""
    try:
        return list(type_.fields()) if type_.code == gdb.TYPE_CODE_STRUCT else []
    except (gdb.error, TypeError):
        return []


def offset_of(field: gdb.Field) -> Optional[int]:
    """Return the offset of *field* in bytes; None for a static member and a base whose offset depends on the object."""
    position = getattr(field, "bitpos", None)
    return None if position is None else int(position) // 8


def offset_in_object(type_: gdb.Type, base: gdb.Type, address: int) -> int:
    """Return where the virtual *base* lies in the object of class *type_* at *address*; raises gdb.error."""
    whole = gdb.Value(address).cast(type_.pointer()).dereference()
    return int(whole.cast(base).address) - address


def _has_part(whole: gdb.Type, part: gdb.Type, offset: int) -> bool:
    """Return whether class *whole* is *part*, or has it as a base at *offset*."""
    return str(part) in virtual_bases(whole) or any(
        at == offset and name == str(part) for at, name in _parts(whole, 0)
    )


def _parts(type_: gdb.Type, offset: int) -> Iterator[tuple[int, str]]:
    yield offset, str(type_)
    for field in fields_of(type_):
        at = offset_of(field)
        if field.is_base_class:
            base = field.type.strip_typedefs()
            # The offsets of the bases of a virtual base depend on the object.
            yield from _parts(base, offset + at) if at is not None else ()
