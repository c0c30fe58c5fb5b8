"""gdbmem's commands in gdb; `implementation` runs each, and is imported when it is first typed."""

from __future__ import annotations

from gdbmem.commands import options
from gdbmem.commands.description import GdbCommand

LOCKS = ("auto", "on", "step", "off")
SOURCES = ("auto", "statm", "smaps", "pagemap", "heap")

_SOURCE = f"""\
  --source {"|".join(SOURCES)}
                      the source of the numbers (heap: bytes in use by malloc)
"""
_LOCK = f"""\
  --lock {"|".join(LOCKS)}  lock the other threads (auto: until the program waits for them)
{_SOURCE}\
  --timeout TIME      release the other threads after TIME, as in 2s
"""
_LARGEST = "  --top N             only the N largest changes\n"
_SAVE = "  --save NAME         save the result as NAME\n"

_SNAPSHOTS = (
    GdbCommand(
        "massif-snap, memsnap",
        """\
Take a heap snapshot here and save it in the run folder.
Usage: COMMAND [--containers] [NAME]

Prints one line: the heap's size, the change since the last snapshot, and the source line that grew
most. massif-diff and massif-list use NAME; a name used again becomes NAME#2. The default name is a number.
""",
        """\
  snapshot [NAME]     name of the snapshot
  --containers        also scan the containers (as memcontainers does): the diff then names those that grew
""",
        """\
Example:
  (gdb) COMMAND loaded
  snapshot loaded: heap 12.3 MiB, +3.2 MiB since start; grew most at decoder.cpp:120 (+3.1 MiB)
""",
        implementation="snapshots.snapshots:SnapCommand",
    ),
    GdbCommand(
        "massif-diff, memdiff",
        """\
Compare two snapshots: which call paths grew, at which source line.
Usage: COMMAND [OPTIONS] [A [B …]]

Without names it compares the last two snapshots; with one name, that snapshot with the last. NAME is the
last snapshot of that name, NAME#1 the first. With three or more names it shows which paths grow steadily.
""",
        f"""\
  snapshots [NAME …]  two snapshots, or a series
  --metric NAME       the metric, if the engine has several, as in definitely-lost (memcheck)
  --html FILE         also write FILE, a page with a zoomable graph
{options.query("path")}{options.OUTPUT}""",
        "Example:\n  (gdb) COMMAND loaded decoded --top 3\n",
        implementation="snapshots.listing:DiffCommand",
        top=None,
        by=None,
        default_by="path",
    ),
    GdbCommand(
        "massif-list, memlist",
        """\
List the snapshots of this run: name, heap size, location.
Usage: COMMAND [OPTIONS]

Also lists the ledgers that memexplain saved, and the scans of memcontainers.
""",
        options.OUTPUT,
        "Example:\n  (gdb) COMMAND\n",
        implementation="snapshots.listing:ListCommand",
    ),
    GdbCommand(
        "massif-break, membreak",
        """\
Take a heap snapshot each time the program reaches a location, and continue.
Usage: COMMAND [OPTIONS] LOCATION [if CONDITION]

This sets a breakpoint: 'info breakpoints', 'disable' and 'delete' work on it.
""",
        """\
  --name NAME         name of the snapshots (the location, if left out)
  --every N           only every Nth hit (default: 1)
  --first N           at most N snapshots
  --after             when the function has returned, not when it is entered
  location LOCATION   any gdb location, then: if CONDITION
""",
        "Example:\n  (gdb) COMMAND --name batch --every 100 Decoder::decode if n > 10\n",
        implementation="snapshots.breakpoints:BreakCommand",
        category="breakpoints",
        completer="location",
    ),
    GdbCommand(
        "massif-all",
        """\
Save massif's own history, the snapshots it takes by itself, and show its timeline.
Usage: COMMAND [OPTIONS]
""",
        options.OUTPUT,
        "Example:\n  (gdb) COMMAND\n",
        implementation="snapshots.listing:AllCommand",
    ),
)

_MEMWATCH = (
    GdbCommand(
        "memwatch next, memwatch step, memwatch nexti, memwatch stepi",
        """\
Step as gdb's own command does, and print the change of memory.
Usage: COMMAND [OPTIONS] [N]

Prints one line per step: the change of the resident set, the source line, the changed mappings, the running total.
With N it steps N times and prints a table by line. 'next' runs through a line that loops at full speed. With --json
every step is listed.
""",
        f"""\
{_LOCK}{_LARGEST}{options.OUTPUT}  argument [N]        as gdb's own command takes it
""",
        "Example:\n  (gdb) COMMAND 20\n",
        implementation="memwatch.commands.command:StepCommand",
        category="running",
        completer="none",
        repeats=True,
    ),
    GdbCommand(
        "memwatch until, memwatch advance, memwatch finish",
        """\
Continue as gdb's own command does, and print the change of memory.
Usage: COMMAND [OPTIONS] [LOCATION]
""",
        f"{_LOCK}{options.OUTPUT}  argument [LOCATION]  as gdb's own command takes it\n",
        "Example:\n  (gdb) COMMAND\n",
        implementation="memwatch.commands.command:StepCommand",
        category="running",
        completer="location",
        repeats=True,
        top=None,
    ),
    GdbCommand(
        "memwatch auto",
        """\
Print at every stop the change of memory since the previous stop, whatever command ran the program.
Usage: COMMAND on|off
""",
        "  state [on|off]\n",
        "Example:\n  (gdb) COMMAND on\n",
        implementation="memwatch.commands.auto:AutoCommand",
    ),
    GdbCommand(
        "memwatch function",
        """\
Run until a function has been called, and print the change of memory at each of its lines.
Usage: COMMAND [OPTIONS] LOCATION

If the program is already inside the function, that call counts as the first, from its current line on. A line
includes the calls that it makes. The other threads run too; if they changed memory meanwhile, each thread is
charged for its own page faults and releases, and the line is marked with a ~.
""",
        f"""\
  --calls N           watch N calls (default: 1)
  --every N           watch only every Nth call (default: 1)
{options.FOR}  --own               leave out the changes made by the calls of a line
{_SOURCE}{options.OUTPUT}  argument [LOCATION]  the function
""",
        "Example:\n  (gdb) COMMAND --calls 100 Decoder::decode\n",
        implementation="memwatch.commands.function:FunctionCommand",
        category="running",
        completer="location",
    ),
    GdbCommand(
        "memwatch growth",
        """\
Let the program run, and list its requests for memory to the kernel: by path, with the source line.
Usage: COMMAND [OPTIONS]

Records every brk, mmap, munmap, mremap, madvise and shmat of the C library, with its call
path and thread; all other code runs at full speed. Recording ends when the program stops or exits.
""",
        f"""\
  --above SIZE        only requests that changed the address space by SIZE or more
{options.FOR}  --until LOCATION    stop at LOCATION
  --raw               use 'catch syscall': also records requests that bypass the C library, but slows every system
                      call
{options.TOP_10}{options.OUTPUT}  argument [ARG]
""",
        "Example:\n  (gdb) COMMAND --above 1MiB --for 10s\n",
        implementation="memwatch.commands.growth:GrowthCommand",
        category="running",
        completer="none",
        above=0,
    ),
    GdbCommand(
        "memwatch written",
        """\
Run the program by a gdb command (default 'next'), and list the pages that were written meanwhile.
Usage: COMMAND [OPTIONS] [next|step|nexti|stepi|finish|until|advance|continue …]

A page counts as written even if its bytes did not change. The kernel records the writes while the command runs (Linux
6.7 and later); for this the program makes two system calls at the start. Huge pages are left out.
""",
        f"{options.TOP_10}{options.OUTPUT}  argument [ARG]\n",
        "Example:\n  (gdb) COMMAND finish\n",
        implementation="memwatch.commands.watched_pages:WrittenCommand",
        category="running",
        completer="none",
    ),
    GdbCommand(
        "memwatch limit",
        """\
Let the program run until its resident set exceeds a size; stop in the thread that made it grow.
Usage: COMMAND [OPTIONS] +SIZE|SIZE

+SIZE is relative to the present size. The program is sampled every millisecond; the overshoot is printed.
""",
        f"{_SOURCE}  argument [SIZE]\n",
        "Example:\n  (gdb) COMMAND +100MiB\n",
        implementation="memwatch.commands.watched_pages:LimitCommand",
        category="running",
        completer="none",
        output=None,
        force=False,
    ),
    GdbCommand(
        "memwatch report",
        """\
Summarize the steps recorded so far.
Usage: COMMAND [OPTIONS]

--since compares the steps with earlier ones, saved by 'memwatch save NAME' or written by --json. If an
edit has moved lines, compare --by function.

A separate column has the changes by other threads while a line ran. A ~ marks changes that may include theirs.
""",
        f"""\
  --by line|function|file|thread
                      one row per line, function, file or thread (default: line)
{_LARGEST}{options.SINCE}{options.OUTPUT}""",
        "Example:\n  (gdb) COMMAND --by function --top 5\n",
        implementation="memwatch.commands.command:ReportCommand",
        completer="none",
    ),
    GdbCommand(
        "memwatch save",
        "Save the recorded steps in the run folder, as JSON.\nUsage: COMMAND NAME\n",
        "  save_name NAME      name of the recorded steps\n",
        "Example:\n  (gdb) COMMAND before-the-fix\n",
        implementation="memwatch.commands.saving:SaveCommand",
        completer="none",
    ),
    GdbCommand(
        "memwatch plot",
        """\
Draw memory over the recorded steps, in the terminal or in a picture.
Usage: COMMAND [--force] [FILE.svg|FILE.html]

The picture names the lines that changed most.
""",
        "  file [FILE]         a picture: FILE.svg or FILE.html\n  --force             replace an existing file\n",
        "Example:\n  (gdb) COMMAND steps.svg\n",
        implementation="memwatch.commands.saving:PlotCommand",
        completer="filename",
    ),
    GdbCommand(
        "memwatch clear",
        "Delete the steps recorded for this program; totals restart at 0.\nUsage: COMMAND\n",
        "",
        "Example:\n  (gdb) COMMAND\n",
        implementation="memwatch.commands.command:ClearCommand",
        completer="none",
    ),
    GdbCommand(
        "memwatch sources",
        "List what can be measured on this machine, whether it is exact, and what memwatch uses.\nUsage: COMMAND\n",
        "",
        "Example:\n  (gdb) COMMAND\n",
        implementation="memwatch.commands.command:SourcesCommand",
        completer="none",
    ),
)

_PROCESS = (
    GdbCommand(
        "memgrow",
        """\
Let the program run, and list the lines that make its memory resident, by its page faults.
Usage: COMMAND [OPTIONS]

The kernel samples the faults. The line that first touches a page is charged for it, not the line that reserved it;
returned memory is subtracted. The program runs at full speed until it stops, for example at a breakpoint, or ends.
""",
        f"{options.FOR}{options.TOP_10}{options.PROFILE}{options.OUTPUT}  argument [ARG]\n",
        """\
Example:
  (gdb) COMMAND --for 10s
  resident growth: 64.0 MiB at process 4711 in 10 s; over 99 % of it from pool.c:32 (touch)
""",
        implementation="memwatch.commands.watched_pages:GrowCommand",
        category="running",
        completer="none",
    ),
    GdbCommand(
        "memexplain",
        """\
Show where the resident memory of this process is, and what would return it to the system.
Usage: COMMAND [OPTIONS]

Prints a ledger that adds up to the resident set: live heap, free heap that malloc keeps, stacks, files, the rest.
No code runs in the process, except with --mallinfo and --malloc-info. ADDRESS may be an expression.
""",
        f"""\
{_SAVE}{options.SINCE}{options.LEDGER}{options.SWAPPED}\
  --mallinfo          compare with malloc's own figures: calls mallinfo2 in the process (see memtrim)
  --malloc-info       the same per arena with malloc_info, which allocates and frees a FILE
{options.OUTPUT}""",
        """\
Example:
  (gdb) COMMAND
  146.0 MiB resident; 142.1 MiB of it is freed memory that glibc keeps: malloc_trim(0) would return 141.0 MiB (once
  only; pages used again are faulted in again)
""",
        implementation="ledger.explain:ExplainCommand",
        completer="none",
    ),
    GdbCommand(
        "memtrim",
        """\
Return freed memory to the system by malloc_trim(0), and compare with the prediction.
Usage: COMMAND [OPTIONS]

This calls malloc_trim(0) in the selected thread, or what jemalloc, tcmalloc, mimalloc or tbbmalloc have for it; the
others are stopped meanwhile. It says before what it calls, and what that should return. It is refused where it would
be unsafe: inside malloc, with an arena locked, in a signal handler.
""",
        options.OUTPUT,
        """\
Example:
  (gdb) COMMAND
  gdbmem: calling malloc_trim(0) in the program, which should return 141.0 MiB
  malloc_trim(0) returned 141.0 MiB; 141.0 MiB were predicted
""",
        implementation="ledger.malloc_calls:TrimCommand",
        category="running",
        completer="none",
    ),
    GdbCommand(
        "memcontainers",
        """\
Show the memory of the program's C++ containers: elements, capacity, bytes, unused capacity.
Usage: COMMAND [OPTIONS] [EXPR]

Reads vectors, strings, deques, lists, maps, sets, unordered containers and smart pointers of libstdc++ and libc++,
including nested ones, that can be reached from the variables of all frames of all threads, globals, statics and
`this`, or from EXPR. An object behind a pointer to a base class is shown with its dynamic type, as in
services[*].(Cache).entries, and a std::variant or std::any with its current value. Captures of a std::function are
not read. Containers with the same path, as in states[*].arcs, share one row. No code runs in the process.
""",
        f"""\
{_SAVE}{options.SINCE}{options.TOP}\
  --everywhere        all vectors of the heap, including those that no variable leads to; they are found by their
                      three pointers, so types are unknown; not under valgrind
  expression [EXPR …]  only containers in EXPR
{options.OUTPUT}""",
        """\
Example:
  (gdb) COMMAND --since start
  task_states: 0 → 2,000 elements, +6.4 MiB
""",
        implementation="containers.containers:ContainersCommand",
        completer="expression",
    ),
    GdbCommand(
        "memheap",
        """\
Show who holds the blocks of the heap, what each holder retains, and which blocks are lost.
Usage: COMMAND [OPTIONS]

The blocks of malloc in the process or core, and the words that lead to them: from variables, thread-local
memory, stacks, registers and other blocks. Needs no debug information, and no code runs in the process. A holder
retains what would be freed with it; blocks to which no word leads are lost. EXPR is an address, or a pointer of the
program's, without blanks.
""",
        f"""\
{_SAVE}\
  --since NAME        changes since the heap saved as NAME, in another run (RUN:NAME), or in FILE by gdbmem heap --save
{options.HEAP}{options.SWAPPED}{options.OUTPUT}""",
        """\
Example:
  (gdb) COMMAND --top 3
  607 live blocks, 1.2 MiB: 1.1 MiB are retained by cache (server).
""",
        implementation="heap:HeapCommand",
    ),
    GdbCommand(
        "membfc",
        """\
Show the BFC allocators of TensorFlow, JAX or onnxruntime, and what prevents a request.
Usage: COMMAND [OPTIONS] [EXPR]

Finds all allocators of the process or core, with or without symbols; EXPR selects one: the object, a pointer to it, or
an address. The contents of chunks are never read, and no code runs in the process.
""",
        f"  expression [EXPR]   an allocator, or a pointer to one\n{options.POOLS}{options.OUTPUT}",
        """\
Example:
  (gdb) COMMAND --request 20MiB
  GPU_0_bfc: 300.0 MiB limit, 272.0 MiB in use, 28.0 MiB free in 6 pieces, the largest 14.0 MiB: a request of 20.0 MiB
  fails by fragmentation; freeing these 2 chunks of 4.0 MiB would be enough
""",
        implementation="pools:PoolsCommand",
        completer="expression",
        top=None,
    ),
    GdbCommand(
        "mempython",
        """\
Read the CPython process or core in gdb: objects, arenas, tracemalloc's traces, frames.
Usage: COMMAND stack [--all] [--native] [OPTIONS]
       COMMAND objects [--since FILE | --holders TYPE] [OPTIONS]
       COMMAND arenas [OPTIONS]
       COMMAND traces [--profile FILE] [OPTIONS]

stack shows the frames of the selected thread, with Python's frames in place of the interpreter's loop; objects the
live objects by type; arenas the use of Python's arenas, and the types that keep nearly empty ones; traces the lines
that allocated the live memory, if tracemalloc runs. No code runs in the process, and no debug information is needed.
CPython 3.8 to 3.15.
""",
        f"""\
  action stack|objects|arenas|traces  what to show
  --all               stack: of all threads
  --native            stack: also the interpreter's own frames
{options.HOLDERS}{options.SINCE_FILE}{options.TRACES_PROFILE}{options.TOP}{options.SWAPPED}{options.OUTPUT}""",
        """\
Example:
  (gdb) COMMAND stack
  #0  grow  grows.c:12  libgrows.so
  #1  step  train.py:31
""",
        implementation="python.commands:PythonCommand",
    ),
    GdbCommand(
        "memleaks",
        """\
Show the heap blocks that no pointer reaches, by path, or the pointers that keep a block alive.
Usage: COMMAND [OPTIONS]
       COMMAND --blocks N [--limit N]
       COMMAND --holder ADDRESS

Only under memcheck. Makes a leak search now, and prints the changes since the last one (each snapshot makes one).
""",
        f"""\
{options.TOP_10}\
  --blocks N          the blocks of loss record N of the last search, with their addresses
  --limit N           at most N of them (default: 1000)
  --holder ADDRESS    the pointers that keep the block at ADDRESS (an expression) alive, block by block up to a
                      variable
{options.OUTPUT}""",
        """\
Example:
  (gdb) COMMAND
  3.0 KiB can't be reached by any pointer, +3.0 KiB since the start; most at leak.cpp:7 (leak)
""",
        implementation="snapshots.leaks:LeaksCommand",
        completer="expression",
    ),
)


def _listed(commands: tuple[GdbCommand, ...]) -> str:
    """Return a line for each of *commands*: its names, and what it does."""
    names = [command.name + ", …" * (len(command.names) > 2) for command in commands]
    names = [", ".join(one.names) if len(one.names) == 2 else name for one, name in zip(commands, names)]
    width = max(map(len, names)) + 2
    return "\n".join(f"{name:<{width}}{command.summary}" for name, command in zip(names, commands))


MEMWATCH = GdbCommand(
    "memwatch",
    f"""\
Measure how each step, line and function changes the program's memory.

{_listed(_MEMWATCH)}
""",
    "  subcommand [WORD …]\n",
    "Example:\n  (gdb) memwatch next\n",
    implementation="memwatch.commands.command:MemwatchCommand",
    completer="command",
    is_prefix=True,
)
OVERVIEW = GdbCommand(
    "gdbmem",
    f"""\
gdbmem: which line makes this program grow, and why does it not get smaller again?
Usage: gdbmem [help NAME]

'gdbmem help NAME' explains a message that ends with [NAME].

{_listed((*_SNAPSHOTS, MEMWATCH, *_PROCESS))}

The massif commands need a program under massif: quit gdb and type  gdbmem launch --massif PROGRAM
memsnap, memdiff, memlist and membreak also work with other engines:  gdbmem launch --engine memcheck PROGRAM
'help massif-snap' and so on explain each command, with an example.
""",
    "  topic [help]\n  name [NAME]\n",
    implementation="command:OverviewCommand",
)
GDB_COMMANDS = (OVERVIEW, *_SNAPSHOTS, MEMWATCH, *_MEMWATCH, *_PROCESS)

# In a gdb started by 'gdbmem launch'. They parse nothing.
LAUNCHED_COMMANDS = (
    GdbCommand(
        "run",
        """\
Start the program again under a new valgrind. Breakpoints are kept, and the old history is saved.
Usage: run [ARGUMENTS]

Without ARGUMENTS the program gets the previous ones.
""",
        implementation="launched.launched:RunCommand",
        category="running",
        completer="filename",
    ),
    GdbCommand(
        "start",
        "Start the program again under a new valgrind, and stop at main.\nUsage: start [ARGUMENTS]\n",
        implementation="launched.launched:StartCommand",
        category="running",
        completer="filename",
    ),
)
