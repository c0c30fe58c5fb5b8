"""Where the shell's `gdbmem` begins: Ctrl-C ends it without a traceback while its own modules are imported, too."""

from __future__ import annotations

import signal


def main() -> int:
    """Run the `gdbmem` command with this process's arguments and return its exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until cli.main takes it
    from gdbmem.cli.main import main as run_command  # not before Ctrl-C is taken care of

    return run_command()
