"""mempython: the Python process or core in gdb."""
