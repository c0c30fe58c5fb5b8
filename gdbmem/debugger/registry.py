"""The gdb commands, as data: registration, help, documentation and tests read this one list.

Loading gdbmem into gdb costs only this list: the implementation of a command is imported when it is first typed.
"""

from __future__ import annotations

import gdb

from gdbmem.debugger.command import Declared, GdbCommand
from gdbmem.debugger.memwatch.registry import MEMWATCH_COMMANDS

SNAP = Declared(
    names=(
        "massif-snap",
        "memsnap",
    ),
    implementation="snapshots.snapshots:SnapCommand",
    category=gdb.COMMAND_DATA,
    completer=None,
    text="""\
Take a heap snapshot here and save it in the run folder.
Usage: COMMAND [--containers] [NAME]

Prints one line: the heap's size, the change since the last snapshot, and the source line that grew
most. massif-diff and massif-list use NAME; a name used again becomes NAME#2. The default name is a number.
  --containers        also scan the containers (as memcontainers does): the diff then names the containers
                      that grew

Example:
  (gdb) COMMAND loaded
  snapshot loaded: heap 12.3 MiB, +3.2 MiB since start; grew most at decoder.cpp:120 (+3.1 MiB)
""",
)

DIFF = Declared(
    names=(
        "massif-diff",
        "memdiff",
    ),
    implementation="snapshots.listing:DiffCommand",
    category=gdb.COMMAND_DATA,
    completer=None,
    text="""\
Compare two snapshots: which call paths grew, at which source line.
Usage: COMMAND [OPTIONS] [A [B …]]

Without names it compares the last two snapshots; with one name, that snapshot with the last. NAME is the
last snapshot of that name, NAME#1 the first. With three or more names it shows which paths grow steadily.
  --top N             list N paths (default 10)
  --by WHAT           one row per path, function, line, file, library or size of blocks
  --min SIZE          only rows that changed by at least SIZE, as in 10KiB
  --focus REGEX       only paths with a frame that matches
  --ignore REGEX      leave out paths with a frame that matches
  --hide REGEX        leave matching frames out of the paths
  --mine REGEX        matching frames count as your own code; --mine . turns the built-in rules off
  --inverted          print a tree from main to the allocations
  --all-frames        show the allocator's and the standard library's frames too
  --known FILE        paths that are known and accepted, one regex per line
  --source FOLDER     where to look for source files
  --html FILE         also write FILE, a page with a zoomable graph
  --metric NAME       the metric, if the engine has several, as in definitely-lost (memcheck)
  --json, -o FILE, --force

Example:
  (gdb) COMMAND loaded decoded --top 3
""",
)

LIST = Declared(
    names=(
        "massif-list",
        "memlist",
    ),
    implementation="snapshots.listing:ListCommand",
    category=gdb.COMMAND_DATA,
    completer=None,
    text="""\
List the snapshots of this run: name, heap size, location.
Usage: COMMAND [--json] [-o FILE] [--force]

Also lists the ledgers that memexplain saved, and the scans of memcontainers.

Example:
  (gdb) COMMAND
""",
)

BREAK = Declared(
    names=(
        "massif-break",
        "membreak",
    ),
    implementation="snapshots.breakpoints:BreakCommand",
    category=gdb.COMMAND_BREAKPOINTS,
    completer=gdb.COMPLETE_LOCATION,
    text="""\
Take a heap snapshot each time the program reaches a location, and continue.
Usage: COMMAND [--name NAME] [--every N] [--first N] [--after] LOCATION [if CONDITION]

This sets a breakpoint: 'info breakpoints', 'disable' and 'delete' work on it.
  --name NAME   name of the snapshots (default: the location)
  --every N     only every Nth hit
  --first N     at most N snapshots
  --after       when the function has returned, not when it is entered

Example:
  (gdb) COMMAND --name batch --every 100 Decoder::decode if n > 10
""",
)

ALL = Declared(
    names=("massif-all",),
    implementation="snapshots.listing:AllCommand",
    category=gdb.COMMAND_DATA,
    completer=None,
    text="""\
Save massif's own history, the snapshots it takes by itself, and show its timeline.
Usage: COMMAND [--json] [-o FILE] [--force]

Example:
  (gdb) COMMAND
""",
)

EXPLAIN = Declared(
    names=("memexplain",),
    implementation="ledger.explain:ExplainCommand",
    category=gdb.COMMAND_DATA,
    completer=gdb.COMPLETE_NONE,
    text="""\
Show where the resident memory of this process is, and what would return it to the system.
Usage: COMMAND [OPTIONS]

Prints a ledger that adds up to the resident set: live heap, free heap that malloc keeps, stacks, files, the rest.
No code runs in the process, except with --mallinfo and --malloc-info.
  --save NAME         save this ledger as NAME
  --since NAME        changes since the ledger saved as NAME, in a file, or in another run (RUN:NAME)
  --sizes             live and free blocks by size
  --pinners           live blocks that pin free pages, by size
  --paths RUN:NAME    … and the call paths that allocate blocks of these sizes, by a snapshot of another run
  --types             live blocks by C++ class (by their vtables), nodes of maps and lists, vectors' elements
  --chunk ADDRESS     the block that contains ADDRESS (an address or expression): its size, state, list, neighbours,
                      inconsistencies, class, and the pointers to it
  --bins              malloc's lists of free blocks (tcaches, fastbins, bins): blocks, bytes, whether each is intact
  --map FILE          draw the heap into FILE: .html (zoomable) or .svg
  --html FILE         also write FILE, a page with a map of the heap
  --arena N           arena N
  --swapped           also read swapped-out pages, which makes them resident
  --remedies          predict the memory that each of malloc's settings would return, and its cost
  --mallinfo          compare with malloc's own figures: calls mallinfo2 in the process (see memtrim)
  --malloc-info       the same per arena with malloc_info, which allocates and frees a FILE
  --json, -o FILE, --force

Example:
  (gdb) COMMAND
  146.0 MiB resident; 142.1 MiB of it is freed memory that glibc keeps: malloc_trim(0) would return 141.0 MiB (once
  only; pages used again are faulted in again)
""",
)

TRIM = Declared(
    names=("memtrim",),
    implementation="ledger.malloc_calls:TrimCommand",
    category=gdb.COMMAND_RUNNING,
    completer=gdb.COMPLETE_NONE,
    text="""\
Return freed memory to the system: call malloc_trim(0) in the process, and compare with the prediction.
Usage: COMMAND [--json] [-o FILE] [--force]

This runs code in the selected thread; the others are stopped meanwhile. It is refused where it would
be unsafe: inside malloc, with an arena locked, in a signal handler.

Example:
  (gdb) COMMAND
  malloc_trim(0) returned 141.0 MiB; 141.0 MiB were predicted
""",
)

CONTAINERS = Declared(
    names=("memcontainers",),
    implementation="containers.containers:ContainersCommand",
    category=gdb.COMMAND_DATA,
    completer=gdb.COMPLETE_EXPRESSION,
    text="""\
Show the memory of this program's C++ containers: elements, capacity, bytes, and unused capacity.
Usage: COMMAND [OPTIONS] [EXPR]

Reads vectors, strings, deques, lists, maps, sets, unordered containers and smart pointers of libstdc++ and libc++,
including nested ones, that can be reached from the variables of all frames of all threads, globals, statics and
`this`, or from EXPR. An object behind a pointer to a base class is shown with its dynamic type, as in
services[*].(Cache).entries, and a std::variant or std::any with its current value. Captures of a std::function are
not read. Containers with the same path, as in states[*].arcs, share one row. No code runs in the process.
  --save NAME         save this scan as NAME
  --since NAME        changes since the scan saved as NAME, in a file, or in another run (RUN:NAME)
  --top N             list N rows (default 20)
  --everywhere        all vectors of the heap, including those that no variable leads to; they are found by their
                      three pointers, so types are unknown; not under valgrind
  --json, -o FILE, --force

Example:
  (gdb) COMMAND --since start
  task_states: 0 → 2,000 elements, +6.4 MiB
""",
)

POOLS = Declared(
    names=("membfc",),
    implementation="pools:PoolsCommand",
    category=gdb.COMMAND_DATA,
    completer=gdb.COMPLETE_EXPRESSION,
    text="""\
Show the BFC allocators of TensorFlow, JAX or onnxruntime in this process, and what prevents a request.
Usage: COMMAND [OPTIONS] [EXPR]

Finds all allocators of the process or core, with or without symbols; EXPR selects one: the object, a pointer to it, or
an address. The contents of chunks are never read, and no code runs in the process.
  --request SIZE      the outcome of a request of SIZE: fits, extends the pool, or fails, with the reason
  --align N           … aligned to N bytes
  --what-if SETTING   simulate allow_growth=on, allow_growth=off, limit=SIZE or fraction=F
  --device-memory SIZE   the memory that fraction=F refers to
  --allocator NAME    only allocators whose name contains NAME
  --chunks            list chunks
  --state STATE       … only free or only used ones
  --min SIZE          … only those of at least SIZE
  --owner TEXT        … only those whose owner's name contains TEXT
  --top N             … at most N (default 20)
  --json, -o FILE, --force

Example:
  (gdb) COMMAND --request 20MiB
  GPU_0_bfc: 300.0 MiB limit, 272.0 MiB in use, 28.0 MiB free in 6 pieces, the largest 14.0 MiB: a request of 20.0 MiB
  fails by fragmentation; freeing these 2 chunks of 4.0 MiB would be enough
""",
)

PYTHON = Declared(
    names=("mempython",),
    implementation="python.commands:PythonCommand",
    category=gdb.COMMAND_DATA,
    completer=None,
    text="""\
Read the CPython process or core that gdb holds: its objects, arenas, tracemalloc's traces, Python frames.
Usage: COMMAND stack [--all] [--native] [OPTIONS]
       COMMAND objects [--since FILE | --holders TYPE] [OPTIONS]
       COMMAND arenas [OPTIONS]
       COMMAND traces [--profile FILE] [OPTIONS]

No code runs in the process, and no debug information is needed. CPython 3.8 to 3.15.
  stack               the frames of the selected thread, with Python's frames in place of the interpreter's loop
  --all               of all threads
  --native            also the interpreter's own frames
  objects             live objects by type; --since FILE: the change since FILE, written by --json -o FILE
  --holders TYPE      show references to the objects of TYPE: paths from modules, frames and variables
  arenas              use of Python's arenas, and the types that keep nearly empty ones
  traces              lines that allocated the live memory, if tracemalloc runs; --profile FILE: as a pprof profile
  --top N             list N rows (default 20)
  --swapped           also read swapped-out pages, which makes them resident
  --json, -o FILE, --force

Example:
  (gdb) COMMAND stack
  #0  grow  grows.c:12  libgrows.so
  #1  step  train.py:31
""",
)

LEAKS = Declared(
    names=("memleaks",),
    implementation="snapshots.leaks:LeaksCommand",
    category=gdb.COMMAND_DATA,
    completer=gdb.COMPLETE_EXPRESSION,
    text="""\
Show the heap blocks that no pointer reaches, by path, or the pointers that keep a block alive.
Usage: COMMAND [--top N] [--json] [-o FILE] [--force]
       COMMAND --blocks N [--limit N]
       COMMAND --holder ADDRESS

Only under memcheck. Makes a leak search now, and prints the changes since the last one (each snapshot makes one).
  --top N             list N records (default 10)
  --blocks N          the blocks of loss record N of the last search, with their addresses
  --limit N           at most N of them (default 1000)
  --holder ADDRESS    the pointers that keep the block at ADDRESS alive, block by block up to a variable
  --json, -o FILE, --force

Example:
  (gdb) COMMAND
  3.0 KiB can't be reached by any pointer, +3.0 KiB since the start; most at leak.cpp:7 (leak)
""",
)

OVERVIEW = Declared(
    names=("gdbmem",),
    implementation="overview:OverviewCommand",
    category=gdb.COMMAND_DATA,
    completer=None,
    text="""\
gdbmem: which line makes this program grow, and why does it not get smaller again?
Usage: gdbmem [help NAME]

'gdbmem help NAME' explains a message that ends with [NAME].

massif-snap [NAME]        take a heap snapshot here               (also: memsnap)
massif-diff [A [B …]]     show what grew between snapshots        (also: memdiff)
massif-list               list the snapshots of this run          (also: memlist)
massif-break LOCATION     take a snapshot at each hit             (also: membreak)
massif-all                save massif's own history of the whole run
memleaks                  list blocks that no pointer reaches     (under memcheck)
memwatch next, step, …    step, and print the change of memory    (help memwatch)
memgrow                   continue; list the lines that make memory resident
memexplain                show where the resident memory is       (not under massif)
memtrim                   return freed memory to the system, and measure it
memcontainers [EXPR]      memory and unused capacity of C++ containers
membfc [EXPR]             pools of TensorFlow, JAX, onnxruntime: why a request fails
mempython stack, objects, … read a Python process: frames, objects, arenas, traces

The massif commands need a program under massif: quit gdb and type  gdbmem launch --massif PROGRAM
memsnap, memdiff, memlist and membreak also work with other engines:  gdbmem launch --engine memcheck PROGRAM
'help massif-snap' and so on explain each command, with an example.
""",
)

RUN = Declared(
    names=("run",),
    implementation="launched.launched:RunCommand",
    category=gdb.COMMAND_RUNNING,
    completer=gdb.COMPLETE_FILENAME,
    text="""\
Start the program again under a new valgrind. Breakpoints are kept, and the old history is saved.
Usage: run [ARGUMENTS]

Without ARGUMENTS the program gets the previous ones.
""",
)

START = Declared(
    names=("start",),
    implementation="launched.launched:StartCommand",
    category=gdb.COMMAND_RUNNING,
    completer=gdb.COMPLETE_FILENAME,
    text="""\
Start the program again under a new valgrind, and stop at main.
Usage: start [ARGUMENTS]
""",
)

COMMANDS = (
    OVERVIEW,
    SNAP,
    DIFF,
    LIST,
    BREAK,
    ALL,
    *MEMWATCH_COMMANDS,
    EXPLAIN,
    TRIM,
    CONTAINERS,
    POOLS,
    PYTHON,
    LEAKS,
)
LAUNCHED_COMMANDS = (RUN, START)  # in a gdb started by 'gdbmem launch'


def register(commands: tuple[Declared, ...]) -> None:
    """Register each of *commands* under each of its names."""
    for declared in commands:
        for name in declared.names:
            GdbCommand(declared, name)
