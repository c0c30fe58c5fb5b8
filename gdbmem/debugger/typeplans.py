"""gdb's types as plans: which container a type is, and where its parts are."""

from __future__ import annotations

import re
from typing import Optional

import gdb

from gdbmem.analysis.containers import Plan

_STD = re.compile(r"^std::(?:__cxx11::|__debug::|__cxx1998::)?(\w+)<")
_TREES = {"map", "multimap", "set", "multiset"}
_HASHES = {"unordered_map", "unordered_multimap", "unordered_set", "unordered_multiset"}
_DEEPEST = 12
_POINTER_DEPTH = 3  # plain pointers that are followed from a variable


class Planner:
    """Makes plans, one for each type."""

    def __init__(self) -> None:
        self._plans: dict[tuple[str, int], Plan] = {}

    def plan(self, type_: gdb.Type, pointers: int = 0, depth: int = 0) -> Optional[Plan]:
        """Return the plan of *type_*; None where it holds no containers (a number, say)."""
        type_ = type_.strip_typedefs().unqualified()
        if depth > _DEEPEST:
            return None
        if type_.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
            return self._pointer(type_.target(), pointers, depth)
        if type_.code == gdb.TYPE_CODE_PTR:
            if pointers >= _POINTER_DEPTH:
                return None
            return self._pointer(type_.target(), pointers + 1, depth)
        if type_.code == gdb.TYPE_CODE_ARRAY:
            return self._array(type_, pointers, depth)
        if type_.code != gdb.TYPE_CODE_STRUCT:
            return None
        name = str(type_)
        key = (name, pointers)
        if key not in self._plans:
            # A type may hold itself (a tree's node holds a vector of nodes): it finds this one, being filled.
            made = self._plans[key] = Plan("struct", name, int(type_.sizeof))
            self._fill(made, type_, name, pointers, depth)
        return self._plans[key]

    def _fill(self, made: Plan, type_: gdb.Type, name: str, pointers: int, depth: int) -> None:
        found = _STD.match(name)
        kind = found[1] if found else ""
        try:
            if not self._fill_container(made, type_, kind, pointers, depth):
                self._fill_struct(made, type_, pointers, depth)
        except (gdb.error, RuntimeError):
            made.kind, made.fields = "struct", []  # a layout that isn't libstdc++'s

    def _fill_container(self, made: Plan, type_: gdb.Type, kind: str, pointers: int, depth: int) -> bool:
        if kind == "vector" and "_M_impl" in _names(type_):
            value = type_.template_argument(0).strip_typedefs()
            if value.code == gdb.TYPE_CODE_BOOL:
                return True  # bits: another layout, and rarely large
            self._elements(made, "vector", value, pointers, depth)
        elif kind == "basic_string" and "_M_dataplus" in _names(type_):
            made.kind, made.element_size = "string", int(type_.template_argument(0).sizeof)
        elif kind == "deque":
            self._elements(made, "deque", type_.template_argument(0), pointers, depth)
        elif kind == "list" and "_M_impl" in _names(type_):
            self._elements(made, "list", type_.template_argument(0), pointers, depth)
            made.element_offset = _align(16, type_.template_argument(0))
            made.node_size = _round(made.element_offset + made.element_size, 8)
        elif kind in _TREES:
            self._elements(made, "tree", _value_type(type_, kind), pointers, depth)
            made.element_offset = _align(32, _value_type(type_, kind))
            made.node_size = _round(made.element_offset + made.element_size, 8)
        elif kind in _HASHES:
            self._elements(made, "hash", _value_type(type_, kind), pointers, depth)
            made.element_offset = _align(8, _value_type(type_, kind))
            made.node_size = _round(made.element_offset + made.element_size, 8)
            if _caches_hash(type_):
                made.node_size += 8
        elif kind in ("unique_ptr", "shared_ptr", "optional"):
            self._fill_pointer(made, type_, kind, pointers, depth)
        else:
            return False
        return True

    def _fill_pointer(self, made: Plan, type_: gdb.Type, kind: str, pointers: int, depth: int) -> None:
        target = type_.template_argument(0).strip_typedefs()
        made.kind = kind.partition("_")[0]
        if kind == "unique_ptr" and target.code == gdb.TYPE_CODE_ARRAY:
            made.kind = "struct"  # how many elements it has is not known
            return
        if kind == "unique_ptr" and made.size != 8:
            made.kind = "struct"  # a deleter with a state of its own
            return
        made.element_size = int(target.sizeof)
        made.element = self.plan(target, pointers, depth + 1)
        if kind == "optional" and made.element is None:
            made.kind = "struct"

    def _elements(self, made: Plan, kind: str, value: gdb.Type, pointers: int, depth: int) -> None:
        made.kind = kind
        made.element_size = max(int(value.strip_typedefs().sizeof), 1)
        made.element = self.plan(value, pointers, depth + 1)

    def _fill_struct(self, made: Plan, type_: gdb.Type, pointers: int, depth: int) -> None:
        for field in type_.fields():
            if getattr(field, "bitsize", 0) or not hasattr(field, "bitpos") or field.type is None:
                continue  # a static member, or bits
            inner = self.plan(field.type, pointers, depth + 1)
            if inner is not None:
                name = "" if field.is_base_class or not field.name else str(field.name)
                made.fields.append((int(field.bitpos) // 8, name, inner))

    def _pointer(self, target: gdb.Type, pointers: int, depth: int) -> Optional[Plan]:
        inner = self.plan(target, pointers, depth + 1)
        return None if inner is None else Plan("pointer", "", 8, element=inner)

    def _array(self, type_: gdb.Type, pointers: int, depth: int) -> Optional[Plan]:
        target = type_.target()
        inner = self.plan(target, pointers, depth + 1)
        size = int(target.strip_typedefs().sizeof)
        if inner is None or not size:
            return None
        return Plan("array", "", int(type_.sizeof), inner, size, count=int(type_.sizeof) // size)


def _names(type_: gdb.Type) -> set[str]:
    names: set[str] = set()
    for field in type_.fields():
        if field.is_base_class:
            names |= _names(field.type.strip_typedefs())
        elif field.name:
            names.add(str(field.name))
    return names


def _value_type(type_: gdb.Type, kind: str) -> gdb.Type:
    if "map" not in kind:
        return type_.template_argument(0)
    for scope in (type_, type_.strip_typedefs()):
        try:
            return gdb.lookup_type(f"{scope}::value_type").strip_typedefs()
        except gdb.error:
            continue
    key, value = type_.template_argument(0), type_.template_argument(1)
    return gdb.lookup_type(f"std::pair<{key} const, {value}>").strip_typedefs()


def _align(offset: int, type_: gdb.Type) -> int:
    return _round(offset, max(int(getattr(type_.strip_typedefs(), "alignof", 8) or 8), 1))


def _round(size: int, to: int) -> int:
    return -(-size // to) * to


def _caches_hash(type_: gdb.Type) -> bool:
    # libstdc++ keeps the hash in the node where computing it again is slow: strings.
    return "basic_string" in str(type_.template_argument(0).strip_typedefs())
