"""mempython: the Python process or core that gdb holds."""
