"""membfc: pools of best-fit allocators in the process or core that gdb holds."""
