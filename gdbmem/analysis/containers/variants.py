"""Objects that hold one of several types: std::variant by its index, std::any by its manager.

Source of the layouts: libstdc++ variant, any; libc++ variant, any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbmem.analysis.containers.plans import Reader

if TYPE_CHECKING:
    from gdbmem.analysis.containers.plans import TypePlan
    from gdbmem.analysis.containers.survey import Surveyor


def read_variant(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Visit the active alternative of a variant; one without a value has an invalid index."""
    held = survey.number(address + plan.element_offset, plan.element_size)
    for index, _, inner in plan.fields:
        if index == held:
            survey.visit_inside(inside(path, inner), inner, address, depth)


def read_any(survey: Surveyor, path: str, plan: TypePlan, address: int, depth: int) -> None:
    """Add the content of an any, and visit it: in place if it is small, else in a block."""
    manager = survey.words(address, 1)[0]
    if not manager or plan.resolve is None:
        return
    if manager not in plan.resolved:
        plan.resolved[manager] = plan.resolve(manager, address)
    found = plan.resolved[manager]
    if found is None:
        return
    target = address + plan.element_offset
    if found.is_outside:
        target = survey.words(target, 1)[0]
        if not target or not survey.readable(target, max(found.plan.size, 1)):
            return
        survey.note(path, plan, 1, 1, found.plan.size, 0)
        path = f"*{path}"
    survey.later(survey.visit_inside, inside(path, found.plan), found.plan, target, depth + 1)


def inside(path: str, plan: TypePlan) -> str:
    """Return the path of the content of an object at *path*: fields of several types may share a name."""
    return f"{path}.({plan.type_name})" if plan.kind == "struct" else path


ONE_OF_READERS: dict[str, Reader] = {"variant": read_variant, "any": read_any}
