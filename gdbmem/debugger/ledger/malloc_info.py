"""memexplain --malloc-info: malloc_info called in the stopped process, beside the ledger of the same moment.

It writes to a FILE, which libc allocates in the heap that is measured. The stream gets a file in memory and a buffer
in a page that gdbmem maps, so it takes only one block; the ledger is read while that block is allocated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Optional, TextIO

import gdb

from gdbmem.debugger.ledger.here import core_path, local_pid, read_ledger_here
from gdbmem.debugger.ledger.malloc_calls import alone, call_for_address, call_malloc, check_callable, refused
from gdbmem.debugger.native.inferior import program
from gdbmem.debugger.selection import selection_kept
from gdbmem.debugger.terminal import console_on
from gdbmem.errors import TargetError
from gdbmem.formats.malloc_info import parse_malloc_info
from gdbmem.model.memory import MemoryUnreadable
from gdbmem.patterns import lazy_pattern
from gdbmem.report.ledger.malloc_info import malloc_info_json, print_malloc_info

_FULLY_BUFFERED = 0  # _IOFBF
_CLOSE_ON_EXEC = 1  # MFD_CLOEXEC
_BUFFER_BYTES = 8192
_MOST_BYTES = 1 << 26
# A thread inside one of these may hold the lock of libc's list of streams, or have changed it in part.
_WITH_STREAMS = lazy_pattern(
    r"_IO_(?:new_)?(?:link_in|un_link|flush_all\w*|cleanup|unbuffer_all|list_\w+|fclose|fopen\w*|fdopen)"
    r"|(?:__)?(?:fopen|fdopen|fclose|fflush|fcloseall|popen|pclose|freopen|exit|fork|vfork)(?:64)?|__run_exit_handlers"
    r"|__libc_fork|open_memstream|fmemopen|fopencookie|tmpfile"
)
_FRAMES = 32


def write_malloc_info(stream: TextIO, *, as_json: bool) -> None:
    """Write the output of malloc_info, called in the process, beside the ledger."""
    if core_path() is not None:
        raise TargetError(
            "a core can't run malloc_info",
            slug="trim-refused",
            hint="use 'memexplain' for the contents of the heap",
        )
    check_callable(read_ledger_here(), "malloc_info")
    _check_streams()
    with _stream() as (file, descriptor):
        ledger = read_ledger_here()
        call_malloc("malloc_info", [0, file])
        call_malloc("fflush", [file])
        text = _written(descriptor)
        size = _block_bytes(file)
    theirs = parse_malloc_info(text)
    if as_json:
        stream.write(malloc_info_json(theirs, ledger, size))
    else:
        print_malloc_info(theirs, ledger, size, console_on(stream))


@contextmanager
def _stream() -> Iterator[tuple[int, int]]:
    """Open a FILE over memory in the process; yield its address and descriptor; close both."""

    def placed(data: bytes) -> int:
        with alone():
            return program.place(data)

    descriptor = call_malloc("memfd_create", [placed(b"malloc_info\0"), _CLOSE_ON_EXEC])
    if descriptor < 0:
        raise refused("the process can't create a file in memory for malloc_info to write to")
    file = 0
    try:
        file = call_for_address("fdopen", [descriptor, placed(b"w\0")])
        if not file:
            raise refused("the process could not open a stream for malloc_info to write to")
        call_malloc("setvbuf", [file, placed(bytes(_BUFFER_BYTES)), _FULLY_BUFFERED, _BUFFER_BYTES])
        yield file, descriptor
    finally:
        if file:
            call_malloc("fclose", [file])
        else:
            call_malloc("close", [descriptor])


def _written(descriptor: int) -> str:
    pid = local_pid()
    with suppress(OSError), open(f"/proc/{pid}/fd/{descriptor}", "rb") as file:  # noqa: PTH123
        return os.pread(file.fileno(), _MOST_BYTES, 0).decode("ascii", "replace")
    raise TargetError(
        "the output of malloc_info can't be read",
        slug="trim-refused",
        hint="run gdb as the process's user, or as root",
    )


def _block_bytes(address: int) -> int:
    """Return the size of the block at *address*, from its header."""
    with suppress(MemoryUnreadable, gdb.error):
        head = bytes(gdb.selected_inferior().read_memory(address - 8, 8))
        return (int.from_bytes(head, "little") & ~7) - 8
    return 0


def _check_streams() -> None:
    """Raise TargetError if a thread may hold a lock that opening a stream needs."""
    with selection_kept():
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            name = _with_streams(gdb.newest_frame())
            if name:
                raise refused(f"thread {thread.num} is in {name}, where opening a stream could deadlock")


def _with_streams(frame: Optional[gdb.Frame]) -> str:
    for _ in range(_FRAMES):
        if frame is None:
            break
        name = frame.name() or ""
        if _WITH_STREAMS.fullmatch(name):
            return name
        try:
            frame = frame.older()
        except gdb.error:
            break
    return ""
