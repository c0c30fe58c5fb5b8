"""gdbmem for programs that drive gdb: requests and events of gdb's debug adapter (DAP), and of its MI.

A request runs one of gdbmem's commands and returns its JSON document: ``gdbmem/explain`` and the like over DAP, with
the command's options as typed arguments, ``-gdbmem-explain`` with its words over MI. After each stop
``gdbmem/stopped`` (``=gdbmem-stopped``) tells what the program did to its memory since the previous one.

Source: the Debug Adapter Protocol; gdb.dap.server of gdb 14 and later; gdb's manual, "GDB/MI Commands In Python".
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable

import gdb

from gdbmem.commands.description import GdbCommand, Option
from gdbmem.commands.in_gdb import GDB_COMMANDS
from gdbmem.debugger.command import gdb_errors, implementation_of, warn
from gdbmem.debugger.memwatch.commands.auto import auto
from gdbmem.debugger.memwatch.gauges.gauge import accounts
from gdbmem.errors import GdbmemError
from gdbmem.files import JsonObject
from gdbmem.json_values import as_json
from gdbmem.text import printable

_REQUESTS = {
    "explain": "memexplain",
    "snapshot": "massif-snap",
    "snapshots": "massif-list",
    "diff": "massif-diff",
    "containers": "memcontainers",
    "heap": "memheap",
    "python": "mempython",
    "bfc": "membfc",
    "leaks": "memleaks",
    "steps": "memwatch report",
}
_WITHOUT = ("--json", "-o", "--force")  # a document is always returned, and never a file written
_MOST_STEPS = 100  # in an event
_STOP_SECONDS = 3
_Send = Callable[[JsonObject], None]
_progress_numbers = itertools.count(1)
_MI_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")


def install_adapter(interpreter: str) -> None:
    """Register the requests and the event with the *interpreter* that gdb was started with."""
    send = _register_dap() if interpreter == "dap" else _register_mi()
    auto.watch(_Stops(send).report)


def document(name: str, words: Sequence[str]) -> JsonObject:
    """Return the JSON document of gdbmem's command *name* with these *words*; raises gdb.GdbError with its message."""
    description = _described(name)
    answer = "{}"  # of a command without a document, and of --help
    with gdb_errors(name), tempfile.TemporaryDirectory(prefix="gdbmem-") as folder:
        command = implementation_of(description, name)
        if not any("--json" in one.names for one in description.options()):
            command.run(command.parser().parse_args(list(words)))
        else:
            path = Path(folder) / "answer.json"
            command.run(command.parser().parse_args(["--json", "-o", str(path), *words]))
            answer = path.read_text(encoding="utf-8")
    found: JsonObject = json.loads(answer)
    return found


def _described(name: str) -> GdbCommand:
    return next(one for one in GDB_COMMANDS if name in one.names)


def _answer(request: str, words: Sequence[str]) -> JsonObject:
    found = document(_REQUESTS[request], words)
    if request == "snapshot":
        return dict(document(_REQUESTS["snapshots"], [])["snapshots"][-1])
    return found


class _Stops:
    """Tells a client about the memory at each stop of the program."""

    def __init__(self, send: _Send) -> None:
        self._send = send
        self._told = 0  # steps of the account

    def report(self) -> None:
        """Send the steps since the previous stop, and the size now."""
        try:
            account = accounts.current()
            size_bytes = account.gauge.read()
        except (GdbmemError, gdb.error):
            return
        self._told = min(self._told, len(account.steps))  # another program, or `memwatch clear`
        steps, self._told = account.steps[self._told :], len(account.steps)
        self._send(
            {
                "source": account.gauge.source,
                "size_bytes": size_bytes,
                "steps": [as_json(step) for step in steps[-_MOST_STEPS:]],
                "omitted_steps": max(len(steps) - _MOST_STEPS, 0),
            }
        )


def _nobody(body: JsonObject) -> None:
    """Send nothing, but let steps be recorded."""


# gdb's debug adapter.


def _register_dap() -> _Send:
    # An object of gdb's hides this module from a plain import.
    server = importlib.import_module("gdb.dap.server")
    try:  # gdb doesn't document these
        server.capability("supportsGdbmem")(_Stops)
        for request, name in _REQUESTS.items():
            server.request(f"gdbmem/{request}")(_dap_request(server, request, name))
        for name in ("terminate", "disconnect"):
            _let_end_while_running(server, name)
    except (AttributeError, AssertionError) as error:
        warn(f"gdb's debug adapter takes no requests of gdbmem's ({error}); its console has the commands")
        return _nobody
    return lambda body: server.send_event("gdbmem/stopped", body)


def _let_end_while_running(server: Any, name: str) -> None:
    """Have the request *name* stop the program first if valgrind, or another server, runs it: gdb refuses otherwise."""
    # gdb's own table: it offers no other way to one of its requests.
    requests = getattr(server, "_commands", {})
    ordinary = requests.get(name)
    if ordinary is None:
        return

    def end(**given: Any) -> Any:
        stopped = threading.Event()
        if server.send_gdb_with_response(lambda: _interrupt_remote(stopped)):
            stopped.wait(_STOP_SECONDS)
        return ordinary(**given)

    requests[name] = end


def _interrupt_remote(stopped: threading.Event) -> bool:
    """Interrupt the program if it runs on a remote target, and set *stopped* when it stops; return whether it runs."""
    connection, thread = gdb.selected_inferior().connection, gdb.selected_thread()
    is_remote = connection is not None and "remote" in connection.type
    if not (is_remote and thread is not None and thread.is_running()):
        return False
    gdb.events.stop.connect(lambda _: stopped.set())
    gdb.execute("interrupt")
    return True


@contextlib.contextmanager
def _progress(server: Any, request: str) -> Iterator[None]:
    """Tell a client that can show it that a request is worked on, during the `with`."""
    asks = getattr(server, "client_bool_capability", None)  # since gdb 16
    if asks is None or not asks("supportsProgressReporting"):
        yield
        return
    name = f"gdbmem-{next(_progress_numbers)}"
    server.send_event("progressStart", {"progressId": name, "title": f"gdbmem: {request}"})
    try:
        yield
    finally:
        server.send_event("progressEnd", {"progressId": name})


def _dap_request(server: Any, request: str, name: str) -> Callable[..., JsonObject]:
    arguments = _arguments(_described(name))

    def answer(**given: Any) -> JsonObject:
        unknown = [key for key in given if key not in arguments]
        if unknown:
            known = ", ".join(arguments) or "none"
            raise gdb.GdbError(
                f"gdbmem/{request} has no argument '{printable(unknown[0])}'; it takes {known}"
            )
        # Operands come last, after a mark, so that none is taken for an option.
        options = [
            word for key, one in arguments.items() if one.names for word in _words(one, given.get(key))
        ]
        operands = [
            word for key, one in arguments.items() if not one.names for word in _words(one, given.get(key))
        ]
        with _progress(server, request):
            return _answer(request, [*options, "--", *operands] if operands else options)

    # gdb checks the types of what a client sends by these.
    answer.__annotations__ = {key: _type(one) for key, one in arguments.items()}
    return answer


def _arguments(description: GdbCommand) -> dict[str, Option]:
    """Return the options and operands that a request takes, by their names in DAP's spelling."""
    found = {}
    for one in description.options():
        if not {*one.names} & {*_WITHOUT} and "FILE" not in one.metavar:
            first, *others = one.dest.split("_")
            found["".join([first, *(word.capitalize() for word in others)])] = one
    return found


def _type(option: Option) -> Any:
    if not option.metavar and option.names:
        return bool
    if option.repeats:
        return Sequence
    return int if option.metavar in ("N", "COUNT") else str


def _words(option: Option, value: Any) -> list[str]:
    """Return the words of a command for *value* of an argument; None: not given."""
    if value is None or value is False:
        return []
    if value is True:
        return [option.names[-1]]
    values = [str(one) for one in value] if option.repeats else [str(value)]
    return [f"{option.names[-1]}={one}" for one in values] if option.names else values


# gdb's machine interface.


def _register_mi() -> _Send:
    if not hasattr(gdb, "MICommand"):  # since gdb 12
        return _nobody

    class Request(gdb.MICommand):  # type: ignore[misc]  # gdb's module has no types
        """A command of gdb's MI."""

        def __init__(self, request: str) -> None:
            super().__init__(f"-gdbmem-{request}")
            self._request = request

        def invoke(self, words: list[str]) -> Any:
            """Called by gdb with the words after the command's name."""
            options = words[: words.index("--")] if "--" in words else words
            if any(word.startswith(("-o", "--output")) for word in options):
                raise gdb.GdbError(
                    f"-gdbmem-{self._request} returns its result and writes no file: leave out -o"
                )
            return mi_value(_answer(self._request, words))

    for request in _REQUESTS:
        Request(request)
    if not hasattr(gdb, "notify_mi"):  # since gdb 14
        return _nobody
    return lambda body: gdb.notify_mi("gdbmem-stopped", mi_value(body))


def mi_value(value: Any) -> Any:
    """Return *value* of a JSON document with what MI can carry: tuples, lists and strings.

    An unknown value is left out of its tuple, and an "?" in a list; an object whose keys are no names for MI becomes a
    list of tuples with `key` and `value`.
    """
    if isinstance(value, Mapping):
        known = {str(key): mi_value(one) for key, one in value.items() if one is not None}
        if all(map(_MI_NAME.match, known)):
            return known
        return [{"key": key, "value": one} for key, one in known.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ["?" if one is None else mi_value(one) for one in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
