"""Run `gdbmem doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbmem.commands.arguments import ArgumentParser
from gdbmem.errors import ExitStatus
from gdbmem.json_values import as_json
from gdbmem.terminal.console import open_output
from gdbmem.terminal.document import Document, head, to_json
from gdbmem.text import printable

if TYPE_CHECKING:
    from gdbmem.launch.doctor_checks import Check


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    args = parser.parse_args(argv)

    from gdbmem.launch.doctor_checks import check_all  # not needed for --help

    with open_output(args.output, force=args.force) as stream:
        checks = check_all()
        if args.json:
            stream.write(to_json(_document(checks)))
        else:
            stream.writelines(_line(check) for check in checks)
    return _status(checks)


def _status(checks: Sequence[Check]) -> int:
    failed = [check for check in checks if check.needed and not check.ok]
    if any(check.is_tool for check in failed):
        return ExitStatus.MISSING_TOOL
    return ExitStatus.ERROR if failed else ExitStatus.DONE


def _document(checks: Sequence[Check]) -> Document:
    names = ("name", "ok", "needed", "found", "without", "mend")
    return {**head("doctor", ()), "checks": [as_json(check, *names) for check in checks]}


def _line(check: Check) -> str:
    if check.ok:
        return f"{'ok':<8} {check.name:<18} {printable(check.found)}\n"
    word = "missing" if check.needed else "-"
    without = f"; without it {check.without}" if check.without else ""
    mend = f"; {printable(check.mend)}" if check.mend else ""
    return f"{word:<8} {check.name:<18} {printable(check.found)}{without}{mend}\n"
