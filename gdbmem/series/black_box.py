"""The records of a black box, of processes that came near a limit: their file, and sentences about them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from gdbmem.errors import InputError
from gdbmem.files import JsonObject, read_small
from gdbmem.json_values import as_json, fits, from_json
from gdbmem.text import format_duration, format_size, plural, printable

FOLDER = "black-box"  # in the run's
FILE = "black-box.json"
CORE = "core"  # in the folder of a record
_MOST_BYTES = 16 << 20


class BlackBoxRecord(NamedTuple):
    """The state of one process on the way to the limit."""

    t: float  # seconds since the recording began, when it was taken
    level: float  # share of the limit that was used
    used_bytes: int
    limit_bytes: int
    limit_of: str  # "its control group", "this machine"
    pid: int
    name: str
    folder: str  # relative to the run folder
    is_held: bool  # the kernel was kept from killing meanwhile
    ledger_t: Optional[float] = None  # when the ledger was on disk; None: it is missing
    pause_seconds: Optional[float] = None  # for which the process was stopped
    parts: Sequence[str] = ()  # the files in the folder


class LevelReached(NamedTuple):
    """When a share of the limit was first used, since it was last far below."""

    level: float
    t: float


class BlackBoxEnd(NamedTuple):
    """The end of a process of which there is a record."""

    t: float
    pid: int
    is_killed: Optional[bool]  # by the kernel, for lack of memory; None if that is unknown
    kill_t: Optional[float] = None  # when the kernel began with that; None if it has not told


class BlackBox(NamedTuple):
    """Everything that a black box has recorded."""

    highest: float  # share of the limit that was used at most
    limit_bytes: int
    limit_of: str
    reached: Sequence[LevelReached] = ()
    records: Sequence[BlackBoxRecord] = ()
    ends: Sequence[BlackBoxEnd] = ()
    held_seconds: Optional[float] = None  # None: nothing was held
    notes: Sequence[str] = ()


def black_box_of(folder: Path) -> Optional[BlackBox]:
    """Return what the black box of the run in *folder* has recorded; None if it had none, or its file is malformed."""
    import json  # few runs have one

    def refuse(reason: str) -> InputError:
        return InputError(reason, slug="unreadable", hint="record again")

    try:
        found = json.loads(read_small(folder / FOLDER / FILE, limit_bytes=_MOST_BYTES, refuse=refuse))
    except (InputError, ValueError):
        return None
    return from_json(BlackBox, found) if fits(BlackBox, found) else None


def black_box_document(box: Optional[BlackBox]) -> Optional[JsonObject]:
    """Return *box* for JSON."""
    return None if box is None else as_json(box)


def black_box_sentences(box: BlackBox) -> list[str]:
    """Return what a report says of *box*."""
    limit = f"{printable(box.limit_of)}'s {format_size(box.limit_bytes)}"
    if not box.records:
        # It has seen no limit if none was near, or if the processes had ended before it began.
        used = f"at most {box.highest:.0%} of {limit} was used; " if box.limit_of else ""
        return [f"black box: {used}nothing was recorded", *map(printable, box.notes)]
    said = [_of_end(end, box) for end in box.ends]
    if not said:
        said = [f"black box: {plural(len(box.records), 'record')}; the last {_where(box.records[-1])}"]
    for folder in [record.folder for record in box.records if CORE in record.parts]:
        said.append(
            f"{printable(folder)}/{CORE} is its core: gdbmem heap --core RUN/{printable(folder)}/{CORE}"
        )
    if box.held_seconds is not None:
        said.append(f"the kernel's kill was held back for {format_duration(box.held_seconds)}")
    return [*said, *map(printable, box.notes)]


def _of_end(end: BlackBoxEnd, box: BlackBox) -> str:
    why = ", killed by the kernel for lack of memory" if end.is_killed else ""
    own = [record for record in box.records if record.pid == end.pid]
    whole = [record for record in own if record.ledger_t is not None and record.ledger_t <= end.t]
    name = f"process {end.pid}" + (f" ({printable(own[-1].name)})" if own else "")
    gone = f"black box: {name} was gone{why}"
    if whole:
        before = format_duration(end.t - (whole[-1].ledger_t or 0.0))
        gone += f" {before} after its last complete ledger was on disk, {_where(whole[-1])}"
    else:
        gone += "; no ledger of it was complete before"
    times = [
        f"{format_duration(end.t - one.t)} from {one.level:.0%}" for one in box.reached if one.t <= end.t
    ]
    gone += f"; there was {', '.join(times)} of the limit" if times else ""
    took = f"; the kill itself took {format_duration(end.t - end.kill_t)}" if end.kill_t is not None else ""
    return gone + took


def _where(record: BlackBoxRecord) -> str:
    limit = f"{printable(record.limit_of)}'s {format_size(record.limit_bytes)}"
    return f"at {record.level:.0%} of {limit}, in {printable(record.folder)}"
