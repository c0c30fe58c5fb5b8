"""`python -m gdbmem`: the command, where its script is not in PATH."""

import sys

from gdbmem.cli.start import main

if __name__ == "__main__":
    sys.exit(main())
