"""Connecting this gdb to the launcher's program, and to the program that replaces it."""

from __future__ import annotations

import os

import gdb

from gdbmem.debugger.command import say, warn
from gdbmem.debugger.session import session
from gdbmem.errors import ToolError, sentence_of
from gdbmem.launch.conversation.messages import (
    AskAttached,
    AskNative,
    AskTarget,
    AttachedPlan,
    NativePlan,
    ValgrindTarget,
)
from gdbmem.launch.conversation.protocol import ATTACHED, NATIVE


def connect_program() -> None:
    """Connect gdb to the launcher's waiting valgrind, attach to a process, or start the program natively."""
    if ATTACHED in os.environ:
        from gdbmem.debugger.native.attached import attach  # 10 ms

        attach(session.ask(AskAttached(), AttachedPlan))
    elif NATIVE in os.environ:
        session.start(session.ask(AskNative(), NativePlan))
    else:
        session.join(session.ask(AskTarget(), ValgrindTarget))


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
