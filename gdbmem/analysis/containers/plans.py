"""The parts of a type that may hold containers: computed once for each type, used for each object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional

from gdbmem.records import dataclass, field

if TYPE_CHECKING:
    from gdbmem.analysis.containers.survey import Surveyor


class Unsound(Exception):  # noqa: N818  (it is counted)
    """An object that is not a valid container of its type: not constructed yet, destroyed, or overwritten."""


@dataclass
class TypePlan:
    """The parts of a type; *kind* determines how it is read."""

    # struct, vector, bits, string, deque, list, forward, tree, hash, unique, owned_array, shared, optional, array,
    # pointer, variant, any, counted, pointed, open_hash, unread (a container of an unknown library)
    kind: str
    type_name: str
    size: int  # of an object of this type
    element: Optional[TypePlan] = None  # plan of the elements; None if they hold no containers
    element_size: int = 0
    element_offset: int = 0  # of the value in a node; of an owned array the bytes before its first element
    node_size: int = 0
    count: int = 0  # of an array; of a shared_ptr the bytes of its counts
    fields: list[tuple[int, str, TypePlan]] = field(
        default_factory=list
    )  # offset (variant: index), name, plan
    # Offset and size of the numbers that a container of another library consists of, as its reader expects them.
    places: tuple[tuple[int, int], ...] = ()
    has_virtual_base: bool = False
    # The dynamic type of an object by its first word: its class by the vtable; the content of an any by its manager.
    resolve: Optional[Resolve] = None
    resolved: dict[int, Optional[Resolved]] = field(default_factory=dict)

    _holds: Optional[bool] = None

    def holds(self) -> bool:
        """True if containers may be in objects of this type (valid when all plans are complete)."""
        if self._holds is None:
            self._holds = self._look(set())
        return self._holds

    def _look(self, seen: set[int], *, seen_through: bool = False) -> bool:
        if self.kind == "struct" and self.resolve is not None and (seen_through or self.has_virtual_base):
            return True  # a derived class may hold what this one doesn't
        if id(self) in seen:
            return False
        seen.add(id(self))
        if self.kind in ("struct", "variant"):
            return any(plan._look(seen) for _, _, plan in self.fields)
        if self.kind in ("array", "pointer", "optional"):
            through = self.kind == "pointer"
            return self.element is not None and self.element._look(seen, seen_through=through)
        return True


@dataclass(frozen=True)
class Resolved:
    """The dynamic type of an object."""

    plan: TypePlan
    offset: int = 0  # offset of the part that was pointed to
    is_outside: bool = False  # the content of an any: in a separate block


Resolve = Callable[[int, int], Optional[Resolved]]
Reader = Callable[
    ["Surveyor", str, TypePlan, int, int], None
]  # of one kind of object: path, plan, address, depth
