"""gdb's types as plans: which container of libstdc++ or libc++ a type is, and where its parts are."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Optional

import gdb

from gdbmem.containers.library_types import Resolve, Resolved, TypePlan
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


# An inline namespace of libc++ (__1, or the vendor's own) or of libstdc++ may be in between.
_STD = re.compile(r"^std::(__\w+::)?(\w+)(?:<|$)")
_TUPLE_PART = re.compile(r"^std::(?:__\w+::)?(?:_Head_base|__tuple_leaf)<(\d+)")
_TUPLE_VALUES = ("_M_head_impl", "__value_")
# They own nothing, and may point past the last element.
_ITERATOR = re.compile(
    r"^(?:__gnu_cxx|std)::(?:\w+::)*(?:_\w*_?(?:const_)?iterator(?:_base)?|__wrap_iter|__bounded_iter|reverse_iterator)<"
)
_TREES = {"map", "multimap", "set", "multiset"}
_HASHES = {"unordered_map", "unordered_multimap", "unordered_set", "unordered_multiset"}
# Offset of a container's first pointer in libstdc++, unless a stateful allocator (std::pmr) precedes it.
_FIRST_FIELDS = {
    "vector": ("_M_start", 0),
    "bits": ("_M_start", 0),
    "string": ("_M_p", 0),
    "deque": ("_M_map", 0),
    "list": ("_M_node", 0),
    "forward": ("_M_head", 0),
    "tree": ("_M_header", 8),
    "hash": ("_M_buckets", 0),
}
# Containers of other libraries that are read.
_VEC = re.compile(r"^alloc::(?:vec::Vec|collections::vec_deque::VecDeque)<")
_REPEATED = re.compile(r"^google::protobuf::Repeated(Ptr)?Field<")
_BOOST_VECTOR = re.compile(r"^boost::container::(?:vector|small_vector(?:_base)?|stable_vector)<")
# Classes around a container that is read, by the field that it has then.
_AROUND = (
    (re.compile(r"^absl::(\w+::)?(flat_hash_|container_internal::raw_hash_)"), "ctrl_"),
    (re.compile(r"^boost::container::(flat_|dtl::)"), "m_start"),
)
# Others, with their own layouts of elements.
_UNREAD = re.compile(
    r"^(alloc::collections::(btree|binary_heap|linked_list)::|absl::(\w+::)?(flat_hash_|node_hash_|btree_|InlinedVector|FixedArray|Cord$)"
    r"|boost::(container|unordered|intrusive|multi_index|multi_array|circular_buffer|unordered_\w+|\w+_array)\b"
    r"|folly::(F14|fb|small_vector|sorted_vector)|google::(dense|sparse)_hash|tbb::|robin_hood::|tsl::"
    r"|Q(Vector|List|Map|Hash|Set|String|ByteArray)\b|Eigen::(Matrix|Array)<)"
)
# Hold values inside the object.
_UNREAD_VALUES = re.compile(r"^(absl::(\w+::)?StatusOr|boost::(optional|variant))<")
_POINTER_DEPTH = 3  # plain pointers that are followed from a variable


class Planner:
    """Makes plans, one for each type."""

    def __init__(self, memory: Memory) -> None:
        self._plans: dict[tuple[Any, ...], TypePlan] = {}
        self._to_fill: list[tuple[TypePlan, gdb.Type, int]] = []
        # Of classes with virtual bases, by id() of the plan without them.
        self._whole: dict[int, TypePlan] = {}
        self._classes = Classes(memory)

    @property
    def unknown_classes(self) -> set[str]:
        """The classes of encountered objects without debug information."""
        return self._classes.unknown

    def plan(self, type_: gdb.Type, pointers: int = 0) -> Optional[TypePlan]:
        """Return the plan of *type_*; None if it holds no containers (a number, for example)."""
        plan = self._plan(type_, pointers)
        # Iteratively, not recursively: chains of a program's types can be very long.
        while self._to_fill:
            self._fill(*self._to_fill.pop())
        return plan

    def _plan(self, type_: gdb.Type, pointers: int) -> Optional[TypePlan]:
        """Return the plan of *type_*, which may not be filled yet."""
        type_ = type_.strip_typedefs().unqualified()
        if type_.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
            return self._pointer(type_.target(), pointers)
        if type_.code == gdb.TYPE_CODE_PTR:
            if pointers >= _POINTER_DEPTH:
                return None
            return self._pointer(type_.target(), pointers + 1)
        if type_.code == gdb.TYPE_CODE_ARRAY:
            return self._array(type_, pointers)
        # protobuf has a message's fields in a union of one member.
        if type_.code != gdb.TYPE_CODE_STRUCT and not (
            type_.code == gdb.TYPE_CODE_UNION and len(type_.fields()) == 1
        ):
            return None
        name = str(type_)
        # Types of the same name may differ: each file may have its own.
        key = (name, pointers, int(type_.sizeof), *((f.name, offset_of(f)) for f in fields_of(type_)))
        if key not in self._plans:
            self._plans[key] = TypePlan("struct", name, int(type_.sizeof))
            self._to_fill.append((self._plans[key], type_, pointers))
        return self._plans[key]

    def _class_of(self, made: TypePlan, base: gdb.Type, pointers: int) -> Resolve:
        """Return a function that finds the plan of an object with the part *made*, the plan of class *base*."""

        def resolve(vtable: int, address: int) -> Optional[Resolved]:
            found = self._classes.find(base, vtable, address)
            if found is None:
                return None
            class_, offset = found
            plan = made if str(class_) == made.type_name else self.plan(class_, pointers)
            return (
                None if plan is None else Resolved(self._with_bases(plan, class_, address - offset), offset)
            )

        return resolve

    def _with_bases(self, plan: TypePlan, class_: gdb.Type, address: int) -> TypePlan:
        """Return *plan* with the virtual bases of *class_*, at their offsets in the object at *address*."""
        bases = virtual_bases(class_)
        if bases and id(plan) not in self._whole:
            whole = TypePlan("struct", plan.type_name, plan.size, fields=list(plan.fields))
            for base in bases.values():
                inner = self.plan(base)
                if inner is not None:
                    try:
                        whole.fields.append((offset_in_object(class_, base, address), "", inner))
                    except (gdb.error, OverflowError):
                        continue
            self._whole[id(plan)] = whole
        return self._whole.get(id(plan), plan)

    def _fill(self, made: TypePlan, type_: gdb.Type, pointers: int) -> None:
        found = _STD.match(made.type_name)
        kind = found[2] if found else ""
        fillers = (self._fill_libcxx, self._fill_container, self._fill_compound)
        try:
            if self._fill_other(made, type_, pointers):
                pass
            elif _UNREAD.match(made.type_name) and not _is_around(type_, made.type_name):
                made.kind = "unread"
            elif _UNREAD_VALUES.match(made.type_name):
                made.kind = "unread"
                made.element = self._values_of(type_, pointers)
            elif not _ITERATOR.match(made.type_name) and not any(
                fill(made, type_, kind, pointers) for fill in fillers
            ):
                self._fill_struct(made, type_, pointers)
            _shift(made, type_)
        except (gdb.error, RuntimeError):
            made.kind, made.fields = "struct", []  # an unknown layout
        # A class may be only declared here, but the object's dynamic class known.
        if made.kind == "struct" and (is_polymorphic(type_) or not made.size):
            made.resolve = self._class_of(made, type_, pointers)
            made.has_virtual_base = bool(virtual_bases(type_))

    def _fill_other(self, made: TypePlan, type_: gdb.Type, pointers: int) -> bool:
        """Fill in containers of Rust, boost, protobuf and absl, as far as their layout is known."""
        name = made.type_name
        if _VEC.match(name):
            self._elements(made, "counted", type_.template_argument(0), pointers)
            made.places = _places(type_, "ptr", "len", "cap")
            made.places += _places(type_, "head") if "VecDeque<" in name.partition("<")[0] + "<" else ()
        elif name.startswith("hashbrown::raw::RawTable<"):
            self._elements(made, "open_hash", type_.template_argument(0), pointers)
            made.places = _places(type_, "ctrl", "bucket_mask", "items")
        elif _BOOST_VECTOR.match(name):
            self._elements(made, "counted", type_.template_argument(0), pointers)
            made.places = _places(type_, "m_start", "m_size", "m_capacity")
        elif "absl" in name and "raw_hash_set<" in name.partition("Policy")[0] and "ctrl_" in _names(type_):
            value = gdb.lookup_type(f"{type_}::value_type")
            self._elements(made, "open_hash", value, pointers)
            made.places = _places(type_, "ctrl_", "capacity_", "size_", "slots_")
        elif (found := _REPEATED.match(name)) and {"current_size_", "total_size_"} <= _names(type_):
            table = "rep_" if found[1] else "arena_or_elements_"
            self._elements(made, "pointed" if found[1] else "counted", type_.template_argument(0), pointers)
            made.places, made.count = _places(type_, table, "current_size_", "total_size_"), 8
        else:
            return self._fill_variants(made, type_, pointers)
        return True

    def _fill_variants(self, made: TypePlan, type_: gdb.Type, pointers: int) -> bool:
        """Fill in an enum of Rust, which holds one of several types; gdb's fields for them have no names."""
        variants = [
            field.type
            for field in type_.fields()
            if not field.name and not field.is_base_class and field.type is not None and field.type.name
        ]
        if not any(variant.strip_typedefs().code == gdb.TYPE_CODE_STRUCT for variant in variants):
            return False
        made.kind = "unread"
        plans = [self._plan(variant, pointers) for variant in variants]
        made.element = TypePlan("struct", "", 0, fields=[(0, "", plan) for plan in plans if plan is not None])
        return True

    def _fill_compound(self, made: TypePlan, type_: gdb.Type, kind: str, pointers: int) -> bool:
        """Fill in types that hold a fixed number of values, or one of several types."""
        if kind == "tuple":
            for offset, number, value in _tuple_parts(type_, 0):
                inner = self._plan(value, pointers)
                if inner is not None:
                    made.fields.append((offset, f"get<{number}>", inner))
        elif kind == "array" and _names(type_) & {"_M_elems", "__elems_"}:
            _, elements = _find_field(type_, (_names(type_) & {"_M_elems", "__elems_"}).pop())
            inner = self._plan(elements, pointers)
            if inner is not None and inner.kind == "array":
                made.kind, made.element, made.count = "array", inner.element, inner.count
                made.element_size = inner.element_size
        elif kind == "variant":
            self._fill_variant(made, type_, pointers)
        elif kind == "any":
            made.kind, made.element_offset = "any", 8
            made.resolve = self._in_any(pointers)
        else:
            return False
        return True

    def _fill_variant(self, made: TypePlan, type_: gdb.Type, pointers: int) -> None:
        held = _find_field(type_, "__impl_")[1] if "__impl_" in _names(type_) else type_
        held = _find_field(type_, "__impl")[1] if "__impl" in _names(type_) else held
        names = _names(held) & {"_M_index", "__index", "__index_"}
        offset, index = _own_field(held, names.pop()) if names else (0, None)
        if index is None:
            return
        made.kind, made.element_offset, made.element_size = "variant", offset, int(index.sizeof)
        for number in range(_template_arguments(type_)):
            inner = self._plan(type_.template_argument(number), pointers)
            if inner is not None:
                made.fields.append((number, "", inner))

    def _values_of(self, type_: gdb.Type, pointers: int) -> Optional[TypePlan]:
        """Return a plan of everything that an object of template *type_* may hold, to test whether it holds any.

        None if gdb doesn't list all of the arguments.
        """
        count = _template_arguments(type_)
        if "variant<" in str(type_) and count < 2:
            return None
        plans = [self._plan(type_.template_argument(number), pointers) for number in range(count)]
        return TypePlan("struct", "", 0, fields=[(0, "", plan) for plan in plans if plan is not None])

    def _in_any(self, pointers: int) -> Resolve:
        def resolve(manager: int, address: int) -> Optional[Resolved]:
            held = held_in_any(manager)
            if held is None:
                return None
            # The value may be a number: its size counts although it holds nothing.
            plan = self.plan(held[0], pointers) or TypePlan("struct", str(held[0]), int(held[0].sizeof))
            return Resolved(plan, is_outside=held[1])

        return resolve

    def _fill_container(self, made: TypePlan, type_: gdb.Type, kind: str, pointers: int) -> bool:
        if kind == "vector" and "_M_impl" in _names(type_):
            value = type_.template_argument(0).strip_typedefs()
            if value.code == gdb.TYPE_CODE_BOOL:
                made.kind = "bits"
                return True
            self._elements(made, "vector", value, pointers)
        elif kind == "basic_string" and "_M_dataplus" in _names(type_):
            made.kind, made.element_size = "string", int(type_.template_argument(0).sizeof)
        elif kind == "deque":
            self._elements(made, "deque", type_.template_argument(0), pointers)
        elif kind == "list" and "_M_impl" in _names(type_):
            self._nodes(made, "list", type_.template_argument(0), 16, pointers)
        elif kind == "forward_list" and "_M_impl" in _names(type_):
            self._nodes(made, "forward", type_.template_argument(0), 8, pointers)
        elif kind in _TREES:
            self._nodes(made, "tree", _value_type(type_, kind), 32, pointers)
        elif kind in _HASHES:
            self._nodes(made, "hash", _value_type(type_, kind), 8, pointers)
            if _caches_hash(type_):
                made.node_size += 8
        elif kind in ("unique_ptr", "shared_ptr", "optional"):
            self._fill_pointer(made, type_, kind, pointers)
        else:
            return False
        return True

    def _fill_libcxx(self, made: TypePlan, type_: gdb.Type, kind: str, pointers: int) -> bool:
        names = _names(type_) if kind else ()
        value: Any = type_.template_argument(0) if kind in ("vector", "deque", "list") else None
        if kind == "vector" and "__begin_" in names and value.strip_typedefs().code != gdb.TYPE_CODE_BOOL:
            self._elements(made, "vector", value, pointers)
        elif kind == "vector" and "__begin_" in names:
            made.kind = "libcxx_bits"
        elif kind == "basic_string" and ("__r_" in names or "__rep_" in names):
            data = _find_field(_find_field(type_, "__l")[1], "__data_")[0]
            made.kind = "libcxx_other_string" if data == 0 else "libcxx_string"
            made.element_size = int(type_.template_argument(0).sizeof)
        elif kind == "deque" and "__map_" in names:
            self._elements(made, "libcxx_deque", value, pointers)
        elif kind == "list" and "__end_" in names:
            self._nodes(made, "libcxx_list", value, 16, pointers)
        elif kind == "forward_list" and "__before_begin_" in names:
            self._nodes(made, "forward", type_.template_argument(0), 8, pointers)
        elif kind in _TREES and "__tree_" in names:
            # The value may begin right after the colour, which is one byte.
            _place_in_node(made, 25, self._values(made, "libcxx_tree", type_, kind, pointers))
        elif kind in _HASHES and "__table_" in names:
            _place_in_node(made, 16, self._values(made, "hash", type_, kind, pointers))
        elif kind == "shared_ptr" and "__cntrl_" in names:
            self._fill_pointer(made, type_, kind, pointers)
            made.count = 24
        else:
            return False
        return True

    def _values(self, made: TypePlan, kind: str, type_: gdb.Type, container: str, pointers: int) -> int:
        """Add the values of a map or set to *made*; return their alignment. Their pair may have no type."""
        try:
            value = _value_type(type_, container)
            self._elements(made, kind, value, pointers)
            return _alignment(value)
        except gdb.error:
            first, second = type_.template_argument(0), type_.template_argument(1)
            offset = _round(int(first.strip_typedefs().sizeof), _alignment(second))
            alignment = max(_alignment(first), _alignment(second))
            made.kind = kind
            made.element_size = _round(offset + int(second.strip_typedefs().sizeof), alignment)
            inner = [(0, "first", self._plan(first, pointers)),
                     (offset, "second", self._plan(second, pointers))]  # fmt: skip
            fields = [(at, name, plan) for at, name, plan in inner if plan is not None]
            made.element = TypePlan(
                "struct", f"{made.type_name}::value_type", made.element_size, fields=fields
            )
            return alignment

    def _fill_pointer(self, made: TypePlan, type_: gdb.Type, kind: str, pointers: int) -> None:
        target = type_.template_argument(0).strip_typedefs()
        made.kind = kind.partition("_")[0]
        made.count = 16  # bytes of libstdc++'s counts
        if kind == "unique_ptr" and target.code == gdb.TYPE_CODE_ARRAY and made.size == 8:
            self._elements(made, "owned_array", target.target(), pointers)
            made.element_offset = max(_alignment(target.target()), 8)
            return
        if kind == "unique_ptr" and made.size != 8:
            made.kind = "struct"  # a stateful deleter
            return
        made.element_size = int(target.sizeof)
        made.element = self._plan(target, pointers)
        if kind == "optional" and made.element is None:
            made.kind = "struct"

    def _elements(self, made: TypePlan, kind: str, value: gdb.Type, pointers: int) -> None:
        made.kind = kind
        made.element_size = max(int(value.strip_typedefs().sizeof), 1)
        made.element = self._plan(value, pointers)

    def _nodes(self, made: TypePlan, kind: str, value: gdb.Type, offset: int, pointers: int) -> None:
        """Make *made* a container of nodes that hold a *value* each, at *offset* or the next aligned place."""
        self._elements(made, kind, value, pointers)
        _place_in_node(made, offset, _alignment(value))

    def _fill_struct(self, made: TypePlan, type_: gdb.Type, pointers: int) -> None:
        for field in type_.fields():
            offset = offset_of(field)
            if getattr(field, "bitsize", 0) or offset is None or field.type is None:
                continue  # a static member, bits, or a virtual base
            inner = self._plan(field.type, pointers)
            if inner is not None:
                name = "" if field.is_base_class or not field.name else str(field.name)
                made.fields.append((offset, name, inner))

    def _pointer(self, target: gdb.Type, pointers: int) -> Optional[TypePlan]:
        inner = self._plan(target, pointers)
        return None if inner is None else TypePlan("pointer", "", 8, element=inner)

    def _array(self, type_: gdb.Type, pointers: int) -> Optional[TypePlan]:
        target = type_.target()
        inner = self._plan(target, pointers)
        size = int(target.strip_typedefs().sizeof)
        if inner is None or not size:
            return None
        return TypePlan("array", "", int(type_.sizeof), inner, size, count=int(type_.sizeof) // size)


def _is_around(type_: gdb.Type, name: str) -> bool:
    for pattern, field in _AROUND:
        if pattern.match(name):
            try:
                return bool(_find_field(type_, field))
            except RuntimeError:
                return False
    return False


def _places(type_: gdb.Type, *names: str) -> tuple[tuple[int, int], ...]:
    """Return offset and size of the fields called *names*; raises RuntimeError without one."""
    found = [_find_field(type_, name) for name in names]
    return tuple((offset, min(int(field.sizeof), 8)) for offset, field in found)


def _shift(made: TypePlan, type_: gdb.Type) -> None:
    """Make *made* read its container from its first pointer on, which follows a stateful allocator."""
    name, usual = _FIRST_FIELDS.get(made.kind, ("", 0))
    if not name or name not in _all_names(type_):
        return
    offset = _find_field(type_, name)[0] - usual
    if offset > 0:
        inner = replace(made, fields=[])
        made.kind, made.fields = "struct", [(offset, "", inner)]


def _all_names(type_: gdb.Type) -> set[str]:
    """Return the names of the fields of *type_*, of its bases and of its members without further containers."""
    names: set[str] = set()
    for field in fields_of(type_):
        if field.name and not field.is_base_class:
            names.add(str(field.name))
        inner = field.type.strip_typedefs() if field.type is not None else None
        if (
            inner is not None
            and inner.code == gdb.TYPE_CODE_STRUCT
            and (field.is_base_class or field.name in _INNER)
        ):
            names |= _all_names(inner)
    return names


_INNER = ("_M_impl", "_M_dataplus", "_M_t", "_M_h", "_M_node")


def _find_field(type_: gdb.Type, name: str) -> tuple[int, gdb.Type]:
    """Return offset and type of the first field called *name*, however deep; raises RuntimeError without one."""
    for field in type_.strip_typedefs().fields():
        offset_here = offset_of(field)
        if offset_here is None or field.type is None:
            continue  # a static member
        if field.name == name:
            return offset_here, field.type.strip_typedefs()
        if field.type.strip_typedefs().code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
            try:
                offset, found = _find_field(field.type, name)
            except RuntimeError:
                continue
            return offset_here + offset, found
    raise RuntimeError(f"no field {name}")


def _own_field(type_: gdb.Type, name: str) -> tuple[int, Optional[gdb.Type]]:
    """Return offset and type of the field called *name*, of *type_* or of its bases, not of its members."""
    for field in type_.fields():
        offset = offset_of(field)
        if offset is None:
            continue
        if field.name == name:
            return offset, field.type.strip_typedefs()
        if field.is_base_class:
            inner, found = _own_field(field.type.strip_typedefs(), name)
            if found is not None:
                return offset + inner, found
    return 0, None


def _tuple_parts(type_: gdb.Type, start: int) -> Iterator[tuple[int, int, gdb.Type]]:
    """Yield offset, number and type of the values of a tuple, as far as they aren't empty."""
    for field in type_.fields():
        offset = offset_of(field)
        if offset is None or field.type is None:
            continue
        inner = field.type.strip_typedefs()
        found = _TUPLE_PART.match(str(inner))
        if found is None and (field.is_base_class or field.name == "__base_"):
            yield from _tuple_parts(inner, start + offset)
        elif found is not None:
            for value in fields_of(inner):
                at = offset_of(value)
                if value.name in _TUPLE_VALUES and at is not None:
                    yield start + offset + at, int(found[1]), value.type


def _template_arguments(type_: gdb.Type) -> int:
    count = 0
    while True:
        try:
            type_.template_argument(count)
        except (gdb.error, RuntimeError):
            return count
        count += 1


def _place_in_node(made: TypePlan, offset: int, alignment: int) -> None:
    made.element_offset = _round(offset, alignment)
    made.node_size = _round(made.element_offset + made.element_size, max(alignment, 8))


def _names(type_: gdb.Type) -> set[str]:
    names: set[str] = set()
    for field in type_.fields():
        if field.name and not field.is_base_class:
            names.add(str(field.name))
        elif field.type is not None and field.type.strip_typedefs().code == gdb.TYPE_CODE_STRUCT:
            names |= _names(field.type.strip_typedefs())  # a base; from LLVM 21 nameless structs hold pairs
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


def _alignment(type_: gdb.Type) -> int:
    return max(int(getattr(type_.strip_typedefs(), "alignof", 8) or 8), 1)


def _round(size: int, to: int) -> int:
    return -(-size // to) * to


def _caches_hash(type_: gdb.Type) -> bool:
    # libstdc++ stores the hash in the node if computing it is slow: strings.
    return "basic_string" in str(type_.template_argument(0).strip_typedefs())
