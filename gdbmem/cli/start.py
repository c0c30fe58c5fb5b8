"""Entry point of the shell's `gdbmem`: Ctrl-C ends it without a traceback also during its imports."""

from __future__ import annotations

import signal


def main() -> int:
    """Run the `gdbmem` command with this process's arguments and return its exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until cli.main handles it
    from gdbmem.cli.main import main as run_command  # only after Ctrl-C is handled

    return run_command()
