"""What only a gdb that `gdbmem launch` started has: its connection, `run`, and recipes played unattended."""
