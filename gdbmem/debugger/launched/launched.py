"""Set-up of a gdb that 'gdbmem launch' started: the connection, `run`, and the notice of the program's end."""

from __future__ import annotations

import contextlib
import os
import signal

import gdb

from gdbmem.commands.in_gdb import LAUNCHED_COMMANDS
from gdbmem.debugger.command import Command, register, say, step_in_place, warn
from gdbmem.debugger.location import entry, program_runs, real_pid
from gdbmem.debugger.native.attached import attach, greeting, switch_off, switch_on
from gdbmem.debugger.session import session
from gdbmem.debugger.snapshots.snapshots import little_room, save_history
from gdbmem.debugger.stopping.ctrlc import ctrl_c
from gdbmem.debugger.stopping.stops import noticed
from gdbmem.engines.engine import table
from gdbmem.errors import GdbmemError, TargetError, ToolError, UsageError, sentence_of
from gdbmem.launch import messages
from gdbmem.linux.memory.maps import maps_text
from gdbmem.runs.run import LOADED
from gdbmem.setup.gdb_python import gdb_call

# Connecting this gdb to the launcher's program, and to the program that replaces it.


def connect_program() -> None:
    """Connect gdb to the launcher's waiting valgrind, attach to a process, or start the program natively."""
    if messages.ATTACHED in os.environ:
        attach(session.ask(messages.AskAttached(), messages.AttachedPlan))
    elif messages.NATIVE in os.environ:
        session.start(session.ask(messages.AskNative(), messages.NativePlan))
    else:
        session.join(session.ask(messages.AskTarget(), messages.ValgrindTarget))


def follow(program: str) -> None:
    """Connect to the program that replaced this one; *program* is a plain path to it."""
    gdb.execute(f"file {program}", to_string=True)
    connect_program()


def notice_end() -> None:
    """Before each prompt, report how the program ended if it has ended since the last one."""
    if not session.has_lost_program():
        return
    if session.farewell:
        say(session.farewell)
        return
    try:
        fate = session.fate()
        if fate.next:
            follow(fate.next)
            say("The program has executed another one, which is stopped before its first instruction.")
            return
    except (ToolError, gdb.error) as error:
        warn(sentence_of(error))
        return
    if fate.sentence:
        warn(fate.sentence)
    elif fate.status is not None:
        say(f"The program ended with status {fate.status}; 'run' starts it again.")


# The code that the program loads, listed in the run: a plugin may be unloaded before a snapshot is taken.


_listed: set[bytes] = set()


def list_loaded_files() -> None:
    """Append the executable mappings of each library to the run when gdb sees that it is loaded."""
    gdb.events.new_objfile.connect(_loaded)


def _loaded(event: gdb.NewObjFileEvent) -> None:
    # Without a list a snapshot has fewer names; the program goes on.
    with contextlib.suppress(OSError, GdbmemError, gdb.error):
        pid, name = real_pid(), os.fsencode(os.path.realpath(event.new_objfile.filename or ""))
        if pid is None:
            return
        lines = [line for line in maps_text(pid).splitlines() if line.endswith(b" " + name)]
        new = [line for line in lines if b"x" in line.split(None, 2)[1] and line not in _listed]
        if new:
            _listed.update(new)
            with (session.run.place / LOADED).open("ab") as stream:
                stream.write(b"\n".join([*new, b""]))


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
    if (
        messages.ATTACHED not in os.environ
    ):  # a process is not kept stopped for reading its map once for each library
        list_loaded_files()
    if messages.NATIVE not in os.environ:  # gdb's own run and kill work there
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
def _on_continue(event: gdb.ContinueEvent) -> None:
    try:
        with contextlib.suppress(GdbmemError):  # the launcher has ended: the next prompt reports it
            session.give_keyboard()
            ctrl_c.on_continue(session.presses)
    except KeyboardInterrupt:
        # The signal is meant for the program; gdb would only print it.
        os.kill(os.getpid(), signal.SIGINT)


def _on_call(event: gdb.Event) -> None:
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
    if (
        messages.NATIVE not in os.environ and messages.ATTACHED not in os.environ
    ):  # gdb's own commands work there
        register(LAUNCHED_COMMANDS)
    try:
        session.open_wire()
        step_in_place()
        connect_program()
        gdb.events.cont.connect(_on_continue)
        gdb.events.inferior_call.connect(_on_call)
        if messages.NATIVE not in os.environ:  # there gdb gets them from its command line, with redirections
            session.arguments.show(list(session.run.facts["arguments"]))
        session.ask(messages.Ready(), messages.Done)
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
    if messages.ATTACHED in os.environ:
        say(greeting(program))
        _switch_on()
    else:
        under = f"under {session.engine}" if session.engine != "none" else "without a heap profiler"
        say(f"{program} is stopped before its first instruction, {under}.")
    engine = session.engine
    if engine != "none":
        what = "The profile goes" if table(engine).whole_run else "Snapshots go"
        say(f"{what} to {session.run.folder}/")
    say(_WHAT_NEXT.get(engine, _WHAT_NEXT[""]))


def _switch_on() -> None:
    try:
        if not switch_on():
            return
    except (GdbmemError, gdb.error) as error:
        warn(sentence_of(error))
        return
    _add_hook("hook-detach", "switch_off()")
    if hasattr(gdb.events, "gdb_exiting"):  # gdb 12
        gdb.events.gdb_exiting.connect(lambda _: switch_off())
    else:
        _add_hook("hook-quit", "switch_off()")


# `run` and `start` in a gdb that 'gdbmem launch' has started: each starts a fresh valgrind.


class _Restarting(Command):
    def carry_out(self, argument: str) -> None:
        from gdbmem.debugger.snapshots.breakpoints import rearm_all  # gdb starts sooner

        arguments = _arguments(argument.strip() or gdb.parameter("args") or "")
        session.restart(arguments)
        session.arguments.show(arguments)
        rearm_all()
        target = session.ask(messages.AskTarget(), messages.ValgrindTarget)
        say(f"A new valgrind runs the program (process {target.pid}).")


class RunCommand(_Restarting):
    """`run`: a fresh valgrind, from the beginning."""

    def carry_out(self, argument: str) -> None:
        super().carry_out(argument)
        gdb.execute("continue")


class StartCommand(_Restarting):
    """`start`: the same, stopped at main."""

    def carry_out(self, argument: str) -> None:
        if entry() != "main":
            raise TargetError(
                "the program has no symbol 'main': it is stripped",
                slug="no-main",
                hint=f"'break {entry()}' and 'run' stop where libc is about to call it",
            )
        super().carry_out(argument)
        gdb.execute("tbreak main")
        gdb.execute("continue")


def _arguments(text: str) -> list[str]:
    try:
        words = session.arguments.read(text)
    except ValueError as error:
        raise UsageError(f"these arguments can't be read: {error}", hint="close the quotation") from None
    if any(word[0] in "<>|&" for word in words if word):
        raise UsageError(
            "input and output can't be redirected here",
            hint="quit gdb and launch with --stdin FILE or --stdout FILE",
        )
    return words
