"""`gdbmem launch ./binary`: the user's gdb on this terminal, connected to a valgrind beside it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from gdbmem.engines.engine import NAMES, end_of, table
from gdbmem.errors import Interrupted
from gdbmem.launch.child import Child
from gdbmem.launch.job import Job, Launch, gdb_environment, gdb_program, open_launch, problems
from gdbmem.launch.supervisor import saved_terminal
from gdbmem.linux.process.terminal_modes import TerminalModes
from gdbmem.runs.run import Run, histories
from gdbmem.setup.gdb_packages import ensure_private_folder
from gdbmem.setup.gdb_python import gdb_call, loader_file
from gdbmem.text import plural, printable

CONNECT = gdb_call("launched.launched", "connect()")
# While gdb loads, Ctrl-C would only interrupt the loading; the launcher receives it and ends both. The signals are
# blocked by this command, because gdb starts programs with the signals blocked with which it was started. connect()
# unblocks them.
DEAF = ("-iex", "python __import__('signal').pthread_sigmask(0, (2, 3))")
QUIET = ("-iex", "set print symbol-loading off", "-iex", "set print inferior-events off")


def run_interactive(
    job: Job, *, gdb_arguments: Sequence[str], finish: bool, command: Sequence[str], runs: list[Run]
) -> int:
    """Run gdb on *job* until the user quits it; return 0 unless gdbmem itself failed.

    With *finish* the program then continues to its end; otherwise it is ended, and its history is saved. The run is
    added to *runs*, also after a failure.
    """
    ensure_private_folder(job.gdb)
    with saved_terminal() as modes:
        launch = None
        try:
            with open_launch(job, hear=lambda message: None, plan=None, command=command) as launch:
                for notice in job.notices():
                    print(f"gdbmem: {notice.sentence}", file=sys.stderr)
                if not job.is_native:
                    launch.supervisor.start_valgrind()
                _run_gdb(launch, gdb_arguments, modes)
                if finish:
                    _let_finish(launch)
        except Interrupted as interrupted:
            print("gdbmem: interrupted", file=sys.stderr)
            return 128 + interrupted.number
        finally:
            if launch is not None:
                for notice in problems(launch):
                    print(f"gdbmem: {notice.sentence}", file=sys.stderr)
                runs.append(launch.run)
                if launch.run.folder.is_dir():  # it was removed if nothing was recorded
                    say_run(launch.run)
    return 0


def _run_gdb(launch: Launch, gdb_arguments: Sequence[str], modes: Optional[TerminalModes]) -> None:
    symbols = str(launch.job.program.symbols)
    # gdb would print the raw path, including escape sequences.
    quiet = QUIET if printable(symbols) != symbols else ()
    argv = [launch.job.gdb, "-q", *DEAF, *quiet, "-x", str(loader_file()), "-ex", CONNECT, *gdb_arguments]
    child = Child(
        [*argv, *gdb_program(launch.job)],
        environment=gdb_environment(launch),
        own_session=False,
        native_signals=True,
    )
    launch.supervisor.watch_gdb(child, modes)


def _let_finish(launch: Launch) -> None:
    process = launch.supervisor.process
    if process is None or not process.child.alive:
        return
    print("gdbmem: the program continues to its end; Ctrl-C ends it now", file=sys.stderr)
    launch.supervisor.wait(lambda: not process.child.alive)


def say_run(run: Run) -> None:
    """Report the contents of *run*, including the engine's files at the end, and the next commands."""
    engine = str(run.facts.get("engine") or "none")
    folder = shown(run.folder)
    count = len(run.snapshots)
    kept = [plural(count, "snapshot")] if count else []
    names = [history.name for history in histories(run)]
    kept += [f"{end_of(engine)} in {', '.join(names)}"] if names else []
    print(f"gdbmem: the run is kept in {folder}/ ({', '.join(kept) or 'no snapshot'})", file=sys.stderr)
    whole_run = engine in NAMES and table(engine).whole_run
    if whole_run:
        from gdbmem.launch.whole_run import show_whole_run  # slow to import

        show_whole_run(run, sys.stdout)
    elif count >= 2:
        before, after = (shlex.quote(f"{folder}:{record.name}") for record in run.snapshots[-2:])
        print(f"gdbmem: compare with  gdbmem diff {printable(before)} {printable(after)}", file=sys.stderr)
    if kept and (count < 2 or whole_run):
        print(f"gdbmem: show it with  gdbmem show {printable(shlex.quote(folder))}", file=sys.stderr)


def shown(folder: Path) -> str:
    """Return the shortest path of *folder* from here."""
    try:
        return str(folder.relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):  # the current folder may have been deleted meanwhile
        return str(folder)
