"""Dataclasses that cost almost nothing until they are used.

The standard library's decorator compiles up to six methods for each class (0.5 ms of CPU) and imports `inspect` (8 ms).
A command imports some hundred such classes and makes instances of a few. Here a method is compiled when it is first
called. The standard library's `fields`, `asdict` and `replace` take these classes too.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, NoReturn, Optional

_MISSING: Any = type("_Missing", (), {"__repr__": lambda self: "<factory>"})()
_FIELDS = "_record_fields"


class _Field(NamedTuple):
    """A field: its name, its type as written, its default, and where it takes part."""

    name: str
    type: Any
    default: Any
    default_factory: Any
    init: bool
    repr: bool
    compare: bool


def _field(
    *,
    default: Any = _MISSING,
    default_factory: Any = _MISSING,
    init: bool = True,
    repr: bool = True,  # noqa: A002  (the standard library's name)
    compare: bool = True,
) -> Any:
    """Return a default by which a field differs from others, as `dataclasses.field` does."""
    return _Field("", None, default, default_factory, init, repr, compare)


def _dataclass(cls: Optional[type] = None, *, frozen: bool = False) -> Any:
    """Make *cls* a dataclass; instances of one that is *frozen* are hashed, and their fields can't be set."""
    if cls is None:
        return lambda decorated: _make(decorated, frozen=frozen)
    return _make(cls, frozen=frozen)


def _make(cls: type, *, frozen: bool) -> type:
    own = vars(cls)
    is_hashed = own.get("__hash__") is not None
    setattr(cls, _FIELDS, _fields_of(cls))
    cls.__dataclass_fields__ = _StandardFields()  # type: ignore[attr-defined]
    cls.__signature__ = _Signature()  # type: ignore[attr-defined]
    taken = tuple(name for name, field in getattr(cls, _FIELDS).items() if field.init)
    methods: dict[str, Any] = {"__repr__": _repr, "__match_args__": taken}
    for name, write in (("__init__", _init_of), ("__eq__", _eq_of)):
        methods[name] = _written_when_called(cls, name, write, frozen=frozen)
    if frozen:
        methods.update(__setattr__=_refuse_to_set, __delattr__=_refuse_to_delete)
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    if not is_hashed:
        hashed = _written_when_called(cls, "__hash__", _hash_of, frozen=frozen) if frozen else None
        cls.__hash__ = hashed  # type: ignore[assignment]
    return cls


def _fields_of(cls: type) -> dict[str, _Field]:
    found: dict[str, _Field] = {}
    for base in cls.__mro__[-1:0:-1]:
        found.update(vars(base).get(_FIELDS, {}))
    # Before 3.10 a class without annotations shows those of its base.
    own = cls.__annotations__ if sys.version_info >= (3, 10) else vars(cls).get("__annotations__", {})
    for name, type_ in own.items():
        given = vars(cls).get(name, _MISSING)
        if isinstance(given, _Field):
            found[name] = given._replace(name=name, type=type_)
            if given.default is _MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, given.default)
        else:
            found[name] = _Field(name, type_, given, _MISSING, True, True, True)
    return found


def _written_when_called(cls: type, name: str, write: Callable[..., Any], *, frozen: bool) -> Any:
    """Return a method that replaces itself with the one that *write* generates from the fields, and calls it."""

    def method(*args: Any, **kwargs: Any) -> Any:
        written = write(cls, vars(cls)[_FIELDS].values(), frozen)
        written.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, written)
        return written(*args, **kwargs)

    return method


def _init_of(cls: type, fields: Any, frozen: bool) -> Any:
    names: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": _MISSING}
    parameters, lines = ["self"], []
    for field in fields:
        name, value = field.name, field.name
        if field.default_factory is not _MISSING:
            names[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}()"
            if field.init:
                parameters.append(f"{name}=_MISSING")
                value = f"{value} if {name} is _MISSING else {name}"
        elif field.default is not _MISSING:
            names[f"_default_{name}"] = field.default
            parameters += [f"{name}=_default_{name}"] if field.init else []
        elif field.init:
            parameters.append(name)
        if field.init or field.default_factory is not _MISSING:
            lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n ".join(lines) or "pass"
    return _compiled("__init__", f"def __init__({', '.join(parameters)}):\n {body}", names)


def _eq_of(cls: type, fields: Any, frozen: bool) -> Any:
    body = f"return {_tuple_of('self', fields)} == {_tuple_of('other', fields)}"
    text = (
        f"def __eq__(self, other):\n if other.__class__ is self.__class__:\n  {body}\n return NotImplemented"
    )
    return _compiled("__eq__", text, {})


def _hash_of(cls: type, fields: Any, frozen: bool) -> Any:
    return _compiled("__hash__", f"def __hash__(self):\n return hash({_tuple_of('self', fields)})", {})


def _tuple_of(what: str, fields: Any) -> str:
    return "(" + "".join(f"{what}.{field.name}," for field in fields if field.compare) + ")"


def _compiled(name: str, text: str, names: dict[str, Any]) -> Any:
    found: dict[str, Any] = {}
    exec(text, names, found)
    return found[name]


def _repr(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in _all_of(self).values() if one.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: Any, name: str, value: Any) -> NoReturn:
    from dataclasses import FrozenInstanceError  # 8 ms

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> NoReturn:
    from dataclasses import FrozenInstanceError  # 8 ms

    raise FrozenInstanceError(f"cannot delete field {name!r}")


class _StandardFields:
    """The fields of a class in the form of the standard library, created on access."""

    def __get__(self, instance: object, owner: type) -> Any:
        import dataclasses  # 8 ms

        def standard(field: _Field) -> Any:
            one: dict[str, Any] = {"init": field.init, "repr": field.repr, "compare": field.compare}
            if field.default is not _MISSING:
                one["default"] = field.default
            elif field.default_factory is not _MISSING:
                one["default_factory"] = field.default_factory
            return field.name, field.type, dataclasses.field(**one)

        known = getattr(owner, _FIELDS).values()
        made: Any = dataclasses.make_dataclass(owner.__name__, [standard(field) for field in known])
        return made.__dataclass_fields__


class _Signature:
    """The parameters of a class, for `help` and notebooks, created on access."""

    def __get__(self, instance: object, owner: type) -> Any:
        import inspect  # 8 ms

        own = vars(owner).get("__init__")
        if own is None or own.__module__ == __name__:  # not compiled yet
            own = _init_of(owner, getattr(owner, _FIELDS).values(), frozen=False)
        whole = inspect.signature(own)
        return whole.replace(parameters=list(whole.parameters.values())[1:])


def _all_of(record: Any) -> dict[str, _Field]:
    """Return the fields of *record*, a class or an instance, by name. Raises TypeError if it has none."""
    found: Optional[dict[str, _Field]] = getattr(record, _FIELDS, None)
    if found is None:
        raise TypeError("must be called with a dataclass type or instance")
    return found


def _fields(record: Any) -> tuple[_Field, ...]:
    """Return the fields of *record*, a class or an instance, in their order."""
    return tuple(_all_of(record).values())


def _is_dataclass(record: Any) -> bool:
    """Return whether *record* is a dataclass of this module or an instance of one."""
    return hasattr(record, _FIELDS)


def _replace(record: Any, **changes: Any) -> Any:
    """Return a copy of *record* with *changes*."""
    for field in _all_of(record).values():
        if field.init and field.name not in changes:
            changes[field.name] = getattr(record, field.name)
    return type(record)(**changes)


def _asdict(record: Any) -> dict[str, Any]:
    """Return the fields of *record* by name, with records in them, also in lists, tuples and dicts, as dicts too."""
    return {name: _plain(getattr(record, name)) for name in _all_of(record)}


def _plain(value: Any) -> Any:
    kind = type(value)
    if hasattr(kind, _FIELDS):
        return _asdict(value)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return kind(*map(_plain, value))
    if isinstance(value, (list, tuple)):
        return kind(map(_plain, value))
    if isinstance(value, dict):
        return kind((_plain(key), _plain(one)) for key, one in value.items())
    return value


if TYPE_CHECKING:  # for type checkers they are the standard library's
    from dataclasses import asdict as asdict
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import fields as fields
    from dataclasses import is_dataclass as is_dataclass
    from dataclasses import replace as replace
else:
    asdict, dataclass, field = _asdict, _dataclass, _field
    fields, is_dataclass, replace = _fields, _is_dataclass, _replace
