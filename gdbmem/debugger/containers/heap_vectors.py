"""memcontainers --everywhere: the vectors of the heap, found by their pointers, named by their holders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gdb

from gdbmem.debugger.gdb_text import symbol_at
from gdbmem.debugger.ledger.here import read_ledger_here
from gdbmem.debugger.selection import selection_kept
from gdbmem.debugger.terminal import console_on
from gdbmem.errors import UsageError
from gdbmem.inspection.looks import VECTORS, Looks
from gdbmem.model.ledger.vectors import DATA, STACK, FoundVector
from gdbmem.report.ledger.vectors import print_vectors, vectors_json
from gdbmem.report.output import open_output

if TYPE_CHECKING:
    import argparse

_MOST_FRAMES = 1000


def show_everywhere(args: argparse.Namespace) -> None:
    """Find the vectors of the stopped process or core, and print or write them."""
    if args.expression or args.save is not None or args.since is not None:
        raise UsageError(
            "--everywhere finds vectors without names, which can't be compared or picked out",
            hint="leave out --save, --since and EXPR",
        )
    with open_output(args.output, force=args.force) as stream:
        looks = Looks(frozenset([VECTORS]))
        read_ledger_here(looks)
        found = looks.vectors
        assert found is not None
        owners = {vector.owner: _owner(vector) for vector in found.largest[: args.top]}
        if args.json:
            stream.write(vectors_json(found, owners))
            return

        print_vectors(found, owners, console_on(stream), args.top)


def _owner(vector: FoundVector) -> str:
    """Return the variable that contains a vector's pointers, if gdb knows one."""
    if vector.place == STACK:
        return _in_frame(vector.owner)
    return symbol_at(vector.owner) if vector.place == DATA else ""


def _in_frame(address: int) -> str:
    """Return the function whose frame contains *address*, on the stack of any thread."""
    with selection_kept():
        pointers = []
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            pointer = _stack_pointer(gdb.newest_frame())
            if 0 < pointer <= address:
                pointers.append((pointer, thread))
        if not pointers:
            return ""
        max(pointers, key=lambda found: found[0])[1].switch()
        frame, name = gdb.newest_frame(), ""
        for _ in range(_MOST_FRAMES):
            if frame is None or not 0 < _stack_pointer(frame) <= address:
                break
            name = frame.name() or ""
            try:
                frame = frame.older()
            except gdb.error:
                break
        return f"{name.partition('(')[0]}()" if name else ""


def _stack_pointer(frame: gdb.Frame) -> int:
    try:
        return int(frame.read_register("sp"))
    except (gdb.error, ValueError):
        return 0
