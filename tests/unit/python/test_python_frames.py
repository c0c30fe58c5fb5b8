"""The interpreter's own frames in a native path: one in place of several, the others as they are."""

from __future__ import annotations

from gdbmem.model.calltree import Frame
from gdbmem.python.frames import INTERPRETER, fold_interpreter

OWN = Frame("keep", "core.cpp", 46)
LOOP = [
    Frame(name, None, None, "/usr/bin/python3.11") for name in ("_PyEval_EvalFrameDefault", "PyEval_EvalCode")
]
FFI = Frame("ffi_call", None, None, "/usr/lib/libffi.so.8")


def test_several_frames_of_the_interpreter_are_one_with_their_number() -> None:
    folded = fold_interpreter([OWN, FFI, *LOOP, FFI, LOOP[0]])
    assert [folded[0], folded[1], folded[3], folded[4]] == [OWN, FFI, FFI, LOOP[0]]
    assert folded[2] == Frame(
        "_PyEval_EvalFrameDefault … (2 frames of the interpreter)", None, None, INTERPRETER
    )


def test_addresses_do_not_name_them() -> None:
    nameless = [
        Frame(f"0x{number:x}", None, None, "/usr/lib/libpython3.11.so.1.0") for number in (4096, 8192)
    ]
    assert [one.function for one in fold_interpreter(nameless)] == ["2 frames of the interpreter"]
