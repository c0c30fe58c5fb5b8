"""Smart pointers in raw memory: std::unique_ptr, of one object or of an array, and libstdc++'s std::shared_ptr.

Source of the layouts: libstdc++ unique_ptr.h, shared_ptr_base.h; of arrays the Itanium C++ ABI, 2.7 (array cookies).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbmem.analysis.containers.plans import Reader, Unsound

if TYPE_CHECKING:
    from gdbmem.analysis.containers.plans import TypePlan
    from gdbmem.analysis.containers.survey import Surveyor

_LEFT_OVER = 40  # bound on the excess of a glibc malloc block, with header, over the requested size


def read_unique(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read a unique_ptr: a pointer."""
    _owned(survey, path, plan, survey.words(address, 1)[0], 0, depth)


def _owned(survey: Surveyor, path: str, plan: TypePlan, target: int, control: int, depth: int) -> None:
    """Add the object at *target* that a smart pointer owns, and its contents; *control*: address of its counts."""
    if not target:
        return
    size, found = plan.element_size, None
    if plan.element is not None:
        found = survey.object_at(f"*{path}", plan.element, target)
        if found is None:
            return
        _, whole, target = found
        size = whole.size if plan.element.kind == "struct" else size
    if not survey.readable(target, max(size, 1)):
        raise Unsound
    if control:
        # make_shared puts the object after the counts; otherwise they have a separate block and pointer.
        inside = target - control
        size += plan.count if plan.count <= inside < plan.count + 64 else plan.count + 8
    survey.note(path, plan, 1, 1, size, 0)
    if found is not None:
        survey.later(survey.visit_inside, *found, depth + 1)


def read_owned_array(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read the array of a unique_ptr<T[]>: the number of elements precedes elements with destructors.

    It is not recorded elsewhere: if the malloc block does not have the matching size, it is unknown.
    """
    target, before, size = survey.words(address, 1)[0], plan.element_offset, plan.element_size
    if not target:
        return
    if plan.element is None or not plan.element.holds():
        survey.unread_object(path, plan)  # elements without destructors have no count
        return
    chunk = survey.words(target - before - 8, 1)[0] & -8
    count = survey.words(target - 8, 1)[0]
    held = before + count * size
    if not chunk - _LEFT_OVER < held <= chunk - 8:
        survey.unread_object(path, plan)
        return
    survey.note(path, plan, count, count, held, 0)
    survey.elements(path, plan, target, count, depth)


def read_shared(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Read a shared_ptr: a pointer, and the address of the counts."""
    target, control = survey.words(address, 2)
    if not target or not control:
        return
    if not survey.readable(control, 16):
        raise Unsound
    if not survey.is_new(target, "shared"):
        return  # many may share it: it is counted once
    _owned(survey, path, plan, target, control, depth)


OWNER_READERS: dict[str, Reader] = {
    "unique": read_unique,
    "owned_array": read_owned_array,
    "shared": read_shared,
}
