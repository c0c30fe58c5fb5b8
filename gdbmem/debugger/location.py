"""The program's current location, in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePath
from typing import Optional

import gdb

from gdbmem.debugger.gdb_text import file_name, library_at


def current_place() -> Optional[str]:
    """Return the location of the selected thread: ``function at file:line``; None when nothing runs.

    In valgrind's replacement of malloc this is the location of the call.
    """
    try:
        frame = newest = gdb.newest_frame()
        while frame is not None and "/vgpreload_" in (library_at(frame.pc()) or ""):
            frame = frame.older()
        return frame_place(frame or newest)
    except gdb.error:
        return None


def users_place() -> Optional[str]:
    """Return the innermost place in the program itself, not in a library; None when nothing runs.

    A signal is mostly raised deep inside libc, which is not informative.
    """
    try:
        frame = newest = gdb.newest_frame()
        while frame is not None and (frame.name() is None or library_at(frame.pc()) is not None):
            frame = frame.older()
        return frame_place(frame or newest)
    except gdb.error:
        return current_place()


def frame_place(frame: gdb.Frame) -> str:
    """Return the location of *frame*: ``function at file:line``, or as much of it as is known."""
    name = frame.name()
    position = frame.find_sal()
    if position.symtab is not None and position.line:
        where = f"{PurePath(file_name(position.symtab)).name}:{position.line}"
        return f"{name} at {where}" if name else where
    return name or f"0x{frame.pc():x} in {PurePath(library_at(frame.pc()) or program_file()).name}"


def program_file() -> str:
    """Return the path of the program that gdb has loaded, "program" if it has none.

    Some gdbs can't hand a name that is not UTF-8 to Python.
    """
    try:
        return gdb.current_progspace().filename or "program"
    except UnicodeDecodeError:
        return "program"


def loaded_files() -> Iterator[str]:
    """Yield the names of the files that gdb has loaded; not those that it can't hand to Python, as program_file()."""
    for objfile in gdb.objfiles():
        with suppress(UnicodeDecodeError):
            yield objfile.filename or ""


def entry() -> str:
    """Return the function to stop at first: main, or in a stripped program the libc function that calls it."""
    try:
        gdb.execute("info address main", to_string=True)
    except gdb.error:
        return "__libc_start_main"
    return "main"


def current_thread() -> Optional[int]:
    """Return gdb's number of the selected thread."""
    thread = gdb.selected_thread()
    return thread.num if thread is not None else None


def program_runs() -> bool:
    """Return whether there is a live program."""
    return bool(gdb.selected_inferior().pid)


_first_threads: dict[int, gdb.InferiorThread] = {}  # by inferior: for their list gdb asks valgrind anew


def real_pid() -> Optional[int]:
    """Return the process id in this machine's /proc of the selected inferior; None when it has none here.

    Under vgdb gdb invents the pid 42000; the first thread's id is the true one.
    """
    inferior = gdb.selected_inferior()
    first = _first_threads.get(inferior.num)
    if first is None or not first.is_valid():
        threads = inferior.threads()
        if not threads:
            return None
        first = _first_threads[inferior.num] = min(threads, key=lambda thread: thread.num)
    return int(first.ptid[1] or inferior.pid)
