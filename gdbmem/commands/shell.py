"""The commands of `gdbmem` in a shell; cli/commands/ has a module that runs each."""

from __future__ import annotations

from gdbmem.commands import options
from gdbmem.commands.description import Command

_ALL = (
    Command(
        "gdbmem launch",
        """\
Run a program under a heap profiler with your gdb attached, or run a recipe on it.
Usage: COMMAND [OPTIONS] PROGRAM [OPTIONS] [-- ARGUMENTS]
       COMMAND [OPTIONS] -- PROGRAM [ARGUMENTS]
       COMMAND --recipe FILE [OPTIONS] [-- ARGUMENTS]

Options before '--' are for gdbmem; after it come the program's arguments, or the program and its arguments.

  gdbmem launch --massif ./decoder -- config.yaml      your gdb, stopped before main
  gdbmem launch --recipe leak.yaml                     take snapshots and diffs automatically
""",
        f"""\
  program [PROGRAM]   the program to run
  --massif            valgrind's massif takes the snapshots (the default)
  --engine NAME       the engine that takes the snapshots: massif, memcheck, gperftools, jemalloc, dhat, heaptrack,
                      tracemalloc, faults, none; auto chooses one by the program's libraries, and prints the reason
  --recipe FILE       run this recipe, unattended
massif:
  --threshold PERCENT  merge paths smaller than this (default 0: none)
  --pages-as-heap     count pages (mmap, brk) instead of malloc
  --stacks            count stacks too (slow)
  --time-unit i|ms|B  i (instructions), ms or B
  --alloc-fn NAME …   treat function NAME as an allocation function
  --massif-opt =OPT …  pass OPT to massif

massif, memcheck and dhat:
  --trace-children    follow programs that this one executes
  --valgrind-opt =OPT …  pass OPT to valgrind

gperftools, jemalloc, tracemalloc, faults:
  --sample-rate SIZE  jemalloc: one sample per SIZE (default 0: every allocation)
  --dump-interval SIZE  also dump each time that SIZE more was allocated
  --frames N          tracemalloc: keep N frames of each traceback (10 if left out)
{options.PERIOD}
program:
  --env NAME=VALUE …  set a variable in the program's environment
  --stdin FILE        the program's standard input
{options.RUN}  --own-terminal      run it on a separate pseudo-terminal, shown on this terminal

gdb:
{options.GDB}{options.GDB_COMMANDS}  --on-quit end|finish  end the program with gdb, or let it finish (default: end)

recipe:
  --junit FILE        write the expectations and their outcomes as JUnit XML (as --ci junit=FILE)
{options.CI}{options.KNOWN}{options.QUIET}
{options.OUTPUT}  --report FILE       write FILE at the end, the page that 'gdbmem report' makes of the run
""",
        raw=("threshold", "sample_rate", "dump_interval"),
    ),
    Command(
        "gdbmem attach",
        """\
Attach your gdb to a running process; when you quit gdb, the process continues.

If the process has a heap profiler (gperftools' tcmalloc, jemalloc with prof:true) or runs under valgrind, memsnap,
memdiff and membreak work as after 'gdbmem launch'; the other commands need no profiler.

  gdbmem attach 4711
  gdbmem attach 4711 --engine jemalloc
""",
        f"""\
  pid PID             the process
  --engine gperftools|jemalloc
                      switch this heap profiler of the process on at once, and off again when gdb leaves the process
{options.ATTACHED_RUN}{options.GDB}{options.GDB_COMMANDS}""",
    ),
    Command(
        "gdbmem snap",
        """\
Take one heap snapshot of a running process, without an interactive debugger.

The process is paused while the snapshot is taken, and the length of the pause is printed. All snapshots of one process
go to one run folder and can be compared. The process needs a heap profiler: gperftools' tcmalloc, jemalloc
with prof:true in its MALLOC_CONF, or valgrind's massif or memcheck.

  gdbmem snap 4711 before
  gdbmem snap 4711 after
  gdbmem diff gdbmem.server.4711
""",
        f"""\
  pid PID             the process
{options.ATTACHED_RUN}{options.GDB}  name [NAME]         name of the snapshot (default: its number)
{options.OUTPUT}""",
    ),
    Command(
        "gdbmem explain",
        """\
Show where a process's resident memory is, and what would return it.
Usage: COMMAND [OPTIONS] PID
       COMMAND [OPTIONS] --core CORE [PROGRAM]
       COMMAND --container PID|NAME|CGROUP [--files DIR]
       COMMAND --workers PIDS

The entries of the ledger add up to RSS. The process is paused while it is copied, and the copy is analysed; if it
cannot be copied, it is paused while it is read. It then continues unchanged; a pause of more than 50 ms is announced
in advance.
""",
        f"""\
{options.PROCESS}{options.LEDGER}\
  --try [purge|trim|all]
                      call in a copy of the process what returns its allocators' free memory, and measure what comes
                      back there: the functions of jemalloc, tcmalloc, mimalloc, … (purge), malloc_trim (trim) or both
                      (all, also without a word)
  --container PID|NAME|CGROUP
                      divide the memory of a container or service: of the cgroup of PID, of the one with NAME in its
                      path, or of a folder below /sys/fs/cgroup; nothing is paused
  --files DIR         with --container: list the files below DIR by their part of the page cache
  --workers PIDS      make one ledger, shared pages once, of a process and its descendants (gunicorn, celery, loky, a
                      DataLoader), or of several processes, as in 4711,4712
  --idle TIME         list memory that is resident but was not touched for TIME (10min): clears the accessed bits of
                      its pages, waits, and reads them again
  --save RUN:NAME     save this ledger as NAME in RUN, the folder of a run
  --since FILE|RUN:NAME
                      changes since the ledger in FILE (written by --json -o FILE), or saved in RUN as NAME
{options.OUTPUT}""",
        """\
examples:
  gdbmem explain 4711
  gdbmem explain 4711 --try
  gdbmem explain --core core.4711 ./server
  gdbmem explain 4711 --json -o before.json; gdbmem explain 4711 --since before.json
""",
    ),
    Command(
        "gdbmem heap",
        """\
Show who holds the blocks of a process's heap, what each holder retains, and which blocks are lost.
Usage: COMMAND [OPTIONS] PID
       COMMAND [OPTIONS] --core CORE [PROGRAM]

The blocks of malloc, and the words that lead to them: from variables, thread-local memory, stacks and other
blocks. Needs no debug information. A holder retains what would be freed with it; blocks to which no word leads are
lost. The process is paused while it is copied, as for explain.
""",
        f"""\
{options.PROCESS}{options.HEAP}\
who allocated it:
  --paths RUN:NAME    the call paths that allocate blocks of the sizes that are listed, by a snapshot that counts blocks
                      (of gperftools, heaptrack, memcheck, and jemalloc for its own; joined by size), or of
                      massif of this moment (joined by the sum of all blocks of a size)

to compare:
  --save FILE|RUN:NAME
                      save the whole heap in FILE, or as NAME in RUN, the folder of a run
  --since FILE|RUN:NAME
                      changes since the heap that --save saved: holders and types that grew, blocks lost since
{options.HEAP_LIMITS}{options.CI}
{options.OUTPUT}""",
        """\
examples:
  gdbmem heap 4711
  gdbmem heap 4711 --leaks
  gdbmem heap 4711 --without observers
  gdbmem heap 4711 --block 0x55d0c0ffee10
  gdbmem heap --core core.4711 ./server --by type --min 1MiB
  gdbmem heap 4711 --save before.json; gdbmem heap 4711 --since before.json --fail-on leaked=0
gdbmem heap 4711 -o blocks.parquet                          all live blocks for pandas, polars, DuckDB
""",
    ),
    Command(
        "gdbmem grow",
        """\
Show which lines make a process bigger, by its page faults, while it runs at native speed.
Usage: COMMAND [OPTIONS] PID…
       COMMAND [OPTIONS] -- PROGRAM [ARGUMENTS]

The kernel samples the faults: nothing is injected, no code runs in the process, and it is not stopped. The line that
first touches a page is charged for it, not the line that reserved the memory. Ctrl-C ends the recording.
""",
        f"""\
  pids [PID …]        running processes; their children are followed
recording:
  --for TIME          stop after TIME and end a started program (default: when the process ends, or at Ctrl-C)
{options.PERIOD}\
  --ledger            inspect the process at the end, as explain does, and show the contents of each line's memory:
                      live heap, freed but pinned, …
{options.ON_RANKS}{options.STDOUT}{options.PROFILE}  --metric grown|made-resident
                      list memory that is still resident at the end, or all that was made resident (default: grown)

{options.query("line")}{options.OUTPUT}""",
        """\
examples:
  gdbmem grow 4711 --for 30s
  gdbmem grow -- ./server --port 8080
  gdbmem grow 4711 --for 1min --profile a.faults; gdbmem show a.faults --by path
""",
        top=None,
        by=None,
        default_by="line",
        duration=float("inf"),
        period=0,
    ),
    Command(
        "gdbmem bfc",
        """\
Show why a pool of TensorFlow, XLA, JAX, onnxruntime or PyTorch fails although it has free memory.
Usage: COMMAND [OPTIONS] PID
       COMMAND [OPTIONS] LOG|DUMP.pb|SNAPSHOT.pickle|POOLS.json|RUN
       COMMAND [OPTIONS] CORE [PROGRAM]
       COMMAND [OPTIONS] PID --every TIME [--for TIME]
       COMMAND diff [--top N] [--json] [-o FILE] A B

Reads the allocator's own structures in a process, which is paused for milliseconds and runs no code, or in one of:
a core, a log with a dump, or a file of TF_BFC_MEMORY_DUMP or torch.cuda.memory._dump_snapshot().
""",
        f"""\
  target PID|FILE|diff  a process, or a file or run (a number that names both is taken as the file)
  operands [PROGRAM|A B …]
                      the program that left the core, if it has moved; for diff the sides before and after: processes,
                      files or runs (of a file with several dumps, the last of each pool)
{options.POOLS}  --map FILE          draw regions, chunks and the refused request into FILE (.svg or .html)
  --every TIME        read the process again every TIME and print a row each time
  --for TIME          … for TIME (default: until it ends, or Ctrl-C)
{options.OUTPUT}""",
        """\
examples:
  gdbmem bfc 4711 --request 20MiB
  gdbmem bfc 4711 --every 2s --for 1min --request 20MiB
  gdbmem bfc train.log
  gdbmem bfc oom_rank0.pickle --chunks --min 100MiB
  gdbmem bfc core.4711 --chunks --state used --min 1MiB
  gdbmem bfc 4711 --request 20MiB --what-if limit=4GiB
  gdbmem bfc 4711 --json -o before.json; sleep 60; gdbmem bfc diff before.json 4711
""",
        top=None,
    ),
    Command(
        "gdbmem python",
        """\
Read a Python process from outside: objects, arenas, tracemalloc's traces, stacks, copied pages.

No code runs in the process and none of its memory is written, except to start and stop tracemalloc. The process is
paused while it is copied, and the copy is read; if it cannot be copied, it is paused while it is read. CPython 3.8 to
3.15, with or without symbols.
""",
        actions=(
            Command(
                "gdbmem python objects",
                """\
Count the live objects of a Python process by type.
Usage: COMMAND [OPTIONS] PID
       COMMAND [OPTIONS] --core CORE [PROGRAM]

Those in malloc's blocks are counted, too.
""",
                f"""\
either:
{options.HOLDERS}{options.SINCE_FILE}
{options.PROCESS}{options.TOP}{options.OUTPUT}""",
                """\
examples:
  gdbmem python objects 4711
  gdbmem python objects --holders Node 4711
  gdbmem python objects 4711 --json -o before.json; gdbmem python objects 4711 --since before.json
""",
            ),
            Command(
                "gdbmem python traces",
                """\
List the lines that allocated the live memory, from tracemalloc's own tables.
Usage: COMMAND [OPTIONS] PID
       COMMAND [OPTIONS] --core CORE [PROGRAM]

The process may have been started with PYTHONTRACEMALLOC=1.
""",
                f"""\
{options.TRACES_PROFILE}{options.PROCESS}{options.TOP}{options.OUTPUT}""",
                """\
examples:
  gdbmem python traces 4711
  gdbmem python traces 4711 --profile a.pb.gz; sleep 60; gdbmem python traces 4711 --profile b.pb.gz
  gdbmem diff a.pb.gz b.pb.gz
""",
            ),
            Command(
                "gdbmem python arenas",
                """\
Show how full the arenas of Python's allocator are, and which types keep them.
Usage: COMMAND [OPTIONS] PID
       COMMAND [OPTIONS] --core CORE [PROGRAM]
""",
                f"""\
{options.PROCESS}{options.TOP}{options.OUTPUT}""",
                """\
example:
  gdbmem python arenas 4711
""",
            ),
            Command(
                "gdbmem python stack",
                """\
Show the Python frames of each thread, with file and line, the innermost first.
Usage: COMMAND [OPTIONS] PID
       COMMAND [OPTIONS] --core CORE [PROGRAM]

The process is stopped for a few milliseconds. In gdb, 'mempython stack' shows the native frames between them.
""",
                f"""\
{options.PROCESS}{options.OUTPUT}""",
                """\
example:
  gdbmem python stack 4711
""",
            ),
            Command(
                "gdbmem python cow",
                """\
Show how much of a Python process's memory its forked workers have copied by writing to it.
Usage: COMMAND [OPTIONS] PID
       COMMAND [OPTIONS] --core CORE [PROGRAM]

Also lists the types of the objects on those pages. Such processes are, for example, a DataLoader's workers.
""",
                f"""\
{options.PROCESS}{options.TOP}{options.OUTPUT}""",
                """\
example:
  gdbmem python cow 4711
""",
            ),
            Command(
                "gdbmem python start",
                """\
Start tracemalloc in a running Python process (runs code there).
Usage: COMMAND [OPTIONS] PID

Runs a few lines in its main thread, between two Python instructions. Earlier allocations are not traced. Tracing costs
time and memory until 'gdbmem python stop PID'.
""",
                f"""\
  --frames N          keep N frames of each traceback (default: 1)
  target [PID]        the process
  --wait SECONDS      wait this long for its main thread, then withdraw the code (default: 10)
{options.OUTPUT}""",
                """\
example:
  gdbmem python start --frames 5 4711; sleep 60; gdbmem python traces 4711
""",
            ),
            Command(
                "gdbmem python stop",
                """\
Stop tracemalloc in a Python process (runs code there).
Usage: COMMAND [OPTIONS] PID

Its traces are discarded.
""",
                f"""\
  target [PID]        the process
  --wait SECONDS      wait this long for its main thread, then withdraw the code (default: 10)
{options.OUTPUT}""",
                """\
example:
  gdbmem python stop 4711
""",
            ),
            Command(
                "gdbmem python lines",
                """\
Run a script in your Python, and show how each line changed memory.
Usage: COMMAND [OPTIONS] SCRIPT [-- ARGS]

Shows the functions that SCRIPT decorates with @profile (or @gdbmem.profile) or that --function names. The lines of a
function add up to its total change; a line that calls another function includes the changes of that call. With
--json the script's output goes to stderr unless -o names a file for the report.
""",
                f"""\
  script SCRIPT       the program
  arguments [ARGS …]  its arguments
  --function NAME …   record functions of this name, in any module: NAME, or Class.NAME (3.11 and later); may be
                      repeated
  --backend rss|uss|tracemalloc
                      measure the resident set, unshared memory (slow), or Python's own allocations (default: rss)
  --python PYTHON     run it in this Python (default: python3 of your PATH)
{options.OUTPUT}""",
                """\
examples:
  gdbmem python lines train.py -- --epochs 2
  gdbmem python lines --function Loader.fill --backend tracemalloc train.py
""",
                function=[],
            ),
        ),
    ),
    Command(
        "gdbmem show",
        """\
Show a heap profile or a run: its timeline, its peak, and the lines that allocated the memory.

gdbmem show massif.out.4711                 the timeline, and where the memory is at the peak
gdbmem show massif.out.4711 --snapshot 12   … at snapshot 12
gdbmem show gdbmem.decoder.4711             the snapshots of a run
gdbmem show mprofile_20260101.dat           memory over time, from mprof, psrecord, CSV or Prometheus, with a verdict
""",
        f"""\
  operand FILE|RUN    a profile, a run folder, or RUN:NAME
  --snapshot N|NAME|peak
                      the snapshot whose call tree is shown (default: the peak; in a run: the last)
{options.KINDS}{options.query("line")}{options.ANNOTATE}{options.STRETCH}{options.READING}{options.OUTPUT}{options.NO_COLOR}""",
        top=None,
        by=None,
        default_by="line",
    ),
    Command(
        "gdbmem diff",
        """\
Compare two heap snapshots: which call paths grew, and at which source line.
Usage: COMMAND [OPTIONS] A [B …]

A and B are profiles (FILE, FILE:NUMBER, FILE:peak) of massif, gperftools, jemalloc, DHAT, heaptrack, pprof
and others, or snapshots of a run (RUN:NAME, as 'gdbmem show RUN' lists them). A run alone
compares its last two snapshots. With three or more, oldest first, the report shows which paths grow steadily, and
which grew once; --series takes all snapshots of a run, of one name, or of a file.

  gdbmem diff gdbmem.decoder.4711:loaded gdbmem.decoder.4711:reset
  gdbmem diff before.massif after.massif --by line --min 10KiB
  gdbmem diff server.*.heap
  gdbmem diff --series gdbmem.decoder.4711:reset
""",
        f"""\
  operands A B …      FILE, FILE:NUMBER, FILE:peak, RUN:NAME or RUN
{options.KINDS}  --series            A is a run, RUN:NAME or a file: follow all its snapshots
{options.query("path")}\
  --fail-on LIMIT …   exit 4 if growth exceeds SIZE, 125 if sampling error or missing bytes make that undecidable;
                      --known paths are excluded; of saved heaps (--heap) also what is lost since (leaked=SIZE) or
                      retained (HOLDER=SIZE; may be repeated)
{options.ANNOTATE}{options.CI}how to compare:
  --compare           print each change in percent of its earlier size, or as new or gone
  --normalize         scale all snapshots to the total of the last, to compare shares

{options.STRETCH}{options.READING}{options.OUTPUT}{options.NO_COLOR}""",
        top=None,
        by=None,
        default_by="path",
    ),
    Command(
        "gdbmem monitor",
        """\
Watch the memory of a process tree, and judge whether it grows.
Usage: COMMAND [OPTIONS] PID… | --name PATTERN | --user USER | --cgroup PATH | --job JOB
       COMMAND [OPTIONS] -- PROGRAM [ARGUMENTS]
       COMMAND [OPTIONS] RUN…

  gdbmem monitor 4711                     until it ends, or until Ctrl-C
  gdbmem monitor --for 20m -- ./server    start it, watch it, pass its exit status on
  gdbmem monitor --name '^worker' --fail-on growing:1MiB/h
  gdbmem monitor --plot memory.svg gdbmem.server.123    draw and judge a recording again

While a chart is shown: q ends, m sets a mark, p pauses, s sorts by the next column.
SIGUSR1 and 'gdbmem mark' set marks too.
""",
        f"""\
  targets [PID|RUN …]  processes to watch, or runs to judge again
target:
  --name PATTERN      watch processes whose name or command line matches this regular expression
  --user USER         watch the processes of USER
  --cgroup PATH       watch the processes in a cgroup, by its folder under /sys/fs/cgroup
  --job JOB           watch the ranks of a job of mpirun, srun or torchrun on this host, as its launcher names it
  --one-per-node      started by mpirun, srun or torchrun: run the program alone, and let one monitor record all ranks
                      of the host in one run, which 'gdbmem ranks' judges
  --grow              also record which lines make the processes bigger, as grow does (in the run: grown.faults)
  --no-children       don't follow their children

time:
  --interval TIME     time between two samples (default: 200ms)
{options.FOR}  --until-exit        end when no watched process is left (by default --name, --user and --cgroup wait for
                      more)
  --pss-budget PERCENT  the largest share of one CPU to spend on reading PSS and USS (default: 1; 0 reads RSS only); a
                      quarter is enough for a single process

run:
{options.RUN}  --resume RUN        continue the series in RUN
  --mark PATTERN      set a mark at each line of the program's output that matches

triggers:
  --when CONDITION …  act once when CONDITION becomes true, and again after it was false: 'growing', or a comparison
                      as in 'rss > 2GiB' (rss, uss of one process; pss, swap, cgroup, threads, files of the tree); may
                      be repeated
  --do snap|explain|bundle …
                      the action, once per --when: snap, explain, or bundle (default; explain, smaps, stacks, the
                      series)

black box:
  --black-box         record ledger, stacks and smaps of the process that the kernel would kill as its cgroup fills up
                      (at 50, 75, 90, 95, 98 % of the limit), and --grow; each record stops it for a moment
  --hold              with --black-box: keep the kernel from killing at the limit for up to 10 s, until a record is
                      complete, by changing the cgroup (memory.oom_control, in version 2 memory.high
                      and cgroup.freeze)
  --core              with --hold: also write a core of the process meanwhile, if that takes less than the 10 s

result:
  --plot FILE         draw the series into FILE.svg, or make FILE.html, a page with all results
  --fail-on VERDICT[:SLOPE]
                      exit 4 on this verdict, 125 if it can't be judged (the program failed, too short, memory not
                      seen); 'growing' includes a sawtooth whose floor rises; SLOPE (as in 1MiB/h) is the smallest
                      slope that counts
{options.CI}\
  --resolve SLOPE     print how long to watch until a slope of this size (1MiB/h) would be called growing, given the
                      noise
  --plain             print lines instead of a chart while it runs
  -q, --quiet         print nothing while it runs
{options.NO_COLOR}  --prometheus :PORT  serve the numbers to Prometheus (needs the package prometheus_client)
  --tree-only         serve the numbers of the whole tree only, not of each process

{options.OUTPUT}""",
        when=[],
        do=[],
    ),
    Command(
        "gdbmem mark",
        """\
Set a named mark in the series that a monitor records.

  gdbmem mark "epoch 2"

The run is that of --run, else $GDBMEM_RUN (set for programs that a monitor started), else the only run in
this folder that is being recorded.
""",
        """\
  text TEXT           name of the mark
  --run DIR           the run that is being recorded
""",
    ),
    Command(
        "gdbmem compare",
        """\
Compare recordings: peak, floor, slope, threads, with confidence intervals.
Usage: COMMAND [OPTIONS] RUN… [--vs RUN…]
       COMMAND [OPTIONS] -- COMMAND --vs COMMAND
       COMMAND [OPTIONS] --remedies -- PROGRAM [ARGS]

  gdbmem compare gdbmem.server.100 gdbmem.server.200
  gdbmem compare OLD1 OLD2 OLD3 --vs NEW1 NEW2 NEW3
  gdbmem compare --runs 3 -- './omp 8 4' --vs './omp 4 4'     run both alternately, record, compare
  gdbmem compare --remedies -- ./omp 8 4                      what malloc's settings return

A command after '--' is one quoted word; no shell interprets it. Status 4: a second run has the verdict of --fail-on.
""",
        f"""\
  first [RUN …]       runs; without --vs the first is compared with the others
  --vs RUN            the runs of the second group
  --runs N            run each command N times (3 if left out, 5 with --remedies)
  --remedies          run PROGRAM with and without each malloc setting that may return memory, and measure its
                      resident set when it has been idle for a second or ends; with --for after TIME
  --interval TIME     time between two samples (default: 100ms)
  --for TIME          end each run after TIME
  --plot FILE         draw the runs in one chart into FILE.svg, or make FILE.html, a page with all results
  --fail-on VERDICT[:SLOPE]
                      exit 4 if a run of the second group has this verdict, 125 if one can't be judged
{options.CI}{options.QUIET}{options.NO_COLOR}{options.OUTPUT}""",
    ),
    Command(
        "gdbmem baseline",
        """\
Keep what a recipe measures on a branch, and fail where it is more by more than noise.

Each recipe is run several times. A measure is the heap at the last snapshot of each name, and what each expectation
measures.
""",
        actions=(
            Command(
                "gdbmem baseline save",
                """\
Run recipes, and save what they measure as the baseline of a branch.
Usage: COMMAND [OPTIONS] RECIPE|RUN…
""",
                f"""\
  operands RECIPE|RUN …  recipes to run, or runs of recipes that were made before
  --file FILE         the file of baselines; other branches in it are kept (default: gdbmem-baseline.json)
  --branch NAME       the branch (default: the one that is checked out)
  --runs N            run each recipe N times (default: 12)
{options.QUIET}""",
                """\
example:
  gdbmem baseline save leak.yaml
""",
                file="gdbmem-baseline.json",
            ),
            Command(
                "gdbmem baseline check",
                """\
Run recipes, and fail where they measure more than the baseline of a branch, by more than noise.
Usage: COMMAND [OPTIONS] RECIPE|RUN…

Status 4: more than the baseline; 125: not comparable (another C library, page size, number of processors or engine),
or not judged; 0: not more. Equal programs fail in one check of 500.
""",
                f"""\
  operands RECIPE|RUN …  recipes to run, or runs of recipes that were made before
  --file FILE         the file of baselines (default: gdbmem-baseline.json)
  --against NAME      the branch to compare with (default: the one that CI merges into, main, master)
  --runs N            run each recipe N times (default: 5)
  --allow SIZE        do not fail for up to SIZE more (default: 0)
{options.CI}{options.QUIET}
{options.OUTPUT}""",
                """\
example:
  gdbmem baseline check leak.yaml --ci github --ci bencher
""",
                file="gdbmem-baseline.json",
            ),
        ),
    ),
    Command(
        "gdbmem bisect",
        """\
Decide for 'git bisect run' whether a commit is good or bad, by as many runs of a recipe as that takes.
Usage: git bisect run COMMAND [OPTIONS] RECIPE

Without baselines, by what the recipe expects. Status 0: good; 1: bad; 125: it does not build, does not run to its
end, or can't be decided: git skips it; 128 and more: an error that ends the bisection. Keep the recipe outside of the
checkout, or where no commit changes it.
""",
        f"""\
  recipe RECIPE       the recipe to run
  --build COMMAND     build with COMMAND first, one quoted word that no shell interprets: 'make -j4'
  --good NAME         the baseline that 'gdbmem baseline save --branch NAME' made at the good commit
  --bad NAME          the baseline of the bad commit
  --measure MEASURE   decide by this one (default: by the one that differs most clearly)
  --file FILE         the file of baselines (default: gdbmem-baseline.json)
  --runs N            give up after N runs (default: 40)
{options.QUIET}""",
        """\
examples:
  git checkout v1.0 && make && gdbmem baseline save --branch good ../leak.yaml
  git checkout main && make && gdbmem baseline save --branch bad ../leak.yaml
  git bisect start main v1.0
  git bisect run gdbmem bisect --build make --good good --bad bad ../leak.yaml
""",
        file="gdbmem-baseline.json",
    ),
    Command(
        "gdbmem ranks",
        """\
Compare the ranks of a parallel job, and judge them together.
Usage: COMMAND [OPTIONS] FOLDER|RUN…

The runs are those that 'gdbmem launch --recipe' or 'gdbmem monitor' made between mpirun, srun or torchrun and the
program. For each line: what the ranks grew by, on average, least and most, and on which rank. A rank that grew by
another amount than the others is named, and since when it has.

Status 4: an expectation is not met on some rank, or a series has the verdict of --fail-on; 125: not all ranks could
be judged.
""",
        f"""\
  operands FOLDER …   runs of the ranks, or folders of them
  --first NAME        compare each rank's snapshot NAME with that of --last (default: those of the recipe's first diff,
                      else the first and the last)
  --last NAME         the later snapshot
  --by path|function|line|file
                      one row for each path, function, line or file (default: line)
{options.TOP_10}  --min SIZE          only rows of which a rank has at least SIZE, as in 10KiB
  --fail-on VERDICT[:SLOPE]
                      exit 4 if a rank's series has this verdict, 125 if one can't be judged
  --junit FILE        write a test case for each rank as JUnit XML (as --ci junit=FILE)
{options.CI}{options.NO_COLOR}{options.OUTPUT}""",
        """\
examples:
  mpirun -n 8 gdbmem launch --recipe leak.yaml --run runs/r.%r; gdbmem ranks runs
  srun gdbmem monitor --run runs/r.%r -- ./solver; gdbmem ranks runs --fail-on growing
""",
    ),
    Command(
        "gdbmem store",
        """\
Keep thousands of profiles in one folder, and ask which call path grew most, on which rank, since when.

A store is a folder of Parquet files. It needs pyarrow and duckdb: pip install 'gdbmem[store]'.
""",
        examples="""\
examples:
  gdbmem store add profiles gdbmem.solver.*
  gdbmem store query profiles
""",
        actions=[
            Command(
                "gdbmem store add",
                """\
Add profiles to a store, all or, if it is interrupted, none.
Usage: COMMAND [OPTIONS] STORE PROFILE|RUN|FOLDER…

The profiles are files, FILE:NUMBER, runs, RUN:NAME, and folders of them. Files whose names differ in one number only
are profiles of one process, oldest first; their rank and process are unknown unless --names tells them. A profile that
the store has already is not added again. Status 1: a file could not be read, and was left out.
""",
                f"""\
  store STORE         the folder of the store; a new one is made
  operands PROFILE …  what to add
  --names PATHS       read rank (%r), host (%h), process id (%p) and job (%j) from the ends of the files' paths, in
                      which * stands for anything but a /
{options.NO_COLOR}{options.READING}{options.OUTPUT}""",
                """\
examples:
  gdbmem store add profiles runs
  gdbmem store add profiles --names 'rank%r/heap.*.pb.gz' rank*
""",
            ),
            Command(
                "gdbmem store query",
                """\
Show which call path grew most from the first to the last profile of a process, on which rank and since when.
Usage: COMMAND [OPTIONS] STORE [grew|odd|series]

  grew    the paths that grew most, each on the rank where it did (the default)
  odd     the ranks where a path grew by another amount than on the others
  series  the processes, with their profiles

Tables and views for --sql: facts, paths, profiles, series, growth.
""",
                f"""\
  store STORE         the folder of the store
  question [QUESTION]  grew, odd or series
  --sql QUERY         the rows of QUERY, one query in DuckDB's SQL; it can change nothing
  --focus REGEX       only paths with a frame 'function (file:line)' that matches
  --on-ranks N,N-M    only growth on these ranks
  --unit UNIT         compare the profiles that count UNIT, as in 'bytes allocated' (default: what most of them count)
{options.TOP_10}{options.NO_COLOR}{options.OUTPUT}""",
                """\
examples:
  gdbmem store query profiles --focus decode
  gdbmem store query profiles odd
  gdbmem store query profiles --sql 'select rank, max(total_bytes) from profiles group by rank order by 2 desc limit 5'
""",
            ),
        ],
    ),
    Command(
        "gdbmem report",
        """\
Write a run, a profile or a difference as one HTML file that loads nothing from a network.
Usage: COMMAND [OPTIONS] A [B …]

gdbmem report gdbmem.decoder.4711           the run: its history, its snapshots, what grew between them
gdbmem report massif.out.1 massif.out.2     what grew from one file to the other
gdbmem report *.heap                        which lines grow steadily
gdbmem report gdbmem.monitor.812            what a monitor recorded, with its verdict
gdbmem report 4711                          where the resident memory of a process is
gdbmem report train.log                     memory pools: chunks, free chunks, and the refused request
""",
        f"""\
  operands A B …      a run, RUN:NAME, a profile, a process, a core, or output of --json; two for their difference,
                      more for a series, oldest first
  -o, --output FILE   write to FILE (default: NAME.html here; '-': stdout)
{options.FORCE}{options.OPEN}  --title TEXT        title of the page
{options.KNOWN}{options.MINE}{options.SOURCE_FOLDER}\
  --embed-source      include the source lines around each place in the page; everyone who gets the page can read them
  --annotate SOURCE   include the source file SOURCE line by line, with the memory allocated there, and that of all
                      paths through a call there; everyone who gets the page can read it
{options.LINKS}\
a single picture, in place of the page:
  --svg FILE          write a picture of the page as SVG
  --picture NAME      the picture whose section title contains NAME (default: the first)

{options.STRETCH}{options.READING}""",
    ),
    Command(
        "gdbmem serve",
        """\
Serve runs and profiles as pages that update with new snapshots, on the loopback address.
Usage: COMMAND [OPTIONS] [RUN|FOLDER …]

gdbmem serve                                all runs in the current folder
gdbmem serve gdbmem.decoder.4711 old.heap   these
gdbmem serve ~/runs                         all runs in that folder, including later ones
""",
        f"""\
  operands [RUN …]    runs, profiles, and folders of runs (default: the current folder)
  --port PORT         port to listen on (default: a free port)
{options.OPEN}{options.MINE}{options.LINKS}{options.READING}""",
        port=0,
    ),
    Command(
        "gdbmem export",
        """\
Write a snapshot, or the difference of two, in another tool's format.
Usage: COMMAND [OPTIONS] --to FORMAT A [B]

gdbmem export profile.heap --to pprof -o profile.pb.gz       go tool pprof, pyroscope
gdbmem export RUN:loaded --to speedscope -o loaded.json      speedscope.app
gdbmem export before.heap after.heap --to csv                what changed, path by path
gdbmem export heaptrack.zst --from 10s --until 1min --to csv what changed between two moments
gdbmem export before.heap --to parquet -o before.parquet     pandas, polars, DuckDB (needs the package pyarrow)
gdbmem export before.heap --to arrow -o before.feather       the same, as Arrow's file format (Feather 2)
gdbmem export RUN --to csv -o server.csv                     a series that 'gdbmem monitor' recorded
gdbmem export RUN --to perfetto -o server.json               ui.perfetto.dev: that series, or snapshots over time
gdbmem export RUN --to pyroscope -o http://localhost:4040    push a snapshot to a server (URL/ingest: before 1.0)
""",
        f"""\
  operands A B …      FILE, FILE:NUMBER, FILE:peak, RUN:NAME or RUN
  --to folded|speedscope|pprof|massif|csv|parquet|arrow|json|perfetto|pyroscope
                      the format; a recorded series only to csv, json and perfetto,
                      perfetto only a series or several snapshots
  --label NAME=VALUE …  with pyroscope: a label of the profile; service_name is the program's name if not given
{options.WRITE_TO}{options.FORCE}
{options.STRETCH_TO_EXPORT}{options.READING}""",
        label=[],
    ),
    Command(
        "gdbmem recipe",
        """\
Check recipes without running anything, and report all problems with line and column.

A recipe (YAML) names a program, points in its code, the data to record there and the expected changes;
'gdbmem launch --recipe FILE' runs it. docs/recipes.md describes each key.
""",
        actions=(
            Command(
                "gdbmem recipe check",
                """\
Read recipes and report every problem; nothing is run.
""",
                f"""\
  files FILE …        a recipe
{options.OUTPUT}""",
                """\
example:
  gdbmem recipe check leak.yaml

exit status: 0 all are valid, 1 one is not
""",
            ),
        ),
    ),
    Command(
        "gdbmem doctor",
        """\
Check that everything gdbmem needs is installed.

Prints one line per check, with the command that installs a missing part. A 'missing' part prevents
'gdbmem launch --massif'; a part marked '-' only the commands that are named.
""",
        f"""\
{options.OUTPUT}""",
        """\
exit status: 0 everything needed is present, 3 a tool is missing, 1 another problem
""",
    ),
    Command(
        "gdbmem mcp",
        """\
Serve gdbmem's reports to an agent, by the Model Context Protocol on standard input and output.

An agent can then ask where a process's memory is (explain, heap, python_objects), which lines make it grow (grow),
whether it grows (monitor_verdict), and what is in profiles and runs (show, diff). These only read. It sees your own
processes and the files below one folder, and gives no commands to gdb.

  {"mcpServers": {"gdbmem": {"command": "gdbmem", "args": ["mcp", "--folder", "/src/project"]}}}
""",
        """\
  --folder DIR        read files below DIR only (default: .)
  --allow-run         also let it take snapshots of a process (snap), and run recipes, which start any
                      program (launch_recipe)
""",
    ),
    Command(
        "gdbmem install",
        """\
Make 'source gdbmem' work in gdb, from any folder.

Installs the packages that gdbmem needs into a private folder for gdb's own Python, adds the folder of the
file 'gdbmem' to gdb's search path in your gdbinit (the change is shown; every other byte is kept), and
tests it in gdb. Running it again is harmless; 'gdbmem uninstall' reverts it.
""",
        f"""\
  --auto-load         also load gdbmem whenever gdb starts
{options.DRY_RUN}  --gdbinit FILE      the gdbinit to change (default: the one that gdb reads)
{options.GDB}""",
        """\
example:
  gdbmem install --dry-run
""",
    ),
    Command(
        "gdbmem uninstall",
        """\
Revert 'gdbmem install': remove its lines from your gdbinit, and the packages for gdb's Python.
""",
        f"""\
{options.DRY_RUN}  --gdbinit FILE      the gdbinit to change (default: each one that gdb may read)
""",
        """\
example:
  gdbmem uninstall --dry-run
""",
    ),
    Command(
        "gdbmem completion",
        """\
Print the shell code that completes gdbmem's commands, options, choices and snapshots (RUN:NAME).

bash: put  eval "$(gdbmem completion bash)"  into ~/.bashrc
zsh:  put  eval "$(gdbmem completion zsh)"   into ~/.zshrc, after compinit
fish: gdbmem completion fish > ~/.config/fish/completions/gdbmem.fish
""",
        """\
  shell bash|zsh|fish  bash, zsh, fish
""",
    ),
    Command(
        "gdbmem help",
        """\
Explain a message by the name in brackets at its end, or show the options of a command.

gdbmem help format-unknown
gdbmem help diff
""",
        """\
  name SLUG|COMMAND   the name of a message, or a command of gdbmem
""",
    ),
)
SHELL_COMMANDS = {command.name.partition(" ")[2]: command for command in _ALL}
