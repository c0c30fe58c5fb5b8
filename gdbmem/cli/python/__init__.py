"""Parts of `gdbmem python`."""
