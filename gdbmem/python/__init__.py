"""Python's objects, arenas, traces and stacks (`gdbmem python`), as text and JSON."""
