"""Saying on stderr what a command is about to do."""

from __future__ import annotations

import contextlib
import sys


def say(sentence: str) -> None:
    """Print *sentence*; that nobody reads it any more ends nothing that is under way."""
    with contextlib.suppress(BrokenPipeError):
        print(f"gdbmem: {sentence}", file=sys.stderr, flush=True)
