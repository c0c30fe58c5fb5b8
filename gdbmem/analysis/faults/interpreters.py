"""Growth through an interpreter that did not name its functions: the lines are the interpreter's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gdbmem.errors import Notice
from gdbmem.model.faults import FaultStack
from gdbmem.model.profiles.calltree import Frame
from gdbmem.patterns import lazy_pattern
from gdbmem.records import dataclass

_LARGE_SHARE = 0.5


@dataclass(frozen=True)
class _Interpreter:
    name: str
    loop: re.Pattern[str]  # functions that run code of the language
    sources: tuple[str, ...]  # how names of its files end
    remedy: str


_INTERPRETERS = (
    _Interpreter(
        "CPython",
        lazy_pattern(r"_?PyEval_(?:EvalFrameDefault|EvalFrameEx|EvalCode|Vector)\b[^\n]*"),
        (".py",),
        "'python -X perf' (3.12) names its functions; 'gdbmem python start PID' and 'gdbmem python traces PID' name the"
        " lines of a running process",
    ),
    _Interpreter(
        "node",
        lazy_pattern(r"v8::internal::Execution::[^\n]*|node::\w+::Run\b[^\n]*"),
        (".js", ".mjs", ".cjs", ".ts"),
        "'node --perf-basic-prof' names its functions",
    ),
)


def unnamed_interpreters(stacks: Iterable[tuple[FaultStack, Sequence[Frame]]]) -> list[Notice]:
    """Return a notice for an interpreter that most of the growth went through without a name of its language."""
    rows = [(one.grown_bytes or one.seen_bytes, frames) for one, frames in stacks]
    whole = sum(size for size, _ in rows)
    found = []
    for one in _INTERPRETERS:
        unnamed = sum(size for size, frames in rows if _is_unnamed(one, frames))
        if whole and unnamed >= _LARGE_SHARE * whole:
            text = f"{unnamed / whole:.0%} of the memory was requested by code that {one.name} runs, which has no names"
            found.append(
                Notice("faults-interpreter", f"{text}: the lines are the interpreter's own; {one.remedy}")
            )
    return found


def _is_unnamed(interpreter: _Interpreter, frames: Sequence[Frame]) -> bool:
    if any(frame.file is not None and frame.file.endswith(interpreter.sources) for frame in frames):
        return False
    return any(frame.function and interpreter.loop.fullmatch(frame.function) for frame in frames)
