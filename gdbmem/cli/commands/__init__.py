"""The subcommands of `gdbmem`, one module each."""
