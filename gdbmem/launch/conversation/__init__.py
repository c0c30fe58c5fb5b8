"""The conversation between gdb and its launcher."""
