"""Parts of `gdbmem bfc`."""
