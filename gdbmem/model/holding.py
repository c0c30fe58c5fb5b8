"""The program's containers, and the bytes that each holds of what a call path allocated."""

from __future__ import annotations

from gdbmem.model.profiles.calltree import Frame
from gdbmem.records import dataclass


@dataclass(frozen=True)
class Holding:
    """Bytes that a line allocated between two moments, found again in a container, to the byte."""

    site: Frame  # the user's own line
    delta_bytes: int
    container: str  # the path of the container, from a variable
    type_name: str
    before_size: int  # elements
    after_size: int
    surveys: int  # that were taken from the one moment to the other, both included
    never_shrank: bool  # no survey found fewer elements than the one before
