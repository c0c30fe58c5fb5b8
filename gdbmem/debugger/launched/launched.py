"""Set-up of a gdb that 'gdbmem launch' started: the connection, `run`, and the notice of the program's end."""

from __future__ import annotations

import contextlib
import os
import signal

import gdb

from gdbmem.debugger.command import say, warn
from gdbmem.debugger.launched.connecting import connect_program, notice_end
from gdbmem.debugger.launched.loaded_files import list_loaded_files
from gdbmem.debugger.location import program_runs, real_pid
from gdbmem.debugger.registry import LAUNCHED_COMMANDS, register
from gdbmem.debugger.session import session
from gdbmem.debugger.snapshots.snapshots import little_room, save_history
from gdbmem.debugger.stopping.ctrlc import ctrl_c
from gdbmem.debugger.stopping.quiet_stops import noticed
from gdbmem.engines.engine import table
from gdbmem.errors import GdbmemError, sentence_of
from gdbmem.launch.conversation.messages import Done, Ready
from gdbmem.launch.conversation.protocol import ATTACHED, NATIVE
from gdbmem.setup.gdb_call import gdb_call

_WHAT_NEXT = {
    "": "Set breakpoints, 'continue', 'memsnap NAME', 'memdiff'; 'help gdbmem' lists more.",
    "massif": "Set breakpoints, 'continue', 'massif-snap NAME', 'massif-diff'; 'help gdbmem' lists more.",
    "none": "Set breakpoints, 'continue', 'memexplain', 'memwatch next'; 'help gdbmem' lists more.",
    "memcheck": "Set breakpoints, 'continue', 'memsnap NAME', 'memdiff', 'memleaks'; 'help gdbmem' lists more.",
    "dhat": "Set breakpoints, 'continue'; the profile of the whole run is written when the program ends.",
    "tracemalloc": "Set breakpoints on C functions, 'continue', 'memsnap NAME', 'memdiff'; 'help gdbmem' lists more.",
    "faults": "Set breakpoints, 'continue', 'memsnap NAME', 'memdiff'; 'help gdbmem' lists more.",
    "heaptrack": "Set breakpoints, 'continue'; the profile of the whole run is written when the program ends.",
}
# gdb's `kill`, which gdb also executes before it connects to another target, ends valgrind without its file. A hook,
# unlike a new command, leaves `kill` unchanged. (A hook after a remote target's `detach` is never called.)
_HOOKS = {
    "hook-kill": "save_before_kill()",
    "hook-attach": "save_before_kill()",
    "hook-core-file": "save_before_kill()",
    "hookpost-kill": "note_farewell(\"The program was killed; 'run' starts it again.\")",
    "hook-detach": "note_farewell(\"The program continues without gdb; 'run' starts it again.\")",
    "hook-disconnect": "note_farewell(\"The program continues without gdb; 'run' starts it again.\")",
}

_warned: set[int] = set()  # processes already reported to have little room


def install_launched() -> None:
    """Register event handlers in a launched gdb; `connect()` connects after gdb has read its files."""
    gdb.events.before_prompt.connect(_before_prompt)
    gdb.events.exited.connect(session.note_exit)
    if ATTACHED not in os.environ:  # a process is not kept stopped for reading its map once for each library
        list_loaded_files()
    if NATIVE not in os.environ:  # gdb's own run and kill work there
        for name, call in _HOOKS.items():
            _add_hook(name, call)


def _add_hook(name: str, call: str) -> None:
    """Define gdb's hook *name* to make *call* and then run the user's own hook of that name."""
    try:
        shown = str(gdb.execute(f"show user {name}", to_string=True))
    except gdb.error:  # there is none
        shown = ""
    own = shown.partition("\n")[2].rstrip("\n")
    gdb.execute(f"define {name}\n{gdb_call('launched.launched', call)}\n{own}\nend")


@noticed
def _continuing(event: gdb.ContinueEvent) -> None:
    try:
        with contextlib.suppress(GdbmemError):  # the launcher has ended: the next prompt reports it
            session.give_keyboard()
            ctrl_c.on_continue(session.presses)
    except KeyboardInterrupt:
        # The signal is meant for the program; gdb would only print it.
        os.kill(os.getpid(), signal.SIGINT)


def _calling(event: gdb.Event) -> None:
    """Watch for Ctrl-C during a call that gdb makes the program execute."""
    if session.native is None:
        return
    if isinstance(event, gdb.InferiorCallPreEvent):
        with contextlib.suppress(GdbmemError):
            session.give_keyboard()
            ctrl_c.on_call(session.presses)
    else:
        ctrl_c.on_call_over()


def _before_prompt() -> None:
    try:
        ctrl_c.on_prompt()
        session.take_keyboard()
        notice_end()
        _warn_of_little_room()
    except GdbmemError as error:
        session.wire = None
        warn(sentence_of(error))


def _warn_of_little_room() -> None:
    pid = real_pid() if program_runs() and session.launched else None
    text = little_room() if pid is not None and pid not in _warned else None
    if pid is not None and text is not None:
        _warned.add(pid)
        warn(text)


def save_before_kill() -> None:
    """Save the data of valgrind's tool before gdb kills the program, unless the program has not started."""
    if program_runs():
        with contextlib.suppress(GdbmemError):
            what = "massif's own history" if session.engine == "massif" else "the heap profile"
            say(f"{what} up to here is kept in {save_history()}, whatever you answer")


def note_farewell(sentence: str) -> None:
    """Note that the user ends the program: its end is then reported by *sentence*, without an inquiry."""
    session.farewell = sentence


def connect() -> None:
    """Connect this gdb to the waiting valgrind and greet the user, who gets `run` and `start`."""
    if NATIVE not in os.environ and ATTACHED not in os.environ:  # gdb's own commands work there
        register(LAUNCHED_COMMANDS)
    try:
        session.open_wire()
        connect_program()
        gdb.events.cont.connect(_continuing)
        gdb.events.inferior_call.connect(_calling)
        if NATIVE not in os.environ:  # there gdb gets them from its command line, with redirections
            session.arguments.show(list(session.run.facts["arguments"]))
        session.ask(Ready(), Done)
    except (GdbmemError, gdb.error) as error:
        if session.wire is None:  # the launcher was killed meanwhile: the terminal is its user's again
            gdb.execute("quit")
        warn(f"could not connect to the program: {sentence_of(error)}")
        return
    finally:
        # Blocked since this gdb began to load; a Ctrl-C in that time had nothing to interrupt.
        with contextlib.suppress(KeyboardInterrupt):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGQUIT))
    _greet()


def _greet() -> None:
    program = session.run.facts["program"].rpartition("/")[2]
    if ATTACHED in os.environ:
        from gdbmem.debugger.native.attached import greeting  # connect_program() has loaded it

        say(greeting(program))
    else:
        under = f"under {session.engine}" if session.engine != "none" else "without a heap profiler"
        say(f"{program} is stopped before its first instruction, {under}.")
    engine = session.engine
    if engine != "none":
        what = "The profile goes" if table(engine).whole_run else "Snapshots go"
        say(f"{what} to {session.run.folder}/")
    say(_WHAT_NEXT.get(engine, _WHAT_NEXT[""]))
