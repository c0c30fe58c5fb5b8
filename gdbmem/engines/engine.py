"""An engine: one table of how it runs, what it costs, what it can't see and what it needs."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Protocol, Union

from gdbmem.errors import TargetError, UsageError
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.engines.valgrind import ValgrindEngine, ValgrindOptions

VALGRIND, NATIVE = "valgrind", "native"
AUTO = "auto"  # in the place of a name: launch.engine_choice chooses one
EngineOptions = Union["ValgrindOptions", "NativeOptions"]


class EngineTable(NamedTuple):
    """One engine, declared: `gdbmem doctor`, the documentation and --engine read this."""

    name: str
    runs: str  # VALGRIND, or NATIVE: the program itself, under gdb
    summary: str
    cost: str  # how much slower a program gets, measured on examples/decoder
    counts: str  # which bytes
    blind: Sequence[str]  # what it can't see
    library: str = ""  # that is preloaded, as the loader knows it: tcmalloc
    command: str = ""  # that has to be installed
    package: str = ""  # Debian's, that brings it
    whole_run: bool = False  # it writes one profile, when the program ends
    options: Sequence[str] = ()  # of a native one: what it takes of NativeOptions, as the user writes it
    reads_memory: bool = False  # a snapshot calls nothing in the program: it is read while it stands still


class NativeOptions(NamedTuple):
    """The options of an engine that runs natively; sizes are bytes, None is the engine's default."""

    sample_rate: Optional[int] = None  # one sample each so many bytes; 0: every allocation
    dump_interval: Optional[int] = None  # a spontaneous dump whenever so much more was allocated
    frames: Optional[int] = None  # of each traceback
    period: Optional[int] = None  # page faults to a sample


class Call(NamedTuple):
    """One call into the program for a snapshot.

    `finish` gets what it returned, and returns the call to be made next, if there is one; it raises TargetError.
    """

    function: str
    arguments: Sequence[int]
    finish: "Callable[[int], Optional[Call]]"


class Inferior(Protocol):
    """The stopped program, as an engine may use it."""

    @property
    def process(self) -> int:
        """Its process id."""

    def call(self, function: str, arguments: Sequence[int]) -> int:
        """Call *function* with integers and addresses; raises TargetError if it can't be."""

    def place(self, data: bytes) -> int:
        """Put *data* into memory of our own in the program, not its heap's; return its address."""

    def read(self, address: int, size: int) -> bytes:
        """Return *size* bytes of the program's memory."""


class NativeEngine(Protocol):
    """The interface of the module of an engine that runs natively."""

    TABLE: EngineTable

    def environment(self, prefix: str, options: NativeOptions) -> Mapping[str, str]:
        """Return what the program's environment needs; *prefix* is a plain path that its files begin with."""

    def snapshot(self, inferior: Inferior, prefix: str, target: str) -> Call:
        """Return the call that has the program write a heap profile to the file *target*, a plain path.

        What it needs in the program's memory is put there now. An engine that reads memory or profiles whole runs has
        no such function.
        """


class Profiler(Protocol):
    """The interface of an engine's module for a process that runs already."""

    FUNCTIONS: Sequence[str]  # how the function may be called by which its profiler is asked

    def turn_on(self, inferior: Inferior, function: str, prefix: str) -> str:
        """Start the profiler's counting if it has not started yet; return a message for the user then, else "".

        Files that it writes by itself will begin with *prefix*. Raises TargetError if it can't count.
        """

    def turn_off(self, inferior: Inferior, function: str) -> None:
        """Stop the counting that turn_on() has started."""

    def request(self, inferior: Inferior, function: str, target: str) -> Call:
        """Return the call that makes it write a profile: to *target*, or to the path that it was started with."""


NAMES = ("massif", "memcheck", "gperftools", "jemalloc", "dhat", "heaptrack", "tracemalloc", "faults", "none")
NATIVE_NAMES = ("gperftools", "jemalloc", "heaptrack", "tracemalloc", "faults", "none")


def native_engine(name: str) -> NativeEngine:
    """Return the module of the native engine *name*."""
    module: NativeEngine = importlib.import_module(f"gdbmem.engines.{_module(name)}")
    return module


def profilers() -> Mapping[str, Profiler]:
    """Return the engines that a process may have loaded by itself."""
    return {name: importlib.import_module(f"gdbmem.engines.{name}") for name in ("gperftools", "jemalloc")}


def valgrind_engine(name: str) -> "ValgrindEngine":
    """Return the module of the engine *name*, one of valgrind's tools."""
    module: ValgrindEngine = importlib.import_module(f"gdbmem.engines.{_module(name)}")
    return module


def end_of(name: str) -> str:
    """Return what the engine *name* writes at a program's end, in words; an unknown one counts as massif."""
    if name in NATIVE_NAMES:
        return ""
    return valgrind_engine(name if name in NAMES else "massif").END


def options_of(name: str, given: Mapping[str, Any]) -> EngineOptions:
    """Return the options of the engine *name* with what is *given*; raises UsageError for those of another."""
    for option in given:
        if option not in _taken_by(name):
            others = ", ".join(other for other in NAMES if option in _taken_by(other))
            raise UsageError(
                f"--{_as_typed(option)} cannot be used with --engine {name}",
                slug="bad-option",
                hint=f"it is for {others}",
            )
    return NativeOptions(**given) if name in NATIVE_NAMES else valgrind_engine(name).OPTIONS(**given)


def _taken_by(name: str) -> set[str]:
    if name in NATIVE_NAMES:
        return {word.replace("-", "_") for word in table(name).options}
    return set(vars(valgrind_engine(name).OPTIONS()))


def _as_typed(option: str) -> str:
    word = option.replace("_", "-")
    return word[:-1] if word.endswith(("-opts", "-fns")) else word  # those may be given several times


def table(name: str) -> EngineTable:
    """Return the table of the engine *name*; raises UsageError if there is no such engine."""
    if name not in NAMES:
        raise UsageError(
            f"there is no engine '{printable(name)}'",
            slug="no-such-engine",
            hint=f"there are {', '.join(NAMES)}",
        )
    found: EngineTable = importlib.import_module(f"gdbmem.engines.{_module(name)}").TABLE
    return found


def _module(name: str) -> str:
    return "no_engine" if name == "none" else name


def tables() -> list[EngineTable]:
    """Return the tables of all engines."""
    return [table(name) for name in NAMES]


def no_snapshots(name: str) -> TargetError:
    """Return the error for a snapshot under the engine *name*, which profiles whole runs."""
    return TargetError(
        f"{name} takes no snapshots: it profiles the whole run, and writes its profile when the program ends",
        slug="whole-run",
        hint="for snapshots quit gdb and launch with --massif, or --engine gperftools, jemalloc or memcheck",
    )


def nothing_written(message: str, pid: int, target: str, *, hint: str) -> TargetError:
    """Return the error *message* of a profiler that has not written to *target*, with the reason if one is found."""
    from gdbmem.linux.files.open_requests import why_unwritable  # not always needed

    obstacle = why_unwritable(pid, Path(target).parent.resolve())
    if obstacle is not None:
        message, hint = f"{message}: {obstacle.reason}", obstacle.hint
    return TargetError(message, slug="no-snapshot-file", hint=hint)


def refuse_limited(pid: int) -> None:
    """Raise TargetError if process *pid* would be killed for writing a heap profile."""
    from gdbmem.linux.files.open_requests import file_limit  # not always needed

    obstacle = file_limit(pid)
    if obstacle is not None:
        raise TargetError(
            f"no snapshot is taken: {obstacle.reason}", slug="no-snapshot-file", hint=obstacle.hint
        )


def inside_hint(library: Optional[str]) -> str:
    """Return what to do if the program is stopped inside its allocator."""
    where = library or "the allocator"
    return f"the program is inside {where}: type 'finish' until it has returned, and take the snapshot then"
