"""Attaching gdb to a process that runs already, and releasing it."""
