"""Installation: gdb's Python and its packages, the user's gdbinit, requirements."""
