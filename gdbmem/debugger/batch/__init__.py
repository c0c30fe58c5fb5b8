"""Scripts for a batch gdb: names for addresses and types."""
