"""Joining a diff of heap snapshots with container scans from the same moments: the holders of a line's growth.

A container is named only if it grew by exactly the bytes that the line allocated by one call, and no other matching
container did.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Optional

from gdbmem.containers.containers import ContainerGrowth, growth, short_type
from gdbmem.json_values import as_json
from gdbmem.model.calltree import Frame
from gdbmem.model.containers import Holding, Survey
from gdbmem.model.diff import Diff
from gdbmem.profiles.own_code import describe_site, qualified_name
from gdbmem.profiles.paths import Query, Walk, walk
from gdbmem.terminal.console import Console, print_sentence
from gdbmem.terminal.document import Document
from gdbmem.text import format_delta, printable

_LEAST_BYTES = 256  # of a growth that is recognised by its number alone
_TEMPLATE = re.compile(r"std::(?:__\w+::)?(\w+)<([^,>]*)")
# Names of the containers' internals in the library's own functions.
_INSIDES = {
    "map": "_Rb_tree", "set": "_Rb_tree", "multimap": "_Rb_tree", "multiset": "_Rb_tree",
    "unordered_map": "_Hashtable", "unordered_set": "_Hashtable", "unordered_multimap": "_Hashtable",
    "unordered_multiset": "_Hashtable",
}  # fmt: skip


@dataclass
class _Part:
    # The bytes that one line allocated by one of its calls.
    site: Frame
    delta: int = 0
    functions: set[str] = field(default_factory=set)  # inside the site


def find_holdings(diff: Diff, query: Query, surveys: Sequence[Survey]) -> list[Holding]:
    """Return the containers that hold the growth in *diff*, largest first; *surveys*: scans at its ends and between."""
    grown = [row for row in growth(surveys[0], surveys[-1]) if row.delta_bytes > 0]
    found = []
    for part in _parts(diff, walk(diff, query)):
        row = _container_of(part, grown)
        if row is not None:
            grown.remove(row)
            found.append(_holding(part, row, surveys))
    return found


def _parts(diff: Diff, paths: Walk) -> list[_Part]:
    before, after = diff.own_before, diff.own_after
    parts: dict[tuple[int, int], _Part] = {}
    for node in range(1, len(diff)):
        site = paths.site[node]
        if before[node] == after[node] or not site or diff.uncertain[node]:
            continue
        call = diff.frame[diff.parent[site]] if diff.parent[site] else -1
        part = parts.setdefault((diff.frame[site], call), _Part(diff.frames[diff.frame[site]]))
        part.delta += after[node] - before[node]
        part.functions.update(_functions(diff, diff.parent[site]))
    return sorted((part for part in parts.values() if part.delta > 0), key=lambda part: -part.delta)


def _functions(diff: Diff, node: int) -> Iterable[str]:
    while node > 0:
        function = diff.frames[diff.frame[node]].function if diff.frame[node] >= 0 else None
        if function is not None:
            yield qualified_name(function)
        node = diff.parent[node]


def _container_of(part: _Part, grown: Sequence[ContainerGrowth]) -> Optional[ContainerGrowth]:
    equal = [row for row in grown if row.delta_bytes == part.delta]
    typed = [row for row in equal if _is_of_type(part, row.type_name)]
    if len(typed) == 1:
        return typed[0]
    return equal[0] if not typed and len(equal) == 1 and part.delta >= _LEAST_BYTES else None


def _is_of_type(part: _Part, type_name: str) -> bool:
    """Return whether a function inside the site is a member of the container *type_name*: ``std::map<int, …>::at``."""
    found = _TEMPLATE.match(type_name)
    if found is None or found[1] == "basic_string":
        return any("basic_string<" in name or "std::string::" in name for name in part.functions)
    names = [f"{found[1]}<{found[2]}"] + (
        [f"{_INSIDES[found[1]]}<{found[2]}"] if found[1] in _INSIDES else []
    )
    return any(name in function for name in names for function in part.functions)


def _holding(part: _Part, row: ContainerGrowth, surveys: Sequence[Survey]) -> Holding:
    sizes = [
        sum(c.size for c in survey.containers if (c.path, c.type_name) == (row.path, row.type_name))
        for survey in surveys
    ]
    never_shrank = all(earlier <= later for earlier, later in zip(sizes, sizes[1:]))
    return Holding(
        part.site,
        part.delta,
        row.path,
        row.type_name,
        row.before_size,
        row.after_size,
        len(surveys),
        never_shrank,
    )


# Containers that hold the growth, below a diff and in its JSON.


_MOST_SHOWN = 10


def print_holdings(found: Sequence[Holding], console: Console) -> None:
    """Print a sentence for each of *found*, after an empty line."""
    if found:
        console.print()
    for holding in found[:_MOST_SHOWN]:
        print_sentence(console, holding_sentence(holding))


def holding_sentence(holding: Holding) -> str:
    """Return the sentence that names the container of *holding*."""
    what = f"{printable(holding.container)} ({short_type(holding.type_name)})"
    added = holding.after_size - holding.before_size
    text = f"{describe_site(holding.site)} {format_delta(holding.delta_bytes)} = {what}"
    text += f", {added:+,} elements ({holding.before_size:,} to {holding.after_size:,})"
    if holding.surveys > 2 and holding.never_shrank:
        text += f"; none of {holding.surveys} surveys found fewer than the one before"
    return text


def holdings_document(found: Sequence[Holding]) -> list[Document]:
    """Return *found* for JSON."""
    return [as_json(holding) for holding in found]
