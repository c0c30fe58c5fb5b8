"""The HTML page of `gdbmem report` and `gdbmem serve`: one self-contained file."""
