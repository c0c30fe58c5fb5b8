"""Changes of containers between two scans."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.json_values import Key, as_json
from gdbmem.model.containers import Container, Survey, Uncounted
from gdbmem.terminal import drawing
from gdbmem.terminal.console import Console, print_notices
from gdbmem.terminal.document import Document, head, to_json
from gdbmem.text import format_delta, format_size, plural, printable


class ContainerGrowth(NamedTuple):
    """The change of one path between two scans."""

    path: str
    type_name: Annotated[str, Key("type")]
    before_size: int
    after_size: int
    delta_bytes: int


def growth(before: Survey, after: Survey) -> list[ContainerGrowth]:
    """Return the paths whose size or bytes changed, the largest change first."""
    old = {(c.path, c.type_name): c for c in before.containers}
    new = {(c.path, c.type_name): c for c in after.containers}
    rows = []
    for key in {**old, **new}:
        was, now = old.get(key), new.get(key)
        delta = (now.held_bytes if now else 0) - (was.held_bytes if was else 0)
        sizes = was.size if was else 0, now.size if now else 0
        if delta or sizes[0] != sizes[1]:
            rows.append(ContainerGrowth(*key, *sizes, delta))
    return sorted(rows, key=lambda row: -abs(row.delta_bytes))


# Naming the objects that a container scan reached and could not count.


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


# The containers of a program as text and JSON.


_NOISE = (
    (
        re.compile(r"std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> ?>"),
        "std::string",
    ),
    (
        re.compile(
            r"std::(__\w+)::basic_string<char, std::\1::char_traits<char>, std::\1::allocator<char> ?>"
        ),
        "std::string",
    ),
    (re.compile(r"std::__\w+::"), "std::"),
)
_DEFAULTS = re.compile(r", std::(allocator|less|hash|equal_to|default_delete)<")


def containers_json(survey: Survey, before: Optional[Survey] = None) -> str:
    """Return *survey* as ``kind=containers``; with *before*, with the change of each."""
    changes = {(g.path, g.type_name): g for g in growth(before, survey)} if before else {}
    rows = []
    for container in survey.containers:
        change = changes.get((container.path, container.type_name))
        deltas = (change.after_size - change.before_size, change.delta_bytes) if change else (0, 0)
        of_size, of_bytes = (None, None) if before is None else deltas
        rows.append({**as_json(container), "delta_size": of_size, "delta_bytes": of_bytes})
    names = ("held_bytes", "slack_bytes", "live_heap_bytes", "unread", "unsound")
    return to_json({**head("containers", survey.notices), "containers": rows, **as_json(survey, *names)})


def growth_document(before: Survey, after: Survey) -> Document:
    """Return the paths that changed between two scans, as ``kind=containers-growth``."""
    return {
        **head("containers-growth", [*before.notices, *after.notices]),
        "delta_bytes": after.held_bytes - before.held_bytes,
        "containers": [as_json(row) for row in growth(before, after)],
    }


def print_containers(survey: Survey, console: Console, top: int, expression: str = "") -> None:
    """Print the containers that hold most; *expression* is their origin, if not all variables."""
    console.print(drawing.Text(answer_survey(survey, expression), "bold"), soft_wrap=True)
    if not survey.containers:
        print_notices(survey.notices, console)
        return
    table = drawing.new_table("holds", "unused", "elements", "capacity", last="what")
    for container in survey.containers[:top]:
        table.add_row(
            format_size(container.held_bytes),
            format_size(container.slack_bytes) if container.slack_bytes else "",
            f"{container.size:,}",
            f"{container.capacity:,}",
            _what(container),
        )
    console.print()
    console.print(table)
    if len(survey.containers) > top:
        console.print(f"and {plural(len(survey.containers) - top, 'smaller one')} (--top)")
    live = survey.live_heap_bytes
    if live is not None:
        held = f"\nThat is {format_size(survey.held_bytes)}"
        beyond = "they have memory from elsewhere too, or some of them were overwritten"
        text = (
            f" of {format_size(live)}"
            if survey.held_bytes <= live
            else f"; {beyond}: malloc has given out {format_size(live)}"
        )
        console.print(f"{held}{text} of live heap.", soft_wrap=True)
    print_notices(survey.notices, console)


def answer_survey(survey: Survey, expression: str = "") -> str:
    """Return in one sentence the memory held by the containers, and the largest of them."""
    if not survey.containers and expression:
        return f"no container was reached from {printable(expression)}; it must be a variable, or in one"
    if not survey.containers:
        unread = sum(one.objects for one in survey.unread)
        others = f"; {plural(unread, 'object')} of other libraries were not read" if unread else ""
        return (
            "no container was reached from the program's variables; known are, in code compiled with -g, those of C++'s"
            " standard library and of Rust, boost's vectors and flat maps, protobuf's repeated fields and absl's flat"
            f" tables{others}"
        )
    count = sum(container.containers for container in survey.containers)
    unsound = sum(one.objects for one in survey.unsound)
    doubt = f" ({plural(unsound, 'more object')} can't be containers)" if unsound else ""
    text = f"{plural(count, 'container')} hold{'s' if count == 1 else ''} {format_size(survey.held_bytes)}{doubt}"
    slack = max(survey.containers, key=lambda c: c.slack_bytes)
    if slack.slack_bytes * 10 > survey.held_bytes:
        return (
            f"{text}; {format_size(survey.slack_bytes)} of it is unused capacity, most in"
            f" {printable(slack.path)}: {slack.size:,} of {slack.capacity:,} elements (shrink_to_fit returns it)"
        )
    first = survey.containers[0]
    return f"{text}; most in {printable(first.path)}: {format_size(first.held_bytes)}"


def print_container_growth(rows: Sequence[ContainerGrowth], console: Console, top: int, name: str) -> None:
    """Print the containers that changed since *name*."""
    if not rows:
        console.print(f"No container has changed since {printable(name)}.")
        return
    console.print(drawing.Text("; ".join(_change(row) for row in rows[:1]), "bold"), soft_wrap=True)
    table = drawing.new_table("change", "elements before", "after", last="what")
    for row in rows[:top]:
        style = "red" if row.delta_bytes > 0 else "green"
        what = f"{printable(row.path)}  {short_type(row.type_name)}"
        table.add_row(
            drawing.Text(format_delta(row.delta_bytes), style),
            f"{row.before_size:,}",
            f"{row.after_size:,}",
            what,
        )
    console.print()
    console.print(table)


def _change(row: ContainerGrowth) -> str:
    return (
        f"{printable(row.path)}: {row.before_size:,} → {row.after_size:,} elements,"
        f" {format_delta(row.delta_bytes)}"
    )


def _what(container: Container) -> str:
    many = f" (×{container.containers:,})" if container.containers > 1 else ""
    return f"{printable(container.path)}{many}  {short_type(container.type_name)}"


def short_type(name: str) -> str:
    """Return *name* without allocators and the library's inner namespaces."""
    for pattern, short in _NOISE:
        name = pattern.sub(short, name)
    while True:
        found = _DEFAULTS.search(name)
        if found is None:
            return printable(name)
        depth, at = 1, found.end()
        while depth and at < len(name):
            depth += (name[at] == "<") - (name[at] == ">")
            at += 1
        name = name[: found.start()] + name[at:].lstrip(" ")
