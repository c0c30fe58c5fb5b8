"""The `gdbmem` command: one module a subcommand; parses, calls, prints."""
