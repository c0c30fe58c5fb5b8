"""The pages of `gdbmem report` and `gdbmem serve`, chosen by what the operands are."""
