"""The commands that touch a process, a row each: what is typed, how long it may take, what its answer has to be.

{pid} stands for the process, {run} for a separate folder, {program} for the words that start the animal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from gdbmem.engines.engine import NAMES as ENGINES
from tests.zoo import answers
from tests.zoo.animals import CONTAINERS, HEAP, LINES
from tests.zoo.answers import KIB, MIB, Answer, Seen
from tests.zoo.keeping import GO_ON, WAIT_LONG
from tests.zoo.terminal import Line, interrupted, order

SHELL, GDB, START, LAUNCH = "shell", "gdb", "start", "launch"


@dataclass(frozen=True)
class Command:
    name: str
    kind: str  # SHELL: on a process; GDB: in a gdb attached to it; START: starts one; LAUNCH: in a gdb that starts one
    words: tuple[str, ...] = ()  # of gdbmem
    lines: tuple[Line, ...] = ()  # typed at the prompt
    answer: Callable[[Seen], Answer] = answers.anything
    asks: str = ""  # what an animal that knows it has to be answered
    reads_heap: bool = False  # such a command meets the damaged heaps, too
    calls_malloc: bool = False  # in the process: a heap that is damaged may abort it
    limit: float = 10  # seconds for each answer
    after_ctrl_c: float = 1  # seconds for the prompt
    second_ctrl_c: float = 0  # seconds after a second one
    interrupted_after: float = (
        0  # seconds from its looking at the process; a command in the shell gets SIGINT then
    )
    tolerance: int = 256 * KIB  # by which Rss may change
    needs_tick: bool = False  # it has to find tick()
    valgrind: bool = False
    walks_stacks: bool = (
        False  # of each allocation: 10^6 of gperftools' take 2 to 14 s, with or without gdbmem
    )

    @property
    def is_slowed(self) -> bool:
        """True if its program makes fewer allocations."""
        return self.valgrind or self.walks_stacks

    @property
    def interrupts(self) -> bool:
        """True if Ctrl-C is pressed."""
        return any(line.is_interrupted for line in self.lines)


def _typed(*lines: object) -> tuple[Line, ...]:
    return tuple(line if isinstance(line, Line) else Line(str(line)) for line in lines)


def in_gdb(name: str, *lines: object, **more: object) -> Command:
    """Return the row of *lines* that are typed into a gdb attached to a process."""
    row = {"tolerance": 2 * MIB, **more}
    return Command(name, GDB, ("attach", "{pid}"), _typed(*lines), **row)  # type: ignore[arg-type]


def _at_tick(name: str, *lines: object, **more: object) -> Command:
    return in_gdb(name, "tbreak tick", "continue", *lines, needs_tick=True, **more)


def _launch(engine: str) -> Command:
    valgrind = engine in ("massif", "memcheck", "dhat")
    lines = (
        "break never_called", Line("continue", is_interrupted=True, awaits_ready=True), "memsnap a",
        interrupted("continue"), "memsnap b", "memdiff",
    )  # fmt: skip
    return Command(
        f"launch --engine {engine}", LAUNCH, ("launch", "--engine", engine), _typed(*lines),
        answer=answers.snapshots if engine in ("massif", "memcheck", "gperftools", "jemalloc") else answers.anything,
        limit=90 if valgrind else 30, second_ctrl_c=2 if valgrind else 0, valgrind=valgrind,
        walks_stacks=engine == "gperftools",
    )  # fmt: skip


_NO_PROFILER = (
    r"has no heap profiler|runs under none|has none|does not run under memcheck"
    r"|there are not yet two snapshots"
)

IN_THE_SHELL = (
    Command("explain", SHELL, ("explain", "{pid}", "--json", "-o", "out.json"), answer=answers.ledger, asks=HEAP,
            reads_heap=True, tolerance=64 * KIB, limit=20),
    Command("explain --hold", SHELL, ("explain", "--hold", "{pid}", "--json", "-o", "out.json"),
            answer=answers.ledger, asks=HEAP, reads_heap=True, tolerance=64 * KIB, limit=20),
    Command("explain --fork", SHELL, ("explain", "--fork", "{pid}", "--json", "-o", "out.json"),
            answer=answers.ledger, asks=HEAP, reads_heap=True, limit=20),
    Command("explain --try", SHELL, ("explain", "{pid}", "--try", "--json", "-o", "out.json"),
            answer=answers.ledger, asks=HEAP, reads_heap=True, tolerance=64 * KIB, limit=30),
    Command("explain --sizes --pinners --types --map", SHELL,
            ("explain", "--sizes", "--pinners", "--types", "--map", "map.svg", "{pid}", "--json", "-o", "out.json"),
            answer=answers.ledger, asks=HEAP, reads_heap=True, limit=30),
    Command("explain --remedies", SHELL, ("explain", "--remedies", "{pid}"), reads_heap=True, limit=30),
    Command("heap", SHELL, ("heap", "{pid}", "--json", "-o", "out.json"), reads_heap=True, tolerance=64 * KIB,
            limit=20),
    Command("heap, Ctrl-C", SHELL, ("heap", "{pid}"), interrupted_after=0.02, reads_heap=True),
    Command("explain, Ctrl-C", SHELL, ("explain", "{pid}"), interrupted_after=0.02, reads_heap=True),
    Command("explain --fork, Ctrl-C", SHELL, ("explain", "--fork", "{pid}"), interrupted_after=0.02),
    Command("python objects", SHELL, ("python", "objects", "{pid}", "--json", "-o", "out.json"),
            answer=answers.python_objects, tolerance=64 * KIB, limit=20),
    Command("python arenas", SHELL, ("python", "arenas", "{pid}"), answer=answers.shows("arenas? of .* hold"),
            tolerance=64 * KIB, limit=20),
    Command("python traces", SHELL, ("python", "traces", "{pid}"), answer=answers.nothing_there,
            tolerance=64 * KIB, limit=20),
    Command("python stack", SHELL, ("python", "stack", "{pid}"), answer=answers.shows(r"animal\.py"),
            tolerance=64 * KIB, limit=20),
    Command("python start", SHELL, ("python", "start", "{pid}"), answer=answers.shows("tracemalloc is on"),
            limit=20),
    Command("python stop", SHELL, ("python", "stop", "{pid}"), answer=answers.shows("tracemalloc is off"), limit=20),
    Command("grow", SHELL, ("grow", "--for", "700ms", "--json", "-o", "out.json", "{pid}"), answer=answers.grown,
            tolerance=64 * KIB, limit=30),
    Command("grow, Ctrl-C", SHELL, ("grow", "{pid}"), interrupted_after=0.4, tolerance=64 * KIB, limit=30,
            after_ctrl_c=20),
    Command("bfc", SHELL, ("bfc", "{pid}"), answer=answers.nothing_there, tolerance=64 * KIB, limit=20),
    Command("snap", SHELL, ("snap", "{pid}"), answer=answers.anything, tolerance=2 * MIB),
    Command("monitor PID", SHELL, ("monitor", "-q", "--for", "700ms", "--interval", "50ms", "--json", "-o", "out.json",
                                   "{pid}"), answer=answers.series, tolerance=64 * KIB),
    Command("monitor PID, Ctrl-C", SHELL, ("monitor", "-q", "{pid}"), interrupted_after=0.4, tolerance=64 * KIB),
)  # fmt: skip

IN_GDB = (
    in_gdb("attach, quit"),
    in_gdb("continue, Ctrl-C", interrupted("continue"), interrupted("continue")),
    in_gdb("memexplain", "memexplain --json -o out.json", answer=answers.ledger, asks=HEAP, reads_heap=True, limit=20),
    in_gdb("memheap, --since", "memheap --save first", "memheap --since first",
         answer=answers.shows("live blocks unchanged from first to now"), reads_heap=True, limit=20),
    in_gdb("memexplain --mallinfo", "memexplain --mallinfo", answer=answers.shows(r"mallinfo2 +gdbmem"),
         reads_heap=True, calls_malloc=True, limit=20),
    in_gdb("memexplain --malloc-info", "memexplain --malloc-info", answer=answers.shows("arena +fastbins"),
         reads_heap=True, calls_malloc=True, limit=20),
    in_gdb("memtrim", "memtrim", answer=answers.trimmed, reads_heap=True, calls_malloc=True),
    in_gdb("memcontainers", "memcontainers --json -o out.json", answer=answers.containers, asks=CONTAINERS),
    in_gdb("memcontainers --everywhere", "memcontainers --everywhere",
         answer=answers.shows("no vector was found|vectors")),
    _at_tick("memwatch next", "memwatch next --json -o out.json 12", answer=answers.steps, asks=LINES),
    _at_tick("memwatch step", "memwatch step --json -o out.json 3", answer=answers.steps_into, asks=LINES),
    in_gdb("memwatch nexti, stepi", "memwatch nexti 3", "memwatch stepi 3",
         answer=answers.shows(r"in \d+ steps|resident|unchanged| 0 B ")),
    _at_tick("memwatch finish", "memwatch finish", answer=answers.shows(r"resident|unchanged|0 B")),
    _at_tick("memwatch advance", "memwatch advance tick", answer=answers.shows(r"resident|unchanged|0 B")),
    in_gdb("memwatch function", "memwatch function --calls 2 --json -o out.json tick",
         answer=answers.function_lines, asks=LINES),
    _at_tick("memwatch written", "memwatch written finish", answer=answers.shows("written by 'finish'")),
    in_gdb("memwatch growth", "memwatch growth --for 300ms --json -o out.json", answer=answers.growth, asks=LINES),
    _at_tick("memwatch auto", "memwatch auto on", "next", "memwatch auto off",
             answer=answers.shows(r"resident|unchanged|0 B")),
    _at_tick("memwatch records", "memwatch next 3", "memwatch report", "memwatch plot", "memwatch save a",
             "memwatch sources", "memwatch clear", answer=answers.shows("memwatch starts a new recording")),
    in_gdb("memwatch next, Ctrl-C", "tbreak wait_long", order(WAIT_LONG), "continue",
         interrupted("memwatch next"), order(GO_ON), needs_tick=True),
    in_gdb("memwatch advance, Ctrl-C", interrupted("memwatch advance never_called")),
    in_gdb("memwatch function, Ctrl-C", interrupted("memwatch function never_called")),
    in_gdb("memwatch growth, Ctrl-C", interrupted("memwatch growth")),
    in_gdb("memwatch limit, Ctrl-C", interrupted("memwatch limit +1GiB"), answer=answers.not_passed),
    in_gdb("memsnap, memdiff, memlist", "memsnap a", "memdiff", "memlist", answer=answers.refuses(_NO_PROFILER)),
    in_gdb("massif-all, memleaks", "massif-all", "memleaks", answer=answers.refuses(_NO_PROFILER)),
    in_gdb("membreak, Ctrl-C", "membreak tick", interrupted("continue"), "clear tick", needs_tick=True),
)  # fmt: skip

STARTING = (
    *(_launch(engine) for engine in ENGINES),
    Command("launch, growth, Ctrl-C", LAUNCH, ("launch", "--engine", "none"),
            _typed("break never_called", Line("memwatch growth", is_interrupted=True, awaits_ready=True)), limit=30),
    Command("recipe, massif", START, ("launch", "-q", "--recipe", "{recipe:massif}"), limit=90, needs_tick=True,
            valgrind=True, answer=answers.shows("snapshot|grew|did not change|nothing")),
    Command("recipe, gperftools", START, ("launch", "-q", "--recipe", "{recipe:gperftools}"), limit=60,
            needs_tick=True, walks_stacks=True, answer=answers.shows("snapshot|grew|did not change|nothing")),
    Command("monitor -- PROGRAM", START, ("monitor", "-q", "--for", "1s", "--stdout", "/dev/null", "--", "{program}"),
            limit=30),
    Command("compare -- PROGRAM", START, ("compare", "-q", "--runs", "1", "--for", "500ms", "--", "{quoted}", "--vs",
                                          "{quoted}"), limit=30),
)  # fmt: skip

COMMANDS = (*IN_THE_SHELL, *IN_GDB, *STARTING)
