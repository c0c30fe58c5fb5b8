"""Scripts for a gdb without a user: names for addresses and types."""
