"""Run `gdbmem uninstall`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gdbmem.commands.arguments import ArgumentParser
from gdbmem.setup import gdbinit
from gdbmem.setup.gdb_packages import remove_private_folders
from gdbmem.setup.gdb_python import data_folder
from gdbmem.text import printable


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)
    paths = [Path(args.gdbinit)] if args.gdbinit else gdbinit.candidates()
    changed = [_clean(path, dry_run=args.dry_run) for path in paths]
    if not any(changed):
        print("no gdbinit contains lines of gdbmem")
    if args.dry_run:
        for folder in sorted(data_folder().glob("gdb-python*")):
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
