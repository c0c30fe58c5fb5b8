"""ELF objects in a process's memory, and core files."""
