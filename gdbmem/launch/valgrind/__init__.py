"""Valgrind as a child or as a process that runs already."""
