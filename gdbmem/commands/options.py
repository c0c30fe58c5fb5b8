"""Options that several commands take, in the shell and in gdb: declared once, with one wording."""

from __future__ import annotations

FORCE = "  --force             let -o replace an existing file\n"
WRITE_TO = "  -o, --output FILE   write the result to FILE ('-' is the standard output)\n"
OUTPUT = f"output:\n  --json              print JSON (sizes in bytes)\n{WRITE_TO}{FORCE}\n"
NO_COLOR = "  --no-color          no colours (as NO_COLOR does)\n"
QUIET = "  -q, --quiet         print no progress on the standard error\n"
OPEN = "  --open              show it in a browser\n"
TOP = "  --top N             list N rows (default: 20)\n"
TOP_10 = "  --top N             list N rows (default: 10)\n"
FOR = "  --for TIME          end after TIME, as in 10s\n"
SINCE = """\
  --since NAME        changes since what was saved as NAME, in another run (RUN:NAME), or in FILE by --json -o FILE
"""
SINCE_FILE = "  --since FILE        the change since FILE, written by --json -o FILE\n"
SWAPPED = (
    "  --swapped           also read swapped-out pages, which makes them resident unless a copy is read\n"
)
DRY_RUN = "  --dry-run           show what would change, and change nothing\n"
HOLDERS = (
    "  --holders TYPE      show references to the objects of TYPE: paths from modules, frames and variables\n"
)
PROFILE = "  --profile FILE      save the recording in FILE, which show, diff, report and export read\n"
TRACES_PROFILE = (
    "  --profile FILE      write the traces into FILE (pprof), which show, diff, report and export read\n"
)

# What starts a program, or attaches to one.
GDB = "  --gdb PATH          the gdb to use (default: $GDBMEM_GDB, or the one in PATH)\n"
GDB_COMMANDS = """\
  -x FILE …           read gdb commands from FILE first
  --ex COMMAND …      run gdb command COMMAND after that
"""
STDOUT = "  --stdout FILE       the program's standard output\n"
ON_RANKS = """\
  --on-ranks N,N-M    started by mpirun, srun or torchrun: only on these ranks; the others run the program alone
"""
RUN = f"""\
  --run DIR           save the run in DIR (default: gdbmem.PROGRAM.PID, with a launcher gdbmem.PROGRAM.JOB.rRANK);
                      %r in it is the rank, %h the host, %p the process id, %j the job
{ON_RANKS}{STDOUT}"""
PERIOD = (
    "  --period N          sample one in N page faults (default: every fault, fewer above 1000 per second)\n"
)
ATTACHED_RUN = "  --run DIR           save the snapshots in DIR; earlier ones of this process stay there\n"

# The process or the core to read, and how.
PROCESS = f"""\
  target [PID]        the process; with --core the program that left the core
  --core CORE         read this core file instead of a process
either:
  --fork              analyse a copy of the process (about 50 ms per GiB); fail if none can be made
  --hold              make no copy: pause the process until it has been read

{SWAPPED}"""

# The graph of a heap: what to list.
HEAP = f"""\
what to list:
{TOP}\
  --by root|type|size|object|thread
                      one row for each place outside of the heap, for each class of objects, for each size of
                      blocks, for all places of an object file, or of a thread (default: root)
  --type TYPE         only holders of objects of TYPE, a class as --by type shows it, or a size; what they retain of it
  --depth N           show blocks below a holder to N levels, if they retain 5 % of the heap (default: 3)
  --min SIZE          only holders that retain at least SIZE, as in 10KiB
  --leaks             only what is lost, by the first block of each lost structure
  --block EXPR        only the block at an address, or that a variable leads to, as in tasks, tasks+16,
                      lib.so!tasks or pool.free[3]->next: what leads to it, the shortest way to it, what it retains
  --without HOLDER …  as if the words of HOLDER did not count: a variable, a stack or memory as it is shown, or the
                      address of a block (may be repeated)

"""

# A heap compared with another moment, and limits.
HEAP_LIMITS = """\
  --fail-on LIMIT …   exit 4 if more than a limit is live (SIZE), lost (leaked=SIZE) or retained (HOLDER=SIZE), or with
                      --since if it grew by more; 125 if what was not read makes that undecidable (may be repeated)
"""

# The reports of a gate.
CI = """\
  --ci KIND[=FILE] …  report to continuous integration, in FILE: github (annotations and a job summary), gitlab (code
                      quality), gitlab-metrics, sarif, junit, markdown, bencher (BMF), benchmark
                      (github-action-benchmark); may be repeated
"""

# Call trees: what to list.
KNOWN = "  --known FILE        paths that are known and accepted: one regex per line, # comments\n"
MINE = """\
  --mine REGEX        matching frames, and their libraries, count as your own code, overriding the built-in rules;
                      --mine . turns the rules off
"""
SOURCE_FOLDER = "  --source FOLDER …   folder to search for source files (may be repeated)\n"


def query(by: str) -> str:
    """Return the options of a query of a call tree; without --by and --inverted it has a row for each *by*."""
    return f"""\
what to list:
{TOP_10}\
  --by path|function|line|file|library|size|thread
                      one row for each path, function, line, file, library, size of blocks, or thread (default: {by})
  --min SIZE          only rows of at least SIZE, as in 10KiB
  --focus REGEX       only paths with a frame 'function (file:line)' that matches
  --ignore REGEX      leave out paths with a frame that matches
  --hide REGEX        leave matching frames out of the paths; their bytes go to the callers
{MINE}\
  --inverted          print a tree, from main outward
  --all-frames        show the allocator's and the C++ library's frames too
{KNOWN}{SOURCE_FOLDER}
"""


READING = """\
how to read files:
  --format NAME       read files as this format: massif, ms_print, gperftools, pprof-raw, memray, jemalloc,
                      memcheck, memcheck-xml, pprof-callgrind, callgrind, xtree, faults, tracemalloc, heap, speedscope,
                      dhat, heaptrack, torch, pprof, mtrace, malloc_info, smaps, pmap, java-histogram, java-native,
                      heapsnapshot, heapprofile, tcmalloc-stats, jemalloc-stats, mimalloc-stats, malloc_stats,
                      torch-summary, folded, sanitizer (default: determined from the content)
  --metric NAME       the metric, if a file has several: in-use, allocated, peak, …; blocks, allocated-blocks, …
                      list the rows with the most blocks first
  --binaries FOLDER …  folder that has the profiled programs and libraries, or another root folder with them (may
                      be repeated)

"""

LINKS = """\
  --links EDITOR      let places link to the files here: vscode, vscodium, idea, kitty, file, or an address such as
                      vscode://file{path}:{line}
"""
ANNOTATE = """\
  --annotate SOURCE   in place of rows: the source file SOURCE line by line, with the memory allocated there, and that
                      of all paths through a call there
"""
_STRETCH = """\
a part of a recording:
  --from MOMENT       only from MOMENT on, as in 1.5s (of massif in its own unit, as in 5000000i or 10MiB): what was
                      allocated since and not freed, or with --metric allocated all that was (heaptrack, memray, massif)
  %s MOMENT  … until MOMENT (default: the end)

"""
STRETCH = _STRETCH % "--until, --to"
STRETCH_TO_EXPORT = _STRETCH % "--until"  # its --to names a format

# The kind of a saved result.
KINDS = """\
either:
  --ledger            the ledger of that name (default if there is no snapshot of that name)
  --containers        the scan of containers of that name (default if there is no snapshot of that name)
  --heap              the heap of that name, with its holders (default if there is no snapshot of that name)

"""

# What a ledger is shown with, or what is shown in its place.
LEDGER = """\
  --sizes             list live and free blocks by size
  --pinners           list the live blocks that pin free pages, by size
  --paths RUN:NAME    the call paths that allocate blocks of these sizes, by a snapshot that counts blocks
  --types             live blocks by C++ class (by their vtables), nodes of maps and lists, vectors' elements
  --chunk ADDRESS     the block that contains ADDRESS: its size, state, list, neighbours, inconsistencies, class, and
                      the pointers to it
  --bins              malloc's lists of free blocks (tcaches, fastbins, bins): blocks, bytes, whether each is intact
  --map FILE          draw the heap into FILE: .html (zoomable) or .svg
  --html FILE         also write FILE, a page with a map of the heap (as 'gdbmem report PID')
  --arena N           show arena N
  --remedies          predict the memory that each of malloc's settings would return, and its cost
"""

# The questions to a pool, and the selection of its chunks.
POOLS = f"""\
  --allocator NAME    only allocators whose name contains NAME
  --request SIZE      the outcome of a request of SIZE: fits, extends the pool, or fails, with the reason
  --align N           … aligned to N bytes (256 if left out)
  --what-if SETTING …  simulate allow_growth=on, allow_growth=off, limit=SIZE or fraction=F (may be repeated)
  --device-memory SIZE  total memory of the device, to which fraction=F refers
  --chunks            list chunks
  --state all|free|used  … only free or only used ones
  --min SIZE          … only those of at least SIZE
  --owner TEXT        … only those whose owner's name contains TEXT
{TOP}"""
