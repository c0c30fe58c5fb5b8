"""The messages between gdb and its launcher: frozen data, and their form as JSON objects.

A question names its answer's class in its docstring. Notifications of gdb have no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from gdbmem.errors import GdbmemError, ToolError
from gdbmem.json_values import from_json
from gdbmem.records import asdict, dataclass
from gdbmem.text import printable


@dataclass(frozen=True)
class Message:
    """Anything that one end sends to the other; its class's name is its kind."""


# -- gdb's questions --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AskTarget(Message):
    """Request for the valgrind that waits for gdb, answered by ValgrindTarget."""


@dataclass(frozen=True)
class Restart(Message):
    """End valgrind and start a fresh one, with other *arguments* if not None. Answered by ValgrindTarget."""

    arguments: Optional[tuple[str, ...]] = None


@dataclass(frozen=True)
class AskFate(Message):
    """Ask how the program ended; *exited*: gdb saw it exit. Answered by Fate."""

    exited: bool = False


@dataclass(frozen=True)
class Ready(Message):
    """gdb has loaded, and handles Ctrl-C from here on. Answered by Done."""


@dataclass(frozen=True)
class Hear(Message):
    """Listen for Ctrl-C in the process group of *pid*. Answered by Done."""

    pid: int


@dataclass(frozen=True)
class AskInterrupts(Message):
    """Request for the number of times that Ctrl-C was pressed, answered by Interrupts."""


@dataclass(frozen=True)
class GiveKeyboard(Message):
    """The program runs and gets the keyboard, or has stopped. Answered by Done."""

    running: bool


@dataclass(frozen=True)
class AskPlan(Message):
    """Request for the recipe to be played, answered by Plan."""


@dataclass(frozen=True)
class AskNative(Message):
    """Request for the way to start the program natively, answered by NativePlan."""


@dataclass(frozen=True)
class AskAttached(Message):
    """Request for the process to be attached, answered by AttachedPlan."""


@dataclass(frozen=True)
class Collect(Message):
    """Copy the dump at *path*, as the process sees it, to *file* in the run folder. Answered by Done."""

    path: str
    file: str


# -- the launcher's answers -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done(Message):
    """The request has been carried out."""


@dataclass(frozen=True)
class Refused(Message):
    """The request has failed: the parts of a GdbmemError."""

    sentence: str
    slug: str
    hint: str

    @classmethod
    def of(cls, error: GdbmemError) -> Refused:
        return cls(error.message, error.slug, error.hint)


@dataclass(frozen=True)
class ValgrindTarget(Message):
    """A valgrind that waits for gdb; *vgdb* is the command that connects to it."""

    pid: int
    vgdb: tuple[str, ...]
    own_terminal: bool = False


@dataclass(frozen=True)
class Fate(Message):
    """The end of the program, or the program that replaced it.

    *status* as in a shell, *sentence* for the user or "". *next* is a path to the program that replaced it (exec)
    and waits for gdb under the same valgrind; *replaced*: another one did, outside valgrind.
    """

    status: Optional[int] = None
    sentence: str = ""
    next: Optional[str] = None
    replaced: bool = False


@dataclass(frozen=True)
class Interrupts(Message):
    """The number of times that Ctrl-C was pressed since the launch."""

    count: int


@dataclass(frozen=True)
class RecipePlan(Message):
    """A recipe in the form of `Recipe.to_plan()`."""

    plan: Mapping[str, Any]


@dataclass(frozen=True)
class NativePlan(Message):
    """The start of a program by gdb itself.

    *began*: seconds since 1970. *wrapper* and *streams* are a shell's words; *library* is the preloaded library, or "".
    *prefix*: the beginning of the names of the engine's own dumps. *folder*: the program's current folder; None:
    gdb's. *period*: page faults per sample; 0: automatic.
    """

    engine: str
    began: float
    wrapper: str
    prefix: str
    library: str
    folder: Optional[str]
    streams: str
    period: int = 0


@dataclass(frozen=True)
class AttachedPlan(Message):
    """A running process, and how gdb attaches to it.

    *valgrind*: set if it runs under valgrind; gdb traces it otherwise. *there*: a folder that the process can write
    to. *sysroot* and *program*: where gdb finds the process's files, if not by their paths. *calls*: the file whose
    lock gdb holds during a call. *tracer*: the file of the lock that gdb's tracing thread holds. *prefix*: the
    beginning of the names of a profiler's dumps. *harmless*: its threads whose seccomp filters allow injected calls, as
    "TID:FILTERS".
    """

    pid: int
    valgrind: Optional[ValgrindTarget]
    is_stopped: bool
    there: str
    sysroot: Optional[str]
    program: Optional[str]
    calls: Optional[str]
    tracer: Optional[str]
    prefix: str
    harmless: tuple[str, ...] = ()


# -- notifications by gdb ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecipeStarted(Message):
    """The program of a recipe has started."""


@dataclass(frozen=True)
class ActionResult(Message):
    """The outcome of one action at a point's hit; *error* is set if it failed.

    *label*: the name of the snapshot, ledger or container scan. *heap_bytes*: None if it is not a snapshot, or
    unknown. *warning*: why a snapshot may have seen too little. *room*: why the program's own calls may fail.
    """

    action: str
    argument: str
    text: str = ""
    label: Optional[str] = None
    heap_bytes: Optional[int] = None
    warning: Optional[str] = None
    error: Optional[str] = None
    room: Optional[str] = None


@dataclass(frozen=True)
class Hit(Message):
    """The recipe's point *point* had a wanted hit, its *hit*-th."""

    point: int
    hit: int
    place: Optional[str]
    thread: Optional[int]
    results: tuple[ActionResult, ...]


@dataclass(frozen=True)
class Unresolved(Message):
    """The program has no such location."""

    point: int
    sentence: str


@dataclass(frozen=True)
class CallsUnclear(Message):
    """The compiler has inlined the point's function so that calls of it can't be counted."""

    point: int
    sentence: str


@dataclass(frozen=True)
class PointFailed(Message):
    """A point was disabled from here on."""

    point: int
    sentence: str


@dataclass(frozen=True)
class PointReport(Message):
    """A point's counts at the program's end: *hits* in all, *recorded* ones, calls *left* without a return.

    *unfinished*: calls that had not returned when their thread or the program ended.
    """

    point: int
    hits: int
    recorded: int
    pending: bool
    left: int
    unfinished: int = 0


@dataclass(frozen=True)
class Stopped(Message):
    """A signal stopped the program."""

    sentence: str
    place: Optional[str]


@dataclass(frozen=True)
class ConnectionLost(Message):
    """gdb lost the program."""


@dataclass(frozen=True)
class Finished(Message):
    """The recipe was played to its end; *forks*: the children that gdb saw the program fork."""

    fate: Fate
    forks: int = 0


@dataclass(frozen=True)
class SnapTaken(Message):
    """A snapshot of an attached process is in the run, under *label*."""

    label: str
    pause_seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failed(Message):
    """gdb could not do its work: the parts of a GdbmemError."""

    sentence: str
    slug: str = "internal"
    hint: str = ""


# -- as JSON ----------------------------------------------------------------------------------------------


def encode(message: Message) -> dict[str, object]:
    """Return *message* as a JSON object."""
    return {"kind": type(message).__name__, **asdict(message)}


def decode(kind: object, fields: Mapping[str, Any]) -> Message:
    """Return the message of *kind*; raises ToolError if the kind or a field is unknown, missing or invalid."""
    found = next((one for one in Message.__subclasses__() if one.__name__ == kind), None)
    if found is None:
        raise _unknown(f"a message '{printable(str(kind))}'")
    try:
        message: Message = from_json(found, fields)
    except ValueError as error:
        raise _unknown(str(error)) from None
    return message


def _unknown(what: str) -> ToolError:
    return ToolError(
        f"gdb and its launcher don't understand each other: {what}",
        slug="launcher",
        hint="are two versions of gdbmem mixed? see 'gdbmem doctor'",
    )
