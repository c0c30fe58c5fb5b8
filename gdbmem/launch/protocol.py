"""The protocol between gdb and its launcher: one JSON object a line over a Unix socket.

gdb asks, the launcher answers; what gdb merely tells has no answer. Nothing here is trusted more than
the folder the socket lies in, which only its owner can enter.
"""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any, Optional

from gdbmem.errors import ToolError

ENVIRONMENT = "GDBMEM_SESSION"  # names the socket, in gdb's environment
NATIVE = "GDBMEM_NATIVE"  # set where gdb starts the program itself
NEWLINE = (
    "GDBMEM_NEWLINE"  # holds one: a shell's words that go through a command of gdb's must be on one line
)
ATTACHED = "GDBMEM_ATTACHED"  # set where the process ran already
_LIMIT = 1 << 24


class Wire:
    """One end of the conversation."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""
        self._questions = 0

    @classmethod
    def connect(cls, path: str) -> Wire:
        """Connect to the launcher's socket at *path*; raises ToolError when it has gone."""
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
        """Answer no more: whoever waits for an answer hears so. What it still tells goes nowhere, and is no error."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def send(self, message: dict[str, Any]) -> None:
        """Send *message*; raises ToolError when the other end has gone."""
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise _gone() from error

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send *message* and wait for the answer; an answer with ``error`` is raised as ToolError."""
        # Numbered: the answer to a question that Ctrl-C cut short may still arrive before the next one's.
        self._questions += 1
        self.send({**message, "number": self._questions})
        answer = None
        while answer is None:
            messages = self.receive()
            if messages is None:
                raise _gone()
            answer = next((m for m in messages if m.get("number") == self._questions), None)
        if "error" in answer:
            raise ToolError(answer["error"], slug=answer.get("slug", "launcher"), hint=answer.get("hint", ""))
        return answer

    def receive(self) -> Optional[list[dict[str, Any]]]:
        """Read once and return the messages that are complete; None when the other end has closed."""
        try:
            data = self._connection.recv(1 << 16)
        except ConnectionError:
            return None
        if not data or len(self._buffer) > _LIMIT:
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines if line]


def _gone() -> ToolError:
    return ToolError(
        "the gdbmem launcher that started this gdb has gone",
        slug="launcher-gone",
        hint="leave gdb and type 'gdbmem launch' again",
    )
