"""Reading Python's memory and stacks in a process or a core."""
