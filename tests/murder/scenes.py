"""The commands in whose middle a process is killed, each with who may be killed in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gdbmem.engines.engine import NAMES as ENGINES
from tests.zoo.animals import BY_NAME, HALF_FREED, Animal
from tests.zoo.building import Build
from tests.zoo.commands import COMMANDS, SHELL, START, Command, in_gdb

# The process to be killed, by its role and not its name.
LAUNCHER, GDB_ITSELF, WORKER, HELPER = "launcher", "gdb", "worker", "helper"
WORKER_SECONDS = 0.2  # it lives hardly longer
DOORKEEPER = "doorkeeper"  # opens files for a gdb at a process with other files
PROGRAM = "program"  # under valgrind that is the same process

_LATER = Build("animal.c", ("-g", "-O1", "-DLATER"), libraries=("-ldl",))
_WORDS = ("threads:3", HALF_FREED, "later")
_VALGRIND = ("valgrind", "-q", "--log-file=/dev/null")
PLAIN = Animal("plain", "threads and a heap", build=_LATER, words=_WORDS)
PROFILED = replace(
    PLAIN, name="tcmalloc", env={"LD_PRELOAD": "libtcmalloc.so.4"}, needs=("libtcmalloc.so.4",)
)
UNDER_MASSIF = replace(
    PLAIN, name="under massif", keeper=(*_VALGRIND, "--tool=massif", "--massif-out-file=/dev/null")
)
PYTHON = BY_NAME["Python"]
OWN_MOUNTS = replace(PLAIN, name="own mounts", keeper=("unshare", "--mount"), needs=("unshare", "root"))
UNDER_MEMCHECK = replace(PLAIN, name="under memcheck", keeper=(*_VALGRIND, "--tool=memcheck"))


@dataclass(frozen=True)
class Scene:
    """A command on an animal, and who is killed in it."""

    command: Command
    victims: tuple[str, ...]
    span: float  # seconds: it is killed at any moment of these after its birth
    animal: Animal = PLAIN

    @property
    def name(self) -> str:
        return self.command.name if self.animal is PLAIN else f"{self.command.name} ({self.animal.name})"

    @property
    def program_outlives(self) -> bool:
        """True if the program belongs to its user, and gdbmem's death must not affect it."""
        return self.command.words[0] in ("monitor", "compare")


_BY_NAME = {command.name: command for command in COMMANDS}
_IN_GDB = (GDB_ITSELF, GDB_ITSELF, LAUNCHER, LAUNCHER, PROGRAM, HELPER)


def _of(name: str, span: float, *victims: str, animal: Animal = PLAIN) -> Scene:
    return Scene(_BY_NAME[name], victims, span, animal)


def _shell(name: str, words: tuple[str, ...], span: float, *victims: str, animal: Animal = PLAIN) -> Scene:
    return Scene(Command(name, SHELL, words, limit=30), victims, span, animal)


ON_PROCESSES = (
    *(
        _of(name, 1.5, LAUNCHER, LAUNCHER, PROGRAM)
        for name in (
            "explain",
            "explain --hold",
            "explain --fork",
            "explain --sizes --pinners --types --map",
            "explain --try",
            "explain --remedies",
            "bfc",
        )
    ),
    _of("explain --try", 1.5, LAUNCHER, HELPER, HELPER, PROGRAM, animal=PROFILED),
    *(
        _of(f"python {name}", 1.5, LAUNCHER, LAUNCHER, PROGRAM, animal=PYTHON)
        for name in ("objects", "arenas", "stack")
    ),
    *(
        _of(f"python {name}", 1.0, LAUNCHER, LAUNCHER, LAUNCHER, PROGRAM, animal=PYTHON)
        for name in ("start", "stop")
    ),
    _of("monitor PID", 1.2, LAUNCHER, PROGRAM),
    _of("grow", 1.5, LAUNCHER, PROGRAM),
    _shell("monitor PID, with a chart", ("monitor", "--for", "2s", "{pid}"), 2.0, LAUNCHER, PROGRAM),
    _of("snap", 2.5, GDB_ITSELF, LAUNCHER, PROGRAM, HELPER, animal=PROFILED),
    *(
        _of("snap", 2.0, LAUNCHER, PROGRAM, HELPER, animal=animal)
        for animal in (UNDER_MASSIF, UNDER_MEMCHECK)
    ),
)
IN_GDB = (
    *(
        _of(name, 3.0, *_IN_GDB, *((WORKER,) if name.startswith("memexplain") else ()))
        for name in (
            "attach, quit",
            "continue, Ctrl-C",
            "memexplain",
            "memexplain --mallinfo",
            "memcontainers",
            "memwatch next",
            "memwatch function",
            "memwatch written",
            "memwatch growth",
            "memwatch auto",
            "memwatch advance, Ctrl-C",
            "memwatch limit, Ctrl-C",
            "membreak, Ctrl-C",
        )
    ),
    Scene(
        in_gdb("attach, memsnap", "memsnap a", "continue&", "interrupt", "memsnap b", "memdiff"),
        _IN_GDB,
        3.0,
        PROFILED,
    ),
    *(
        _of(name, 3.0, DOORKEEPER, DOORKEEPER, GDB_ITSELF, LAUNCHER, animal=OWN_MOUNTS)
        for name in ("attach, quit", "continue, Ctrl-C", "memexplain")
    ),
    Scene(in_gdb("attach, massif-all", "memsnap a", "massif-all", "memdiff"), _IN_GDB, 3.0, UNDER_MASSIF),
)
STARTING = (
    *(_of(f"launch --engine {engine}", 5.0, GDB_ITSELF, LAUNCHER, PROGRAM, HELPER) for engine in ENGINES),
    _of("recipe, massif", 4.0, GDB_ITSELF, LAUNCHER, PROGRAM, HELPER),
    _of("recipe, gperftools", 3.0, GDB_ITSELF, LAUNCHER, PROGRAM, HELPER),
    _of("monitor -- PROGRAM", 1.5, LAUNCHER, PROGRAM),
    Scene(
        Command(
            "monitor --mark -- PROGRAM",
            START,
            ("monitor", "--for", "2s", "--mark", "x", "--", "{program}"),
            limit=30,
        ),
        (LAUNCHER, PROGRAM),
        2.0,
    ),
    _of("compare -- PROGRAM", 1.5, LAUNCHER, PROGRAM),
)
SCENES = (*ON_PROCESSES, *IN_GDB, *STARTING)
