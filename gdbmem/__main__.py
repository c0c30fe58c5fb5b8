"""The command `gdbmem`: its script begins here, and so does `python -m gdbmem` where that is not in PATH."""

import _signal  # type: ignore[import-not-found]  # what the module signal imports takes milliseconds
import sys


def main() -> int:
    """Run the command; until it handles Ctrl-C, that ends the process at once: by default it would be a traceback."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from gdbmem.cli.start import main as run_command  # only after Ctrl-C is handled

    return run_command()


if __name__ == "__main__":
    sys.exit(main())
