"""Imported by each Python that scripts/test --coverage starts, gdb's own too: measures which lines run."""

from __future__ import annotations

try:
    import coverage
except (ImportError, SyntaxError):
    pass  # gdb's Python is older or newer than the one that it was installed for
else:
    coverage.process_startup()
