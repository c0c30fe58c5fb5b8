"""The text of Python's str objects (Include/cpython/unicodeobject.h), with consistency checks."""

from __future__ import annotations

import struct

from gdbmem.model.memory import Memory, MemoryUnreadable

_HEAD = struct.Struct("<QQqqI")  # refcount, type, length, hash, state
_ASCII_AT = (40, 48)  # of the characters, since CPython 3.12 and before
_COMPACT_AT = (56, 72)
_ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
_LONGEST = 1 << 16


def read_str(memory: Memory, address: int, *, control: bool = False) -> str:
    """Return the text of the str object at *address*; "" if none can be read there.

    With *control* it may have unprintable characters: only if it is known to be a str.
    """
    try:
        _, _, length, _, state = _HEAD.unpack(memory.read(address, _HEAD.size))
        if not 0 < length <= _LONGEST:
            return ""
        kind = state >> 2 & 7
        for at in _ASCII_AT:
            text = _text(memory, address + at, length, 1, control)
            if text and text.isascii():
                return text
        for at in _COMPACT_AT:
            text = _text(memory, address + at, length, kind if kind in _ENCODINGS else 1, control)
            if text:
                return text
    except MemoryUnreadable:
        pass
    return ""


def _text(memory: Memory, address: int, length: int, kind: int, control: bool) -> str:
    """Return *length* characters of *kind* bytes; "" unless a zero follows, and they are printable or *control*."""
    data = memory.read(address, (length + 1) * kind)
    try:
        text = data.decode(_ENCODINGS[kind])
    except UnicodeDecodeError:
        return ""
    text, end = text[:-1], text[-1:]
    return text if end == "\0" and (text.isprintable() or (control and "\0" not in text)) else ""
