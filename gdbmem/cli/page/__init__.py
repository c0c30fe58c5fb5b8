"""The pages of `gdbmem report` and `gdbmem serve`, chosen by the kind of the operands."""
