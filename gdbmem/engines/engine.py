"""An engine: one table of how it runs, what it costs, what it can't see and what it needs."""

import contextlib
import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Protocol, Union

from gdbmem.errors import TargetError, UsageError
from gdbmem.linux.process.process import memory_folder, soft_limit, status_fields
from gdbmem.text import format_size, printable

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
    obstacle = _why_unwritable(pid, Path(target).parent.resolve())
    if obstacle is not None:
        message, hint = f"{message}: {obstacle.reason}", obstacle.hint
    return TargetError(message, slug="no-snapshot-file", hint=hint)


def refuse_limited(pid: int) -> None:
    """Raise TargetError if process *pid* would be killed for writing a heap profile."""
    obstacle = _file_limit(pid)
    if obstacle is not None:
        raise TargetError(
            f"no snapshot is taken: {obstacle.reason}", slug="no-snapshot-file", hint=obstacle.hint
        )


def inside_hint(library: Optional[str]) -> str:
    """Return what to do if the program is stopped inside its allocator."""
    where = library or "the allocator"
    return f"the program is inside {where}: type 'finish' until it has returned, and take the snapshot then"


# Reasons why a process can't write files into one of our folders, as far as the kernel shows them.


# Of a file: a process with a lower limit would be killed for writing a heap profile (SIGXFSZ).
_LEAST_BYTES = 1 << 20


class _Obstacle(NamedTuple):
    """The reason why a process can't write, in words, and what to do."""

    reason: str
    hint: str


def _file_limit(pid: int) -> Optional[_Obstacle]:
    """Return why process *pid* can't write a file of some size; it would be killed for trying."""
    most = soft_limit(pid, "Max file size")
    if most is None or most >= _LEAST_BYTES:
        return None
    return _Obstacle(
        f"the program may write files of {format_size(most)} at most, and would be killed for a larger one",
        "raise that limit (ulimit -f)",
    )


def _why_unwritable(pid: int, folder: Path) -> Optional[_Obstacle]:
    """Return why process *pid* can't write into *folder*; None if no reason is known.

    Source: proc(5), limits and status.
    """
    with contextlib.suppress(OSError, ValueError):
        return (
            _file_limit(pid) or _root(pid, folder) or _user(pid, folder) or _descriptors(pid) or _disk(folder)
        )
    return None


def _root(pid: int, folder: Path) -> Optional[_Obstacle]:
    if Path(f"{memory_folder(pid)}/root/").samefile("/"):
        return None
    root = printable(str(Path(f"{memory_folder(pid)}/root").readlink()))
    return _Obstacle(
        f"the program's root is {root} (chroot), which does not contain {printable(str(folder))}",
        "take the snapshot before that, or --engine faults, which writes from outside",
    )


def _user(pid: int, folder: Path) -> Optional[_Obstacle]:
    user = int(status_fields(pid).get("Uid", "0").split()[-1])  # for files
    if user in (0, folder.stat().st_uid):
        return None
    return _Obstacle(
        f"the program now runs as user {user}, who may not write to {printable(str(folder))}",
        "take the snapshot before it changes its user, or launch it as that user",
    )


def _descriptors(pid: int) -> Optional[_Obstacle]:
    most = soft_limit(pid, "Max open files")
    if most is None or len(os.listdir(f"{memory_folder(pid)}/fd")) < most:  # noqa: PTH208  (names only)
        return None
    return _Obstacle(
        f"the program has reached its limit of {most} open files", "raise that limit (ulimit -n)"
    )


def _disk(folder: Path) -> Optional[_Obstacle]:
    if os.statvfs(folder).f_bavail:
        return None
    return _Obstacle(
        f"the disk of {printable(str(folder))} is full",
        "free some space there, or launch with --run DIR on another disk",
    )
