"""membfc: the BFC allocators of the process or core, found by search or named by an expression."""

from __future__ import annotations

import argparse

import gdb

from gdbmem.debugger.command import Command
from gdbmem.debugger.ledger.explain import core_path, local_pid
from gdbmem.debugger.location import memory_address
from gdbmem.debugger.program import CORE, NATIVE, GdbMemory, target_kind
from gdbmem.debugger.terminal import console_on
from gdbmem.errors import TargetError, UsageError
from gdbmem.inspection.pools import Pools, read_core_pools, read_held_pools, read_pool_at
from gdbmem.pools.output import request_of, write_pools
from gdbmem.terminal.console import open_output
from gdbmem.text import printable


class PoolsCommand(Command):
    """Find, read, answer."""

    def run(self, args: argparse.Namespace) -> None:
        request_of(args)  # refuses what makes no sense, before anything is read
        with open_output(args.output, force=args.force) as stream:
            pools = _pool_at(args.expression) if args.expression else _pools_here()
            write_pools(pools.allocators, pools.notices, args, console_on, stream)


def _pools_here() -> Pools:
    """Return all allocators of the process or core. Raises TargetError if there is none."""
    core = core_path()
    if core is not None:
        return read_core_pools(core)
    if target_kind() not in (NATIVE, CORE):
        raise TargetError(
            "the memory of a program under valgrind or on another machine can't be searched",
            slug="not-local",
            hint="name the allocator: membfc EXPR",
        )
    return read_held_pools(local_pid())


def _pool_at(expression: str) -> Pools:
    """Return the allocator that *expression* evaluates to, or points to."""
    try:
        value = gdb.parse_and_eval(expression)
        if value.type.strip_typedefs().code in (gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_REF):
            value = value.referenced_value()
        if value.type.strip_typedefs().code == gdb.TYPE_CODE_INT:
            address, name = int(value), ""
        else:
            found = memory_address(value)
            if found is None:
                raise TypeError("it is not in memory")
            address = found
            name = str(value.dynamic_type.strip_typedefs().name or "")
    except (gdb.error, TypeError) as error:
        raise UsageError(
            f"membfc can't use {printable(expression)}: {printable(str(error))}",
            hint="give an allocator, a pointer to one, or its address",
        ) from error
    return read_pool_at(GdbMemory(), address, name, f"{printable(expression)} in gdb")
