"""The messages between gdb and its launcher: frozen data, and their form as JSON objects.

A question names its answer's class in its docstring. Notifications of gdb have no answer.
"""

import contextlib
import json
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional, TypeVar

from gdbmem.errors import GdbmemError, ToolError
from gdbmem.json_values import as_json, from_json
from gdbmem.text import printable

Message = tuple[Any, ...]  # any of the named tuples below: its class's name is its kind

# -- gdb's questions --------------------------------------------------------------------------------------


class AskTarget(NamedTuple):
    """Request for the valgrind that waits for gdb, answered by ValgrindTarget."""


class Restart(NamedTuple):
    """End valgrind and start a fresh one, with other *arguments* if not None. Answered by ValgrindTarget."""

    arguments: Optional[tuple[str, ...]] = None


class AskFate(NamedTuple):
    """Ask how the program ended; *exited*: gdb saw it exit. Answered by Fate."""

    exited: bool = False


class Ready(NamedTuple):
    """gdb has loaded, and handles Ctrl-C from here on. Answered by Done.

    *pid*: a recipe is played on that process, which runs *program*.
    """

    pid: Optional[int] = None
    program: str = ""


class Hear(NamedTuple):
    """Listen for Ctrl-C in the process group of *pid*. Answered by Done."""

    pid: int


class AskInterrupts(NamedTuple):
    """Request for the number of times that Ctrl-C was pressed, answered by Interrupts."""


class GiveKeyboard(NamedTuple):
    """The program runs and gets the keyboard, or has stopped. Answered by Done."""

    running: bool


class AskPlan(NamedTuple):
    """Request for the recipe to be played, answered by Plan."""


class AskNative(NamedTuple):
    """Request for the way to start the program natively, answered by NativePlan."""


class AskAttached(NamedTuple):
    """Request for the process to be attached, answered by AttachedPlan."""


class Collect(NamedTuple):
    """Copy the dump at *path*, as the process sees it, to *file* in the run folder. Answered by Done."""

    path: str
    file: str


# -- the launcher's answers -------------------------------------------------------------------------------


class Done(NamedTuple):
    """The request has been carried out."""


class Refused(NamedTuple):
    """The request has failed: the parts of a GdbmemError."""

    sentence: str
    slug: str
    hint: str

    @classmethod
    def of(cls, error: GdbmemError) -> "Refused":
        return cls(error.message, error.slug, error.hint)


class ValgrindTarget(NamedTuple):
    """A valgrind that waits for gdb; *vgdb* is the command that connects to it."""

    pid: int
    vgdb: tuple[str, ...]
    own_terminal: bool = False


class Fate(NamedTuple):
    """The end of the program, or the program that replaced it.

    *status* as in a shell, *sentence* for the user or "". *next* is a path to the program that replaced it (exec)
    and waits for gdb under the same valgrind; *replaced*: another one did, outside valgrind.
    """

    status: Optional[int] = None
    sentence: str = ""
    next: Optional[str] = None
    replaced: bool = False


class Interrupts(NamedTuple):
    """The number of times that Ctrl-C was pressed since the launch."""

    presses: int


class RecipePlan(NamedTuple):
    """A recipe in the form of `Recipe.to_plan()`."""

    plan: Mapping[str, Any]


class NativePlan(NamedTuple):
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


class AttachedPlan(NamedTuple):
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
    engine: str = ""  # the profiler that is switched on at once, and off when gdb leaves the process


# -- notifications by gdb ---------------------------------------------------------------------------------


class RecipeStarted(NamedTuple):
    """The program of a recipe has started."""


class ActionResult(NamedTuple):
    """The outcome of one action at a point's hit; *error* is set if it failed.

    *label*: the name of the snapshot, ledger, container scan or heap. *heap_bytes*: None if it is not a snapshot, or
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


class Hit(NamedTuple):
    """The recipe's point *point* had a wanted hit, its *hit*-th."""

    point: int
    hit: int
    place: Optional[str]
    thread: Optional[int]
    results: tuple[ActionResult, ...]


class Unresolved(NamedTuple):
    """The program has no such location."""

    point: int
    sentence: str


class CallsUnclear(NamedTuple):
    """The compiler has inlined the point's function so that calls of it can't be counted."""

    point: int
    sentence: str


class Noticed(NamedTuple):
    """A warning of gdbmem in gdb that the recipe's results need."""

    slug: str
    sentence: str


class PointFailed(NamedTuple):
    """A point was disabled from here on."""

    point: int
    sentence: str


class PointReport(NamedTuple):
    """A point's counts at the program's end: *hits* in all, *recorded* ones, calls *left* without a return.

    *unfinished*: calls that had not returned when their thread or the program ended.
    """

    point: int
    hits: int
    recorded: int
    pending: bool
    left: int
    unfinished: int = 0


class Stopped(NamedTuple):
    """A signal stopped the program."""

    sentence: str
    place: Optional[str]


class ConnectionLost(NamedTuple):
    """gdb lost the program."""


class Finished(NamedTuple):
    """The recipe was played to its end.

    *forks*: how many children gdb saw that had memory of their own; *vforks*: the processes of those that shared the
    program's.
    """

    fate: Fate
    forks: int = 0
    vforks: tuple[int, ...] = ()


class SnapTaken(NamedTuple):
    """A snapshot of an attached process is in the run, under *label*."""

    label: str
    pause_seconds: float
    notes: tuple[str, ...] = ()


class Failed(NamedTuple):
    """gdb could not do its work: the parts of a GdbmemError."""

    sentence: str
    slug: str = "internal"
    hint: str = ""


# -- as JSON ----------------------------------------------------------------------------------------------

_KINDS: dict[str, type[Message]] = {
    name: kind for name, kind in globals().items() if hasattr(kind, "_fields")
}


def encode(message: Message) -> dict[str, object]:
    """Return *message* as a JSON object."""
    return {"kind": type(message).__name__, **as_json(message)}


def decode(kind: object, fields: Mapping[str, Any]) -> Message:
    """Return the message of *kind*; raises ToolError if the kind or a field is unknown, missing or invalid."""
    found = _KINDS.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise _unknown(f"a message '{printable(str(kind))}'")
    try:
        return from_json(found, fields)
    except ValueError as error:
        raise _unknown(str(error)) from None


def _unknown(what: str) -> ToolError:
    return ToolError(
        f"gdb and its launcher don't understand each other: {what}",
        slug="launcher",
        hint="are two versions of gdbmem mixed? see 'gdbmem doctor'",
    )


# The connection between gdb and its launcher: messages as one JSON object per line over a Unix socket.
#
# gdb sends requests, which the launcher answers, and notifications, which have no answer. The trust in all messages
# rests on the socket's folder, which only its owner can enter.


ENVIRONMENT = "GDBMEM_SESSION"  # names the socket, in gdb's environment
NATIVE = "GDBMEM_NATIVE"  # set if gdb starts the program itself
NEWLINE = (
    "GDBMEM_NEWLINE"  # contains a newline: a shell's words that go through a gdb command must be on one line
)
ATTACHED = "GDBMEM_ATTACHED"  # set for an attached process
_LIMIT = 1 << 24


Answer = TypeVar("Answer", bound=Message)


class Received(NamedTuple):
    """A received message; *number*: of the question that it is, or that it answers. None: a notification."""

    message: Message
    number: Optional[int]


class Wire:
    """One end of the connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""
        self._questions = 0

    @classmethod
    def connect(cls, path: str) -> "Wire":
        """Connect to the launcher's socket at *path*; raises ToolError if it has ended."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
        except OSError as error:
            connection.close()
            raise _gone() from error
        return cls(connection)

    def fileno(self) -> int:
        return self._connection.fileno()

    def close(self) -> None:
        self._connection.close()

    def hang_up(self) -> None:
        """Close our sending side: a peer blocked in ask() fails at once. Its later notifications are ignored."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def send(self, message: Message, number: Optional[int] = None) -> None:
        """Send *message*; raises ToolError if the other end has closed."""
        line = json.dumps({**encode(message), "number": number}).encode() + b"\n"
        try:
            self._connection.sendall(line)
        except OSError as error:
            raise _gone() from error

    def ask(self, question: Message, answer: type[Answer]) -> Answer:
        """Send *question* and wait for its answer, of the class *answer*; a refusal is raised as ToolError."""
        # Numbered: the answer to a question that Ctrl-C cut short may still arrive before the next one's.
        self._questions += 1
        self.send(question, self._questions)
        found: Optional[Message] = None
        while found is None:
            received = self.receive()
            if received is None:
                raise _gone()
            found = next((one.message for one in received if one.number == self._questions), None)
        if isinstance(found, Refused):
            raise ToolError(found.sentence, slug=found.slug, hint=found.hint)
        if not isinstance(found, answer):
            raise ToolError(f"the launcher answered {type(found).__name__}", slug="launcher")
        return found

    def receive(self, *, wait: bool = True) -> Optional[list[Received]]:
        """Read once and return the messages that are complete; None when the other end has closed.

        Without *wait* there may be none to read.
        """
        try:
            data = self._connection.recv(1 << 16, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        if not data or len(self._buffer) > _LIMIT:
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [_received(line) for line in lines if line]


def _received(line: bytes) -> Received:
    fields = json.loads(line)
    return Received(number=fields.pop("number", None), message=decode(fields.pop("kind", None), fields))


def _gone() -> ToolError:
    return ToolError(
        "the gdbmem launcher that started this gdb has ended",
        slug="launcher-gone",
        hint="quit gdb and type 'gdbmem launch' again",
    )
