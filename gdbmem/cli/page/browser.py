"""Pages shown in the user's browser."""

from __future__ import annotations

import sys


def open_browser(address: str) -> None:
    """Show *address* in a browser; print a message on stderr if none could be started."""
    import webbrowser  # 7 ms

    if not webbrowser.open(address):
        print("gdbmem: no browser could be started to show the page", file=sys.stderr)
