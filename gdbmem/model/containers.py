"""The contents of a C++ program's containers, reached from its variables."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple, Optional

from gdbmem.errors import Notice
from gdbmem.json_values import Key
from gdbmem.model.calltree import Frame


class Container(NamedTuple):
    """One container, or all that share a path (``states[*].arcs``); sizes are bytes, counts elements."""

    path: str
    type_name: Annotated[str, Key("type")]
    containers: int
    size: int
    capacity: int
    held_bytes: int  # taken from the heap by it alone, not by what its elements hold
    slack_bytes: int  # of these, room for elements that aren't there


class Uncounted(NamedTuple):
    """Objects of one type at one path that were reached, and whose content is unknown."""

    path: str
    type_name: Annotated[str, Key("type")]
    objects: int


class Survey(NamedTuple):
    """All containers that were reached."""

    containers: Sequence[Container]
    notices: Sequence[Notice] = ()
    # All that malloc has given out; None: not known, or not all was asked for.
    live_heap_bytes: Optional[int] = None
    unread: tuple[Uncounted, ...] = ()  # their layout is not known
    unsound: tuple[Uncounted, ...] = ()  # they can't be objects of their type

    @property
    def held_bytes(self) -> int:
        return sum(container.held_bytes for container in self.containers)

    @property
    def slack_bytes(self) -> int:
        return sum(container.slack_bytes for container in self.containers)

    def check(self) -> None:
        """Raise ValueError if a container holds less than its slack, or a path occurs twice."""
        if any(not 0 <= c.slack_bytes <= c.held_bytes for c in self.containers):
            raise ValueError("a container has more slack than it holds")
        if len({(c.path, c.type_name) for c in self.containers}) != len(self.containers):
            raise ValueError("a path stands twice")


# The program's containers, and the bytes that each holds of what a call path allocated.


class Holding(NamedTuple):
    """Bytes that a line allocated between two moments, found again in a container, to the byte."""

    site: Frame  # the user's own line
    delta_bytes: int
    container: Annotated[str, Key("path")]  # from a variable
    type_name: Annotated[str, Key("type")]
    before_size: int  # elements
    after_size: int
    surveys: int  # that were taken from the one moment to the other, both included
    never_shrank: bool  # no survey found fewer elements than the one before
