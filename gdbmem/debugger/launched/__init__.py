"""Code for a gdb that `gdbmem launch` started: its connection, `run`, and unattended recipes."""
