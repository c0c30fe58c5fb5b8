"""memleaks: unreachable memory, its blocks, and the holders of a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbmem.analysis.leaks import with_changes
from gdbmem.arguments import add_output_options
from gdbmem.debugger.command import Command, warn
from gdbmem.debugger.launched.valgrind_monitor import monitor_text
from gdbmem.debugger.session import require_program, session
from gdbmem.debugger.snapshots.block_holders import show_holders
from gdbmem.debugger.terminal import console_on
from gdbmem.engines import memcheck
from gdbmem.errors import TargetError, UsageError
from gdbmem.formats.valgrind.memcheck_answers import read_blocks
from gdbmem.formats.valgrind.memcheck_log import read_leak_search
from gdbmem.model.leaks import LeakSearch
from gdbmem.report.leaks.leaks import blocks_json, leaks_json, print_blocks, print_leaks
from gdbmem.report.output import open_output

if TYPE_CHECKING:
    import argparse

    from gdbmem.arguments import ArgumentParser

_BLOCKS = 1000  # at most, unless --limit is given


class LeaksCommand(Command):
    """Show unreachable blocks, by path."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--top", metavar="N", type=int, default=10, help="list N records (default 10)")
        parser.add_argument(
            "--blocks", metavar="N", type=int, help="the blocks of record N of the last search"
        )
        parser.add_argument("--limit", metavar="N", type=int, default=_BLOCKS, help="at most N blocks")
        parser.add_argument(
            "--holder",
            metavar="ADDRESS",
            help="show the pointers that keep the block at ADDRESS (an expression) alive",
        )
        add_output_options(parser)

    def run(self, args: argparse.Namespace) -> None:
        if args.blocks is not None and args.holder is not None:
            raise UsageError("--blocks and --holder exclude each other", hint="type one after the other")
        for name in ("top", "limit", "blocks"):
            if getattr(args, name) is not None and getattr(args, name) < 1:
                raise UsageError(f"--{name} takes a number from 1", hint="see 'help memleaks'")
        _require_memcheck()
        if args.blocks is not None:
            _blocks(args)
        elif args.holder is not None:
            show_holders(args)
        else:
            _search(args)


def _require_memcheck() -> None:
    require_program()
    engine = session.engine
    if engine == memcheck.NAME:
        return
    under = f"runs under {engine}" if engine not in ("", "none") else "does not run under memcheck"
    raise TargetError(
        f"only memcheck finds the blocks that no pointer reaches, and this program {under}",
        slug="not-memcheck",
        hint="quit gdb and type: gdbmem launch --engine memcheck PROGRAM",
    )


def _search(args: argparse.Namespace) -> None:
    with open_output(args.output, force=args.force) as stream:
        search = search_leaks()
        for notice in search.notices:
            warn(notice.sentence)
        if args.json:
            stream.write(leaks_json(search))
        else:
            print_leaks(search, console_on(stream), top=args.top)


def search_leaks() -> LeakSearch:
    """Make memcheck search for leaks; return the result, with the change since its previous search.

    Two searches: the first reports the changes, the second everything; the record numbers are those of the second.
    """
    since = session.last_leak_search
    changed, found = (_ask(changed=flag) for flag in (True, False))
    session.last_leak_search = "the last memleaks"
    return with_changes(found, changed, since=since)


def _ask(*, changed: bool) -> LeakSearch:
    said = monitor_text(memcheck.leaks_command(changed=changed)) + "\n"
    if not said.strip():  # under valgrind -q it prints no sums, and here nothing is lost
        return LeakSearch([], {})
    return read_leak_search(said.encode("utf-8", "surrogateescape"))


def _blocks(args: argparse.Namespace) -> None:
    with open_output(args.output, force=args.force) as stream:
        said = monitor_text(memcheck.blocks_command(args.blocks, args.limit))
        blocks = read_blocks(said)
        if not blocks:
            raise TargetError(
                f"there is no loss record {args.blocks} in memcheck's last leak search",
                slug="no-loss-record",
                hint="'memleaks' searches again, and lists the records by number",
            )
        if args.json:
            stream.write(blocks_json(args.blocks, blocks, is_whole=len(blocks) < args.limit))
        else:
            print_blocks(args.blocks, blocks, console_on(stream), is_whole=len(blocks) < args.limit)
