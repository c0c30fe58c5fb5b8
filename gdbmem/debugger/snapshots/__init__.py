"""Heap snapshots at gdb's prompt and at breakpoints, and leak searches."""
