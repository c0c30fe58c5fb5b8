"""The connection between gdb and its launcher: messages as one JSON object per line over a Unix socket.

gdb sends requests, which the launcher answers, and notifications, which have no answer. The trust in all
messages rests on the socket's folder, which only its owner can enter.
"""

from __future__ import annotations

import contextlib
import json
import socket
from typing import NamedTuple, Optional, TypeVar

from gdbmem.errors import ToolError
from gdbmem.launch.conversation.messages import Message, Refused, decode, encode

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
    def connect(cls, path: str) -> Wire:
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

    def receive(self) -> Optional[list[Received]]:
        """Read once and return the messages that are complete; None when the other end has closed."""
        try:
            data = self._connection.recv(1 << 16)
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
