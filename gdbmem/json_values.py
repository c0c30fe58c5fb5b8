"""Records and other values of the expected types from untrusted JSON.

Numbers are finite and below 2**64, which no size and no address exceeds.
"""

from __future__ import annotations

import functools
import math
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Callable, TypeVar, cast

from gdbmem.records import is_dataclass
from gdbmem.text import printable

# Raised by code that reads a JSON document of another form than it expects.
MISFITS = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)

_LIMIT = 1 << 64

Value = TypeVar("Value")


def from_json(kind: type[Value], value: object) -> Value:
    """Return *value* as a *kind*: a record with those in it, or another type that a field may be annotated with.

    Raises ValueError for other types, and for a record with unknown or missing fields.
    """
    found: Value = _reader(cast(Any, kind))(value)
    return found


def fits(kind: Any, value: object) -> bool:
    """Return whether `from_json` takes *value* as a *kind*."""
    try:
        _reader(kind)(value)
    except ValueError:
        return False
    return True


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind in (Any, object):
        return lambda value: value
    if origin is typing.Union:
        return _either([_reader(part) for part in parts if part is not type(None)], type(None) in parts)
    if origin in (list, Sequence):
        return _list(_reader(parts[0]))
    if origin is tuple:
        listed = _list(_reader(parts[0]))
        return lambda value: tuple(listed(value))
    if origin in (dict, Mapping):
        return _mapping(_reader(parts[0]), _reader(parts[1]))
    if is_dataclass(kind) or hasattr(kind, "__annotations__"):
        return _record(kind)
    return _plain(kind)


def _either(readers: Sequence[Callable[[Any], Any]], or_none: bool) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value is None and or_none:
            return None
        for reader in readers[:-1]:
            try:
                return reader(value)
            except ValueError:
                continue
        return readers[-1](value)

    return read


def _list(read_one: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    is_list = _plain(list)
    return lambda value: [read_one(one) for one in is_list(value)]


def _mapping(
    read_key: Callable[[Any], Any], read_one: Callable[[Any], Any]
) -> Callable[[Any], dict[Any, Any]]:
    is_object = _plain(dict)
    return lambda value: {read_key(key): read_one(one) for key, one in is_object(value).items()}


def _record(kind: Any) -> Callable[[Any], Any]:
    """Return the reader of a dataclass, a named tuple or a typed dict."""
    readers = {name: _reader(hint) for name, hint in typing.get_type_hints(kind).items()}

    def read(values: Any) -> Any:
        if not isinstance(values, dict):
            raise ValueError(f"{kind.__name__} without fields")
        unknown = values.keys() - readers.keys()
        if unknown:
            raise ValueError(f"{kind.__name__} with '{printable(min(unknown))}'")
        found = {name: readers[name](value) for name, value in values.items()}
        if not getattr(kind, "__required_keys__", frozenset()) <= found.keys():  # of a typed dict
            raise ValueError(f"{kind.__name__} without all of its fields")
        try:
            return kind(**found)
        except TypeError:
            raise ValueError(f"{kind.__name__} without all of its fields") from None

    return read


def _plain(kind: type) -> Callable[[Any], Any]:
    kinds = (int, float) if kind is float else kind

    def read(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{printable(repr(value))[:60]} where {kind.__name__} is expected")
        if isinstance(value, (int, float)) and not (abs(value) < _LIMIT and math.isfinite(value)):
            raise ValueError(f"{printable(repr(value))[:60]} where a number below 2**64 is expected")
        return value

    return read
