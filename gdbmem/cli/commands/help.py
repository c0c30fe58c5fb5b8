"""Explain a message by the name in brackets at its end, or show the options of a command.

gdbmem help format-unknown
gdbmem help diff
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gdbmem.arguments import ArgumentParser
from gdbmem.cli.main import SUBCOMMANDS, parser_of
from gdbmem.report.messages import explain_message


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what `gdbmem help` takes."""
    parser.add_argument("name", metavar="SLUG|COMMAND", help="the name of a message, or a command of gdbmem")


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Print the paragraph or the command's help."""
    name = parser.parse_args(argv).name
    sys.stdout.write(parser_of(name).format_help() if name in SUBCOMMANDS else explain_message(name))
    return 0
