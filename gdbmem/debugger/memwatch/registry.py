"""memwatch's gdb commands, as data."""

from __future__ import annotations

import gdb

from gdbmem.debugger.command import Declared

MEMWATCH = Declared(
    names=("memwatch",),
    implementation="memwatch.commands.command:MemwatchCommand",
    category=gdb.COMMAND_DATA,
    completer=gdb.COMPLETE_COMMAND,
    is_prefix=True,
    text="""\
Measure how each step, line and function changes the program's memory.

memwatch next, step, …   run gdb's own command, and print the change of memory
memwatch auto on         print such a line at every stop, whatever its cause
memwatch function NAME   measure each line of one function, over some calls
memwatch growth          continue, and record requests for memory to the kernel
memwatch written         step, and list the pages that were written
memwatch limit +SIZE     continue until the program has grown by SIZE
memwatch report          sum the recorded steps by line, function, file or thread
memwatch plot [FILE]     draw memory over the steps
memwatch sources         list what can be measured on this machine, and whether it is exact

Example:
  (gdb) memwatch next
""",
)

STEP = Declared(
    names=("memwatch next", "memwatch step", "memwatch nexti", "memwatch stepi"),
    implementation="memwatch.commands.command:StepCommand",
    category=gdb.COMMAND_RUNNING,
    completer=gdb.COMPLETE_NONE,
    repeats=True,
    text="""\
Step as gdb's own command does, and print the change of memory.
Usage: COMMAND [OPTIONS] [N]

Prints one line per step: the change of the resident set, the source line, the changed mappings, the running total.
With N it steps N times and prints a table by line. 'next' runs through a line that loops at full speed.
  --lock auto|on|step|off   lock the other threads (auto: until the line waits for them)
  --source SOURCE           auto, statm, smaps, pagemap or heap (bytes in use by malloc)
  --timeout TIME            release the other threads after TIME, as in 2s
  --top N                   only the N largest changes of the table
  --json, -o FILE, --force  every step as JSON

Example:
  (gdb) COMMAND 20
""",
)

UNTIL = Declared(
    names=("memwatch until", "memwatch advance", "memwatch finish"),
    implementation="memwatch.commands.command:ResumeCommand",
    category=gdb.COMMAND_RUNNING,
    completer=gdb.COMPLETE_LOCATION,
    repeats=True,
    text="""\
Continue as gdb's own command does, and print the change of memory.
Usage: COMMAND [OPTIONS] [LOCATION]

  --lock auto|on|step|off   lock the other threads (auto: until the program waits for them)
  --source SOURCE           auto, statm, smaps, pagemap or heap (bytes in use by malloc)
  --timeout TIME            release the other threads after TIME, as in 2s
  --json, -o FILE, --force

Example:
  (gdb) COMMAND
""",
)

FUNCTION = Declared(
    names=("memwatch function",),
    implementation="memwatch.commands.function:FunctionCommand",
    category=gdb.COMMAND_RUNNING,
    completer=gdb.COMPLETE_LOCATION,
    text="""\
Run until a function has been called, and print the change of memory at each of its lines.
Usage: COMMAND [--calls N] [--every N] [--for TIME] [--own] [--source SOURCE] [--json] [-o FILE] [--force] LOCATION

If the program is already inside the function, that call counts as the first, from its current line on. A line
includes the calls that it makes. The other threads run too; if they changed memory meanwhile, each thread is
charged for its own page faults and releases, and the line is marked with a ~.
  --calls N   watch N calls (default 1)
  --every N   watch only every Nth call
  --for TIME  stop after TIME, as in 10s
  --own       leave out the changes made by the calls of a line

Example:
  (gdb) COMMAND --calls 100 Decoder::decode
""",
)

AUTO = Declared(
    names=("memwatch auto",),
    implementation="memwatch.commands.auto:AutoCommand",
    category=gdb.COMMAND_DATA,
    completer=None,
    text="""\
Print at every stop the change of memory since the previous stop, whatever command ran the program.
Usage: COMMAND on|off

Example:
  (gdb) COMMAND on
""",
)

GROWTH = Declared(
    names=("memwatch growth",),
    implementation="memwatch.commands.growth:GrowthCommand",
    category=gdb.COMMAND_RUNNING,
    completer=gdb.COMPLETE_NONE,
    text="""\
Let the program run, and list its requests for memory to the kernel: by path, with the source line.
Usage: COMMAND [--above SIZE] [--for TIME] [--until LOCATION] [--raw] [--top N] [--json] [-o FILE] [--force]

Records every brk, mmap, munmap, mremap, madvise and shmat of the C library, with its call
path and thread; all other code runs at full speed. Recording ends when the program stops or exits.
  --above SIZE      only requests that changed the address space by SIZE or more
  --for TIME        stop after TIME, as in 10s
  --until LOCATION  stop at LOCATION
  --raw             use 'catch syscall': also records requests that bypass the C library, but slows every system call

Example:
  (gdb) COMMAND --above 1MiB --for 10s
""",
)

WRITTEN = Declared(
    names=("memwatch written",),
    implementation="memwatch.commands.written:WrittenCommand",
    category=gdb.COMMAND_RUNNING,
    completer=gdb.COMPLETE_NONE,
    text="""\
Run the program by a gdb command (default 'next'), and list the pages that were written meanwhile.
Usage: COMMAND [--top N] [--json] [-o FILE] [--force] [next|step|nexti|stepi|finish|until|advance|continue …]

A page counts as written even if its bytes did not change. The kernel records the writes while the command runs (Linux
6.7 and later); for this the program makes two system calls at the start. Huge pages are left out.
  --top N   list N ranges (default 10)

Example:
  (gdb) COMMAND finish
""",
)

GROW = Declared(
    names=("memgrow",),
    implementation="memwatch.commands.made_resident:GrowCommand",
    category=gdb.COMMAND_RUNNING,
    completer=gdb.COMPLETE_NONE,
    text="""\
Let the program run, and list which lines make its memory resident, by the kernel's samples of page faults.
Usage: COMMAND [--for TIME] [--top N] [--profile FILE] [--json] [-o FILE] [--force]

The line that first touches a page is charged for it, not the line that reserved it; returned memory is
subtracted. The program runs at full speed until it stops or ends, for example at the next breakpoint.
  --for TIME        stop after TIME, as in 10s
  --top N           list N lines (default 10)
  --profile FILE    save the recording for 'gdbmem show FILE', 'gdbmem diff', …

Example:
  (gdb) COMMAND --for 10s
  resident growth: 64.0 MiB at process 4711 in 10 s; over 99 % of it from pool.c:32 (touch)
""",
)

LIMIT = Declared(
    names=("memwatch limit",),
    implementation="memwatch.commands.limit:LimitCommand",
    category=gdb.COMMAND_RUNNING,
    completer=gdb.COMPLETE_NONE,
    text="""\
Let the program run until its resident set exceeds a size; stop in the thread that made it grow.
Usage: COMMAND [--source SOURCE] +SIZE|SIZE

+SIZE is relative to the present size. The program is sampled every millisecond; the overshoot is printed.

Example:
  (gdb) COMMAND +100MiB
""",
)

REPORT = Declared(
    names=("memwatch report",),
    implementation="memwatch.commands.command:ReportCommand",
    category=gdb.COMMAND_DATA,
    completer=gdb.COMPLETE_NONE,
    text="""\
Summarize the steps recorded so far.
Usage: COMMAND [--by line|function|file|thread] [--top N] [--since NAME|FILE] [--json] [-o FILE] [--force]

--since compares the steps with earlier ones, saved by 'memwatch save NAME' or written by --json. If an
edit has moved lines, compare --by function.

A separate column has the changes by other threads while a line ran. A ~ marks changes that may include theirs.

Example:
  (gdb) COMMAND --by function --top 5
""",
)

SAVE = Declared(
    names=("memwatch save",),
    implementation="memwatch.commands.saving:SaveCommand",
    category=gdb.COMMAND_DATA,
    completer=gdb.COMPLETE_NONE,
    text="""\
Save the recorded steps in the run folder, as JSON.
Usage: COMMAND NAME

Example:
  (gdb) COMMAND before-the-fix
""",
)

PLOT = Declared(
    names=("memwatch plot",),
    implementation="memwatch.commands.saving:PlotCommand",
    category=gdb.COMMAND_DATA,
    completer=gdb.COMPLETE_FILENAME,
    text="""\
Draw memory over the recorded steps: in the terminal, or in a picture with the lines that changed most.
Usage: COMMAND [--force] [FILE.svg|FILE.html]

Example:
  (gdb) COMMAND steps.svg
""",
)

CLEAR = Declared(
    names=("memwatch clear",),
    implementation="memwatch.commands.command:ClearCommand",
    category=gdb.COMMAND_DATA,
    completer=gdb.COMPLETE_NONE,
    text="""\
Delete the steps recorded for this program; totals restart at 0.
Usage: COMMAND

Example:
  (gdb) COMMAND
""",
)

SOURCES = Declared(
    names=("memwatch sources",),
    implementation="memwatch.commands.command:SourcesCommand",
    category=gdb.COMMAND_DATA,
    completer=gdb.COMPLETE_NONE,
    text="""\
List what can be measured on this machine, whether it is exact, and what memwatch uses.
Usage: COMMAND

Example:
  (gdb) COMMAND
""",
)

MEMWATCH_COMMANDS = (
    MEMWATCH,
    STEP,
    UNTIL,
    AUTO,
    FUNCTION,
    GROWTH,
    WRITTEN,
    GROW,
    LIMIT,
    REPORT,
    SAVE,
    PLOT,
    CLEAR,
    SOURCES,
)
