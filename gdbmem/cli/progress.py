"""Progress messages on stderr."""

from __future__ import annotations

import contextlib
import sys


def say(sentence: str) -> None:
    """Print *sentence*; a closed stderr does not end the command."""
    with contextlib.suppress(BrokenPipeError):
        print(f"gdbmem: {sentence}", file=sys.stderr, flush=True)
