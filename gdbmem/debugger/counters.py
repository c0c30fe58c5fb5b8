"""Instructions that write a variable which counts calls: by how much each counts it up."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

import gdb

_WRITES = re.compile(
    r"^(?:lock )?(mov|add|sub|inc|xadd|xchg|adc|sbb)([bwlq]?)\s+(?:(\$-?0x[0-9a-f]+|%\w+),)?"
    r"(?:-?0x[0-9a-f]+\(%rip\)\s+#.*|0x[0-9a-f]+|(?:-?0x[0-9a-f]+)?\(%\w+\))$"
)
_SIZES = {"b": 1, "w": 2, "l": 4, "q": 8}
_VECTOR = re.compile(r"%([xyz])mm")
_REGISTER = re.compile(r"^(?:(r(?:\d+|[a-d]x|[sd]i|[sb]p))|(e\w+|r\d+d)|([a-d]x|[sd]i|[sb]p|r\d+w))$")
_CARRY = 1  # in eflags


class CounterWrite(NamedTuple):
    """An instruction that writes a variable."""

    operation: str
    value: int  # it writes or adds; unless a register holds that
    register: str
    size: int  # of the variable, bytes
    address: int
    follows_call: bool = False  # other code may have run since the first of several increases

    def increase(self, frame: gdb.Frame) -> int:
        """Return by how much the instruction, where the thread of *frame* is, counts the variable up; 0 for down."""
        value = int(frame.read_register(self.register)) if self.register else self.value
        if self.operation in ("mov", "xchg"):
            value -= int.from_bytes(
                bytes(gdb.selected_inferior().read_memory(self.address, self.size)), "little"
            )
        if self.operation in ("adc", "sbb"):
            value += int(frame.read_register("eflags")) & _CARRY
        if self.operation in ("sub", "sbb"):
            value = -value
        value %= 1 << 8 * self.size
        return value if value < 1 << 8 * self.size - 1 else 0


def read_write(text: str, address: int) -> Optional[CounterWrite]:
    """Return how the instruction *text* writes the variable at *address*; None if it is not known to count."""
    found = _WRITES.match(text)
    if found is None or (found[3] is None) != (found[1] == "inc"):
        return None
    register = found[3][1:] if found[3] and found[3][0] == "%" else ""
    size = _SIZES.get(found[2]) or _size_of(register)
    value = 1 if found[1] == "inc" else int(found[3][1:], 16) if not register else 0
    return CounterWrite(found[1], value, register, size, address) if size else None


def width(text: str) -> int:
    """Return how many bytes the instruction *text* writes to memory, at most."""
    vector = _VECTOR.search(text)
    if vector:
        return {"x": 16, "y": 32, "z": 64}[vector[1]]
    found = _WRITES.match(text)
    return (found and (_SIZES.get(found[2]) or _size_of((found[3] or "").lstrip("%")))) or 8


def _size_of(register: str) -> int:
    found = _REGISTER.match(register)
    return 0 if found is None else 8 if found[1] else 4 if found[2] else 2
