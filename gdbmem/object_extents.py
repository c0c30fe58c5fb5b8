"""Where the memory of a Python value is: addresses and sizes of its objects and buffers, from inside the process.

Nothing is called on the values but the buffer interfaces of numpy and pyarrow: no __sizeof__, no property, no iterator
of a class of the program. Sources: CPython, Include/cpython/listobject.h, dictobject.h, object.h; for GIL builds.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import sysconfig
import time
import types
from array import array
from itertools import chain
from typing import Any

_HAS_GC = 1 << 14  # in tp_flags
_GC_HEAD = 16
_PLAIN = frozenset((int, float, complex, str, bytes))  # one piece, without a header for the collector
_EXACT = _PLAIN | {bool, bytearray, list, tuple, dict, set, frozenset}  # whose __sizeof__ is CPython's own
# What a value shares with the program, and is not the value's own.
_OF_THE_PROGRAM = (
    type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.CodeType,
    types.FrameType, types.GetSetDescriptorType, property, type(None), bool,
)  # fmt: skip
_LIST_ITEMS, _DICT_KEYS = 24, 32  # offsets of a pointer in the object
_HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")
_MOST_PARTS = 4_000_000


class Extents:
    """The parts of a value: `starts` and `sizes` in bytes, some of them twice."""

    def __init__(self, until: float) -> None:
        """Follow values until that time, by time.monotonic()."""
        self.starts = array("q")
        self.sizes = array("q")
        self.is_whole = True  # False: there are more than could be followed
        self._until = until
        self._seen: set[int] = set()
        self._kept: list[Any] = []  # objects made here: no other may have their address meanwhile

    def follow(self, value: Any) -> None:
        """Add the parts of *value*, without objects that were added before."""
        todo = [value]
        while todo:
            one = todo.pop()
            kind = type(one)
            if kind in _PLAIN:
                self._add(id(one), sys.getsizeof(one))
            elif id(one) not in self._seen and not isinstance(one, _OF_THE_PROGRAM):
                if time.monotonic() > self._until or len(self.starts) > _MOST_PARTS:
                    self.is_whole = False
                    return
                self._seen.add(id(one))
                self._add_object(one, kind)
                self._add_contents(one, kind, todo)

    def _add_contents(self, one: Any, kind: Any, todo: list[Any]) -> None:
        """Add what *one* refers to; what has contents in turn comes into *todo*."""
        if kind.__module__.partition(".")[0] == "pyarrow":
            self._add_arrow(one, todo)
        elif _is_array(one):
            self._add_array(one, todo)
        else:
            start, size, measure = self.starts.append, self.sizes.append, sys.getsizeof
            # The collector does not visit the keys of a dictionary that are all strings.
            keys = list(dict.keys(one)) if isinstance(one, dict) else ()
            for inner in chain(keys, gc.get_referents(one)):
                if type(inner) in _PLAIN:
                    start(id(inner))
                    size(measure(inner))
                else:
                    todo.append(inner)

    def _add_object(self, one: Any, kind: Any) -> None:
        head = _GC_HEAD if kind.__flags__ & _HAS_GC else 0
        size = sys.getsizeof(one) if kind in _EXACT else object.__sizeof__(one) + head
        apart = 0
        if kind in (list, dict) and _HAS_GIL:
            apart = max(size - kind.__basicsize__ - head, 0)
            at = ctypes.c_size_t.from_address(id(one) + (_LIST_ITEMS if kind is list else _DICT_KEYS)).value
            self._add(at, apart if at else 0)
        elif kind is bytearray and one:
            with contextlib.suppress(BufferError, TypeError):
                self._add(ctypes.addressof(ctypes.c_char.from_buffer(one)), len(one))
                apart = len(one)
        self._add(id(one) - head, size - apart)

    def _add_array(self, one: Any, todo: list[Any]) -> None:
        """Add the memory that an array of numpy is in: that of its base, since a view keeps all of it."""
        if one.base is not None:
            todo.append(one.base)  # an array, or another owner of a buffer
            return
        if one.nbytes and one.flags.owndata:
            self._add(one.ctypes.data, one.nbytes)
        if one.dtype.hasobject:
            self._kept.append(one.ravel().tolist())
            todo += self._kept[-1]

    def _add_arrow(self, one: Any, todo: list[Any]) -> None:
        """Add the buffers of an array, a table, a buffer of pyarrow."""
        made: list[Any] = []
        with contextlib.suppress(Exception):  # whatever a foreign library raises for an odd array
            if hasattr(one, "address") and hasattr(one, "parent"):  # a buffer
                parent = one.parent
                made += [] if parent is None else [parent]
                self._add(one.address, one.size if parent is None else 0)
            elif hasattr(one, "buffers"):  # an array
                made += [buffer for buffer in one.buffers() if buffer is not None]
                made += [one.dictionary] if hasattr(one, "dictionary") else []
            elif hasattr(one, "chunks"):
                made += one.chunks
            elif hasattr(one, "columns"):
                made += one.columns
        self._kept += made
        todo += made

    def _add(self, start: int, size: int) -> None:
        if size > 0:
            self.starts.append(start)
            self.sizes.append(size)


def _is_array(one: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(one, numpy.ndarray)
