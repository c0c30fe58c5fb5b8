"""The codec of gdbmem's own JSON documents: records to JSON values and back, by the annotations of their fields.

What is read is not trusted: types are checked; whole numbers are below 2**64, which no size and no address exceeds,
and others below its square, as variances of sizes are.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Callable, NamedTuple, Optional, TypeVar, cast

from gdbmem.files import JsonObject
from gdbmem.text import printable

# Raised by code that reads a JSON document of another form than it expects.
MISFITS = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)

FORMAT_VERSION = 1  # of the documents; 1: first version
_LIMIT = 1 << 64
_LISTS = (list, Sequence, tuple)

Value = TypeVar("Value")
Convert = Callable[[Any], Any]


class Key(NamedTuple):
    """How a document has a field of a record, where that differs: ``size: Annotated[int, Key("size_bytes")]``."""

    name: str = ""  # "": the field's own
    or_null: bool = False  # "" and 0 are null
    digits: Optional[int] = None  # the number is rounded to
    rows: bool = False  # records are arrays of their values, without names


class _Field(NamedTuple):
    """A field of a record, or a computed property."""

    name: str
    key: str  # its name in documents
    write: Optional[Convert]  # None: JSON has its values as they are
    kind: Any
    form: Key


def as_json(record: Any, *names: str) -> JsonObject:
    """Return the fields of *record*, a dataclass or a named tuple, as JSON values, with records in them likewise.

    With *names* only those, in this order; they may also be computed properties.
    """
    kind: Any = type(record)
    return {
        key: getattr(record, name) if write is None else write(getattr(record, name))
        for name, key, write, _, _ in _chosen(kind, names)
    }


@functools.cache
def _chosen(kind: Any, names: Sequence[str]) -> Sequence[_Field]:
    fields = _fields(kind)
    return [fields.get(name) or _property(kind, name) for name in names] or list(fields.values())


@functools.cache
def _fields(kind: Any) -> dict[str, _Field]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name: _field(name, hint) for name, hint in hints.items()}


def _property(kind: Any, name: str) -> _Field:
    return _field(name, typing.get_type_hints(getattr(kind, name).fget, include_extras=True)["return"])


def _field(name: str, hint: Any) -> _Field:
    form = Key()
    if typing.get_origin(hint) is Annotated:
        form, hint = hint.__metadata__[0], hint.__origin__
    return _Field(name, form.name or name, _field_writer(hint, form), hint, form)


def _field_writer(kind: Any, form: Key) -> Optional[Convert]:
    write = _row_writer(kind) if form.rows else _writer(kind)
    if form.or_null:
        return lambda value: value or None
    if form.digits is not None:
        return lambda value: None if value is None else round(value, form.digits)
    if write is None:
        return None
    return lambda value: None if value is None else write(value)


def _row_writer(kind: Any) -> Convert:
    if typing.get_origin(kind) in _LISTS:
        return lambda values: [list(as_json(value).values()) for value in values]
    return lambda value: list(as_json(value).values())


@functools.cache
def _writer(kind: Any) -> Optional[Convert]:
    """Return what makes JSON of values of *kind*; None if JSON has them as they are."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Union:
        writers = {_writer(part) for part in parts if part is not type(None)}
        return writers.pop() if len(writers) == 1 else as_json
    if origin is frozenset:
        return sorted
    if origin in _LISTS:
        write = _writer(parts[0])
        return list if write is None else lambda values: [write(value) for value in values]
    if origin in (dict, Mapping):
        write_one = _writer(parts[1])
        if write_one is None:
            return dict
        return lambda values: {key: write_one(value) for key, value in values.items()}
    return as_json if _is_record(kind) else None


def _is_record(kind: Any) -> bool:
    return hasattr(kind, "_fields") or hasattr(kind, "__dataclass_fields__")


def from_json(kind: type[Value], value: object) -> Value:
    """Return *value* as a *kind*: a record with those in it, or another type that a field may be annotated with.

    A value of a computed property is left out. Raises ValueError for other types, and for a record with unknown or
    missing fields.
    """
    found: Value = _reader(cast(Any, kind))(value)
    return found


def from_fields(kind: type[Value], values: object, **given: Any) -> Value:
    """Return the *kind* of which *values* has the fields that are not *given*; its other keys are left out.

    Raises ValueError for fields of other types, or that are missing.
    """
    record: Any = kind
    if not isinstance(values, dict):
        raise ValueError(f"{kind.__name__} without fields")
    for name, field in _fields(record).items():
        if name not in given and field.key in values:
            given[name] = _of_field(field)(values[field.key])
    made: Value = _made(record, given)
    return made


def fits(kind: Any, value: object) -> bool:
    """Return whether `from_json` takes *value* as a *kind*."""
    try:
        _reader(kind)(value)
    except ValueError:
        return False
    return True


@functools.cache
def _reader(kind: Any) -> Convert:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind in (Any, object):
        return lambda value: value
    if origin is typing.Union:
        return _either([_reader(part) for part in parts if part is not type(None)], type(None) in parts)
    if origin in (list, Sequence):
        return _list(_reader(parts[0]), parts[0])
    if origin in (tuple, frozenset):
        listed = _list(_reader(parts[0]))
        return lambda value: origin(listed(value))
    if origin in (dict, Mapping):
        return _mapping(_reader(parts[0]), _reader(parts[1]))
    if _is_record(kind) or hasattr(kind, "__annotations__"):
        return _record(kind)
    return _plain(kind)


def _of_field(field: _Field) -> Convert:
    read = _row_reader(field.kind) if field.form.rows else _reader(field.kind)

    def read_field(value: Any) -> Any:
        if value is None and field.form.or_null:
            return field.kind()
        try:
            return read(value)
        except ValueError as error:
            raise ValueError(f"{field.key}: {error}") from None

    return read_field


def _row_reader(kind: Any) -> Convert:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in _LISTS:
        listed = _list(_row_reader(parts[0]))
        return (lambda value: tuple(listed(value))) if origin is tuple else listed
    names = [field.key for field in _fields(kind).values()]
    read, is_list = _reader(kind), _plain(list)

    def read_row(value: Any) -> Any:
        if len(is_list(value)) != len(names):
            raise ValueError(f"{kind.__name__} without all of its fields")
        return read(dict(zip(names, value)))

    return read_row


def _either(readers: Sequence[Convert], or_none: bool) -> Convert:
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


def _list(read_one: Convert, kind: Any = None) -> Callable[[Any], list[Any]]:
    """Return the reader of a list of a *kind*, which *read_one* reads; many whole numbers are checked at once."""
    is_list = _plain(list)

    def read(value: Any) -> list[Any]:
        values: list[Any] = is_list(value)
        if kind is int and values and set(map(type, values)) == {int}:
            read_one(min(values))
            read_one(max(values))
            return values
        return [read_one(one) for one in values]

    return read


def _mapping(read_key: Convert, read_one: Convert) -> Callable[[Any], dict[Any, Any]]:
    is_object = _plain(dict)
    return lambda value: {read_key(key): read_one(one) for key, one in is_object(value).items()}


def _record(kind: Any) -> Convert:
    """Return the reader of a dataclass, a named tuple or a typed dict."""
    readers: dict[str, tuple[str, Convert]] = {}

    def read(values: Any) -> Any:
        if not isinstance(values, dict):
            raise ValueError(f"{kind.__name__} without fields")
        if not readers:  # made when they are needed: a record may have others of its kind
            readers.update({field.key: (name, _of_field(field)) for name, field in _fields(kind).items()})
        found = {}
        for key, value in values.items():
            if key in readers:
                name, read_one = readers[key]
                found[name] = read_one(value)
            elif not isinstance(getattr(kind, key, None), property):
                raise ValueError(f"{kind.__name__} with '{printable(key)}'")
        if not getattr(kind, "__required_keys__", frozenset()) <= found.keys():  # of a typed dict
            raise ValueError(f"{kind.__name__} without all of its fields")
        return _made(kind, found)

    return read


def _made(kind: Any, fields: Mapping[str, Any]) -> Any:
    try:
        return kind(**fields)
    except TypeError:
        raise ValueError(f"{kind.__name__} without all of its fields") from None


def _plain(kind: Any) -> Convert:
    kinds = (int, float) if kind is float else kind
    limit = _LIMIT**2 if kind is float else _LIMIT
    is_number = kind in (int, float)

    def read(value: Any) -> Any:
        if type(value) is kind and (not is_number or -limit < value < limit):
            return value  # nearly all: the checks below tell what is wrong
        if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{printable(repr(value))[:60]} where {kind.__name__} is expected")
        if isinstance(value, (int, float)) and not abs(value) < limit:  # nor NaN
            raise ValueError(f"{printable(repr(value))[:60]} where a smaller number is expected")
        return value

    return read
