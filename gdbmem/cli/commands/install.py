"""Run `gdbmem install` and `gdbmem uninstall`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from gdbmem.commands.arguments import ArgumentParser
from gdbmem.errors import ToolError
from gdbmem.setup import gdbinit
from gdbmem.setup.folders import data_folder, private_folder
from gdbmem.setup.gdb_packages import fill_private_folder, is_current, packages_in, remove_private_folders
from gdbmem.setup.gdb_python import GdbPython, find_gdb, gdb_python, lasting_folder, loading_problem
from gdbmem.text import printable


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)
    found = gdb_python(find_gdb(args.gdb))
    print(
        f"gdb {printable(found.version)} ({printable(found.gdb)}) with Python {'.'.join(map(str, found.python))}"
    )
    path = Path(args.gdbinit) if args.gdbinit else gdbinit.users_gdbinit(found.version)
    before = gdbinit.read(path)
    block = gdbinit.block(lasting_folder(), auto_load=args.auto_load)
    after = gdbinit.with_block(before, block, new_file=not path.exists())
    _packages(found, args)
    if before == after:
        print(f"{printable(str(path))}: nothing to change")
    else:
        print(gdbinit.difference(path, before, after), end="")
    if args.dry_run:
        print("nothing was changed (--dry-run)")
        return 0
    if before != after:
        gdbinit.write(path, after)
    problem = loading_problem(found.gdb, path if args.gdbinit else None, auto_load=args.auto_load)
    if problem:
        raise ToolError(
            f"{printable(os.fspath(path))} was changed, but 'source gdbmem' fails in gdb: {problem}",
            slug="install-check",
            hint="see whether the rest of that file stops gdb, or type 'gdbmem uninstall'",
        )
    print("'source gdbmem' works in gdb, from any folder; then 'help gdbmem' lists the commands")
    return 0


def _packages(found: GdbPython, args: argparse.Namespace) -> None:
    folder = Path(private_folder(found.python))
    shown = printable(str(folder))
    if is_current(found):
        print(f"{shown}: nothing to change")
    elif args.dry_run:
        print(f"{shown}: would be filled with pygments")
    else:
        fill_private_folder(found)
        packages = ", ".join(f"{name} {version}" for name, version in sorted(packages_in(folder).items()))
        print(f"{shown}: filled with {printable(packages)}")


def run_uninstall(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)
    paths = [Path(args.gdbinit)] if args.gdbinit else gdbinit.candidates()
    changed = [_clean(path, dry_run=args.dry_run) for path in paths]
    if not any(changed):
        print("no gdbinit contains lines of gdbmem")
    if args.dry_run:
        for folder in sorted(Path(data_folder()).glob("gdb-python*")):
            print(f"{printable(str(folder))}: would be removed")
        print("nothing was changed (--dry-run)")
        return 0
    for folder in remove_private_folders():
        print(f"{printable(str(folder))}: removed")
    return 0


def _clean(path: Path, *, dry_run: bool) -> bool:
    before = gdbinit.read(path)
    after = gdbinit.without_block(before)
    if before == after:
        return False
    print(gdbinit.difference(path, before, after), end="")
    if not dry_run:
        if gdbinit.is_our_file(before):
            gdbinit.remove(path)
            print(f"{printable(str(path))}: removed, since 'gdbmem install' had made it")
        else:
            gdbinit.write(path, after)
    return True
