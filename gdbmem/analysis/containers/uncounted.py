"""Naming the objects that a container scan reached and could not count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gdbmem.errors import Notice
from gdbmem.model.containers import Uncounted
from gdbmem.text import plural

_MOST_NAMED = 5
_LONGEST_NAME = 80


def ranked(objects: dict[tuple[str, str], int]) -> list[Uncounted]:
    """Return *objects*, counted by path and type, the most first."""
    found = [Uncounted(path, name, count) for (path, name), count in objects.items()]
    return sorted(found, key=lambda one: (-one.objects, one.path, one.type_name))


def not_read(unread: Sequence[Uncounted]) -> Notice:
    """Return the notice on containers of unknown layout."""
    objects: Counter[str] = Counter()
    for one in unread:
        objects[one.type_name] += one.objects
    types = sorted(objects, key=lambda name: (-objects[name], name))
    named = [f"{plural(objects[name], 'object')} of {_brief(name)}" for name in types[:_MOST_NAMED]]
    more = len(types) - len(named)
    text = f"not read, so their contents are not counted: {', '.join(named)}"
    return Notice("containers-unread", text + (f" and of {plural(more, 'further type')}" if more else ""))


def not_sound(unsound: Sequence[Uncounted]) -> Notice:
    """Return the notice on containers whose contents are invalid for their type."""
    count = sum(one.objects for one in unsound)
    named = [f"{one.path} ({_brief(one.type_name)})" for one in unsound[:_MOST_NAMED]]
    more = f" and {len(unsound) - len(named):,} more" if len(unsound) > len(named) else ""
    text = "not counted, because the content is not a container's (overwritten, destroyed or not constructed yet): "
    return Notice("containers-unsound", f"{plural(count, 'object')} {text}{', '.join(named)}{more}")


def _brief(type_name: str) -> str:
    return type_name if len(type_name) <= _LONGEST_NAME else f"{type_name[:_LONGEST_NAME]}…"
