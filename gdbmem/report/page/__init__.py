"""The HTML page of `gdbmem report`."""
