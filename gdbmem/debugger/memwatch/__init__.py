"""The memwatch commands: the memory changes by each step, line and function."""
