"""Valgrind as a child or as a running process."""
