"""Growth through interpreters whose code has no names."""

from __future__ import annotations

from gdbmem.faults.resident_by_path import unnamed_interpreters
from gdbmem.model.calltree import Frame
from gdbmem.model.faults import FaultStack

LOOP = Frame("_PyEval_EvalFrameDefault", "ceval.c", 4000)
OTHER = Frame("fill", "fill.c", 3)


def stack(size: float) -> FaultStack:
    return FaultStack(0, 1, 1, size, size, 1, 0.0, 0.0)


def slugs(*rows: tuple[float, list[Frame]]) -> list[str]:
    return [one.slug for one in unnamed_interpreters([(stack(size), frames) for size, frames in rows])]


def test_growth_through_an_interpreter_without_names_is_said_with_the_way_to_get_them() -> None:
    rows = [(stack(90.0), [Frame("_PyObject_Malloc"), LOOP]), (stack(10.0), [OTHER])]
    (notice,) = unnamed_interpreters(rows)
    assert "90%" in notice.message and "python -X perf" in notice.message
    assert "gdbmem python start PID" in notice.message


def test_names_of_the_language_or_a_small_share_need_no_remedy() -> None:
    assert slugs((90.0, [Frame("fill", "/x/fill.py"), LOOP]), (10.0, [LOOP])) == []
    assert slugs((90.0, [OTHER]), (10.0, [LOOP])) == []
    assert slugs() == []
    node = Frame("v8::internal::Execution::Call(v8::internal::Isolate*)")
    assert slugs((1.0, [node])) == ["faults-interpreter"]
    assert slugs((1.0, [Frame("fill", "/x/fill.js", 9), node])) == []
